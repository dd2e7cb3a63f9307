//! One self-contained page: no script, no font and no picture from elsewhere.

use std::io::Write;

use sexton_core::finding::{Evidence, Verdict};

use super::{
    CountersSeen, Loop, Report, circulating, owner, rate, read, sentence,
    svg::{self, Line},
    verdict_text, way,
};
use crate::output::{count, escape};

/// Colours that are told apart with either background, also by most who see fewer of them.
pub(in crate::output) const STYLE: &str = ":root{--text:#1d2430;--back:#fff;--soft:#5b6472;--card:#f5f6f8;--line:#d8dce3;--bad:#b3261e;--warn:#a15c00;\
--unsure:#7b3fa0;--good:#2e7d5b;--c0:#0b62a8;--c1:#c4501b;--c2:#2e7d5b;--c3:#8e44ad;--c4:#a67c00;--c5:#c2185b;--c6:#00838f;--c7:#6d4c41}\
@media(prefers-color-scheme:dark){:root{--text:#e4e7ec;--back:#14171c;--soft:#a3acba;--card:#1d2128;--line:#3a404b;--bad:#ff8a80;\
--warn:#ffb74d;--unsure:#ce93d8;--good:#81c995;--c0:#6cb6ff;--c1:#ff9e6d;--c2:#81c995;--c3:#d5a6f0;--c4:#f2cc60;--c5:#ff8ab3;\
--c6:#5fd3dd;--c7:#c9a28f}}\
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:var(--text);background:var(--back)}\
h1{font-size:1.4rem;margin:0}h2{font-size:1.15rem;margin:.3rem 0}h3{font-size:1rem;margin:1rem 0 .2rem}\
.answer{font-size:1.15rem;font-weight:600;border-left:5px solid var(--good);padding:.3rem .9rem;background:var(--card)}\
.proved{border-color:var(--bad)}.suspected{border-color:var(--warn)}.unknown{border-color:var(--unsure)}\
section{border-left:5px solid var(--line);padding:.3rem 1rem .6rem;margin:1.4rem 0;background:var(--card)}\
.tag{font-size:.8rem;font-weight:600;padding:.05rem .5rem;border:1px solid currentColor;border-radius:1rem;vertical-align:middle}\
.tag.proved{color:var(--bad)}.tag.suspected{color:var(--warn)}.tag.unknown{color:var(--unsure)}.tag.none{color:var(--good)}\
small,figcaption{color:var(--soft)}table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid var(--line);padding:.2rem .6rem;text-align:left}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}code{font-family:ui-monospace,monospace;font-size:.9em;overflow-wrap:anywhere}\
.wide{overflow-x:auto}figure{margin:1rem 0}svg{width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:var(--soft)}\
.grid{stroke:var(--line)}.l{fill:none;stroke-width:1.8;stroke-linejoin:round}\
.l0{stroke:var(--c0)}.l1{stroke:var(--c1);stroke-dasharray:6 3}.l2{stroke:var(--c2)}.l3{stroke:var(--c3);stroke-dasharray:6 3}.l4{stroke:var(--c4)}\
.l5{stroke:var(--c5);stroke-dasharray:6 3}.l6{stroke:var(--c6)}.l7{stroke:var(--c7);stroke-dasharray:6 3}\
.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}.f4{fill:var(--c4)}.f5{fill:var(--c5)}.f6{fill:var(--c6)}.f7{fill:var(--c7)}\
.b0{background:var(--c0)}.b1{background:var(--c1)}.b2{background:var(--c2)}.b3{background:var(--c3)}.b4{background:var(--c4)}\
.b5{background:var(--c5)}.b6{background:var(--c6)}.b7{background:var(--c7)}\
.legend{list-style:none;padding:0;margin:.2rem 0;columns:20rem;font-size:.9rem}.legend li{break-inside:avoid}\
.swatch{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin-right:.4rem}ul.evidence{padding-left:1.2rem;margin:.3rem 0}\
@media print{body{max-width:none}section{break-inside:avoid}}";

/// The class of a verdict.
pub(in crate::output) fn class(verdict: Option<Verdict>) -> &'static str {
    match verdict {
        Some(Verdict::Proved) => "proved",
        Some(Verdict::Suspected) => "suspected",
        Some(_) => "unknown",
        None => "none",
    }
}

/// The beginning of a page.
pub(in crate::output) fn head(title: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    Ok(writeln!(
        out,
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width,initial-scale=1\">\
         <meta name=color-scheme content=\"light dark\"><title>Sexton: {}</title><style>{STYLE}</style>",
        escape(title)
    )?)
}

