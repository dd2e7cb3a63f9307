//! The same in portmap's nftables form: rules with the container ID as comment, in one chain for all containers.

use std::collections::HashMap;

use super::{RULE, port_words};
use crate::{
    finding::{Evidence, Finding, Verdict},
    judge::Judge,
    marks,
    model::{NftFamily, NftRule, PortRange, Proto},
    plan::{NftEdit, Probe, Remedy},
    roster::Standing,
    rules::nft_unit::{self, NftUnit},
};

pub(super) fn judge(judge: &Judge<'_>) -> Vec<Finding> {
    let units = nft_unit::units(judge, marks::nft::hostport);
    let ports = Ports::of(&units);
    units
        .iter()
        .filter_map(|unit| judge_unit(judge, unit, &units, &ports))
        .collect()
}

/// Every DNAT of a host port by protocol and port, in the order in which a packet meets them.
struct Ports<'a>(HashMap<(NftFamily, Proto, u16), Vec<Place<'a>>>);

/// A rule, with its unit and its order.
struct Place<'a> {
    unit: usize,
    order: (usize, usize),
    rule: &'a NftRule,
}

impl<'a> Ports<'a> {
    fn of(units: &[NftUnit<'a>]) -> Self {
        let mut out: HashMap<_, Vec<Place<'a>>> = HashMap::new();
        for (index, unit) in units.iter().enumerate() {
            for (at, rule) in unit.rules.iter().filter(|(_, rule)| rule.dnat.is_some()) {
                if let Some((proto, port)) = port_of(rule) {
                    out.entry((unit.family, proto, port)).or_default().push(Place {
                        unit: index,
                        order: (marks::nft::hostport_order(rule), *at),
                        rule,
                    });
                }
            }
        }
        for places in out.values_mut() {
            places.sort_by_key(|place| place.order);
        }
        Self(out)
    }
}

/// The one port that a rule of portmap takes.
fn port_of(rule: &NftRule) -> Option<(Proto, u16)> {
    let [PortRange { first, last }] = rule.dports.as_slice() else {
        return None;
    };
    (first == last).then_some((rule.proto?, *first))
}

/// A living Pod's rule for a port that the dead one takes too.
struct Rival {
    unit: usize,
    line: String,
    who: String,
    shared: Vec<String>,
    /// It stands behind the dead one.
    later: bool,
}

fn rival(judge: &Judge<'_>, unit: &NftUnit<'_>, units: &[NftUnit<'_>], ports: &Ports<'_>) -> Option<Rival> {
    let mut found: Option<Rival> = None;
    for (at, rule) in &unit.rules {
        let Some((proto, port)) = port_of(rule).filter(|_| rule.dnat.is_some()) else {
            continue;
        };
        let own = (marks::nft::hostport_order(rule), *at);
        let places = ports.0.get(&(unit.family, proto, port)).into_iter().flatten();
        let others = places.filter(|place| !place.rule.is_same(rule) && overlaps(rule, place.rule));
        for place in others {
            let Some(other) = units.get(place.unit) else {
                continue;
            };
            let alive = other.residence(judge).0;
            if alive.standing != Standing::Live {
                continue;
            }
            let later = place.order > own;
            let words = format!("{proto} {port}");
            match &mut found {
                Some(rival) if rival.unit == place.unit => {
                    if !rival.shared.contains(&words) {
                        rival.shared.push(words);
                    }
                    rival.later |= later;
                }
                // One that it shadows comes before one that shadows it.
                Some(rival) if rival.later || !later => {}
                _ => {
                    found = Some(Rival {
                        unit: place.unit,
                        line: place.rule.placed(),
                        who: crate::plan::pod_or_nobody(alive.owner.map(|o| o.pod_name()).as_ref()),
                        shared: vec![words],
                        later,
                    });
                }
            }
        }
    }
    found
}

/// True if two rules of one port take a packet in common: one host address, unless one of them takes all.
fn overlaps(a: &NftRule, b: &NftRule) -> bool {
    match (&a.destination, &b.destination) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    }
}

fn judge_unit(
    judge: &Judge<'_>,
    unit: &NftUnit<'_>,
    units: &[NftUnit<'_>],
    ports: &Ports<'_>,
) -> Option<Finding> {
    let (residence, born) = unit.residence(judge);
    let verdict = residence.verdict()?;
    let source = judge.state.nft.source_names();
    let mut evidence = vec![Evidence::new(
        &source,
        format!("the rule names container {}", unit.mark.container),
    )];
    evidence.extend(residence.evidence.iter().cloned());
    evidence.extend(born.map(|(_, said)| said));
    let rival = rival(judge, unit, units, ports);
    if let Some(rival) = &rival {
        let word = if rival.later { "before" } else { "behind" };
        let text = format!("it comes {word} the rule of Pod {}: {}", rival.who, rival.line);
        evidence.push(Evidence::new(&source, text));
    }
    let shadowed = rival.as_ref().filter(|rival| rival.later);
    let probes = shadowed.and_then(|rival| units.get(rival.unit));
    let deletion = unit.deletion(judge);
    Some(Finding {
        rule: RULE.id,
        verdict,
        why_not_repair: residence.why_not_repair(),
        consequence: consequence(verdict, unit, rival.as_ref()),
        object: unit.object(),
        owner: residence.owner,
        evidence,
        witnesses: residence.witnesses,
        remedy: (verdict == Verdict::Stale).then(|| {
            Remedy::Nft(NftEdit {
                replaced: if shadowed.is_some() {
                    deletion.delete.len()
                } else {
                    0
                },
                probes: probes.map(probes_of).unwrap_or_default(),
                ..deletion
            })
        }),
    })
}

/// What the unit does to traffic.
fn consequence(verdict: Verdict, unit: &NftUnit<'_>, rival: Option<&Rival>) -> String {
    let dnats = unit.rules.iter().filter(|(_, rule)| rule.dnat.is_some());
    let mut ports: Vec<String> = dnats
        .map(|(_, rule)| port_words(rule.proto, &rule.dports))
        .collect();
    ports.dedup();
    let nat_of = |rival: &Rival| rival.shared.join(" and ");
    match rival {
        _ if ports.is_empty() && verdict == Verdict::Unknown => {
            "Whether the rule serves anybody cannot be told.".to_owned()
        }
        _ if verdict == Verdict::Unknown => {
            let ports = ports.join(" and ");
            format!("Whether the rule of host port {ports} serves anybody cannot be told.")
        }
        Some(rival) if rival.later => format!(
            "Traffic to host port {} never reaches Pod {}: this older rule of a dead sandbox takes it first.",
            nat_of(rival),
            rival.who
        ),
        Some(rival) => format!(
            "The rule of Pod {} takes host port {} before this one of a dead sandbox, which would take it as soon as that is gone.",
            rival.who,
            nat_of(rival)
        ),
        None if ports.is_empty() => {
            "Only the masquerade of a dead sandbox's host port is left: it leads nowhere.".to_owned()
        }
        None => format!(
            "Traffic to host port {} is sent to an address that its Pod no longer has.",
            ports.join(" and ")
        ),
    }
}

/// Connections that prove that the living Pod gets its port again.
fn probes_of(unit: &NftUnit<'_>) -> Vec<Probe> {
    let probe = |rule: &NftRule| {
        let dnat = rule.dnat?;
        let (proto, node_port) = port_of(rule)?;
        // A mapping of one host address is only reached there.
        let node_ip = match rule.destination.as_deref() {
            None => None,
            Some(text) => Some(text.split('/').next()?.parse().ok()?),
        };
        Some(Probe {
            proto,
            node_ip,
            node_port,
            target: dnat.ip,
            target_port: dnat.port.unwrap_or(node_port),
        })
    };
    unit.rules.iter().filter_map(|(_, rule)| probe(rule)).collect()
}
