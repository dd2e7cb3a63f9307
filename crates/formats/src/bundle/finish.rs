//! After the first visit: whose node it is, when it was recorded, and what each part lacks.

use std::collections::BTreeMap;

use sexton_core::model::{Completeness, NodeState, SandboxState, SourceReport};

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
            nft conntrack links addresses routes neighbours ipam cni_cache cni_config)
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
    collector.join_nft();
    collector.judge_legacy();
    collector.join_sandboxes();
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
        (None, None) => only_node_of_pods(state).unwrap_or_default(),
    };
    Ok(())
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
    match state.nodes.value.as_slice() {
        [node] => Some((node.name.clone(), "the only Node object".to_owned())),
        _ => None,
    }
}

/// The only node that Pods are bound to. Too weak to contradict what was asked for.
fn only_node_of_pods(state: &NodeState) -> Option<String> {
    let mut names = state.pods.value.iter().filter_map(|pod| pod.node.as_deref());
    let first = names.next()?;
    names.all(|name| name == first).then(|| first.to_owned())
}
