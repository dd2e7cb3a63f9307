//! Packets that circulate for an address of nobody: counters suspect it, a capture with the address' owner proves it.

use std::collections::BTreeSet;

use super::{Part, Rule, why_not};
use crate::{
    finding::{Evidence, Finding, Object, Verdict, Witness},
    judge::Judge,
    model::{CounterFile, Destination},
    roster::Standing,
    traffic::{self, Pair, Sighting, Suspicion},
};

/// See the page.
pub(super) static RULE: Rule = Rule {
    id: "packet-loop",
    tier: 1,
    summary: "packets that circulate between the node and its network for an address of nobody",
    page: include_str!("pages/packet-loop.md"),
    needs: &[Part::Captures, Part::Counters],
    judge,
};

fn judge(judge: &Judge<'_>) -> Vec<Finding> {
    let seen = traffic::sightings(judge);
    let mut named = BTreeSet::new();
    // The worst come first: an address that several captures show is named once, by the best proof.
    let mut out: Vec<Finding> = seen
        .iter()
        .filter_map(|one| Some((one, one.judgement.verdict?)))
        .filter(|(one, _)| named.insert(one.destination.address))
        .map(|(one, verdict)| circulates(one, verdict))
        .collect();
    for (file, suspicion) in traffic::suspicions(judge.state) {
        match (suspicion.verdict, suspicion.pairs.first()) {
            (Some(Verdict::Suspected), Some(pair)) => {
                let shown =
                    |finding: &Finding| matches!(finding.verdict, Verdict::Proved | Verdict::Suspected);
                if out.iter().any(shown) {
                    // What they suspect is shown already: they tell how much of it there is.
                    for finding in out.iter_mut().filter(|finding| shown(finding)) {
                        finding.evidence.extend(said_by(file, &suspicion));
                    }
                } else if traffic::explained(judge.state, &seen, pair).is_none() {
                    out.push(suspected(file, &suspicion, pair));
                }
            }
            // A capture says more than counters that are missing, and a file without any is a problem that is told as such.
            (Some(Verdict::Unknown), _)
                if judge.state.captures.value.is_empty() && !file.counters.series.is_empty() =>
            {
                out.push(untold(file, &suspicion));
            }
            _ => {}
        }
    }
    out
}

fn circulates(one: &Sighting<'_>, verdict: Verdict) -> Finding {
    let Sighting {
        capture,
        destination,
        residence,
        judgement,
    } = one;
    let rate = destination.rate.map_or_else(
        || format!("{} packets", destination.packets),
        |rate| format!("{rate:.0} packets a second"),
    );
    let address = destination.address;
    let consequence = match verdict {
        Verdict::Proved => format!(
            "{rate} for {address} go round through this node, reach no Pod, and keep its cores busy with interrupts."
        ),
        Verdict::Suspected => {
            format!("{rate} for {address}, where nobody lives, seem to go round through this node.")
        }
        _ => format!(
            "{rate} for {address} go round through this node; whether anybody lives there cannot be told."
        ),
    };
    let why = match verdict {
        Verdict::Proved => format!("a loop is ended step by step, each verified: sexton loop end {address}"),
        Verdict::Suspected => format!("a proof needs {}", judgement.lacks.join("; ")),
        _ => why_not(verdict, &judgement.lacks).unwrap_or_default(),
    };
    let mut witnesses = residence.witnesses.clone();
    if residence.standing == Standing::Unknown {
        witnesses.clear();
    }
    Finding {
        rule: RULE.id,
        verdict,
        why_not_repair: Some(why),
        object: Object::PacketLoop {
            address,
            flows: flows(destination),
            packets_per_second: destination.rate,
            circulating: destination.circulating,
            circulating_exact: destination.circulating_exact,
            enters: destination.enters.map(|point| capture.point(point)),
            leaves: destination.leaves.map(|point| capture.point(point)),
            capture: capture.path.clone(),
        },
        owner: residence.owner.clone(),
        consequence,
        evidence: judgement.evidence.clone(),
        witnesses,
        remedy: None,
    }
}

/// Its flows, the busiest first.
fn flows(destination: &Destination) -> Vec<String> {
    destination
        .flows
        .iter()
        .map(|flow| flow.key.to_string())
        .collect()
}

fn said_by(file: &CounterFile, suspicion: &Suspicion) -> Vec<Evidence> {
    let lines = suspicion.evidence.iter();
    lines
        .map(|line| Evidence::new(&file.path, line.text.clone()))
        .collect()
}

fn suspected(file: &CounterFile, suspicion: &Suspicion, pair: &Pair) -> Finding {
    let mut lacks = vec!["a capture of a second that shows the same packet again and again".to_owned()];
    lacks.push("who lives at its destination".to_owned());
    lacks.extend(suspicion.lacks.iter().cloned());
    Finding {
        rule: RULE.id,
        verdict: Verdict::Suspected,
        why_not_repair: Some(format!("a proof needs {}", lacks.join("; "))),
        object: Object::CounterPair {
            file: file.path.clone(),
            receiver: pair.receiver.clone(),
            sender: pair.sender.clone(),
            received: pair.received,
            sent: pair.sent,
        },
        owner: None,
        consequence: format!(
            "{:.0} packets a second come in by one adapter and as many leave by another: they may circulate, or this node is a busy \
             gateway.",
            pair.received
        ),
        evidence: said_by(file, suspicion),
        witnesses: vec![Witness::Kernel],
        remedy: None,
    }
}

fn untold(file: &CounterFile, suspicion: &Suspicion) -> Finding {
    Finding {
        rule: RULE.id,
        verdict: Verdict::Unknown,
        why_not_repair: why_not(Verdict::Unknown, &suspicion.lacks),
        object: Object::Counters {
            file: file.path.clone(),
        },
        owner: None,
        consequence: "Whether packets circulate cannot be told from these counters.".to_owned(),
        evidence: said_by(file, suspicion),
        witnesses: Vec::new(),
        remedy: None,
    }
}
