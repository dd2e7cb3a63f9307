//! A trace on paper: the answer, then each loop with its flows, then the counters and what was read.

pub mod fleet;
mod html;
mod markdown;
pub mod redact;
mod svg;
mod table;
pub mod vendor;

use std::io::Write;

use serde::Serialize;
use sexton_core::{
    finding::{Evidence, Owner, Verdict},
    judge::Judge,
    model::{Completeness, CounterFile, CounterKind, Flow, Problem, Timeline, Timestamp, Unread, flags_text},
    traffic::{self, Core, Pair, Sighting, Suspicion, rank},
};

use super::count;
use crate::args::Format;

/// The document, `sexton.dev/trace/v1`.
#[derive(Serialize)]
pub struct Report {
    schema: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// The worst of all verdicts.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<Verdict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    taken_at: Option<Timestamp>,
    answer: String,
    loops: Vec<Loop>,
    counters: Vec<CountersSeen>,
    captures: Vec<Capture>,
    problems: Vec<Problem>,
    unread: Vec<Unread>,
}

/// A destination of packets that came again and again.
#[derive(Serialize)]
pub struct Loop {
    capture: String,
    address: std::net::IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<Verdict>,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<Owner>,
    packets: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    packets_per_second: Option<f64>,
    circulating: u64,
    circulating_exact: bool,
    turns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn_ns: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_falls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enters: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leaves: Option<String>,
    flows: Vec<FlowSeen>,
    evidence: Vec<Evidence>,
    lacks: Vec<String>,
}

#[derive(Serialize)]
struct FlowSeen {
    flow: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    flags: Option<String>,
    packets: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    packets_per_second: Option<f64>,
    /// How many passed when.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeline: Option<Timeline>,
}

impl Loop {
    /// A destination with its verdict.
    fn new(one: &Sighting<'_>) -> Self {
        let Sighting {
            capture,
            destination,
            residence,
            judgement,
        } = one;
        let flow = |flow: &Flow| FlowSeen {
            flow: flow.key.to_string(),
            flags: flow.flags.map(flags_text),
            packets: flow.packets,
            bytes: flow.bytes,
            packets_per_second: flow.rate(),
            timeline: flow.timeline.clone(),
        };
        Self {
            capture: capture.path.clone(),
            address: destination.address,
            verdict: judgement.verdict,
            text: judgement.text.clone(),
            owner: residence.owner.clone(),
            packets: destination.packets,
            packets_per_second: destination.rate,
            circulating: destination.circulating,
            circulating_exact: destination.circulating_exact,
            turns: destination.turns,
            turn_ns: destination.period,
            ttl_falls: destination.ttl_falls,
            enters: destination.enters.map(|point| capture.point(point)),
            leaves: destination.leaves.map(|point| capture.point(point)),
            flows: destination.flows.iter().map(flow).collect(),
            evidence: judgement.evidence.clone(),
            lacks: judgement.lacks.clone(),
        }
    }
}

/// What a capture held.
#[derive(Serialize)]
pub struct Capture {
    path: String,
    frames: u64,
    packets: u64,
    bytes: u64,
    flows: u64,
    flows_exact: bool,
    #[serde(flatten)]
    completeness: Completeness,
}

impl Capture {
    fn new(capture: &sexton_core::model::Capture) -> Self {
        Self {
            path: capture.path.clone(),
            frames: capture.frames,
            packets: capture.totals.sightings,
            bytes: capture.bytes,
            flows: capture.totals.flows,
            flows_exact: capture.totals.flows_exact,
            completeness: capture.completeness.clone(),
        }
    }
}

/// What counters say.
#[derive(Serialize)]
pub struct CountersSeen {
    path: String,
    samples: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<Verdict>,
    /// Why they are nothing, although they are suspicious.
    #[serde(skip_serializing_if = "Option::is_none")]
    explained: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    one_sided_cores: Option<bool>,
    pairs: Vec<Pair>,
    cores: Vec<Core>,
    #[serde(skip_serializing_if = "Option::is_none")]
    switch: Option<f64>,
    /// What the busiest pair received and sent, sample by sample.
    series: Vec<SeriesSeen>,
    evidence: Vec<Evidence>,
    lacks: Vec<String>,
    #[serde(flatten)]
    completeness: Completeness,
}

