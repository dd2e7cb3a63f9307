//! A drop of our own for an address that somebody alive has.

use std::net::IpAddr;

use super::{Part, Rule};
use crate::{
    finding::{Evidence, Finding, Object, Verdict},
    judge::Judge,
    marks::{TOMBSTONE_MARK, TOMBSTONE_TABLE},
    model::{NftElement, NftFamily, NftSet, NftValue},
    plan::Remedy,
    roster::Standing,
};

/// See the page.
pub(super) static RULE: Rule = Rule {
    id: "tombstone-over-live-pod",
    tier: 1,
    summary: "a drop that Sexton set for a dead Pod's address, which a living Pod has now",
    page: include_str!("pages/tombstone-over-live-pod.md"),
    needs: &[Part::Nft],
    judge,
};

fn judge(judge: &Judge<'_>) -> Vec<Finding> {
    let sets = judge.state.nft.value.sets.iter();
    sets.filter(|s| s.family == NftFamily::Netdev && s.table == TOMBSTONE_TABLE)
        .flat_map(|set| {
            set.elements
                .iter()
                .filter_map(|element| judge_element(judge, set, element))
        })
        .collect()
}

fn judge_element(judge: &Judge<'_>, set: &NftSet, element: &NftElement) -> Option<Finding> {
    let ip: IpAddr = element.key.iter().find_map(|value| match value {
        NftValue::Addr(ip) => Some(*ip),
        _ => None,
    })?;
    let at = judge.roster.address(ip);
    if at.standing != Standing::Live {
        return None;
    }
    let ours = element
        .comment
        .as_deref()
        .and_then(|c| c.strip_prefix(TOMBSTONE_MARK));
    let mut evidence = vec![Evidence::new(judge.state.nft.source_names(), element.text())];
    if let Some((uid, reason)) = ours.and_then(|o| o.split_once(':')) {
        evidence.push(Evidence::new(
            "comment",
            format!("it was set for Pod UID {uid} because of {reason}"),
        ));
    }
    evidence.extend(at.evidence);
    let mut blockers = judge.roster.repair_blockers();
    if ours.is_none() {
        blockers.push(format!(
            "our mark {TOMBSTONE_MARK:?} in its comment: somebody else set it"
        ));
    }
    let who = match &at.owner {
        Some(owner) => format!("Pod {} lives there", owner.pod_name()),
        None => "the address is in use".to_owned(),
    };
    Some(Finding {
        rule: RULE.id,
        verdict: Verdict::Conflict,
        why_not_repair: (!blockers.is_empty()).then(|| format!("a repair needs {}", blockers.join("; "))),
        object: Object::NftElement {
            family: set.family,
            table: set.table.clone(),
            set: set.name.clone(),
            element: element.clone(),
        },
        owner: at.owner,
        consequence: format!("Packets from outside to {ip} are dropped, and {who}."),
        evidence,
        witnesses: at.witnesses,
        remedy: Some(Remedy::NftElement {
            family: set.family,
            table: set.table.clone(),
            set: set.name.clone(),
            element: element.clone(),
        }),
    })
}
