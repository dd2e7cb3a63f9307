//! One self-contained page: no script, no font and no picture from elsewhere.

use std::io::Write;

use sexton_core::{finding::Action, model::Completeness, report::Report};

use super::{escape, headline};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1d2430}\
h1{font-size:1.5rem}section{border-left:4px solid #999;padding:.2rem 1rem;margin:1.2rem 0;background:#f7f8fa}\
section.stale,section.conflict,section.proved{border-color:#c0392b}section.missing,section.suspected{border-color:#d68910}\
section.unknown{border-color:#8e44ad}pre{background:#fff;border:1px solid #dde;padding:.5rem;overflow-x:auto}\
table{border-collapse:collapse}td,th{border:1px solid #dde;padding:.2rem .6rem;text-align:left}\
.bar{height:.9rem;background:#2e7d5b;display:inline-block}.bar.wrong{background:#c0392b}small{color:#667}";

pub(super) fn write(report: &Report, blind: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let node = escape(&report.node);
    writeln!(
        out,
        "<!doctype html><html lang=en><meta charset=utf-8><title>Sexton: {node}</title><style>{STYLE}</style>"
    )?;
    writeln!(
        out,
        "<h1>Node {node}</h1><p><strong>{}</strong></p>",
        escape(&headline(report, blind))
    )?;
    if let Some(at) = report.taken_at {
        writeln!(out, "<p><small>read at {at:.0}</small></p>")?;
    }
    write_picture(report, out)?;
    for finding in &report.findings {
        writeln!(
            out,
            "<section class={}><h2>{} <small>{}</small></h2>",
            finding.verdict, finding.rule, finding.verdict
        )?;
        writeln!(
            out,
            "<pre>{}</pre><p>{}</p><ul>",
            escape(finding.text()),
            escape(&finding.consequence)
        )?;
        if let Some(owner) = &finding.owner {
            writeln!(out, "<li>owner: {}", escape(&owner.pod_name().to_string()))?;
        }
        if let Some(why) = &finding.why_not_repair {
            writeln!(out, "<li>not repaired: {}", escape(why))?;
        }
        for evidence in &finding.evidence {
            writeln!(
                out,
                "<li><small>{}</small> {}",
                escape(&evidence.source),
                escape(&evidence.text)
            )?;
        }
        writeln!(out, "</ul>")?;
        if let Some(repair) = finding
            .repair
            .as_ref()
            .filter(|_| finding.action == Action::Repair)
        {
            writeln!(out, "<p>A repair would:</p><pre>{}</pre>", escape(&repair.action))?;
        }
        writeln!(out, "</section>")?;
    }
    writeln!(
        out,
        "<h2>Sources</h2><table><tr><th>source<th>read<th>items<th>ms"
    )?;
    for source in &report.sources {
        let read = match &source.completeness {
            Completeness::Complete => "complete".to_owned(),
            Completeness::Partial(why) => format!("partial: {why}"),
            Completeness::Unavailable(why) => format!("unavailable: {why}"),
        };
        let (name, read) = (escape(&source.name), escape(&read));
        writeln!(
            out,
            "<tr><td>{name}<td>{read}<td>{}<td>{:.1}",
            source.items, source.took_ms
        )?;
    }
    writeln!(out, "</table><ul>")?;
    for problem in &report.problems {
        writeln!(
            out,
            "<li>input {}: {}",
            escape(&problem.place),
            escape(&problem.what)
        )?;
    }
    for unread in &report.unread {
        writeln!(
            out,
            "<li>unread {}: {}",
            escape(&unread.path),
            escape(&unread.why)
        )?;
    }
    writeln!(out, "</ul></html>")?;
    Ok(())
}

/// Objects by kind, with the wrong part of each in red.
fn write_picture(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let most = report.summary.by_kind.values().copied().max().unwrap_or(0).max(1);
    writeln!(out, "<table>")?;
    for (kind, number) in &report.summary.by_kind {
        let wrong = report
            .findings
            .iter()
            .filter(|f| f.object.get("kind").and_then(|k| k.as_str()) == Some(kind.as_str()));
        let wrong = (wrong.count() as u64).min(*number);
        let width = |n: u64| (n as f64 / most as f64 * 24.0).max(if n > 0 { 0.2 } else { 0.0 });
        writeln!(
            out,
            "<tr><td>{kind}<td>{number}<td><span class=\"bar wrong\" style=\"width:{:.2}rem\"></span><span class=bar style=\"width:{:.2}rem\"></span>",
            width(wrong),
            width(number - wrong)
        )?;
    }
    writeln!(out, "</table>")?;
    Ok(())
}