/// A counter over time.
#[derive(Serialize)]
struct SeriesSeen {
    label: String,
    /// Seconds since the first sample, and the value.
    values: Vec<(f64, f64)>,
}

/// What comes in by one adapter and goes out by another: of the busiest pair, else of the busiest adapters.
fn series(file: &CounterFile, suspicion: &Suspicion) -> Vec<SeriesSeen> {
    let counters = &file.counters;
    let first = counters.times.iter().flatten().next();
    let seconds = |at: usize| {
        let time = counters.times.get(at).copied().flatten()?;
        let since = time.duration_since(*first?);
        Some(since.as_secs_f64())
    };
    let busiest = |kind: CounterKind, name: Option<&str>| {
        let of = counters.series.iter().filter(move |s| {
            let named = name.is_none_or(|name| s.counter.instance.as_deref() == Some(name));
            s.counter.kind == kind && !s.counter.is_total() && named
        });
        of.max_by(|a, b| {
            a.mean()
                .unwrap_or_default()
                .total_cmp(&b.mean().unwrap_or_default())
        })
    };
    let pair = suspicion.pairs.first();
    let both = [
        (
            CounterKind::Received,
            pair.map(|pair| pair.receiver.as_str()),
            "in",
        ),
        (CounterKind::Sent, pair.map(|pair| pair.sender.as_str()), "out"),
    ];
    both.into_iter()
        .filter_map(|(kind, name, way)| {
            let series = busiest(kind, name)?;
            let instance = series.counter.instance.as_deref().unwrap_or("?");
            let values = series.values.iter().enumerate();
            let values = values.filter_map(|(at, value)| Some((seconds(at).unwrap_or(at as f64), (*value)?)));
            Some(SeriesSeen {
                label: format!("{way}: {instance}"),
                values: values.collect(),
            })
        })
        .collect()
}

impl CountersSeen {
    fn new(file: &CounterFile, suspicion: Suspicion, explained: Option<String>) -> Self {
        Self {
            path: file.path.clone(),
            samples: file.counters.times.len(),
            verdict: suspicion.verdict.filter(|_| explained.is_none()),
            explained,
            one_sided_cores: suspicion.one_sided,
            series: series(file, &suspicion),
            pairs: suspicion.pairs,
            cores: suspicion.cores,
            switch: suspicion.switch,
            evidence: suspicion.evidence,
            lacks: suspicion.lacks,
            completeness: file.counters.completeness.clone(),
        }
    }
}

impl Report {
    /// Puts the answer first.
    pub fn new(judge: &Judge<'_>) -> Self {
        let state = judge.state;
        let seen = traffic::sightings(judge);
        let loops: Vec<Loop> = seen.iter().map(Loop::new).collect();
        let counters: Vec<CountersSeen> = traffic::suspicions(state)
            .into_iter()
            .map(|(file, suspicion)| {
                let pair = suspicion.pairs.first();
                let explained = pair.and_then(|pair| traffic::explained(state, &seen, pair));
                CountersSeen::new(file, suspicion, explained)
            })
            .collect();
        let captures: Vec<Capture> = state.captures.value.iter().map(Capture::new).collect();
        let worst = |verdicts: &mut dyn Iterator<Item = Option<Verdict>>| {
            verdicts.flatten().max_by_key(|v| rank(Some(*v)))
        };
        let of_loops = worst(&mut loops.iter().map(|one| one.verdict));
        // Counters suspect, and a capture that shows nothing is about another moment: both are said. Where counters cannot tell, a
        // capture does.
        let of_counters = worst(&mut counters.iter().map(|one| one.verdict))
            .filter(|verdict| *verdict != Verdict::Unknown || captures.is_empty());
        let verdict = [of_loops, of_counters]
            .into_iter()
            .flatten()
            .max_by_key(|v| rank(Some(*v)));
        let mut report = Self {
            schema: "sexton.dev/trace/v1",
            node: Some(state.identity.name.clone()).filter(|name| !name.is_empty()),
            verdict,
            taken_at: state.taken_at,
            answer: String::new(),
            loops,
            counters,
            captures,
            problems: state.problems.clone(),
            unread: state.unread.clone(),
        };
        report.answer = report.answer();
        report
    }

