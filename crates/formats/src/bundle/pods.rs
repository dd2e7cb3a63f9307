//! Whether the Pod list of a bundle is all.
//!
//! By contract it is of all namespaces, or of this node. It is complete unless its `continue` token is set, it is cut off,
//! or a manifest, a CRI sandbox or a CNI cache entry names a Pod that it lacks. A Pod that was deleted while its sandbox lives
//! on (a zombie) is lacking too, and must not make everything unknown; so a lacking Pod counts only where its absence does
//! not look like a deletion.

use std::collections::{HashMap, HashSet};

use sexton_core::model::{Completeness, NodeState, Pod, PodName, PodUid, SandboxState};

use super::{collect::Named, join::worsen};

/// What the report of a Pod list says about the assumption.
const CONTRACT: &str = "taken as all Pods of the node";

/// More lacking Pods than this share of the named ones, and at least [`MANY`], are no deletions (law 4).
const SHARE: usize = 10;
const MANY: usize = 3;

/// Looks for Pods that others name.
pub(super) fn judge(state: &mut NodeState, manifests: &[Named]) {
    if state.pods.reports.is_empty() || matches!(state.pods.completeness, Completeness::Unavailable(_)) {
        return;
    }
    for report in &mut state.pods.reports {
        report.name = format!("{} ({CONTRACT})", report.name);
    }
    let mut whys = Vec::new();
    whys.extend(lacking_mirror(state, manifests));
    whys.extend(lacking_pods(state));
    whys.extend(of_other_nodes(state));
    for why in whys {
        worsen(&mut state.pods.completeness, Completeness::Partial(why.clone()));
        for report in &mut state.pods.reports {
            worsen(&mut report.completeness, Completeness::Partial(why.clone()));
        }
    }
}

/// A static Pod lives as long as its manifest is there: its mirror is not deleted, it was never listed. Where its sandbox
/// runs, the API server may have refused the mirror, and the runtime tells that it lives.
fn lacking_mirror(state: &NodeState, manifests: &[Named]) -> Option<String> {
    let node = &state.identity.name;
    let mut names: HashSet<_> = state.pods.value.iter().map(Pod::pod_name).collect();
    let sandboxes = state.runtime.value.sandboxes.iter();
    names.extend(sandboxes.filter(|s| s.from_manifest).map(|s| s.pod.clone()));
    let lacking: Vec<_> = manifests
        .iter()
        .filter(|named| {
            let mirror = PodName {
                namespace: named.pod.namespace.clone(),
                name: format!("{}-{node}", named.pod.name),
            };
            !names.contains(&mirror) && !names.contains(&named.pod)
        })
        .map(|named| format!("{} of {}", named.pod, named.by))
        .collect();
    (!lacking.is_empty()).then(|| format!("it lacks the static Pods {}", lacking.join(", ")))
}

/// A Pod that the runtime or the CNI cache names.
struct Witness<'a> {
    uid: Option<&'a PodUid>,
    pod: &'a PodName,
    by: &'static str,
}

/// Every Pod that a ready sandbox names, and, where sandboxes were not read, a cached CNI result.
///
/// A sandbox that is not ready is one whose Pod may be gone, and so is a cached result beside a runtime that does not list it.
fn witnesses(state: &NodeState) -> Vec<Witness<'_>> {
    let runtime = &state.runtime.value;
    if !runtime.sandboxes.is_empty() {
        let ready = runtime
            .sandboxes
            .iter()
            // A static Pod lives by its manifest: the API server may have refused its mirror.
            .filter(|s| s.state == SandboxState::Ready && !s.from_manifest);
        return ready
            .map(|s| Witness {
                uid: Some(&s.uid),
                pod: &s.pod,
                by: "ready sandbox",
            })
            .collect();
    }
    let cached = state.cni_cache.value.iter();
    cached
        .filter_map(|entry| {
            Some(Witness {
                uid: entry.uid.as_ref(),
                pod: entry.pod.as_ref()?,
                by: "cached CNI result",
            })
        })
        .collect()
}

fn lacking_pods(state: &NodeState) -> Option<String> {
    let pods = &state.pods.value;
    let uids: HashSet<&PodUid> = pods
        .iter()
        .flat_map(|pod| [&pod.uid, &pod.static_uid])
        .flatten()
        .collect();
    let names: HashMap<PodName, &Pod> = pods.iter().map(|pod| (pod.pod_name(), pod)).collect();
    let namespaces: HashSet<&str> = pods.iter().map(|pod| pod.namespace.as_str()).collect();
    let named = witnesses(state);
    let lacking: Vec<&Witness<'_>> = named
        .iter()
        .filter(|witness| match witness.uid {
            Some(uid) => !uids.contains(uid),
            None => !names.contains_key(witness.pod),
        })
        // The same name with another UID: the old Pod was deleted and a new one was made.
        .filter(|witness| !names.contains_key(witness.pod))
        .collect();
    let first = lacking.first()?;
    let example = format!("{} {}", first.by, first.pod);
    if lacking.len() >= MANY && lacking.len() * SHARE > named.len() {
        return Some(format!(
            "it lacks {} of the {} Pods that the runtime names, such as that of {example}: too many for deletions",
            lacking.len(),
            named.len()
        ));
    }
    // A list of one namespace is what `kubectl get pods` gives without `-A`.
    let elsewhere = lacking
        .iter()
        .find(|witness| !namespaces.contains(witness.pod.namespace.as_str()));
    match elsewhere {
        Some(witness) if namespaces.len() <= 1 => Some(format!(
            "it holds Pods of {} only, and lacks the Pod of {} {}",
            namespaces
                .iter()
                .next()
                .map_or("no namespace".to_owned(), |namespace| format!(
                    "namespace {namespace}"
                )),
            witness.by,
            witness.pod
        )),
        _ => None,
    }
}

/// A list with `spec.nodeName=` of another node.
fn of_other_nodes(state: &NodeState) -> Option<String> {
    let name = &state.identity.name;
    let mut nodes = state.pods.value.iter().filter_map(|pod| pod.node.as_deref());
    let first = nodes.next()?;
    let single = nodes.all(|node| node == first);
    (single && !name.is_empty() && first != name)
        .then(|| format!("every Pod in it is bound to node {first}, none to {name}"))
}
