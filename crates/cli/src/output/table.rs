//! For a terminal: the answer first, then each rule with its findings, then what it rests on.

use std::io::Write;

use comfy_table::{ContentArrangement, Table, presets};
use owo_colors::{OwoColorize as _, Style};
use sexton_core::{
    finding::{Action, Verdict},
    model::Completeness,
    report::{Entry, Report},
};

use super::{count, gaps_by_reason, headline};

fn style(verdict: Verdict) -> Style {
    match verdict {
        Verdict::Stale | Verdict::Conflict | Verdict::Proved => Style::new().red().bold(),
        Verdict::Missing | Verdict::Suspected => Style::new().yellow().bold(),
        Verdict::Unknown => Style::new().magenta(),
        Verdict::Advice => Style::new().cyan(),
    }
}

pub(super) fn write(report: &Report, blind: bool, verbose: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "{}", headline(report, blind).bold())?;
    let mut rules: Vec<&str> = report.findings.iter().map(|f| f.rule.as_str()).collect();
    rules.dedup();
    for rule in rules {
        let of_rule: Vec<&Entry> = report.findings.iter().filter(|f| f.rule == rule).collect();
        write_rule(rule, &of_rule, verbose, out)?;
    }
    write_looked_at(report, out)?;
    write_sources(report, verbose, out)?;
    for problem in &report.problems {
        writeln!(out, "{} {}: {}", "input".yellow(), problem.place, problem.what)?;
    }
    for unread in &report.unread {
        writeln!(out, "{} {}: {}", "unread".dimmed(), unread.path, unread.why)?;
    }
    Ok(())
}

fn write_rule(rule: &str, findings: &[&Entry], verbose: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(
        out,
        "\n{} ({})",
        rule.bold().underline(),
        count(findings.len() as u64, "finding")
    )?;
    // What is the same for all of a rule's findings is said once, at its end.
    let shared = |line: &dyn Fn(&Entry) -> Option<String>| -> Option<String> {
        let first = line(findings.first()?)?;
        let same = findings.iter().all(|f| line(f).as_ref() == Some(&first));
        (findings.len() > 1 && same).then_some(first)
    };
    let (owner, why) = (shared(&owner_line), shared(&why_line));
    for finding in findings {
        let verdict = finding.verdict.to_string();
        let action = match finding.action {
            Action::Repair => "repair".green().to_string(),
            Action::Report => "report".dimmed().to_string(),
        };
        writeln!(
            out,
            "  {} {} {}",
            verdict.style(style(finding.verdict)),
            action,
            finding.id.dimmed()
        )?;
        for line in finding.text().lines() {
            writeln!(out, "    {line}")?;
        }
        writeln!(out, "    {}", finding.consequence)?;
        for line in owner_line(finding)
            .filter(|_| owner.is_none())
            .into_iter()
            .chain(why_line(finding).filter(|_| why.is_none()))
        {
            writeln!(out, "    {line}")?;
        }
        if verbose {
            for evidence in &finding.evidence {
                writeln!(
                    out,
                    "    {} {}",
                    format!("{}:", evidence.source).dimmed(),
                    evidence.text
                )?;
            }
            if let Some(repair) = &finding.repair {
                for line in repair.action.lines() {
                    writeln!(out, "    {} {line}", "would:".green())?;
                }
            }
        }
    }
    for line in owner.into_iter().chain(why) {
        writeln!(out, "  all: {line}")?;
    }
    Ok(())
}

fn owner_line(finding: &Entry) -> Option<String> {
    let owner = finding.owner.as_ref()?;
    let uid = owner.uid.as_ref().map(|u| format!(" {u}")).unwrap_or_default();
    let ended = owner
        .ended_at
        .map(|at| format!(", ended by {at:.0}"))
        .unwrap_or_default();
    Some(format!("owner: {}{uid}{ended}", owner.pod_name()))
}

fn why_line(finding: &Entry) -> Option<String> {
    finding
        .why_not_repair
        .as_ref()
        .map(|why| format!("not repaired: {why}"))
}

fn write_looked_at(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let kinds: Vec<String> = report
        .summary
        .by_kind
        .iter()
        .map(|(kind, n)| format!("{kind} {n}"))
        .collect();
    writeln!(out, "\nlooked at: {}", kinds.join(", "))?;
    Ok(())
}

fn write_sources(report: &Report, verbose: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let gaps: Vec<_> = report
        .sources
        .iter()
        .filter(|s| s.completeness != Completeness::Complete)
        .collect();
    if verbose {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(["source", "read", "items", "ms"]);
        for source in &report.sources {
            let read = match &source.completeness {
                Completeness::Complete => "complete".to_owned(),
                Completeness::Partial(why) => format!("partial: {why}"),
                Completeness::Unavailable(why) => format!("unavailable: {why}"),
            };
            let (items, took) = (source.items.to_string(), format!("{:.1}", source.took_ms));
            table.add_row([source.name.clone(), read, items, took]);
        }
        writeln!(out, "\n{table}")?;
        return Ok(());
    }
    let read = report.sources.len() - gaps.len();
    writeln!(
        out,
        "sources: {read} of {} read whole (--verbose lists them)",
        report.sources.len()
    )?;
    let gaps = gaps.iter().map(|s| (&s.completeness, s.name.as_str()));
    for (word, names, why) in gaps_by_reason(gaps) {
        writeln!(out, "  {} {}: {why}", word.yellow(), names.join(", "))?;
    }
    Ok(())
}
