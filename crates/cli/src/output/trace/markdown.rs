//! For a ticket.

use std::io::Write;

use sexton_core::finding::Evidence;

use super::{Report, circulating, owner, rate, read, sentence, verdict_text, way};
use crate::output::{count, plain};

pub(super) fn write(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let node = report.node.as_deref().unwrap_or("of an unknown name");
    writeln!(out, "# Packets that circulate: node {}\n", plain(node))?;
    if let Some(at) = report.taken_at {
        writeln!(out, "Recorded at {at:.0}.\n")?;
    }
    writeln!(out, "**{}**\n", plain(&report.answer))?;
    for one in &report.loops {
        writeln!(out, "## {}: {}\n", one.address, verdict_text(one.verdict))?;
        writeln!(out, "{}.\n", plain(&sentence(&one.text)))?;
        writeln!(out, "- {}", circulating(one))?;
        for line in way(one)
            .into_iter()
            .chain(owner(one).map(|owner| format!("last owner: {owner}")))
        {
            writeln!(out, "- {}", plain(&line))?;
        }
        writeln!(
            out,
            "\n| flow | flags | packets | a second |\n|---|---|---:|---:|"
        )?;
        const SHOWN: usize = 50;
        for flow in one.flows.iter().take(SHOWN) {
            writeln!(
                out,
                "| {} | {} | {} | {} |",
                plain(&flow.flow),
                flow.flags.as_deref().unwrap_or("-"),
                flow.packets,
                rate(flow.packets_per_second)
            )?;
        }
        if one.flows.len() > SHOWN {
            writeln!(
                out,
                "\nand {} more.",
                count((one.flows.len() - SHOWN) as u64, "flow")
            )?;
        }
        lines(&one.evidence, &one.lacks, out)?;
    }
    for counters in &report.counters {
        writeln!(
            out,
            "## {}: {}\n",
            plain(&counters.path),
            verdict_text(counters.verdict)
        )?;
        if let Some(why) = &counters.explained {
            writeln!(out, "It looks like a loop and is none: {}.\n", plain(why))?;
        }
        lines(&counters.evidence, &counters.lacks, out)?;
    }
    writeln!(out, "## Read\n")?;
    for capture in &report.captures {
        writeln!(out, "- {}: {}", plain(&capture.path), plain(&read(capture)))?;
    }
    for counters in &report.counters {
        writeln!(
            out,
            "- {}: {}",
            plain(&counters.path),
            count(counters.samples as u64, "sample")
        )?;
    }
    for problem in &report.problems {
        writeln!(out, "- input {}: {}", plain(&problem.place), plain(&problem.what))?;
    }
    for unread in &report.unread {
        writeln!(out, "- unread {}: {}", plain(&unread.path), plain(&unread.why))?;
    }
    Ok(())
}

fn lines(evidence: &[Evidence], lacks: &[String], out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out)?;
    for line in evidence {
        writeln!(out, "- {}: {}", plain(&line.source), plain(&line.text))?;
    }
    for lack in lacks {
        writeln!(out, "- lacks: {}", plain(lack))?;
    }
    Ok(writeln!(out)?)
}
