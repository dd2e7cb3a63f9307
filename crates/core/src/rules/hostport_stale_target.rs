//! hostPort mappings of portmap whose sandbox is dead.

mod nft;

use super::{
    Part, Rule,
    unit::{Jumps, Unit},
};
use crate::{
    finding::{Evidence, Finding, Object, Verdict},
    judge::Judge,
    marks::{self, CniMark, PORTMAP_CHAIN},
    model::{PortRange, Proto, XtChain, XtRule, XtTable},
    plan::{Probe, Remedy, XtEdit},
    roster::Standing,
};

/// See the page.
pub(super) static RULE: Rule = Rule {
    id: "hostport-stale-target",
    tier: 1,
    summary: "a hostPort's DNAT whose sandbox is dead, which may shadow the living one",
    page: include_str!("pages/hostport-stale-target.md"),
    needs: &[Part::Runtime, Part::Xtables, Part::Nft],
    judge,
};

fn judge(judge: &Judge<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for table in judge.tables("nat") {
        let Some(chain) = table.chain(PORTMAP_CHAIN) else {
            continue;
        };
        let jumps = Jumps::new(table);
        for (index, jump) in chain.rules.iter().enumerate() {
            let Some((mark, name)) = marks::hostport_mark(jump) else {
                continue;
            };
            let unit = jumps.unit(name, &mark);
            if unit.is_named_by(jump) {
                findings.extend(judge_unit(judge, table, chain, index, (&mark, name, &unit)));
            }
        }
    }
    findings.extend(nft::judge(judge));
    findings
}

fn judge_unit(
    judge: &Judge<'_>,
    table: &XtTable,
    chain: &XtChain,
    index: usize,
    (mark, name, unit): (&CniMark, &str, &Unit<'_>),
) -> Option<Finding> {
    let jump = chain.rules.get(index)?;
    let born = judge.born(&mark.container, Some((chain, index)));
    let residence = judge.container(
        &mark.network,
        &mark.container,
        born.as_ref().map(|b| b.0),
        unit.addresses(),
    );
    let verdict = residence.verdict()?;
    let mut evidence = vec![Evidence::new(
        &table.source,
        format!("the rule names container {}", mark.container),
    )];
    evidence.extend(residence.evidence.iter().cloned());
    evidence.extend(born.map(|(_, said)| said));
    let rival = rival(judge, table, chain, index, unit);
    if let Some(rival) = &rival {
        let word = if rival.later { "before" } else { "behind" };
        evidence.push(Evidence::new(
            &table.source,
            format!("it comes {word} the rule of Pod {}: {}", rival.who, rival.line),
        ));
    }
    let shadowed = rival.as_ref().filter(|rival| rival.later);
    let mut why_not = residence.why_not_repair();
    // Another reference to the unit's chain is not ours to judge.
    if unit.foreign > 0 {
        why_not = Some(format!("{} other rules jump to {name}", unit.foreign));
    }
    let delete = unit.lines();
    Some(Finding {
        rule: RULE.id,
        verdict,
        why_not_repair: why_not,
        consequence: consequence(verdict, unit, rival.as_ref()),
        object: Object::XtUnit {
            place: Judge::place(table),
            chain: chain.name.clone(),
            jump: jump.clone(),
            unit: name.to_owned(),
            rules: unit.rules.to_vec(),
        },
        owner: residence.owner,
        evidence,
        witnesses: residence.witnesses,
        remedy: (verdict == Verdict::Stale).then(|| {
            Remedy::Xt(XtEdit {
                replaced: if shadowed.is_some() { delete.len() } else { 0 },
                delete,
                drop_chains: unit.exists.then(|| name.to_owned()).into_iter().collect(),
                probes: shadowed.map_or_else(Vec::new, |rival| probes_of(table, rival.unit)),
                ..XtEdit::of(Judge::place(table))
            })
        }),
    })
}

/// What the unit does to traffic.
fn consequence(verdict: Verdict, unit: &Unit<'_>, rival: Option<&Rival<'_>>) -> String {
    let ports: Vec<_> = unit.jumps.iter().map(|jump| ports(jump)).collect();
    let ports = ports.join(" and ");
    match rival {
        _ if verdict == Verdict::Unknown => {
            format!("Whether the rule of host port {ports} serves anybody cannot be told.")
        }
        Some(Rival {
            who,
            shared,
            later: true,
            ..
        }) => format!(
            "Traffic to host port {shared} never reaches Pod {who}: this older rule of a dead sandbox takes it first."
        ),
        Some(Rival { who, shared, .. }) => format!(
            "The rule of Pod {who} takes host port {shared} before this one of a dead sandbox, which would take it as soon as that is gone."
        ),
        None if unit.rules.iter().all(|rule| rule.spec.dnat.is_none()) => {
            format!("The rule of host port {ports} is left of a dead sandbox, and leads nowhere.")
        }
        None => format!("Traffic to host port {ports} is sent to an address that its Pod no longer has."),
    }
}

/// A living Pod's jump in the same chain that leads the same port on.
struct Rival<'a> {
    line: &'a str,
    unit: &'a str,
    who: String,
    /// The ports that both take, in words.
    shared: String,
    /// It stands behind the dead one.
    later: bool,
}

