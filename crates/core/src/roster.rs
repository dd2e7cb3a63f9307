//! The roster: who lives here.
//!
//! It joins what the API server, the runtime, the kernel and CNI's files say, and answers for an address, a container
//! ID or a UID: [`Standing::Live`], [`Standing::Ended`], [`Standing::Nobody`] or [`Standing::Unknown`]. The rules of the join
//! are laws 1 to 7 of the design: a missing source is never an empty one, the living come first, and every answer
//! says who gave it and what a repair would still need.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    time::Duration,
};

use crate::{
    finding::{Evidence, Owner, Witness},
    model::{
        CacheEntry, Container, ContainerId, Lease, NodeState, Pod, PodName, PodUid, Sandbox, SandboxState,
        Timestamp,
    },
    settings::{RUN_POD_SANDBOX, Settings},
};

#[cfg(test)]
mod tests;

/// The answer to "who lives here?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Somebody alive.
    Live,
    /// Somebody who ended, and whom we know.
    Ended,
    /// Nobody that any source knows.
    Nobody,
    /// It cannot be told; the residence says why.
    Unknown,
}

/// The answer with its reasons.
#[derive(Clone, Debug, PartialEq)]
pub struct Residence {
    /// The answer.
    pub standing: Standing,
    /// Who lives here, or lived here last.
    pub owner: Option<Owner>,
    /// Kinds of source that said so, each on its own.
    pub witnesses: Vec<Witness>,
    /// What they said.
    pub evidence: Vec<Evidence>,
    /// Why it is unknown, or what a repair would still need.
    pub lacking: Vec<String>,
}

impl Residence {
    fn live(owner: Option<Owner>, witness: Witness, source: &str, text: String) -> Self {
        Self {
            standing: Standing::Live,
            owner,
            witnesses: vec![witness],
            evidence: vec![Evidence::new(source, text)],
            lacking: Vec::new(),
        }
    }

    pub(crate) fn unknown(owner: Option<Owner>, evidence: Vec<Evidence>, why: Vec<String>) -> Self {
        Self {
            standing: Standing::Unknown,
            owner,
            witnesses: Vec::new(),
            evidence,
            lacking: why,
        }
    }

    /// Nobody alive, who was here last where that is known, and what a repair would still need.
    fn dead(
        owner: Option<Owner>,
        witnesses: Vec<Witness>,
        evidence: Vec<Evidence>,
        lacking: Vec<String>,
    ) -> Self {
        let standing = if owner.is_some() {
            Standing::Ended
        } else {
            Standing::Nobody
        };
        Self {
            standing,
            owner,
            witnesses,
            evidence,
            lacking,
        }
    }

    /// True if nobody alive is here, as far as judging goes.
    pub fn is_dead(&self) -> bool {
        matches!(self.standing, Standing::Ended | Standing::Nobody)
    }

    /// Why it is unknown, or what a repair still needs, as one text; `None` if nothing.
    pub fn lacks(&self) -> Option<String> {
        (!self.lacking.is_empty()).then(|| self.lacking.join("; "))
    }

    /// Why what belongs to it is not repaired; `None` if nothing stands against it.
    pub fn why_not_repair(&self) -> Option<String> {
        let what = if self.standing == Standing::Unknown {
            "judging it"
        } else {
            "a repair"
        };
        self.lacks().map(|lacks| format!("{what} needs {lacks}"))
    }
}

/// What an earlier reading of the same node adds to this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Since {
    /// Addresses whose tracked connections answered in between, by their counters (law 7).
    pub replied: HashSet<IpAddr>,
    /// Sources that lost most of what they told before (law 15).
    pub lost: Vec<String>,
}

/// Things that name a container, found by any spelling of its ID ([`ContainerId::same_or_prefix`]).
struct ById<'a, T> {
    /// By the first 12 digits, which all spellings of one ID share.
    by_short: HashMap<&'a str, Vec<(&'a ContainerId, &'a T)>>,
}

impl<'a, T> ById<'a, T> {
    fn new(items: &'a [T], id: impl Fn(&'a T) -> &'a ContainerId) -> Self {
        let mut by_short: HashMap<&str, Vec<_>> = HashMap::new();
        for item in items {
            let id = id(item);
            by_short.entry(id.short()).or_default().push((id, item));
        }
        Self { by_short }
    }

    fn get<'i>(&'i self, id: &'i ContainerId) -> impl Iterator<Item = &'a T> + Clone + 'i {
        let near = self.by_short.get(id.short()).into_iter().flatten();
        near.filter(move |(own, _)| own.same_or_prefix(id))
            .map(|(_, item)| *item)
    }
}

