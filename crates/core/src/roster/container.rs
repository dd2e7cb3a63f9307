//! Who a container ID belongs to: every runtime counts (law 5), and an ADD looks dead (law 6).

use std::{collections::HashMap, net::IpAddr, time::Duration};

use super::{Residence, Roster, Standing, owner_of_cached, owner_of_sandbox};
use crate::{
    finding::{Evidence, Witness},
    model::{ContainerId, NetNs, SandboxState, Timestamp},
    settings::RUN_POD_SANDBOX,
};

/// Things that name a container, found by any spelling of its ID ([`ContainerId::same_or_prefix`]).
pub(super) struct ById<'a, T> {
    /// By the first 12 digits, which all spellings of one ID share.
    by_short: HashMap<&'a str, Vec<(&'a ContainerId, &'a T)>>,
}

impl<'a, T> ById<'a, T> {
    pub(super) fn new(items: &'a [T], id: impl Fn(&'a T) -> &'a ContainerId) -> Self {
        let mut by_short: HashMap<&str, Vec<_>> = HashMap::new();
        for item in items {
            let id = id(item);
            by_short.entry(id.short()).or_default().push((id, item));
        }
        Self { by_short }
    }

    pub(super) fn get<'i>(&'i self, id: &'i ContainerId) -> impl Iterator<Item = &'a T> + Clone + 'i {
        let near = self.by_short.get(id.short()).into_iter().flatten();
        near.filter(move |(own, _)| own.same_or_prefix(id))
            .map(|(_, item)| *item)
    }
}

