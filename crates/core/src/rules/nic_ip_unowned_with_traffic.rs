//! An address that the node's adapter owns, nobody uses, and packets arrive for. Without packets it is one of many that are kept
//! for Pods to come, and normal.

use std::{collections::BTreeMap, net::IpAddr};

use super::{Part, Rule, why_not};
use crate::{
    finding::{Evidence, Finding, Object, Verdict},
    judge::Judge,
    model::{Capture, Flow},
    roster::Standing,
};

/// See the page.
pub(super) static RULE: Rule = Rule {
    id: "nic-ip-unowned-with-traffic",
    tier: 1,
    summary: "an address that the node's adapter owns and nobody uses, and that packets arrive for",
    page: include_str!("pages/nic-ip-unowned-with-traffic.md"),
    needs: &[Part::Captures, Part::Adapters],
    judge,
};

/// So many packets of one flow are traffic. A scan sends one or two to each port, and a sender that gets no answer gives up after
/// 16 (Linux' `tcp_retries2`).
const TRAFFIC: u64 = 20;

const WHY: &str =
    "an address is taken from an adapter where the cloud's resources are managed, not on the node";

/// What arrives for an address.
#[derive(Default)]
struct Arriving<'a> {
    flows: Vec<(&'a Capture, &'a Flow)>,
    packets: u64,
    rate: f64,
    /// What the address sent itself.
    sent: u64,
}

fn judge(judge: &Judge<'_>) -> Vec<Finding> {
    let mut arriving: BTreeMap<IpAddr, Arriving<'_>> = BTreeMap::new();
    let flows = || {
        let captures = judge.state.captures.value.iter();
        captures.flat_map(|capture| capture.flows.iter().map(move |flow| (capture, flow)))
    };
    // What goes round was not sent so often, and is no stray packet.
    let circulates = |capture: &Capture, ip: IpAddr| {
        let to = capture.destinations.iter().find(|to| to.address == ip);
        to.is_some_and(|to| to.look_alike.is_none())
    };
    for (capture, flow) in flows() {
        if flow.packets < TRAFFIC && !circulates(capture, flow.key.destination) {
            continue;
        }
        let to = arriving.entry(flow.key.destination).or_default();
        to.flows.push((capture, flow));
        to.packets += flow.packets;
        to.rate += flow.rate().unwrap_or_default();
    }
    for (_, flow) in flows() {
        if let Some(from) = arriving.get_mut(&flow.key.source) {
            from.sent += flow.packets;
        }
    }
    arriving
        .into_iter()
        .filter_map(|(ip, arriving)| unowned(judge, ip, &arriving))
        .collect()
}

fn unowned(judge: &Judge<'_>, ip: IpAddr, arriving: &Arriving<'_>) -> Option<Finding> {
    let (list, nic, owned) = judge.roster.adapter_of(ip)?;
    let residence = judge.roster.destination(ip);
    let mut lacking = residence.lacking.clone();
    let verdict = match residence.standing {
        Standing::Live => return None,
        Standing::Unknown => Verdict::Unknown,
        Standing::Ended | Standing::Nobody => {
            // Old packets of its own may still be on their way; more than a few are somebody's.
            if arriving.sent * 100 > arriving.packets {
                lacking = vec![format!(
                    "to know who sends as {ip}: {} packets of the capture are its own",
                    arriving.sent
                )];
                Verdict::Unknown
            } else {
                Verdict::Stale
            }
        }
    };
    let (first, flow) = arriving.flows.first()?;
    let mut evidence = residence.evidence.clone();
    evidence.push(Evidence::new(
        &first.path,
        format!(
            "{} packets in {} arrive for {ip}, {:.0} a second; the busiest flow: {}",
            arriving.packets,
            if arriving.flows.len() == 1 {
                "1 flow".to_owned()
            } else {
                format!("{} flows", arriving.flows.len())
            },
            arriving.rate,
            flow.key
        ),
    ));
    let why = match verdict {
        Verdict::Unknown => why_not(verdict, &lacking),
        _ => Some(WHY.to_owned()),
    };
    Some(Finding {
        rule: RULE.id,
        verdict,
        why_not_repair: why,
        object: Object::NicAddress {
            address: ip,
            nic: nic.name.clone().or_else(|| nic.mac.clone()),
            name: owned.name.clone(),
            list: list.path.clone(),
        },
        owner: residence.owner,
        consequence: format!(
            "The network delivers packets for {ip} to this node, {:.0} a second, and {}.",
            arriving.rate,
            if verdict == Verdict::Unknown {
                "whether anything on it takes them cannot be told"
            } else {
                "nothing on it takes them"
            }
        ),
        evidence,
        witnesses: residence.witnesses,
        remedy: None,
    })
}
