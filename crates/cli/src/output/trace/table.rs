//! For a terminal.

use std::io::Write;

use comfy_table::{ContentArrangement, Table, presets};
use owo_colors::{OwoColorize as _, Style};
use sexton_core::finding::{Evidence, Verdict};

use super::{Loop, Report, circulating, owner, rate, read, verdict_text, way};
use crate::output::count;

pub(super) fn write(report: &Report, verbose: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "{}", report.answer.bold())?;
    for one in &report.loops {
        write_loop(one, verbose, out)?;
    }
    for counters in &report.counters {
        writeln!(out, "\n{} {}", verdict(counters.verdict), counters.path.bold())?;
        if let Some(why) = &counters.explained {
            writeln!(out, "  it looks like a loop and is none: {why}")?;
        }
        write_lines("", &counters.evidence, &counters.lacks, out)?;
    }
    writeln!(out)?;
    for capture in &report.captures {
        writeln!(out, "{} {}: {}", "read".dimmed(), capture.path, read(capture))?;
    }
    for counters in &report.counters {
        writeln!(
            out,
            "{} {}: {}",
            "read".dimmed(),
            counters.path,
            count(counters.samples as u64, "sample")
        )?;
    }
    for problem in &report.problems {
        writeln!(out, "{} {}: {}", "input".yellow(), problem.place, problem.what)?;
    }
    if verbose {
        for unread in &report.unread {
            writeln!(out, "{} {}: {}", "unread".dimmed(), unread.path, unread.why)?;
        }
    }
    Ok(())
}

fn verdict(verdict: Option<Verdict>) -> String {
    let style = match verdict {
        Some(Verdict::Proved) => Style::new().red().bold(),
        Some(Verdict::Suspected) => Style::new().yellow().bold(),
        Some(_) => Style::new().magenta(),
        None => Style::new().dimmed(),
    };
    verdict_text(verdict).style(style).to_string()
}

fn write_loop(one: &Loop, verbose: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(
        out,
        "\n{} {} {}",
        verdict(one.verdict),
        one.address.bold(),
        one.text
    )?;
    writeln!(out, "  {}", circulating(one))?;
    if let Some(way) = way(one) {
        writeln!(out, "  {way}")?;
    }
    if let Some(owner) = owner(one) {
        writeln!(out, "  last owner: {owner}")?;
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["  FLOW", "FLAGS", "PACKETS", "PER SECOND"]);
    const SHOWN: usize = 20;
    for flow in one.flows.iter().take(if verbose { usize::MAX } else { SHOWN }) {
        table.add_row([
            format!("  {}", flow.flow),
            flow.flags.clone().unwrap_or_else(|| "-".to_owned()),
            flow.packets.to_string(),
            rate(flow.packets_per_second),
        ]);
    }
    writeln!(out, "{table}")?;
    if !verbose && one.flows.len() > SHOWN {
        writeln!(
            out,
            "  and {} more",
            count((one.flows.len() - SHOWN) as u64, "flow")
        )?;
    }
    write_lines("", &one.evidence, &one.lacks, out)
}

fn write_lines(
    indent: &str,
    evidence: &[Evidence],
    lacks: &[String],
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    for line in evidence {
        writeln!(
            out,
            "{indent}  {} {}",
            format!("{}:", line.source).dimmed(),
            line.text
        )?;
    }
    for lack in lacks {
        writeln!(out, "{indent}  {} {lack}", "lacks:".yellow())?;
    }
    Ok(())
}
