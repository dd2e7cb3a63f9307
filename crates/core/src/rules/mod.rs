//! The rules: each a named way in which a node's state goes wrong.
//!
//! A rule is a value ([`Rule`]) in a file of its own: its name, its tier, its page, and a function from a [`Judge`] to
//! [`Finding`]s. To add one: write the file, its page under `pages/`, and add it to [`ALL`]; then add a scenario folder
//! with something alive that differs from the stale one in a single fact.

mod cni_rule_dead_sandbox;
mod conntrack;
mod data_plane;
mod hostport_stale_target;
mod ipam_lease_dead_sandbox;
mod loop_exposed;
mod nft_unit;
mod nic_ip_unowned_with_traffic;
mod npl;
mod packet_loop;
mod tombstone_over_live_pod;
mod unit;
mod zombie_sandbox;

#[cfg(test)]
mod conntrack_tests;
#[cfg(test)]
mod doubt_tests;
#[cfg(test)]
mod living_tests;
#[cfg(test)]
mod nft_tests;
#[cfg(test)]
mod npl_tests;
#[cfg(test)]
mod tests;

use crate::{
    finding::{Finding, RuleId, Verdict},
    judge::Judge,
};

/// A part of the node's state that a rule needs to be whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Pods of this node.
    Pods,
    /// Services and EndpointSlices.
    Services,
    /// The runtime's sandboxes.
    Runtime,
    /// iptables.
    Xtables,
    /// nftables.
    Nft,
    /// Connection tracking.
    Conntrack,
    /// host-local leases.
    Ipam,
    /// Captures, where there are any.
    Captures,
    /// Counters, where there are any.
    Counters,
    /// What the adapters own and which endpoints use it, where that was read.
    Adapters,
}

/// A rule.
pub struct Rule {
    /// Its name: part of the interface.
    pub id: RuleId,
    /// 1: judged and repaired. 2: judged, and reported with the command that a person would run.
    pub tier: u8,
    /// What it finds, in one line.
    pub summary: &'static str,
    /// Its page, in Markdown.
    pub page: &'static str,
    /// The parts of the state that it looks at. One that could not be read makes its silence worth less: exit code 3.
    pub needs: &'static [Part],
    /// What it finds in a reading.
    pub judge: fn(&Judge<'_>) -> Vec<Finding>,
}

/// Every rule, in the order of reports: the living first.
pub static ALL: &[&Rule] = &[
    &tombstone_over_live_pod::RULE,
    &zombie_sandbox::RULE,
    &npl::STALE_TARGET,
    &npl::MISSING_MAPPING,
    &hostport_stale_target::RULE,
    &cni_rule_dead_sandbox::RULE,
    &conntrack::UDP_DEAD_ENDPOINT,
    &conntrack::UDP_ORPHAN_VIP,
    &conntrack::HOSTPORT_STALE,
    &conntrack::UNDNATTED_VIP,
    &ipam_lease_dead_sandbox::RULE,
    &packet_loop::RULE,
    &nic_ip_unowned_with_traffic::RULE,
    &loop_exposed::RULE,
];

/// The rule of this name.
pub fn find(id: &str) -> Option<&'static Rule> {
    ALL.iter().copied().find(|rule| rule.id == id)
}

/// Why a finding is not repaired: what judging it needs while it is unknown, else what a repair still needs. `None` if
/// nothing is lacking.
fn why_not(verdict: Verdict, lacking: &[String]) -> Option<String> {
    let what = if verdict == Verdict::Unknown {
        "judging it"
    } else {
        "a repair"
    };
    (!lacking.is_empty()).then(|| format!("{what} needs {}", lacking.join("; ")))
}
