//! Reports on paper: a table, JSON, Markdown, HTML. All are drawn from the one document.

mod html;
mod markdown;
mod table;
pub mod trace;

use std::{collections::BTreeMap, io::Write};

use sexton_core::{finding::Action, model::Completeness, report::Report};

use crate::args::Format;

/// Writes a report. `blind`: something that judging needs was not read whole.
pub fn write(
    report: &Report,
    format: Format,
    blind: bool,
    verbose: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    match format {
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, report)?;
            writeln!(out)?;
        }
        Format::Table => table::write(report, blind, verbose, out)?,
        Format::Markdown => markdown::write(report, blind, out)?,
        Format::Html => html::write(report, blind, out)?,
    }
    Ok(())
}

/// Text inside of HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Text inside a table cell or line: what would be Markdown's own is escaped.
fn plain(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('|', "\\|")
        .replace('<', "&lt;")
        .replace('\n', " ")
}

/// `1 rule`, `2 rules`.
pub fn count(number: u64, noun: &str) -> String {
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {noun}s")
    }
}

/// Sources that were not read whole, as `(partial or unavailable, their names, why)`; those of one reason together.
pub fn gaps_by_reason<'a>(
    sources: impl Iterator<Item = (&'a Completeness, &'a str)>,
) -> Vec<(&'static str, Vec<&'a str>, &'a str)> {
    let mut by_reason: BTreeMap<(&'static str, &str), Vec<&str>> = BTreeMap::new();
    for (completeness, name) in sources {
        let word = match completeness {
            Completeness::Complete => continue,
            Completeness::Partial(_) => "partial",
            Completeness::Unavailable(_) => "unavailable",
        };
        let why = completeness.why().unwrap_or_default();
        by_reason.entry((word, why)).or_default().push(name);
    }
    by_reason
        .into_iter()
        .map(|((word, why), names)| (word, names, why))
        .collect()
}

/// What to type next, where something was found or could not be read; for a person at a terminal.
pub fn next_step(report: &Report, blind: bool, recorded: bool) -> Option<String> {
    if let Some(first) = report.findings.first() {
        let repair = report.findings.iter().find(|f| f.action == Action::Repair);
        let explain = |rule: &str| format!("sexton explain {rule}   how it comes about, what to do by hand");
        return Some(match repair {
            Some(finding) => format!(
                "next:\n  sexton plan --out plan.json   the steps of a repair; changes nothing\n  {}",
                explain(&finding.rule)
            ),
            None if recorded => format!(
                "next:\n  {}\n  and on the node itself, as root: sexton audit",
                explain(&first.rule)
            ),
            None => format!("next:\n  {}", explain(&first.rule)),
        });
    }
    let more = if recorded {
        "record more of the node: `sexton collect` on it, as root"
    } else {
        "run it as root on the node, with --kubeconfig where the kubelet's own is not found"
    };
    blind.then(|| format!("next:\n  {more}"))
}

/// One line that answers: how many findings of what verdict, among how many objects. `blind`: something that judging
/// needs was not read whole, so that finding nothing says little.
pub fn headline(report: &Report, blind: bool) -> String {
    let looked = count(report.summary.objects, "object");
    if report.findings.is_empty() {
        let but = if blind {
            ", but sources that are needed were not read whole: this is no all-clear"
        } else {
            ""
        };
        return format!(
            "Nothing stale was found among {looked} of node {}{but}.",
            report.node
        );
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
        .filter(|f| f.action == Action::Repair)
        .count();
    format!(
        "{} on node {} ({}), {repairable} of them repairable, among {looked}.",
        count(report.findings.len() as u64, "finding"),
        report.node,
        verdicts.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use sexton_core::{finding::Verdict, model::NodeState, report::Entry};

    use super::*;

    fn next(found: &[(&str, Action)], blind: bool, recorded: bool) -> String {
        let mut report = Report::new(&NodeState::default(), &[]);
        report.findings = found
            .iter()
            .map(|(rule, action)| Entry {
                id: String::new(),
                rule: (*rule).to_owned(),
                verdict: Verdict::Stale,
                action: *action,
                why_not_repair: None,
                object: serde_json::Map::new(),
                owner: None,
                consequence: String::new(),
                evidence: Vec::new(),
                witnesses: Vec::new(),
                repair: None,
            })
            .collect();
        next_step(&report, blind, recorded).unwrap_or_default()
    }

    #[test]
    fn the_next_step_fits_what_was_found() {
        let both = [("a", Action::Report), ("b", Action::Repair)];
        let text = next(&both, false, false);
        assert!(
            text.contains("sexton plan ") && text.contains("sexton explain b "),
            "{text}"
        );
        let text = next(&both[..1], false, false);
        assert!(
            !text.contains("sexton plan") && text.contains("sexton explain a "),
            "{text}"
        );
        let text = next(&both[..1], false, true);
        assert!(
            text.contains("sexton explain a ") && text.contains("on the node itself"),
            "{text}"
        );
    }

    #[test]
    fn where_nothing_could_be_read_the_next_step_is_to_read_more() {
        assert!(next(&[], true, false).contains("as root on the node"));
        assert!(next(&[], true, true).contains("sexton collect"));
        assert_eq!(next(&[], false, false), "");
    }
}
