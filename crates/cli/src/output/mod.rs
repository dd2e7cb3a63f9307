//! Reports on paper: a table, JSON, Markdown, HTML. All are drawn from the one document.

mod html;
mod markdown;
mod table;
pub mod trace;

use std::io::Write;

use sexton_core::report::Report;

use crate::args::Format;

/// Writes a report.
pub fn write(report: &Report, format: Format, verbose: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    match format {
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, report)?;
            writeln!(out)?;
        }
        Format::Table => table::write(report, verbose, out)?,
        Format::Markdown => markdown::write(report, out)?,
        Format::Html => html::write(report, out)?,
    }
    Ok(())
}

/// `1 rule`, `2 rules`.
pub fn count(number: u64, noun: &str) -> String {
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {noun}s")
    }
}

/// One line that answers: how many findings of what verdict, among how many objects.
pub fn headline(report: &Report) -> String {
    let looked = count(report.summary.objects, "object");
    if report.findings.is_empty() {
        return format!("Nothing stale was found among {looked} of node {}.", report.node);
    }
    let verdicts: Vec<String> = report
        .summary
        .by_verdict
        .iter()
        .map(|(verdict, n)| format!("{n} {verdict}"))
        .collect();
    let repairable = report
        .findings
        .iter()
        .filter(|f| f.action == sexton_core::finding::Action::Repair)
        .count();
    format!(
        "{} on node {} ({}), {repairable} of them repairable, among {looked}.",
        count(report.findings.len() as u64, "finding"),
        report.node,
        verdicts.join(", ")
    )
}