/// Who lives on the node of one reading.
pub struct Roster<'a> {
    state: &'a NodeState,
    settings: &'a Settings,
    now: Timestamp,
    pods_by_ip: HashMap<IpAddr, Vec<&'a Pod>>,
    sandboxes_by_ip: HashMap<IpAddr, Vec<&'a Sandbox>>,
    cache_by_ip: HashMap<IpAddr, Vec<&'a CacheEntry>>,
    sandboxes: ById<'a, Sandbox>,
    containers: ById<'a, Container>,
    recorded: ById<'a, ContainerId>,
    cache: ById<'a, CacheEntry>,
    leases: ById<'a, Lease>,
    leased_ips: HashSet<IpAddr>,
    holders: HashMap<IpAddr, usize>,
    node_ips: HashSet<IpAddr>,
    uids: HashMap<&'a PodUid, &'a Pod>,
    ready_uids: HashSet<&'a PodUid>,
    since: Since,
    cri_doubt: Option<String>,
    /// The same for the whole reading, and asked for every finding.
    blockers: Vec<String>,
    addresses_untold: Vec<&'a Sandbox>,
}

impl<'a> Roster<'a> {
    /// Joins the sources of one reading, with what an earlier one adds.
    pub fn new(state: &'a NodeState, settings: &'a Settings, now: Timestamp, since: Since) -> Self {
        let mut pods_by_ip: HashMap<IpAddr, Vec<&Pod>> = HashMap::new();
        let mut uids = HashMap::new();
        for pod in &state.pods.value {
            for ip in pod.own_ips() {
                pods_by_ip.entry(ip).or_default().push(pod);
            }
            uids.extend(pod.uid.iter().chain(&pod.static_uid).map(|uid| (uid, pod)));
        }
        let mut cache_by_ip: HashMap<IpAddr, Vec<&CacheEntry>> = HashMap::new();
        let mut cached_ips: HashMap<&ContainerId, Vec<IpAddr>> = HashMap::new();
        for entry in &state.cni_cache.value {
            for ip in &entry.ips {
                cache_by_ip.entry(*ip).or_default().push(entry);
                cached_ips.entry(&entry.container).or_default().push(*ip);
            }
        }
        for lease in &state.ipam.value.leases {
            cached_ips.entry(&lease.container).or_default().push(lease.ip);
        }
        let mut sandboxes_by_ip: HashMap<IpAddr, Vec<&Sandbox>> = HashMap::new();
        let mut ready_uids = HashSet::new();
        let mut addresses_untold = Vec::new();
        for sandbox in &state.runtime.value.sandboxes {
            // CNI's files also know addresses of further interfaces, which the runtime does not tell.
            let told: HashSet<IpAddr> = sandbox
                .ips
                .iter()
                .chain(cached_ips.get(&sandbox.id))
                .flatten()
                .copied()
                .collect();
            for ip in &told {
                sandboxes_by_ip.entry(*ip).or_default().push(sandbox);
            }
            if sandbox.state == SandboxState::Ready {
                ready_uids.insert(&sandbox.uid);
                let by_api = uids
                    .get(&sandbox.uid)
                    .is_some_and(|pod| pod.host_network || !pod.ips.is_empty());
                if told.is_empty() && !by_api && !sandbox.host_network {
                    addresses_untold.push(sandbox);
                }
            }
        }
        let mut holders = HashMap::new();
        for (index, namespace) in state.namespaces.value.iter().enumerate() {
            if namespace.has_process() {
                holders.extend(namespace.ips.iter().flatten().map(|ip| (*ip, index)));
            }
        }
        let mut node_ips: HashSet<IpAddr> = state.addresses.value.iter().map(|a| a.ip).collect();
        node_ips.extend(
            state
                .kube_node()
                .into_iter()
                .flat_map(|n| n.addresses.iter().copied()),
        );
        let mut roster = Self {
            state,
            settings,
            now,
            pods_by_ip,
            sandboxes_by_ip,
            cache_by_ip,
            sandboxes: ById::new(&state.runtime.value.sandboxes, |s| &s.id),
            containers: ById::new(&state.runtime.value.containers, |c| &c.id),
            recorded: ById::new(&state.runtime.value.recorded_ids, |id| id),
            cache: ById::new(&state.cni_cache.value, |e| &e.container),
            leases: ById::new(&state.ipam.value.leases, |l| &l.container),
            leased_ips: state.ipam.value.leases.iter().map(|l| l.ip).collect(),
            holders,
            node_ips,
            uids,
            ready_uids,
            since,
            cri_doubt: None,
            blockers: Vec::new(),
            addresses_untold,
        };
        roster.cri_doubt = roster.doubt_cri();
        roster.blockers = roster.find_blockers();
        roster
    }

