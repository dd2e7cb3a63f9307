//! Where a Pod is, or was, on a node: its addresses and containers, whichever of its lives they are of.

use std::{collections::BTreeSet, net::IpAddr};

use crate::{
    finding::Finding,
    judge::Judge,
    model::{ContainerId, PodName},
};

/// What a node's sources know of a Pod's name. A StatefulSet's Pod has lived several times under it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodPlaces {
    /// Its own addresses; none of a hostNetwork Pod, whose addresses are the node's.
    pub addresses: BTreeSet<IpAddr>,
    /// Its sandboxes, by every source that names one.
    pub containers: BTreeSet<ContainerId>,
    /// Findings on what belongs or belonged to it.
    pub findings: Vec<Finding>,
    /// True if any source knows the name.
    pub known: bool,
}

/// Looks a Pod up by its namespace and name.
pub fn pod(judge: &Judge<'_>, name: &PodName) -> PodPlaces {
    let state = judge.state;
    let mut out = PodPlaces::default();
    for pod in state.pods.value.iter().filter(|pod| pod.pod_name() == *name) {
        out.known = true;
        out.addresses.extend(pod.own_ips());
    }
    for sandbox in state.runtime.value.sandboxes.iter().filter(|s| s.pod == *name) {
        out.known = true;
        out.containers.insert(sandbox.id.clone());
        if !sandbox.host_network {
            out.addresses.extend(sandbox.ips.iter().flatten());
        }
    }
    for entry in state
        .cni_cache
        .value
        .iter()
        .filter(|e| e.pod.as_ref() == Some(name))
    {
        out.known = true;
        out.containers.insert(entry.container.clone());
        out.addresses.extend(&entry.ips);
    }
    // The cache has the loopback's too.
    out.addresses.retain(|ip| !judge.roster.is_node_ip(*ip));
    let owned = |finding: &Finding| finding.owner.as_ref().is_some_and(|o| o.pod_name() == *name);
    out.findings = judge.all().into_iter().filter(owned).collect();
    out.known |= !out.findings.is_empty();
    out
}