pub(super) fn write(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let node = report.node.as_deref().unwrap_or("of an unknown name");
    head(&format!("packets that circulate, node {node}"), out)?;
    writeln!(out, "<h1>Node {}</h1>", escape(node))?;
    if let Some(at) = report.taken_at {
        writeln!(out, "<p><small>recorded at {at:.0}</small></p>")?;
    }
    writeln!(
        out,
        "<p class=\"answer {}\">{}</p>",
        class(report.verdict),
        escape(&report.answer)
    )?;
    for one in &report.loops {
        write_loop(one, out)?;
    }
    for counters in &report.counters {
        write_counters(counters, out)?;
    }
    writeln!(out, "<h2>Read</h2><ul class=evidence>")?;
    for capture in &report.captures {
        writeln!(
            out,
            "<li><code>{}</code>: {}",
            escape(&capture.path),
            escape(&read(capture))
        )?;
    }
    for counters in &report.counters {
        writeln!(
            out,
            "<li><code>{}</code>: {}",
            escape(&counters.path),
            count(counters.samples as u64, "sample")
        )?;
    }
    for problem in &report.problems {
        writeln!(
            out,
            "<li>input <code>{}</code>: {}",
            escape(&problem.place),
            escape(&problem.what)
        )?;
    }
    for unread in &report.unread {
        writeln!(
            out,
            "<li>unread <code>{}</code>: {}",
            escape(&unread.path),
            escape(&unread.why)
        )?;
    }
    Ok(writeln!(out, "</ul></html>")?)
}

fn write_loop(one: &Loop, out: &mut dyn Write) -> anyhow::Result<()> {
    let class = class(one.verdict);
    writeln!(
        out,
        "<section class={class}><h2>{} <span class=\"tag {class}\">{}</span></h2><p>{}.</p><ul class=evidence><li>{}",
        one.address,
        verdict_text(one.verdict),
        escape(&sentence(&one.text)),
        escape(&circulating(one))
    )?;
    for line in way(one)
        .into_iter()
        .chain(owner(one).map(|owner| format!("last owner: {owner}")))
    {
        writeln!(out, "<li>{}", escape(&line))?;
    }
    writeln!(out, "</ul>{}", picture(one))?;
    writeln!(
        out,
        "<div class=wide><table><tr><th>flow<th>flags<th class=n>packets<th class=n>a second</tr>"
    )?;
    const SHOWN: usize = 50;
    for flow in one.flows.iter().take(SHOWN) {
        writeln!(
            out,
            "<tr><td><code>{}</code><td>{}<td class=n>{}<td class=n>{}",
            escape(&flow.flow),
            escape(flow.flags.as_deref().unwrap_or("-")),
            flow.packets,
            rate(flow.packets_per_second)
        )?;
    }
    writeln!(out, "</table></div>")?;
    if one.flows.len() > SHOWN {
        writeln!(
            out,
            "<p>and {} more</p>",
            count((one.flows.len() - SHOWN) as u64, "flow")
        )?;
    }
    lines(&one.evidence, &one.lacks, out)?;
    Ok(writeln!(out, "</section>")?)
}

/// Packets a second over time, a line a flow.
fn picture(one: &Loop) -> String {
    let timed = || {
        one.flows
            .iter()
            .filter_map(|flow| Some((flow, flow.timeline.as_ref()?)))
    };
    let Some(first) = timed().map(|(_, timeline)| timeline.start).min() else {
        return String::new();
    };
    #[expect(clippy::cast_precision_loss, reason = "for a picture")]
    let drawn: Vec<Line> = timed()
        .take(svg::COLOURS)
        .map(|(flow, timeline)| Line {
            label: flow.flow.clone(),
            points: timeline
                .rates()
                .into_iter()
                .map(|(at, rate)| ((at - first) as f64 / 1e9, rate))
                .collect(),
        })
        .collect();
    let all = one.flows.len();
    let title = if drawn.len() < all {
        format!("the {} busiest of {all} flows", drawn.len())
    } else {
        "flows".to_owned()
    };
    svg::lines(&title, "packets a second over time", &drawn)
}

fn write_counters(counters: &CountersSeen, out: &mut dyn Write) -> anyhow::Result<()> {
    let class = class(counters.verdict);
    writeln!(
        out,
        "<section class={class}><h2><code>{}</code> <span class=\"tag {class}\">{}</span></h2>",
        escape(&counters.path),
        verdict_text(counters.verdict)
    )?;
    if let Some(why) = &counters.explained {
        writeln!(out, "<p>It looks like a loop and is none: {}.</p>", escape(why))?;
    }
    let drawn: Vec<Line> = counters
        .series
        .iter()
        .map(|series| Line {
            label: series.label.clone(),
            points: series.values.clone(),
        })
        .collect();
    writeln!(
        out,
        "{}",
        svg::lines("in against out", "packets a second over time", &drawn)
    )?;
    let cores: Vec<(String, f64)> = counters
        .cores
        .iter()
        .map(|core| (core.name.clone(), core.percent))
        .collect();
    writeln!(
        out,
        "{}",
        svg::bars(
            "time in interrupts of each core",
            "percent of the core",
            100.0,
            &cores
        )
    )?;
    lines(&counters.evidence, &counters.lacks, out)?;
    Ok(writeln!(out, "</section>")?)
}

fn lines(evidence: &[Evidence], lacks: &[String], out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "<ul class=evidence>")?;
    for line in evidence {
        writeln!(
            out,
            "<li><small>{}</small> {}",
            escape(&line.source),
            escape(&line.text)
        )?;
    }
    for lack in lacks {
        writeln!(out, "<li><b>lacks</b> {}", escape(lack))?;
    }
    Ok(writeln!(out, "</ul>")?)
}
