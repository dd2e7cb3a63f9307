//! Who lives at an address: the living first (law 7), by the API, the runtime and the kernel.

use std::net::IpAddr;

use super::{Residence, Roster, Standing, owner_of, owner_of_sandbox};
use crate::{
    finding::{Evidence, Witness},
    model::{Pod, PodUid, SandboxState},
};

impl Roster<'_> {
    /// True if the address is the node's own.
    pub fn is_node_ip(&self, ip: IpAddr) -> bool {
        self.node_ips.contains(&ip)
    }

    /// True if the address is inside this node's Pod ranges: `podCIDRs`, host-local's subnets.
    pub fn in_pod_range(&self, ip: IpAddr) -> bool {
        let node = self
            .state
            .kube_node()
            .into_iter()
            .flat_map(|n| n.pod_cidrs.iter());
        let cni = self
            .state
            .cni_config
            .value
            .iter()
            .flat_map(|c| c.plugins.iter())
            .flat_map(|p| p.subnets.iter());
        node.chain(cni).any(|net| net.contains(&ip))
    }

    /// True if the address is of a Pod of this node: in its range, or one that a Pod of this node has or had.
    pub fn is_local_pod_address(&self, ip: IpAddr) -> bool {
        self.in_pod_range(ip)
            || self.sandboxes_by_ip.contains_key(&ip)
            || self.cache_by_ip.contains_key(&ip)
            || self.leased_ips.contains(&ip)
            || self.pods_by_ip.get(&ip).is_some_and(|pods| {
                pods.iter()
                    .any(|p| p.node.as_deref() == Some(&self.state.identity.name))
            })
    }

    /// Who lives at an address.
    pub fn address(&self, ip: IpAddr) -> Residence {
        if self.is_node_ip(ip) {
            let text = format!("{ip} is an address of the node itself");
            return Residence::live(None, Witness::Kernel, "node addresses", text);
        }
        let api = self.state.pods.source_names();
        let mut finished = Vec::new();
        let mut untold = None;
        for pod in self.pods_by_ip.get(&ip).into_iter().flatten() {
            match self.owns_network(pod) {
                Some(true) => {
                    let text = format!("{ip} is Pod {} ({})", pod.pod_name(), describe(pod));
                    return Residence::live(Some(owner_of(pod, None)), Witness::Api, &api, text);
                }
                Some(false) => finished.push(Evidence::new(
                    &api,
                    format!(
                        "Pod {} had {ip}; its phase is {:?} and its sandbox is not ready",
                        pod.pod_name(),
                        pod.phase
                    ),
                )),
                None => {
                    // Another Pod may have the address by now: the living first.
                    let text = format!("Pod {} has {ip}; its phase is {:?}", pod.pod_name(), pod.phase);
                    let why = "a runtime source, to tell whether the finished Pod's sandbox is gone";
                    untold = Some(Residence::unknown(
                        Some(owner_of(pod, None)),
                        vec![Evidence::new(&api, text)],
                        vec![why.to_owned()],
                    ));
                }
            }
        }
        if let Some(alive) = self.held_beyond_the_api(ip) {
            return alive;
        }
        if let Some(untold) = untold {
            return untold;
        }
        if let Some(sandbox) = self.addresses_untold.first() {
            let text = format!(
                "sandbox {} of Pod {} is ready, no Pod of the API tells its address, and the runtime did not",
                sandbox.id.short(),
                sandbox.pod
            );
            let why =
                vec!["the address of every ready sandbox (crictl inspectp, or the CNI cache)".to_owned()];
            return Residence::unknown(
                None,
                vec![Evidence::new(self.state.runtime.source_names(), text)],
                why,
            );
        }
        self.dead_address(ip, finished)
    }

    /// Law 7: what the runtime and the kernel say beyond the API.
    fn held_beyond_the_api(&self, ip: IpAddr) -> Option<Residence> {
        let runtime = self.state.runtime.source_names();
        for sandbox in self.sandboxes_by_ip.get(&ip).into_iter().flatten() {
            if sandbox.state == SandboxState::Ready && self.cri_doubt.is_none() {
                let owner = owner_of_sandbox(sandbox, None);
                let text = format!(
                    "sandbox {} of Pod {} is ready and has {ip}",
                    sandbox.id.short(),
                    sandbox.pod
                );
                return Some(Residence::live(Some(owner), Witness::Cri, &runtime, text));
            }
        }
        if let Some(namespace) = self
            .holders
            .get(&ip)
            .and_then(|index| self.state.namespaces.value.get(*index))
        {
            let process = namespace.pids.first().copied().unwrap_or_default();
            let command = namespace.commands.first().map_or("?", String::as_str);
            let text = format!(
                "namespace net:[{}] holds {ip} and process {process} ({command}) lives in it",
                namespace.inode
            );
            let owner = self.last_owner(ip);
            return Some(Residence::live(
                owner,
                Witness::Kernel,
                &self.state.namespaces.source_names(),
                text,
            ));
        }
        if let Some(endpoint) = self.endpoints.get(&ip) {
            let text = format!("endpoint {} ({}) has {ip}", endpoint.id, endpoint.name);
            let source = self.state.hns_endpoints.source_names();
            return Some(Residence::live(
                self.last_owner(ip),
                Witness::Kernel,
                &source,
                text,
            ));
        }
        if self.since.replied.contains(&ip) {
            let text = format!("{ip} answered between two readings (a reply counter grew)");
            let owner = self.last_owner(ip);
            return Some(Residence::live(
                owner,
                Witness::Kernel,
                &self.state.conntrack.source_names(),
                text,
            ));
        }
        None
    }

    fn dead_address(&self, ip: IpAddr, mut evidence: Vec<Evidence>) -> Residence {
        let owner = self.last_owner(ip);
        let mut witnesses = Vec::new();
        let mut lacking = Vec::new();
        let api = &self.state.pods;
        if api.is_complete() {
            witnesses.push(Witness::Api);
            let count = api.value.len();
            evidence.push(Evidence::new(
                api.source_names(),
                format!("none of {count} Pods has {ip}"),
            ));
        } else {
            let why = api.completeness.why().unwrap_or("unknown");
            lacking.push(format!("a complete Pod list from the API server ({why})"));
        }
        let runtime = &self.state.runtime;
        if self.cri_tells_addresses() {
            witnesses.push(Witness::Cri);
            let count = runtime.value.sandboxes.len();
            let text = format!("none of {count} sandboxes is ready and has {ip}");
            evidence.push(Evidence::new(runtime.source_names(), text));
        } else if let Some(doubt) = &self.cri_doubt {
            lacking.push(format!("the node's own runtime ({doubt})"));
        } else if self.cri_complete() {
            lacking.push("PodSandboxStatus of every sandbox from the runtime".to_owned());
        } else {
            let why = runtime.completeness.why().unwrap_or("unknown");
            lacking.push(format!(
                "PodSandboxStatus of every sandbox from the runtime ({why})"
            ));
        }
        if witnesses.is_empty() {
            return Residence::unknown(owner, evidence, lacking);
        }
        evidence.extend(self.past_of(ip));
        if self.state.namespaces.is_complete() {
            let text = format!("no namespace with a process holds {ip}");
            evidence.push(Evidence::new(self.state.namespaces.source_names(), text));
            witnesses.push(Witness::Kernel);
        }
        if self.state.conntrack.value.accounting != Some(true) {
            let text = format!("whether {ip} answers now was not measured (nf_conntrack_acct)");
            evidence.push(Evidence::new("conntrack", text));
        }
        lacking.extend(self.repair_blockers());
        Residence::dead(owner, witnesses, evidence, lacking)
    }

    /// Whether the runtime gives this address to the Pod's ready sandbox; `None` where it does not tell.
    pub fn runtime_confirms(&self, pod: &Pod, ip: IpAddr) -> Option<bool> {
        if !self.cri_usable() || pod.host_network {
            return None;
        }
        let sandboxes = self.state.runtime.value.sandboxes.iter();
        let mut told = sandboxes
            .filter(|s| s.state == SandboxState::Ready && pod.is_known_as(&s.uid))
            .filter_map(|s| s.ips.as_ref())
            .filter(|ips| !ips.is_empty())
            .peekable();
        told.peek()?;
        Some(told.flatten().any(|own| *own == ip))
    }

    /// True if some living Pod has this very address by the API or the runtime.
    pub fn has_live_owner(&self, ip: IpAddr) -> bool {
        self.address(ip).standing == Standing::Live
    }
}

fn describe(pod: &Pod) -> String {
    let uid = pod.uid.as_ref().map_or("no UID", PodUid::as_str);
    let since = pod
        .created_at
        .map(|at| format!(", since {at:.0}"))
        .unwrap_or_default();
    let state = if pod.deleting_since.is_some() {
        ", terminating"
    } else {
        ""
    };
    format!("{uid}{since}{state}")
}
