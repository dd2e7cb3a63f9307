//! Whom the roster believes, and what stops every repair on the node (laws 4, 9 and 15).

use super::Roster;
use crate::model::{Phase, SandboxState};

impl Roster<'_> {
    /// Law 4: a CRI counts only if one of its sandboxes is a Pod of this node in the API, or the node has none.
    pub(super) fn doubt_cri(&self) -> Option<String> {
        if !self.state.pods.is_complete() || !self.cri_complete() {
            return None;
        }
        let mut own = self
            .state
            .local_pods()
            .filter(|p| !p.phase.is_terminal())
            .peekable();
        own.peek()?;
        let known = self
            .state
            .runtime
            .value
            .sandboxes
            .iter()
            .any(|s| self.uids.contains_key(&s.uid));
        (!known).then(|| {
            let count = self.state.runtime.value.sandboxes.len();
            format!("the runtime that was read has {count} sandboxes and none of them is a Pod of this node: it is another one")
        })
    }

    pub(super) fn cri_complete(&self) -> bool {
        self.state.runtime.is_complete()
    }

    pub(super) fn cri_usable(&self) -> bool {
        self.cri_complete() && self.cri_doubt.is_none()
    }

    /// Whether the runtime told the address of every ready sandbox, so that it can witness for addresses.
    pub(super) fn cri_tells_addresses(&self) -> bool {
        self.cri_usable()
            && self
                .state
                .runtime
                .value
                .sandboxes
                .iter()
                .all(|s| s.ips.is_some() || s.host_network)
    }

    /// What stops every repair on this node (laws 4 and 9).
    pub fn repair_blockers(&self) -> Vec<String> {
        self.blockers.clone()
    }

    pub(super) fn find_blockers(&self) -> Vec<String> {
        let mut out = Vec::new();
        if !self.state.live {
            out.push("the node itself: this is a recording".to_owned());
        }
        let node_machine = self.state.kube_node().and_then(|n| n.machine_id.as_deref());
        if let (Some(here), Some(there)) = (self.state.identity.machine_id.as_deref(), node_machine)
            && here != there
        {
            out.push(format!(
                "the right machine: its ID is {here} and the Node's is {there}"
            ));
        }
        let name = &self.state.identity.name;
        if self.state.nodes.is_complete() && self.state.kube_node().is_none() {
            out.push(format!("the node's right name: the API has no Node {name:?}"));
        }
        out.extend(self.disagreement());
        out.extend(self.since.lost.iter().cloned());
        out
    }

    /// Law 4: API and runtime disagree on more than a tenth of the sandboxes and on at least three.
    fn disagreement(&self) -> Option<String> {
        if !self.state.pods.is_complete() || !self.cri_complete() {
            return None;
        }
        let sandboxes = &self.state.runtime.value.sandboxes;
        let ready = sandboxes.iter().filter(|s| s.state == SandboxState::Ready);
        let homeless = ready
            .filter(|s| !self.uids.contains_key(&s.uid) && !s.from_manifest)
            .count();
        let bare = self
            .state
            .local_pods()
            .filter(|p| p.phase == Phase::Running && !p.host_network)
            .filter(|p| !self.is_ready(p))
            .count();
        let (wrong, total) = (homeless + bare, sandboxes.len().max(1));
        (wrong >= 3 && wrong * 10 > total).then(|| {
            format!("agreement of API and runtime: {homeless} ready sandboxes have no Pod and {bare} running Pods have no ready sandbox")
        })
    }
}
