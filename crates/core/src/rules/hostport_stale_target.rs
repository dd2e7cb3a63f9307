//! hostPort mappings of portmap whose sandbox is dead.

use super::{Part, Rule};
use crate::{
    finding::{Evidence, Finding, Object, Verdict},
    judge::Judge,
    marks::{self, CniMark, PORTMAP_CHAIN},
    model::{XtChain, XtRule, XtTable},
    plan::{Probe, Remedy, XtEdit},
    roster::Standing,
};

/// See the page.
pub(super) static RULE: Rule = Rule {
    id: "hostport-stale-target",
    tier: 1,
    summary: "a hostPort's DNAT whose sandbox is dead, which may shadow the living one",
    page: include_str!("pages/hostport-stale-target.md"),
    needs: &[Part::Runtime, Part::Xtables],
    judge,
};

fn judge(judge: &Judge<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for table in judge.tables("nat") {
        let Some(chain) = table.chain(PORTMAP_CHAIN) else {
            continue;
        };
        for (index, jump) in chain.rules.iter().enumerate() {
            let Some((mark, unit)) = marks::hostport_mark(jump) else {
                continue;
            };
            findings.extend(judge_unit(judge, table, chain, index, jump, &mark, unit));
        }
    }
    findings
}

fn judge_unit(
    judge: &Judge<'_>,
    table: &XtTable,
    chain: &XtChain,
    index: usize,
    jump: &XtRule,
    mark: &CniMark,
    unit: &str,
) -> Option<Finding> {
    let born = judge.born(&mark.container, Some((chain, index)));
    let residence = judge
        .roster
        .container(&mark.container, born.as_ref().map(|b| b.0));
    if residence.standing == Standing::Live {
        return None;
    }
    let own = table.chain(unit).map_or(&[][..], |c| c.rules.as_slice());
    let verdict = if residence.is_dead() {
        Verdict::Stale
    } else {
        Verdict::Unknown
    };
    let mut evidence = vec![Evidence::new(
        &table.source,
        format!("the rule names container {}", mark.container),
    )];
    evidence.extend(residence.evidence.iter().cloned());
    evidence.extend(born.map(|(_, said)| said));
    let ports = ports(jump);
    let shadowed = chain
        .rules
        .iter()
        .skip(index + 1)
        .filter(|later| overlaps(jump, later))
        .find_map(|later| {
            let (mark, unit) = marks::hostport_mark(later)?;
            let alive = judge.roster.container(&mark.container, None);
            (alive.standing == Standing::Live).then_some((later, alive, unit.to_owned()))
        });
    let mut probes = Vec::new();
    let consequence = match &shadowed {
        Some((later, alive, living_unit)) => {
            let pod = alive.owner.as_ref().map(|o| o.pod_name());
            let who = crate::plan::pod_or_nobody(pod.as_ref());
            evidence.push(Evidence::new(
                &table.source,
                format!("it comes before the rule of Pod {who}: {}", later.line),
            ));
            probes.extend(probes_of(table, living_unit));
            format!(
                "Traffic to host port {ports} never reaches Pod {who}: this older rule of a dead sandbox takes it first."
            )
        }
        None => {
            format!("Traffic to host port {ports} is sent to an address that its Pod no longer has.")
        }
    };
    // Another reference to the unit's chain, or rules that are not portmap's own, are not ours to judge.
    let foreign = table
        .rules()
        .filter(|(_, r)| r.spec.target.as_deref() == Some(unit) && r.line != jump.line)
        .count();
    let mut why_not = residence.lacks().map(|l| format!("a repair needs {l}"));
    if foreign > 0 {
        why_not = Some(format!("{foreign} other rules jump to {unit}"));
    }
    let mut delete = vec![jump.line.clone()];
    delete.extend(own.iter().map(|r| r.line.clone()));
    let drop_chains = if table.chain(unit).is_some() {
        vec![unit.to_owned()]
    } else {
        Vec::new()
    };
    Some(Finding {
        rule: RULE.id,
        verdict,
        why_not_repair: why_not,
        object: Object::XtUnit {
            place: Judge::place(table),
            chain: chain.name.clone(),
            jump: jump.clone(),
            unit: unit.to_owned(),
            rules: own.to_vec(),
        },
        owner: residence.owner,
        consequence,
        evidence,
        witnesses: residence.witnesses,
        remedy: (verdict == Verdict::Stale).then(|| {
            Remedy::Xt(XtEdit {
                place: Judge::place(table),
                replaced: if shadowed.is_some() { delete.len() } else { 0 },
                delete,
                drop_chains,
                new_chains: Vec::new(),
                add: Vec::new(),
                probes,
            })
        }),
    })
}

fn ports(rule: &XtRule) -> String {
    let proto = rule.spec.proto.map(|p| format!("{p} ")).unwrap_or_default();
    let ports: Vec<_> = rule
        .spec
        .dports
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

fn overlaps(a: &XtRule, b: &XtRule) -> bool {
    a.spec.proto == b.spec.proto
        && a.spec.dports.iter().any(|p| {
            b.spec
                .dports
                .iter()
                .any(|q| p.first <= q.last && q.first <= p.last)
        })
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
