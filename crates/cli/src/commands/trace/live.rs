//! `sexton trace --live`: each stage only if the one before it found something. Counters cost next to nothing; a capture of a second at most
//! shows what circulates; who lives at its destination is read last.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use sexton_core::{
    finding::Verdict,
    model::{
        Capture, Completeness, CounterFile, CounterKind, Counters, Facts, Flow, Interface, Link, NodeState,
        Place, Point, Problem, SourceReport,
    },
    traffic::{Thresholds, suspect},
};
use sexton_formats::capture;
use sexton_linux::{Bounds, LinuxNode, Meter, Recorded};

use crate::{args::TraceArgs, source};

/// Between two looks at the counters.
const PAUSE: Duration = Duration::from_millis(500);

/// A suspicion must hold for most of so many intervals.
const INTERVALS: usize = 3;

/// Received and sent may be so far apart, as a share of the greater, for a look at the packets: the traffic of the living comes in beside what
/// circulates. Ten percent, as for a suspicion from counters alone, would miss a loop on a busy node; and a look costs a second at most.
const WITHIN: f64 = 0.5;

/// What the capture is called in reports.
const NAME: &str = "live capture";

/// How to look at a node.
pub struct Look<'a> {
    /// How long to watch its counters.
    pub watch: Duration,
    /// Packets a second from which on that is suspicious.
    pub above: f64,
    /// Where to keep the packets.
    pub save: Option<&'a Path>,
}

/// Reads a node for `sexton trace`.
pub fn read(args: &TraceArgs) -> anyhow::Result<NodeState> {
    let mut node = source::open_live(&args.source, &[], false)?;
    let how = Look {
        watch: Duration::from_secs(args.watch),
        above: args.above,
        save: args.save.as_deref(),
    };
    look(&mut node, &how)
}

/// Watches, and reads the rest of the node once there is something to judge.
pub fn look(node: &mut LinuxNode, how: &Look<'_>) -> anyhow::Result<NodeState> {
    let thresholds = Thresholds {
        rate: how.above,
        within: WITHIN,
        ..Thresholds::default()
    };
    let mut meter = Meter::new("/proc", INTERVALS);
    let until = Instant::now() + how.watch;
    let spinner = source::spinner("watching the counters");
    let started = Instant::now();
    let suspicious = loop {
        meter.look().context("cannot watch this node")?;
        let whole = meter.intervals() >= INTERVALS;
        if whole && suspect(&meter.counters(), &thresholds).verdict == Some(Verdict::Suspected) {
            break true;
        }
        if whole && Instant::now() >= until {
            break false;
        }
        thread::sleep(PAUSE);
    };
    let watched = started.elapsed();
    let captured = if suspicious {
        spinner.set_message("capturing packets for a second at most");
        Some(sexton_linux::capture(&Bounds::default()))
    } else {
        None
    };
    spinner.set_message("reading who lives here");
    let mut state = node.observe();
    spinner.finish_and_clear();

    let counters = CounterFile {
        path: "/proc/net/dev, /proc/stat".to_owned(),
        counters: meter.counters(),
    };
    match captured {
        None => {}
        Some(Ok(recorded)) => {
            if let Some(path) = how.save {
                fs::write(path, &recorded.file)
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
            let (mut capture, problems) = followed(&recorded, &state.links.value);
            undisturbed(&mut capture, &counters.counters);
            let told = report(
                NAME,
                capture.completeness.clone(),
                recorded.packets,
                recorded.took,
            );
            state.captures = Facts::from_source(vec![capture], told);
            state.problems.extend(problems);
        }
        Some(Err(error)) => {
            let why = Completeness::Unavailable(format!("{:#}", anyhow::Error::new(error)));
            let told = report(NAME, why, 0, Duration::ZERO);
            state.captures = Facts::from_source(Vec::new(), told);
        }
    }
    let series = counters.counters.series.len();
    let told = report("counters", Completeness::Complete, series, watched);
    state.counters = Facts::from_source(vec![counters], told);
    Ok(state)
}

/// A capture slows down what it looks at: a copy is made of each packet. How many go round a second is what the counters saw come in by that link
/// before, shared out as the capture saw it there.
#[allow(clippy::cast_precision_loss, reason = "counts of packets")]
fn undisturbed(capture: &mut Capture, counters: &Counters) {
    let at = |flow: &Flow, point: Point| {
        let seen = flow.points.iter().filter(|(where_, _)| *where_ == point);
        seen.map(|(_, count)| count).sum::<u64>()
    };
    let rates: Vec<Option<f64>> = capture
        .destinations
        .iter()
        .map(|destination| {
            let point = destination.enters?;
            let received = received(counters, capture.name(point.place)?)?;
            let own: u64 = destination.flows.iter().map(|flow| at(flow, point)).sum();
            let all: u64 = capture.flows.iter().map(|flow| at(flow, point)).sum();
            (all > 0).then(|| received * own as f64 / all as f64)
        })
        .collect();
    for (destination, rate) in capture.destinations.iter_mut().zip(rates) {
        destination.rate = rate.or(destination.rate);
    }
}

/// Packets a second that came in by a link, over all intervals.
pub fn received(counters: &Counters, link: &str) -> Option<f64> {
    let mut series = counters.series.iter();
    let own = series.find(|series| {
        series.counter.kind == CounterKind::Received && series.counter.instance.as_deref() == Some(link)
    });
    own?.mean()
}

/// What repeats in the capture, with the names of its links.
fn followed(recorded: &Recorded, links: &[Link]) -> (Capture, Vec<Problem>) {
    let (mut capture, problems, _) = capture::follow(recorded.file.as_slice(), NAME);
    let named = links.iter().map(|link| Interface {
        place: Place::Interface(link.index),
        name: link.name.clone(),
    });
    capture.interfaces.extend(named);
    (capture, problems)
}

fn report(name: &str, completeness: Completeness, items: usize, took: Duration) -> SourceReport {
    SourceReport {
        name: name.to_owned(),
        completeness,
        items: items as u64,
        read_at: Some(source::now()),
        took_ms: took.as_secs_f64() * 1000.0,
    }
}
