//! Rules that a CNI plugin marked with a container ID, left after the container.

use super::{
    Part, Rule,
    nft_unit::{self, NftUnit},
    unit::{self, Jumps},
};
use crate::{
    finding::{Evidence, Finding, Object, Verdict},
    judge::Judge,
    marks::{self, CniMark, PORTMAP_UNIT_PREFIX},
    model::{XtChain, XtRule, XtTable},
    plan::{Remedy, XtEdit},
};

/// See the page.
pub(super) static RULE: Rule = Rule {
    id: "cni-rule-dead-sandbox",
    tier: 1,
    summary: "a rule that a CNI plugin marked with a container ID that no runtime knows",
    page: include_str!("pages/cni-rule-dead-sandbox.md"),
    needs: &[Part::Runtime, Part::Xtables, Part::Nft],
    judge,
};

fn judge(judge: &Judge<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for table in &judge.state.xtables.value {
        let jumps = Jumps::new(table);
        for chain in &table.chains {
            for (index, rule) in chain.rules.iter().enumerate() {
                let mark = rule.spec.comment.as_deref().and_then(marks::cni_comment);
                let Some(mark) = mark.filter(|_| !is_hostport(rule) && !in_own_chain(chain)) else {
                    continue;
                };
                findings.extend(judge_rule(judge, table, &jumps, (chain, index), &mark));
            }
        }
    }
    let units = nft_unit::units(judge, marks::nft::masquerade);
    findings.extend(units.iter().filter_map(|unit| judge_nft(judge, unit)));
    findings
}

/// bridge's and ptp's masquerade in nftables: a rule an address.
fn judge_nft(judge: &Judge<'_>, unit: &NftUnit<'_>) -> Option<Finding> {
    let (residence, born) = unit.residence(judge);
    let verdict = residence.verdict()?;
    let network = unit.mark.network.as_deref().unwrap_or_default();
    let mut evidence = vec![Evidence::new(
        judge.state.nft.source_names(),
        format!(
            "the rule names container {} of network {network:?}",
            unit.mark.container
        ),
    )];
    evidence.extend(residence.evidence.iter().cloned());
    evidence.extend(born.map(|(_, said)| said));
    Some(Finding {
        rule: RULE.id,
        verdict,
        why_not_repair: residence.why_not_repair(),
        object: unit.object(),
        owner: residence.owner,
        consequence: consequence(verdict).to_owned(),
        evidence,
        witnesses: residence.witnesses,
        remedy: (verdict == Verdict::Stale).then(|| Remedy::Nft(unit.deletion(judge))),
    })
}

/// What such a rule does to traffic.
const fn consequence(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Unknown => "Whether the rule serves anybody cannot be told.",
        _ => "The rule handles packets of a container that is gone; the next one at its address inherits it.",
    }
}

/// hostPort rules are judged with their chain, by another rule.
fn is_hostport(rule: &XtRule) -> bool {
    rule.spec
        .comment
        .as_deref()
        .is_some_and(|c| c.starts_with("dnat "))
        || rule
            .spec
            .target
            .as_deref()
            .is_some_and(|t| t.starts_with(PORTMAP_UNIT_PREFIX))
}

/// bridge's and ptp's masquerade has a chain a container, `CNI-` and 24 hex digits, whose rules bear the same comment: they
/// are judged with the jump to it (plugins `pkg/ip/ipmasq_linux.go`, `utils.FormatChainName`).
fn in_own_chain(chain: &XtChain) -> bool {
    chain.policy.is_none() && marks::is_masquerade_chain(&chain.name)
}

fn judge_rule(
    judge: &Judge<'_>,
    table: &XtTable,
    jumps: &Jumps<'_>,
    (chain, index): (&XtChain, usize),
    mark: &CniMark,
) -> Option<Finding> {
    let rule = chain.rules.get(index)?;
    let born = judge.born(&mark.container, Some((chain, index)));
    // bridge's and ptp's masquerade is a chain with a jump an address: one unit, named by the first.
    let own_chain = rule
        .spec
        .target
        .as_deref()
        .filter(|t| marks::is_masquerade_chain(t) && table.chain(t).is_some());
    let unit = own_chain.map(|name| (name, jumps.unit(name, mark)));
    if unit.as_ref().is_some_and(|(_, unit)| !unit.is_named_by(rule)) {
        return None;
    }
    let named: Vec<_> = match &unit {
        Some((_, unit)) => unit.addresses().collect(),
        None => unit::addresses(rule).collect(),
    };
    let residence = judge.container(&mark.network, &mark.container, born.as_ref().map(|b| b.0), named);
    let verdict = residence.verdict()?;
    let mut evidence = vec![Evidence::new(
        &table.source,
        format!(
            "the rule names container {} of network {:?}",
            mark.container, mark.network
        ),
    )];
    evidence.extend(residence.evidence.iter().cloned());
    evidence.extend(born.map(|(_, said)| said));
    let mut delete = vec![rule.line.clone()];
    let mut drop_chains = Vec::new();
    let mut why_not = residence.why_not_repair();
    let object = match unit {
        Some((name, unit)) => {
            if unit.foreign > 0 {
                why_not = Some(format!(
                    "{} rules that are not this container's jump to {name}",
                    unit.foreign
                ));
            }
            delete = unit.lines();
            drop_chains.push(name.to_owned());
            Object::XtUnit {
                place: Judge::place(table),
                chain: chain.name.clone(),
                jump: rule.clone(),
                unit: name.to_owned(),
                rules: unit.rules.to_vec(),
            }
        }
        None => Object::XtRule {
            place: Judge::place(table),
            chain: chain.name.clone(),
            rule: rule.clone(),
        },
    };
    Some(Finding {
        rule: RULE.id,
        verdict,
        why_not_repair: why_not,
        object,
        owner: residence.owner,
        consequence: consequence(verdict).to_owned(),
        evidence,
        witnesses: residence.witnesses,
        remedy: (verdict == Verdict::Stale).then(|| {
            Remedy::Xt(XtEdit {
                delete,
                drop_chains,
                ..XtEdit::of(Judge::place(table))
            })
        }),
    })
}