    fn answer(&self) -> String {
        let here = self
            .node
            .as_ref()
            .map_or_else(String::new, |node| format!(" on node {node}"));
        let of = |verdict| self.loops.iter().filter(move |one| one.verdict == Some(verdict));
        let addresses = |verdict| {
            of(verdict)
                .map(|one| one.address.to_string())
                .collect::<Vec<_>>()
                .join(", ")
        };
        if of(Verdict::Proved).next().is_some() {
            let flows: u64 = of(Verdict::Proved).map(|one| one.flows.len() as u64).sum();
            let rate: f64 = of(Verdict::Proved).filter_map(|one| one.packets_per_second).sum();
            return format!(
                "Packets circulate{here} for {}, where nobody lives: {}, {rate:.0} packets a second.",
                addresses(Verdict::Proved),
                count(flows, "flow")
            );
        }
        if of(Verdict::Suspected).next().is_some() {
            return format!(
                "Packets seem to circulate{here} for {}, where nobody lives.",
                addresses(Verdict::Suspected)
            );
        }
        if of(Verdict::Unknown).next().is_some() {
            return format!(
                "Packets circulate{here} for {}; who lives there cannot be told.",
                addresses(Verdict::Unknown)
            );
        }
        match self.verdict {
            Some(Verdict::Suspected) if self.captures.is_empty() => {
                format!(
                    "Counters look like packets that circulate{here}. A capture of a second would prove it or not."
                )
            }
            Some(Verdict::Suspected) => {
                format!("Counters look like packets that circulate{here}, and the captures do not show any.")
            }
            Some(_) => format!("It cannot be told whether packets circulate{here}: counters are missing."),
            None => format!("Nothing circulates{here} for an address of nobody."),
        }
    }

    /// 1 proved or suspected, 3 unknown or not all read, 0 nothing.
    pub fn exit_code(&self) -> u8 {
        let partial = self
            .captures
            .iter()
            .map(|one| &one.completeness)
            .chain(self.counters.iter().map(|one| &one.completeness));
        match rank(self.verdict) {
            2 | 3 => 1,
            1 => 3,
            _ if partial
                .into_iter()
                .any(|completeness| !completeness.is_complete()) =>
            {
                3
            }
            _ => 0,
        }
    }
}

/// Writes it.
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

/// With a capital letter.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first: String = letters
        .next()
        .map(char::to_uppercase)
        .into_iter()
        .flatten()
        .collect();
    first + letters.as_str()
}

/// `no loop`, or the verdict.
fn verdict_text(verdict: Option<Verdict>) -> String {
    verdict.map_or_else(|| "no loop".to_owned(), |verdict| verdict.to_string())
}

/// `4 packets circulate, one turn takes 88.0 µs`.
fn circulating(one: &Loop) -> String {
    let least = if one.circulating_exact { "" } else { "at least " };
    #[expect(clippy::cast_precision_loss, reason = "for reading")]
    let turn = one.turn_ns.map_or_else(String::new, |ns| {
        format!(", one turn takes {:.1} µs", ns as f64 / 1000.0)
    });
    format!("{least}{} circulate{turn}", count(one.circulating, "packet"))
}

/// `from component 14 in (Ethernet 2) to component 22 out (VF)`.
fn way(one: &Loop) -> Option<String> {
    match (&one.enters, &one.leaves) {
        (Some(enters), Some(leaves)) => Some(format!("from {enters} to {leaves}")),
        (Some(one), None) | (None, Some(one)) => Some(format!("by {one}")),
        (None, None) => None,
    }
}

/// `billing/invoice-1, until 2024-03-05T08:41:02Z`.
fn owner(one: &Loop) -> Option<String> {
    let owner = one.owner.as_ref()?;
    let until = owner
        .ended_at
        .map_or_else(String::new, |at| format!(", until {at:.0}"));
    Some(format!("{}{until}", owner.pod_name()))
}

/// A rate, or `-`.
fn rate(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"))
}

/// `39 frames, 38 of IP, at most 5 flows; read up to byte 9068: ...`.
fn read(capture: &Capture) -> String {
    let why = capture
        .completeness
        .why()
        .map_or_else(String::new, |why| format!("; {why}"));
    let about = if capture.flows_exact { "" } else { "at most " };
    format!(
        "{}, {} of IP, {about}{}{why}",
        count(capture.frames, "frame"),
        capture.packets,
        count(capture.flows, "flow")
    )
}