    /// Law 4: a CRI counts only if one of its sandboxes is a Pod of this node in the API, or the node has none.
    fn doubt_cri(&self) -> Option<String> {
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

    fn cri_complete(&self) -> bool {
        self.state.runtime.is_complete()
    }

    fn cri_usable(&self) -> bool {
        self.cri_complete() && self.cri_doubt.is_none()
    }

    /// Whether the runtime told the address of every ready sandbox, so that it can witness for addresses.
    fn cri_tells_addresses(&self) -> bool {
        self.cri_usable()
            && self
                .state
                .runtime
                .value
                .sandboxes
                .iter()
                .all(|s| s.ips.is_some() || s.host_network)
    }

    /// The sandbox with this ID that the runtime lists.
    pub fn sandbox(&self, id: &ContainerId) -> Option<&'a Sandbox> {
        self.sandboxes.get(id).next()
    }

    /// Files that name a container, with the times of their last writing.
    pub fn files<'i>(&'i self, id: &'i ContainerId) -> impl Iterator<Item = (Timestamp, &'a str)> + 'i {
        let leased = self.leases.get(id);
        let leased = leased.filter_map(|l| Some((l.modified_at?, l.path.as_str())));
        let cached = self.cache.get(id);
        leased.chain(cached.filter_map(|e| Some((e.modified_at?, e.path.as_str()))))
    }

    /// The moment of judging.
    pub fn now(&self) -> Timestamp {
        self.now
    }

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

    /// The Pod of this UID, a static Pod also by the UID that the runtime knows.
    pub fn pod(&self, uid: &PodUid) -> Option<&'a Pod> {
        self.uids.get(uid).copied()
    }

    fn is_ready(&self, pod: &Pod) -> bool {
        let mut uids = pod.uid.iter().chain(&pod.static_uid);
        uids.any(|uid| self.ready_uids.contains(uid))
    }

    fn is_local(&self, pod: &Pod) -> bool {
        pod.node.as_deref() == Some(&self.state.identity.name)
    }

    /// Whether the Pod owns its network still: always while its phase is not terminal; afterwards as long as its sandbox
    /// is ready. `None` without a runtime source to tell (law 7), as for a Pod of another node.
    pub fn owns_network(&self, pod: &Pod) -> Option<bool> {
        if !pod.phase.is_terminal() || self.is_ready(pod) {
            Some(true)
        } else if self.cri_usable() && self.is_local(pod) {
            Some(false)
        } else {
            None
        }
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
        if let Some(owner) = &owner {
            evidence.push(Evidence::new(
                "history",
                format!("{ip} belonged to Pod {} before", owner.pod_name()),
            ));
        }
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

    /// Who had the address last, by what is left of them: ended sandboxes, the CNI cache, a lease.
    pub fn last_owner(&self, ip: IpAddr) -> Option<Owner> {
        let finished = self.pods_by_ip.get(&ip).into_iter().flatten().next();
        if let Some(pod) = finished {
            return Some(owner_of(pod, pod.deleting_since));
        }
        if let Some(sandbox) = self.sandboxes_by_ip.get(&ip).into_iter().flatten().next_back() {
            return Some(owner_of_sandbox(
                sandbox,
                self.reborn_at(&sandbox.pod, Some(&sandbox.uid)),
            ));
        }
        let cached = self.cache_by_ip.get(&ip).into_iter().flatten().next_back()?;
        let pod = cached.pod.as_ref()?;
        Some(Owner {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: cached.uid.clone(),
            ended_at: self.reborn_at(pod, cached.uid.as_ref()),
        })
    }

    /// When another Pod of this name was created: the one with this UID had ended by then.
    fn reborn_at(&self, name: &PodName, uid: Option<&PodUid>) -> Option<Timestamp> {
        let pods = &self.state.pods.value;
        let now = pods
            .iter()
            .find(|p| p.namespace == name.namespace && p.name == name.name)?;
        let another = uid.is_some_and(|uid| !now.is_known_as(uid));
        now.created_at.filter(|_| another)
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

    /// Who a container ID belongs to. `born` is when the object that names the ID is known to have existed, where that is
    /// known: it shows that no ADD can be running for it any more (law 6).
    pub fn container(&self, id: &ContainerId, born: Option<Timestamp>) -> Residence {
        let runtime = &self.state.runtime;
        let source = runtime.source_names();
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
            return Residence::live(Some(owner), Witness::Cri, &source, text);
        }
        if let Some(container) = self.containers.get(id).next() {
            let text = format!(
                "container {} ({}) is known to the runtime",
                id.short(),
                container.name
            );
            return Residence::live(None, Witness::Cri, &source, text);
        }
        let owner = self.cache.get(id).next().and_then(|entry| {
            let pod = entry.pod.as_ref()?;
            Some(Owner {
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                uid: entry.uid.clone(),
                ended_at: None,
            })
        });
        let mut lacking = self.runtimes_unread();
        if let Some(why) = self.add_may_run(id, born) {
            lacking.push(why);
        }
        if let Some(why) = self.life_in_namespace(id) {
            lacking.push(why);
        }
        let mut evidence = Vec::new();
        if self.cri_usable() {
            let text = format!(
                "{} is none of {} sandboxes and {} containers",
                id.short(),
                runtime.value.sandboxes.len(),
                runtime.value.containers.len()
            );
            evidence.push(Evidence::new(&source, text));
        }
        if !lacking.is_empty() {
            return Residence::unknown(owner, evidence, lacking);
        }
        let mut witnesses = vec![Witness::Cri];
        if self.state.namespaces.is_complete() {
            witnesses.push(Witness::Kernel);
            let text = "no process lives in a namespace of this container".to_owned();
            evidence.push(Evidence::new(self.state.namespaces.source_names(), text));
        } else {
            lacking.push("the namespaces of all processes (only on the node itself)".to_owned());
        }
        if !runtime.value.looked_for_others {
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
        Residence::dead(owner, witnesses, evidence, lacking)
    }

    /// Law 5: what keeps a container ID from being judged.
    fn runtimes_unread(&self) -> Vec<String> {
        let runtime = &self.state.runtime;
        let mut lacking = Vec::new();
        if !runtime.is_complete() {
            let why = runtime.completeness.why().unwrap_or("unknown");
            lacking.push(format!("the runtime's list of sandboxes ({why})"));
        }
        let doubt = self.cri_doubt.iter();
        lacking.extend(doubt.map(|doubt| format!("the node's own runtime ({doubt})")));
        for other in runtime.value.runtimes.iter().filter(|r| !r.read) {
            lacking.push(format!(
                "the containers of {:?} at {} ({})",
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
        let namespace = self.state.namespaces.value.iter().find(|ns| {
            ns.has_process()
                && (ns
                    .paths
                    .iter()
                    .any(|p| paths.iter().any(|q| same_netns_path(p, q)))
                    || ns.ips.iter().flatten().any(|ip| ips.contains(ip)))
        })?;
        // A process that holds the address now lives there under another ID, when a known sandbox has that address.
        let by_other = namespace.ips.iter().flatten().any(|ip| {
            self.sandboxes_by_ip
                .get(ip)
                .into_iter()
                .flatten()
                .any(|s| s.state == SandboxState::Ready)
        });
        let process = namespace.pids.first().copied().unwrap_or_default();
        (!by_other
            || namespace
                .paths
                .iter()
                .any(|p| paths.iter().any(|q| same_netns_path(p, q))))
        .then(|| {
            format!(
                "the end of process {process}, which lives in the container's namespace net:[{}]",
                namespace.inode
            )
        })
    }

    fn younger_than(&self, born: Timestamp, age: Duration) -> bool {
        self.now.duration_since(born).unsigned_abs() < age || born > self.now
    }

    /// What stops every repair on this node (laws 4 and 9).
    pub fn repair_blockers(&self) -> Vec<String> {
        self.blockers.clone()
    }

    fn find_blockers(&self) -> Vec<String> {
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
            .filter(|p| p.phase == crate::model::Phase::Running && !p.host_network)
            .filter(|p| !self.is_ready(p))
            .count();
        let (wrong, total) = (homeless + bare, sandboxes.len().max(1));
        (wrong >= 3 && wrong * 10 > total).then(|| {
            format!("agreement of API and runtime: {homeless} ready sandboxes have no Pod and {bare} running Pods have no ready sandbox")
        })
    }

    /// True if some living Pod has this very address by the API or the runtime.
    pub fn has_live_owner(&self, ip: IpAddr) -> bool {
        self.address(ip).standing == Standing::Live
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

/// The owner that a Pod is.
pub fn owner_of(pod: &Pod, ended_at: Option<Timestamp>) -> Owner {
    Owner {
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        ended_at,
    }
}

fn owner_of_sandbox(sandbox: &Sandbox, ended_at: Option<Timestamp>) -> Owner {
    Owner {
        namespace: sandbox.pod.namespace.clone(),
        name: sandbox.pod.name.clone(),
        uid: Some(sandbox.uid.clone()),
        ended_at,
    }
}
