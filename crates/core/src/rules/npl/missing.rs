//! Mappings that a Pod announces and the kernel does not have.

use std::collections::HashSet;

use super::{MISSING_MAPPING, Port, Wanted, chains, contradicted, home, untold, wanted};
use crate::{
    finding::{Evidence, Finding, Object, Verdict, Witness},
    judge::Judge,
    marks::ANTREA_NPL_CHAIN,
    model::{Completeness, Family, NplEntry, PortRange, Proto, XtChain, XtTable},
    plan::{Remedy, XtEdit},
    roster::owner_of,
    rules::why_not,
};

/// The mappings that are announced and missing.
pub(super) fn judge(judge: &Judge<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !judge.state.pods.is_complete() {
        return findings;
    }
    let mut wanted: Vec<_> = wanted(judge.state).into_iter().collect();
    wanted.sort_by_key(|((family, proto, port), _)| (*family, *proto, *port));
    let found: Vec<_> = chains(judge).collect();
    let taken = Taken::of(&found);
    let mapped: HashSet<Port> = home::mappings(judge.state).map(|mapping| mapping.port).collect();
    let gone = [Family::Ipv4, Family::Ipv6].map(|family| (family, jump_gone(&found, family)));
    for (port, claims) in &wanted {
        let [claim] = claims.as_slice() else { continue };
        let family = port.0;
        if mapped.contains(port) {
            continue;
        }
        let any = taken.takes(*port);
        if any && !gone.contains(&(family, true)) {
            continue;
        }
        let homes: Vec<_> = found.iter().filter(|(table, _)| table.family == family).collect();
        findings.push(missing(judge, claim, family, &homes, any));
    }
    findings
}

/// True if none of the family's tables with the chain jumps to it.
fn jump_gone(found: &[(&XtTable, &XtChain)], family: Family) -> bool {
    let mut homes = found
        .iter()
        .filter(|(table, _)| table.family == family)
        .peekable();
    homes.peek().is_some() && homes.all(|(table, _)| !missing_jumps(table).is_empty())
}

/// The ports that some DNAT of the chain takes.
#[derive(Default)]
struct Taken {
    single: HashSet<Port>,
    ranges: Vec<(Family, Proto, PortRange)>,
    /// Families with a rule whose target could not be read: it may be the one, so nothing is missing for sure.
    unreadable: HashSet<Family>,
}

impl Taken {
    fn of(found: &[(&XtTable, &XtChain)]) -> Self {
        let mut out = Self::default();
        for (table, chain) in found {
            let specs = chain.rules.iter().map(|rule| &rule.spec);
            for spec in specs.filter(|spec| spec.target.as_deref() == Some("DNAT")) {
                // What is not understood of a rule may be its port.
                if spec.dnat.is_none() || spec.proto.is_none() || spec.dports.is_empty() {
                    out.unreadable.insert(table.family);
                }
                let Some(proto) = spec.proto else { continue };
                for ports in &spec.dports {
                    if ports.first == ports.last {
                        out.single.insert((table.family, proto, ports.first));
                    } else {
                        out.ranges.push((table.family, proto, *ports));
                    }
                }
            }
        }
        out
    }

    fn takes(&self, (family, proto, port): Port) -> bool {
        let in_range =
            |&(f, p, range): &(Family, Proto, PortRange)| f == family && p == proto && range.contains(port);
        self.unreadable.contains(&family)
            || self.single.contains(&(family, proto, port))
            || self.ranges.iter().any(in_range)
    }
}

/// Jumps to the chain that the table lacks: one in PREROUTING and one in OUTPUT are expected.
fn missing_jumps(table: &XtTable) -> Vec<String> {
    let has = |chain: &str| {
        table.chain(chain).is_some_and(|c| {
            c.rules
                .iter()
                .any(|r| r.spec.target.as_deref() == Some(ANTREA_NPL_CHAIN))
        })
    };
    // OUTPUT's jump exists since Antrea v1.1; without PREROUTING's nothing from outside arrives.
    ["PREROUTING", "OUTPUT"]
        .into_iter()
        .filter(|chain| !has(chain))
        .map(|chain| format!("-A {chain} -m addrtype --dst-type LOCAL -j {ANTREA_NPL_CHAIN}"))
        .filter(|_| !has("PREROUTING"))
        .collect()
}