/// The first living rule for a port of this unit, one that the unit shadows before one that shadows it.
fn rival<'a>(
    judge: &Judge<'_>,
    table: &'a XtTable,
    chain: &'a XtChain,
    index: usize,
    unit: &Unit<'_>,
) -> Option<Rival<'a>> {
    let (before, behind) = chain.rules.split_at(index);
    let behind = behind.iter().map(|rule| (rule, true));
    let all = behind.chain(before.iter().map(|rule| (rule, false)));
    let mut rivals = all.filter_map(|(rule, later)| {
        let (mark, name) = marks::hostport_mark(rule)?;
        let other = table.chain(name).map_or(&[][..], |c| c.rules.as_slice());
        let mut shared: Vec<String> = unit
            .rules
            .iter()
            .filter(|a| other.iter().any(|b| overlaps(a, b)))
            .map(ports)
            .collect();
        shared.dedup();
        if shared.is_empty() {
            return None;
        }
        let alive = judge.roster.container(&mark.container, None);
        (alive.standing == Standing::Live).then(|| Rival {
            line: &rule.line,
            unit: name,
            who: crate::plan::pod_or_nobody(alive.owner.map(|o| o.pod_name()).as_ref()),
            shared: shared.join(" and "),
            later,
        })
    });
    rivals.next()
}

fn ports(rule: &XtRule) -> String {
    port_words(rule.spec.proto, &rule.spec.dports)
}

/// `tcp 8080`.
fn port_words(proto: Option<Proto>, ranges: &[PortRange]) -> String {
    let proto = proto.map(|p| format!("{p} ")).unwrap_or_default();
    let ports: Vec<_> = ranges
        .iter()
        .map(|p| {
            if p.first == p.last {
                p.first.to_string()
            } else {
                format!("{}-{}", p.first, p.last)
            }
        })
        .collect();
    format!("{proto}{}", ports.join(","))
}

/// True if two DNATs take a packet in common: one port, and one host address unless one of them takes all.
fn overlaps(a: &XtRule, b: &XtRule) -> bool {
    let (a, b) = (&a.spec, &b.spec);
    let same_address = match (&a.destination, &b.destination) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    };
    let same_port = |p: &PortRange, q: &PortRange| p.first <= q.last && q.first <= p.last;
    a.dnat.is_some()
        && b.dnat.is_some()
        && a.proto == b.proto
        && same_address
        && a.dports.iter().any(|p| b.dports.iter().any(|q| same_port(p, q)))
}

/// Connections that prove that the living Pod gets its port again.
fn probes_of(table: &XtTable, unit: &str) -> Vec<Probe> {
    let rules = table.chain(unit).map_or(&[][..], |c| c.rules.as_slice());
    rules
        .iter()
        .filter_map(|rule| {
            let dnat = rule.spec.dnat?;
            let [port] = rule.spec.dports.as_slice() else {
                return None;
            };
            // A mapping of one host address is only reached there.
            let node_ip = match rule.spec.destination.as_deref() {
                None => None,
                Some(text) => Some(text.split('/').next()?.parse().ok()?),
            };
            Some(Probe {
                proto: rule.spec.proto?,
                node_ip,
                node_port: port.first,
                target: dnat.ip,
                target_port: dnat.port.unwrap_or(port.first),
            })
        })
        .collect()
}
