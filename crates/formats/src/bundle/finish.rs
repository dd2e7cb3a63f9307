//! After the first visit: whose node it is, when it was recorded, and what each part lacks.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use sexton_core::{
    marks::{ANTREA_NPL_CHAIN, PORTMAP_UNIT_PREFIX},
    model::{Completeness, NodeState, SandboxState, SourceReport, XtTable},
};

use super::{
    BundleError, BundleOptions,
    collect::Collector,
    join::{join, worsen},
    problem,
};

/// Applies a macro to every part that comes from files, the connection tracking table aside.
macro_rules! each_part {
    ($state:expr, $part:ident => $body:expr) => {
        each_part!(@ $state, $part, $body; pods services endpoint_slices nodes service_cidrs runtime namespaces xtables
            nft conntrack links addresses routes neighbours ip_rules ipsets ipvs ipam cni_cache cni_config history adapters
            hns_endpoints captures counters)
    };
    (@ $state:expr, $part:ident, $body:expr; $($field:ident)*) => {
        $( { let $part = &mut $state.$field; $body } )*
    };
}

/// True if any file told anything, the connection tracking table aside.
pub(super) fn has_source(state: &mut NodeState) -> bool {
    let mut reports = 0;
    each_part!(state, part => reports += part.reports.len());
    reports > 0
}

/// Puts the parts together.
pub(super) fn finish(
    mut collector: Collector,
    options: &BundleOptions,
    cut: Option<String>,
) -> Result<NodeState, BundleError> {
    if collector.is_empty() {
        return Err(BundleError::Empty {
            unread: collector.state.unread,
        });
    }
    if collector.agents.len() > 1 && options.node.is_none() {
        return Err(BundleError::SeveralNodes {
            nodes: collector.agents.into_iter().collect(),
        });
    }
    if collector.named.len() > 1 {
        return Err(BundleError::Mixed {
            nodes: collector
                .named
                .iter()
                .map(|(node, path)| format!("{node} ({path})"))
                .collect(),
        });
    }
    collector.join_nft();
    collector.judge_legacy();
    collector.join_sandboxes();
    collector.name_components();
    let cut = cut.or_else(|| collector.stopped.take());
    // With one agent the archive's name tells the node.
    if let (None, 1, Some(node)) = (
        &collector.meta.node,
        collector.agents.len(),
        collector.agents.first(),
    ) {
        collector.meta.node = Some((node.clone(), format!("agent_{node}")));
    }
    let Collector {
        mut state,
        meta,
        saved_at,
        newest,
        manifests,
        flag_cidrs,
        ..
    } = collector;
    state.taken_at = meta.taken_at.or(saved_at).or(newest);
    forget_younger_times(&mut state);
    name_node(&mut state, meta.node, options)?;
    if !flag_cidrs.is_empty() && state.service_cidrs.reports.is_empty() {
        let mut flag_cidrs = flag_cidrs;
        flag_cidrs.sort();
        flag_cidrs.dedup();
        let report = SourceReport {
            name: "flags of the control plane's static Pods".to_owned(),
            completeness: Completeness::Complete,
            items: flag_cidrs.len() as u64,
            read_at: None,
            took_ms: 0.0,
        };
        join(&mut state.service_cidrs, flag_cidrs, report);
    }
    super::pods::judge(&mut state, &manifests);
    if let Some(cut) = cut {
        state
            .problems
            .push(problem("the bundle", format!("was not read to its end: {cut}")));
        each_part!(state, part => {
            if !part.reports.is_empty() {
                worsen(&mut part.completeness, Completeness::Partial(format!("the bundle was not read to its end: {cut}")));
            }
        });
    }
    let taken_at = state.taken_at;
    each_part!(state, part => {
        if part.reports.is_empty() {
            part.completeness = Completeness::Unavailable("not in the bundle".to_owned());
        }
        for report in &mut part.reports {
            report.read_at = taken_at.or(report.read_at);
        }
    });
    Ok(state)
}

/// The node's name: what the bundle says, else what follows from its facts; and it must be the one that was asked for.
fn name_node(
    state: &mut NodeState,
    told: Option<(String, String)>,
    options: &BundleOptions,
) -> Result<(), BundleError> {
    let found = told.or_else(|| infer(state));
    state.identity.name = match (&options.node, found) {
        (Some(asked), Some((found, source_of_name))) if *asked != found => {
            return Err(BundleError::OtherNode {
                asked: asked.clone(),
                found,
                source_of_name,
            });
        }
        (Some(asked), _) => asked.clone(),
        (None, Some((found, _))) => found,
        (None, None) => match by_pods(state) {
            Ok(name) => name,
            Err(nodes) => return Err(BundleError::Nameless { nodes }),
        },
    };
    Ok(())
}

