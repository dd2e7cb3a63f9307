//! Traffic that circulates: what counters suspect, and what captures prove.
//!
//! Counters alone suspect ([`suspect`]); packets that come again and again, for an address of nobody, prove ([`judge`]).
//! [`sightings`] and [`suspicions`] do it for everything that was recorded of a node.

pub mod fleet;
mod judge;
mod suspect;

pub use judge::{Judgement, judge, judge_at};
pub use suspect::{Core, Pair, Suspicion, Thresholds, suspect};

use crate::{
    finding::Verdict,
    judge::Judge,
    model::{Capture, CounterFile, Destination, NodeState},
    roster::{Residence, Standing},
};

/// A destination of packets that came again and again, judged.
pub struct Sighting<'a> {
    /// The capture that shows it.
    pub capture: &'a Capture,
    /// The destination.
    pub destination: &'a Destination,
    /// Who lives there.
    pub residence: Residence,
    /// The verdict.
    pub judgement: Judgement,
}

/// How bad a verdict on a loop is.
pub const fn rank(verdict: Option<Verdict>) -> u8 {
    match verdict {
        Some(Verdict::Proved) => 3,
        Some(Verdict::Suspected) => 2,
        Some(_) => 1,
        None => 0,
    }
}

/// Every destination of repeated packets in the captures of a node, the worst first.
pub fn sightings<'a>(judge: &Judge<'a>) -> Vec<Sighting<'a>> {
    let captures = judge.state.captures.value.iter();
    let seen = captures.flat_map(|capture| capture.destinations.iter().map(move |one| (capture, one)));
    let mut out: Vec<Sighting<'a>> = seen
        .map(|(capture, destination)| {
            let residence = judge.roster.destination(destination.address);
            let judgement = judge_at(destination, &residence, &|point| capture.point(point));
            Sighting {
                capture,
                destination,
                residence,
                judgement,
            }
        })
        .collect();
    out.sort_by(|a, b| {
        let by_verdict = rank(b.judgement.verdict).cmp(&rank(a.judgement.verdict));
        by_verdict.then(b.destination.turns.cmp(&a.destination.turns))
    });
    out
}

/// What the counters of a node say, file by file.
pub fn suspicions(state: &NodeState) -> Vec<(&CounterFile, Suspicion)> {
    let files = state.counters.value.iter();
    let thresholds = Thresholds::default();
    files
        .map(|file| (file, suspect(&file.counters, &thresholds)))
        .collect()
}

/// Why suspicious counters are nothing: a capture shows as many packets, and what they are. `None` if none does.
pub fn explained(state: &NodeState, seen: &[Sighting<'_>], pair: &Pair) -> Option<String> {
    let enough = |rate: Option<f64>| rate.is_some_and(|rate| rate * 2.0 >= pair.received);
    let alive = seen
        .iter()
        .find(|one| one.residence.standing == Standing::Live && enough(one.destination.rate));
    if let Some(one) = alive {
        return Some(one.judgement.text.clone());
    }
    let whole = state.captures.value.iter().find(|capture| {
        capture.completeness.is_complete() && capture.destinations.is_empty() && enough(capture.totals.rate())
    })?;
    Some(format!(
        "{} shows as many packets, and each is another: a gateway",
        whole.path
    ))
}