impl Roster<'_> {
    /// Who a container ID belongs to. `born` is when the object that names the ID is known to have existed, where that is
    /// known: it shows that no ADD can be running for it any more (law 6).
    pub fn container(&self, id: &ContainerId, born: Option<Timestamp>) -> Residence {
        if let Some(listed) = self.listed(id) {
            return listed;
        }
        let owner = self.cache.get(id).next().and_then(|e| owner_of_cached(e, None));
        let mut evidence = Vec::new();
        if self.cri_usable() {
            let runtime = &self.state.runtime;
            let text = format!(
                "{} is none of {} sandboxes and {} containers",
                id.short(),
                runtime.value.sandboxes.len(),
                runtime.value.containers.len()
            );
            evidence.push(Evidence::new(runtime.source_names(), text));
        }
        let mut to_judge = self.runtimes_unread();
        to_judge.extend(self.add_may_run(id, born));
        to_judge.extend(self.life_in_namespace(id));
        if !to_judge.is_empty() {
            return Residence::unknown(owner, evidence, to_judge);
        }
        let mut witnesses = vec![Witness::Cri];
        if self.state.namespaces.is_complete() {
            witnesses.push(Witness::Kernel);
            let text = "no process lives in a namespace of this container".to_owned();
            evidence.push(Evidence::new(self.state.namespaces.source_names(), text));
        }
        Residence::dead(owner, witnesses, evidence, self.to_repair(id, born))
    }

    /// The sandbox or container with this ID that the runtime lists: alive, as far as what belongs to it goes.
    fn listed(&self, id: &ContainerId) -> Option<Residence> {
        let source = self.state.runtime.source_names();
        if let Some(sandbox) = self.sandboxes.get(id).next() {
            let owner = owner_of_sandbox(sandbox, None);
            let text = match sandbox.state {
                SandboxState::Ready => format!("sandbox {} of Pod {} is ready", id.short(), sandbox.pod),
                SandboxState::NotReady => format!(
                    "sandbox {} of Pod {} has ended and the runtime still lists it: its DEL is to come",
                    id.short(),
                    sandbox.pod
                ),
            };
            return Some(Residence::live(Some(owner), Witness::Cri, &source, text));
        }
        let container = self.containers.get(id).next()?;
        let text = format!(
            "container {} ({}) is known to the runtime",
            id.short(),
            container.name
        );
        Some(Residence::live(None, Witness::Cri, &source, text))
    }

    /// What a repair of something that names a dead container still needs.
    fn to_repair(&self, id: &ContainerId, born: Option<Timestamp>) -> Vec<String> {
        let mut lacking = Vec::new();
        if !self.state.namespaces.is_complete() {
            lacking.push("the namespaces of all processes (only on the node itself)".to_owned());
        }
        if !self.state.runtime.value.looked_for_others {
            lacking.push("a look for other runtimes on the node".to_owned());
        }
        if born.is_some_and(|born| self.younger_than(born, self.settings.container_grace)) {
            let grace = self.settings.container_grace.as_secs();
            lacking.push(format!("time: the object is younger than the grace of {grace} s"));
        }
        if !self.state.pods.is_complete() {
            lacking.push("a complete Pod list, to show that the runtime is this node's own".to_owned());
        }
        if !id.is_generated() {
            lacking.push(
                "an ID such as runtimes make (64 hex digits): somebody else may have written it".to_owned(),
            );
        }
        if born.is_none() {
            lacking.push("the object's age (no lease, cache entry or rule order tells it)".to_owned());
        }
        lacking.extend(self.repair_blockers());
        lacking
    }

    /// Law 7: life at an address that an object of a container names, and that nobody else is known to have.
    pub(crate) fn stray_life(&self, ip: IpAddr) -> Option<String> {
        let at = self.address(ip);
        let stray =
            at.standing == Standing::Live && at.witnesses == [Witness::Kernel] && !self.is_node_ip(ip);
        let said = at.evidence.into_iter().next().filter(|_| stray)?;
        Some(format!("the end of whoever lives at {ip}: {}", said.text))
    }

    /// Law 5: what keeps a container ID from being judged.
    fn runtimes_unread(&self) -> Vec<String> {
        let runtime = &self.state.runtime;
        let mut lacking = Vec::new();
        if !runtime.is_complete() {
            let why = runtime.completeness.why().unwrap_or("unknown");
            lacking.push(format!("the runtime's list of sandboxes ({why})"));
        }
        // Law 4: a runtime without any sandbox may be another one than the kubelet's, and nothing tells.
        if runtime.is_complete()
            && runtime.value.sandboxes.is_empty()
            && let Some(why) = self.state.pods.completeness.why()
        {
            lacking.push(format!(
                "a complete Pod list ({why}), to show that the runtime, which has no sandbox, is this node's own"
            ));
        }
        let doubt = self.cri_doubt.iter();
        lacking.extend(doubt.map(|doubt| format!("the node's own runtime ({doubt})")));
        for other in runtime.value.runtimes.iter().filter(|r| !r.read) {
            lacking.push(format!(
                "the containers of {} at {} ({})",
                other.kind, other.seen_at, other.note
            ));
        }
        lacking
    }

    /// How long one RunPodSandbox may take on this node.
    fn run_pod_sandbox(&self) -> Duration {
        let told = self.settings.run_pod_sandbox;
        told.or(self.state.identity.run_pod_sandbox)
            .unwrap_or(RUN_POD_SANDBOX)
    }

    /// Law 6: why an ADD may be running for this ID; `None` if none can.
    fn add_may_run(&self, id: &ContainerId, born: Option<Timestamp>) -> Option<String> {
        if self.recorded.get(id).next().is_some() {
            return Some(format!(
                "the end of an ADD: containerd's own records name {}",
                id.short()
            ));
        }
        if born.is_some_and(|born| !self.younger_than(born, self.run_pod_sandbox())) {
            return None;
        }
        let starting = self.state.local_pods().find(|pod| {
            !pod.host_network
                && !pod.phase.is_terminal()
                && (pod.ips.is_empty() || (self.cri_usable() && !self.is_ready(pod)))
        });
        let age = self.run_pod_sandbox().as_secs();
        let unshown = format!("nothing shows that the object is older than {age} s");
        match starting {
            Some(pod) => Some(format!(
                "the end of an ADD: Pod {} has no address or no ready sandbox yet, and {unshown}",
                pod.pod_name()
            )),
            // A Pod that is not in the list may be starting.
            None => {
                self.state.pods.completeness.why().map(|why| {
                    format!("a complete Pod list ({why}), to show that no ADD is running: {unshown}")
                })
            }
        }
    }

    /// Law 7: a process in a namespace that CNI's files give to this container.
    fn life_in_namespace(&self, id: &ContainerId) -> Option<String> {
        let cached = self.cache.get(id);
        let paths: Vec<&str> = cached.clone().filter_map(|e| e.netns.as_deref()).collect();
        let leased = self.leases.get(id).map(|l| l.ip);
        let ips: Vec<IpAddr> = cached.flat_map(|e| e.ips.iter().copied()).chain(leased).collect();
        let by_path = |ns: &NetNs| {
            let mut held = ns.paths.iter();
            held.any(|p| paths.iter().any(|q| same_netns_path(p, q)))
        };
        // A process that holds the address lives there under another ID, where a ready sandbox has that address.
        let by_address = |ns: &NetNs| {
            let mut held = ns.ips.iter().flatten();
            held.clone().any(|ip| ips.contains(ip)) && !held.any(|ip| self.is_of_a_ready_sandbox(*ip))
        };
        let mut namespaces = self.state.namespaces.value.iter();
        let namespace = namespaces.find(|ns| ns.has_process() && (by_path(ns) || by_address(ns)))?;
        let process = namespace.pids.first().copied().unwrap_or_default();
        Some(format!(
            "the end of process {process}, which lives in the container's namespace net:[{}]",
            namespace.inode
        ))
    }

    fn is_of_a_ready_sandbox(&self, ip: IpAddr) -> bool {
        let mut sandboxes = self.sandboxes_by_ip.get(&ip).into_iter().flatten();
        sandboxes.any(|s| s.state == SandboxState::Ready)
    }

    fn younger_than(&self, born: Timestamp, age: Duration) -> bool {
        self.now.duration_since(born).unsigned_abs() < age || born > self.now
    }
}

/// `/var/run/netns/x` and `/run/netns/x` are one path on every system with `/var/run -> /run`.
fn same_netns_path(a: &str, b: &str) -> bool {
    let strip = |p: &str| {
        p.strip_prefix("/var")
            .filter(|r| r.starts_with("/run/"))
            .unwrap_or(p)
            .to_owned()
    };
    strip(a) == strip(b)
}
