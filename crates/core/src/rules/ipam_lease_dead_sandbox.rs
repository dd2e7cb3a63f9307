//! host-local leases of sandboxes that no runtime knows.

use super::{Part, Rule};
use crate::{
    finding::{Evidence, Finding, Object, Verdict},
    judge::Judge,
    model::Lease,
    plan::Remedy,
    roster::Standing,
};

/// See the page.
pub(super) static RULE: Rule = Rule {
    id: "ipam-lease-dead-sandbox",
    tier: 1,
    summary: "a host-local lease of a sandbox that no runtime knows",
    page: include_str!("pages/ipam-lease-dead-sandbox.md"),
    needs: &[Part::Runtime, Part::Ipam],
    judge,
};

fn judge(judge: &Judge<'_>) -> Vec<Finding> {
    judge
        .state
        .ipam
        .value
        .leases
        .iter()
        .filter_map(|lease| judge_lease(judge, lease))
        .collect()
}

fn judge_lease(judge: &Judge<'_>, lease: &Lease) -> Option<Finding> {
    let residence = judge.container(&lease.network, &lease.container, lease.modified_at, [lease.ip]);
    let mut verdict = residence.verdict()?;
    let mut why_not = residence.why_not_repair();
    let mut evidence = vec![Evidence::new(
        &lease.path,
        format!("{} is leased to {}", lease.ip, lease.container),
    )];
    evidence.extend(
        lease
            .modified_at
            .map(|at| Evidence::new(&lease.path, format!("last written at {at:.0}"))),
    );
    evidence.extend(residence.evidence.iter().cloned());
    let mut witnesses = residence.witnesses;
    let mut owner = residence.owner;
    let mut consequence = format!(
        "{} cannot be given to a new Pod of network {:?}.",
        lease.ip, lease.network
    );
    if verdict == Verdict::Unknown {
        consequence = format!("Whether {} is still needed cannot be told.", lease.ip);
    }
    // Somebody alive may have the address without this lease: then the lease is all that keeps it from a second owner.
    let at = judge.roster.address(lease.ip);
    if at.standing == Standing::Live {
        consequence = if verdict == Verdict::Stale {
            format!("{} is in use and leased to a container that is gone.", lease.ip)
        } else {
            format!(
                "{} is in use; whether by the container of its lease cannot be told.",
                lease.ip
            )
        };
        verdict = Verdict::Unknown;
        why_not = Some(format!("somebody alive has {}", lease.ip));
        owner = at.owner;
        witnesses = at.witnesses;
        evidence.extend(at.evidence);
    }
    Some(Finding {
        rule: RULE.id,
        verdict,
        why_not_repair: why_not,
        object: Object::Lease { lease: lease.clone() },
        owner,
        consequence,
        evidence,
        witnesses,
        remedy: (verdict == Verdict::Stale).then(|| Remedy::Lease(lease.clone())),
    })
}