/// A file that is younger than the recording was copied without its time, and its age is not known.
fn forget_younger_times(state: &mut NodeState) {
    let Some(taken_at) = state.taken_at else { return };
    let leases = state.ipam.value.leases.iter_mut().map(|l| &mut l.modified_at);
    let cached = state.cni_cache.value.iter_mut().map(|e| &mut e.modified_at);
    for time in leases.chain(cached) {
        *time = time.filter(|time| *time <= taken_at);
    }
}

/// The node by the facts: the one that the Pods of the sandboxes are bound to, or the only Node.
fn infer(state: &NodeState) -> Option<(String, String)> {
    let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
    let ready = state
        .runtime
        .value
        .sandboxes
        .iter()
        .filter(|s| s.state == SandboxState::Ready);
    for sandbox in ready {
        let pod = state.pods.value.iter().find(|pod| pod.is_known_as(&sandbox.uid));
        if let Some(node) = pod.and_then(|pod| pod.node.as_deref()) {
            *votes.entry(node).or_default() += 1;
        }
    }
    if let [(node, _)] = votes.iter().collect::<Vec<_>>().as_slice() {
        return Some((
            (*node).to_string(),
            "the Pods of its sandboxes are bound to it".to_owned(),
        ));
    }
    if let Some(found) = by_counters(state) {
        return Some(found);
    }
    match state.nodes.value.as_slice() {
        [node] => Some((node.name.clone(), "the only Node object".to_owned())),
        _ => None,
    }
}

/// The machine that the counters' paths name, where a Node or a Pod's node is called so.
fn by_counters(state: &NodeState) -> Option<(String, String)> {
    let series = state.counters.value.iter().flat_map(|file| &file.counters.series);
    let hosts: BTreeSet<String> = series
        .filter_map(|s| Some(s.counter.host.as_ref()?.to_lowercase()))
        .collect();
    let nodes = state.nodes.value.iter().map(|node| node.name.as_str());
    let pods = state.pods.value.iter().filter_map(|pod| pod.node.as_deref());
    let known: BTreeSet<&str> = nodes
        .chain(pods)
        .filter(|name| hosts.contains(&name.to_lowercase()))
        .collect();
    match known.into_iter().collect::<Vec<_>>().as_slice() {
        [node] => Some(((*node).to_owned(), "the counters are of this machine".to_owned())),
        _ => None,
    }
}

/// The node of the Pods: the only one that they are bound to, else the one whose Pods most of the node's own translations lead to
/// (NodePortLocal's and portmap's). Both are too weak to contradict what was asked for.
///
/// # Errors
///
/// The nodes that the Pods are bound to, when nothing tells which of them it is.
fn by_pods(state: &NodeState) -> Result<String, Vec<String>> {
    let pods = &state.pods.value;
    let nodes: BTreeSet<&str> = pods.iter().filter_map(|pod| pod.node.as_deref()).collect();
    if nodes.len() < 2 {
        return Ok(nodes.into_iter().next().unwrap_or_default().to_owned());
    }
    let mut homes: HashMap<IpAddr, &str> = HashMap::new();
    for pod in pods.iter().filter(|pod| !pod.phase.is_terminal()) {
        homes.extend(
            pod.own_ips()
                .zip(std::iter::repeat(pod.node.as_deref().unwrap_or_default())),
        );
    }
    let rules = state.xtables.value.iter().flat_map(XtTable::rules);
    let own = rules
        .filter(|(chain, _)| chain.name == ANTREA_NPL_CHAIN || chain.name.starts_with(PORTMAP_UNIT_PREFIX));
    let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, rule) in own {
        let home = rule.spec.dnat.and_then(|dnat| homes.get(&dnat.ip));
        if let Some(node) = home.filter(|node| !node.is_empty()) {
            *votes.entry(node).or_default() += 1;
        }
    }
    let endpoints = state
        .hns_endpoints
        .value
        .iter()
        .filter(|endpoint| endpoint.is_local());
    for address in endpoints.flat_map(|endpoint| &endpoint.addresses) {
        if let Some(node) = homes.get(address).filter(|node| !node.is_empty()) {
            *votes.entry(node).or_default() += 1;
        }
    }
    let total: usize = votes.values().sum();
    let most = votes.into_iter().max_by_key(|(_, count)| *count);
    match most {
        Some((node, count)) if count * 2 > total => Ok(node.to_owned()),
        _ => Err(nodes.into_iter().map(str::to_owned).collect()),
    }
}

#[cfg(test)]
mod tests;
