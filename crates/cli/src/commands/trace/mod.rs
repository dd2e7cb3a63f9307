//! `sexton trace`: which packets circulate, for which address, and whose it was.

mod files;

use std::net::IpAddr;

use sexton_core::{
    finding::{Evidence, Verdict},
    judge::Judge,
    model::Timestamp,
    roster::{Residence, Standing},
    settings::Settings,
};
use sexton_formats::{
    capture,
    counters::{self, Thresholds},
    hns::{self, HnsOutput},
    nic::NicOutput,
};

use super::emit;
use crate::{
    args::TraceArgs,
    output::trace::{self, Capture, CountersSeen, Loop, Report},
    source,
};
use files::Gathered;

/// Reads, follows, joins, prints.
pub fn run(args: &TraceArgs) -> anyhow::Result<u8> {
    let gathered = files::gather(args)?;
    let settings = Settings::default();
    let at = gathered
        .state
        .as_ref()
        .and_then(|state| state.taken_at)
        .unwrap_or_else(source::now);
    let report = report(&gathered, &settings, at);
    emit(args.out.as_deref(), |out| {
        trace::write(&report, args.output, args.verbose, out)
    })?;
    Ok(report.exit_code())
}

fn report(gathered: &Gathered, settings: &Settings, at: Timestamp) -> Report {
    let judge = gathered
        .state
        .as_ref()
        .map(|state| Judge::new(state, None, settings, at));
    let residents = Residents {
        nics: gathered.nics.as_ref(),
        endpoints: gathered.endpoints.as_ref(),
        judge: judge.as_ref(),
    };
    let mut loops = Vec::new();
    let mut captures = Vec::new();
    for (outcome, trace, path) in &gathered.captures {
        for destination in &trace.destinations {
            let residence = residents.at(destination.address);
            let judgement = capture::judge(destination, &residence);
            let name = |point: Option<capture::Point>| {
                point.map(|point| match gathered.name(outcome, point.place) {
                    Some(name) => format!("{point} ({name})"),
                    None => point.to_string(),
                })
            };
            loops.push(Loop::new(
                path,
                destination,
                judgement,
                &residence,
                name(destination.enters),
                name(destination.leaves),
            ));
        }
        captures.push(Capture::new(path, outcome, trace));
    }
    let counters = gathered
        .counters
        .iter()
        .map(|(path, counters)| {
            CountersSeen::new(
                path,
                counters,
                counters::suspect(counters, &Thresholds::default()),
            )
        })
        .collect();
    let node = gathered
        .state
        .as_ref()
        .map(|state| state.identity.name.clone())
        .filter(|name| !name.is_empty());
    Report::new(
        node,
        captures,
        loops,
        counters,
        gathered.problems.clone(),
        gathered.unread.clone(),
    )
}

/// Everything that can say who lives at an address.
struct Residents<'a> {
    nics: Option<&'a NicOutput>,
    endpoints: Option<&'a HnsOutput>,
    judge: Option<&'a Judge<'a>>,
}

impl Residents<'_> {
    /// The living first; nobody, if every source that is there says so; else unknown.
    fn at(&self, address: IpAddr) -> Residence {
        let roster = self.judge.map(|judge| judge.roster.address(address));
        let adapter = match (self.nics, self.endpoints) {
            (Some(nics), Some(endpoints)) => Some(hns::residence(address, nics, endpoints)),
            _ => None,
        };
        match (roster, adapter) {
            (Some(roster), Some(adapter)) => joined(roster, adapter),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => unknown(
                "who lives there: give nic.json with hns-endpoints.json, or pods.json with crictl-pods.json of the node",
            ),
        }
    }
}

fn joined(mut roster: Residence, adapter: Residence) -> Residence {
    let alive = |residence: &Residence| residence.standing == Standing::Live;
    if alive(&roster) {
        return roster;
    }
    if alive(&adapter) {
        return Residence {
            owner: roster.owner,
            ..adapter
        };
    }
    let evidence: Vec<Evidence> = adapter
        .evidence
        .into_iter()
        .chain(std::mem::take(&mut roster.evidence))
        .collect();
    if adapter.standing == Standing::Unknown && roster.standing != Standing::Unknown {
        // The adapters' lists do not have it, or are not whole: the Pods alone do not make it this node's.
        return Residence {
            evidence,
            owner: roster.owner,
            ..adapter
        };
    }
    Residence { evidence, ..roster }
}

fn unknown(why: &str) -> Residence {
    Residence {
        standing: Standing::Unknown,
        owner: None,
        witnesses: Vec::new(),
        evidence: Vec::new(),
        lacking: vec![why.to_owned()],
    }
}

/// The worse of two verdicts on a loop.
pub fn rank(verdict: Option<Verdict>) -> u8 {
    match verdict {
        Some(Verdict::Proved) => 3,
        Some(Verdict::Suspected) => 2,
        Some(_) => 1,
        None => 0,
    }
}
