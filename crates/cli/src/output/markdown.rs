//! For a ticket.

use std::io::Write;

use sexton_core::{model::Completeness, report::Report};

use super::{headline, plain};

pub(super) fn write(report: &Report, blind: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "# Node {}\n", plain(&report.node))?;
    if let Some(at) = report.taken_at {
        writeln!(out, "Read at {at:.0}.\n")?;
    }
    writeln!(out, "{}\n", plain(&headline(report, blind)))?;
    for finding in &report.findings {
        writeln!(out, "## {}: {}\n", finding.rule, finding.verdict)?;
        writeln!(out, "```\n{}\n```\n", finding.text().replace("```", "'''"))?;
        writeln!(out, "{}\n", plain(&finding.consequence))?;
        if let Some(owner) = &finding.owner {
            writeln!(out, "- owner: {}", plain(&owner.pod_name().to_string()))?;
        }
        if let Some(why) = &finding.why_not_repair {
            writeln!(out, "- not repaired: {}", plain(why))?;
        }
        for evidence in &finding.evidence {
            writeln!(out, "- {}: {}", plain(&evidence.source), plain(&evidence.text))?;
        }
        if let Some(repair) = &finding.repair {
            writeln!(out, "\nA repair would:\n\n```\n{}\n```", repair.action)?;
        }
        writeln!(out)?;
    }
    writeln!(out, "## Looked at\n\n| kind | objects |\n|---|---|")?;
    for (kind, number) in &report.summary.by_kind {
        writeln!(out, "| {kind} | {number} |")?;
    }
    writeln!(
        out,
        "\n## Sources\n\n| source | read | items | ms |\n|---|---|---|---|"
    )?;
    for source in &report.sources {
        let read = match &source.completeness {
            Completeness::Complete => "complete".to_owned(),
            Completeness::Partial(why) => format!("partial: {}", plain(why)),
            Completeness::Unavailable(why) => format!("unavailable: {}", plain(why)),
        };
        writeln!(
            out,
            "| {} | {read} | {} | {:.1} |",
            plain(&source.name),
            source.items,
            source.took_ms
        )?;
    }
    for problem in &report.problems {
        writeln!(
            out,
            "\n- input {}: {}",
            plain(&problem.place),
            plain(&problem.what)
        )?;
    }
    for unread in &report.unread {
        writeln!(out, "\n- unread {}: {}", plain(&unread.path), plain(&unread.why))?;
    }
    Ok(())
}
