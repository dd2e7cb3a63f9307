//! Rules that a CNI plugin marked with a container ID, left after the container.

use super::{Part, Rule};
use crate::{
    finding::{Evidence, Finding, Object, Verdict},
    judge::Judge,
    marks::{self, CniMark, PORTMAP_UNIT_PREFIX},
    model::{XtChain, XtRule, XtTable},
    plan::{Remedy, XtEdit},
    roster::Standing,
};

/// See the page.
pub(super) static RULE: Rule = Rule {
    id: "cni-rule-dead-sandbox",
    tier: 1,
    summary: "a rule that a CNI plugin marked with a container ID that no runtime knows",
    page: include_str!("pages/cni-rule-dead-sandbox.md"),
    needs: &[Part::Runtime, Part::Xtables],
    judge,
};

fn judge(judge: &Judge<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for table in &judge.state.xtables.value {
        for chain in &table.chains {
            for (index, rule) in chain.rules.iter().enumerate() {
                let mark = rule.spec.comment.as_deref().and_then(marks::cni_comment);
                let Some(mark) = mark.filter(|_| !is_hostport(rule) && !in_own_chain(chain)) else {
                    continue;
                };
                findings.extend(judge_rule(judge, table, chain, index, rule, &mark));
            }
        }
    }
    findings
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
    chain: &XtChain,
    index: usize,
    rule: &XtRule,
    mark: &CniMark,
) -> Option<Finding> {
    let born = judge.born(&mark.container, Some((chain, index)));
    let residence = judge
        .roster
        .container(&mark.container, born.as_ref().map(|b| b.0));
    if residence.standing == Standing::Live {
        return None;
    }
    let verdict = if residence.is_dead() {
        Verdict::Stale
    } else {
        Verdict::Unknown
    };
    let mut evidence = vec![Evidence::new(
        &table.source,
        format!(
            "the rule names container {} of network {:?}",
            mark.container, mark.network
        ),
    )];
    evidence.extend(residence.evidence.iter().cloned());
    evidence.extend(born.map(|(_, said)| said));
    let unit = rule
        .spec
        .target
        .as_deref()
        .filter(|t| marks::is_masquerade_chain(t))
        .and_then(|t| table.chain(t));
    let mut delete = vec![rule.line.clone()];
    let mut drop_chains = Vec::new();
    let mut why_not = residence.lacks().map(|l| format!("a repair needs {l}"));
    let object = match unit {
        Some(unit) => {
            // A container with two addresses has two jumps to its chain: one unit, named by the first.
            let jumps = table
                .rules()
                .filter(|(_, r)| r.spec.target.as_deref() == Some(&unit.name));
            let (own, foreign): (Vec<_>, Vec<_>) = jumps.partition(|(_, r)| {
                r.spec.comment.as_deref().and_then(marks::cni_comment).as_ref() == Some(mark)
            });
            if own.first().is_some_and(|(_, first)| first.line != rule.line) {
                return None;
            }
            if !foreign.is_empty() {
                why_not = Some(format!(
                    "{} rules that are not this container's jump to {}",
                    foreign.len(),
                    unit.name
                ));
            }
            delete = own.iter().map(|(_, r)| r.line.clone()).collect();
            delete.extend(unit.rules.iter().map(|r| r.line.clone()));
            drop_chains.push(unit.name.clone());
            Object::XtUnit {
                place: Judge::place(table),
                chain: chain.name.clone(),
                jump: rule.clone(),
                unit: unit.name.clone(),
                rules: unit.rules.clone(),
            }
        }
        None => Object::XtRule {
            place: Judge::place(table),
            chain: chain.name.clone(),
            rule: rule.clone(),
        },
    };
    let consequence =
        "The rule handles packets of a container that is gone; the next one at its address inherits it.";
    Some(Finding {
        rule: RULE.id,
        verdict,
        why_not_repair: why_not,
        object,
        owner: residence.owner,
        consequence: consequence.to_owned(),
        evidence,
        witnesses: residence.witnesses,
        remedy: (verdict == Verdict::Stale).then(|| {
            Remedy::Xt(XtEdit {
                place: Judge::place(table),
                delete,
                drop_chains,
                new_chains: Vec::new(),
                add: Vec::new(),
                probes: Vec::new(),
                replaced: 0,
            })
        }),
    })
}