/// What may hold a mapping and was not read.
fn unread(judge: &Judge<'_>, no_chain: bool) -> Option<String> {
    if let Some(why) = judge.state.xtables.completeness.why() {
        return Some(format!("all iptables tables ({why})"));
    }
    // Where Antrea has no chain, the mapping may be in a map of ours. A recording without any listing of nftables is taken
    // to have none.
    let nft = &judge.state.nft.completeness;
    let looked = judge.state.live || matches!(nft, Completeness::Partial(_));
    let why = nft.why().filter(|_| no_chain && looked)?;
    Some(format!("all nftables tables ({why})"))
}

fn missing(
    judge: &Judge<'_>,
    claim: &Wanted<'_>,
    family: Family,
    homes: &[&(&XtTable, &XtChain)],
    has_rule: bool,
) -> Finding {
    let NplEntry { proto, node_port, .. } = claim.entry;
    let pod = claim.pod.pod_name();
    let mut evidence = vec![claim.announced(judge)];
    let xtables = &judge.state.xtables;
    let (verdict, mut lacking) = match unread(judge, homes.is_empty()) {
        None => (Verdict::Missing, judge.roster.repair_blockers()),
        Some(unread) => (Verdict::Unknown, vec![unread]),
    };
    if verdict == Verdict::Missing {
        lacking.extend(untold(judge));
        lacking.extend(contradicted(judge, claim));
    }
    let mut remedy = None;
    match (homes, home::map(judge.state, family)) {
        ([(table, chain)], _) => {
            let count = chain.rules.len();
            let text = if has_rule {
                format!("{ANTREA_NPL_CHAIN} has the rule, and PREROUTING does not jump to the chain")
            } else {
                format!("none of {count} rules of {ANTREA_NPL_CHAIN} is for {proto} port {node_port}")
            };
            evidence.push(Evidence::new(&table.source, text));
            let mut add = missing_jumps(table);
            if !has_rule {
                add.push(claim.line());
            }
            remedy = Some(Remedy::Xt(XtEdit {
                add,
                probes: vec![claim.probe()],
                ..XtEdit::of(Judge::place(table))
            }));
        }
        ([], Some(set)) => {
            let count = set.elements.len();
            let text = format!(
                "none of {count} elements of {} is for {proto} port {node_port}",
                set.name
            );
            evidence.push(Evidence::new(judge.state.nft.source_names(), text));
            remedy = Some(home::addition(set, claim));
        }
        ([], None) => {
            let text = format!("no {family} nat table has the chain {ANTREA_NPL_CHAIN}");
            evidence.push(Evidence::new(xtables.source_names(), text));
            if verdict == Verdict::Missing {
                lacking.push("the controller's chain: restart the agent, which makes it".to_owned());
            }
        }
        _ => lacking.push("one table with the chain: several have it".to_owned()),
    }
    Finding {
        rule: MISSING_MAPPING.id,
        verdict,
        why_not_repair: why_not(verdict, &lacking),
        object: Object::NplMapping {
            pod: pod.clone(),
            entry: claim.entry.clone(),
        },
        owner: Some(owner_of(claim.pod, None)),
        consequence: match verdict {
            Verdict::Unknown => {
                format!(
                    "Whether {proto} port {node_port} ({family}) of this node reaches Pod {pod} cannot be told."
                )
            }
            _ => format!(
                "Traffic to {proto} port {node_port} ({family}) of this node does not reach Pod {pod}."
            ),
        },
        evidence,
        witnesses: vec![Witness::Api],
        remedy: remedy.filter(|_| verdict == Verdict::Missing),
    }
}
