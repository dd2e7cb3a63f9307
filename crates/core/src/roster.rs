//! The roster: who lives here.
//!
//! It joins what the API server, the runtime, the kernel and CNI's files say, and answers for an address, a container
//! ID or a UID: [`Standing::Live`], [`Standing::Ended`], [`Standing::Nobody`] or [`Standing::Unknown`]. The rules of the join
//! are laws 1 to 7 of the design: a missing source is never an empty one, the living come first, and every answer
//! says who gave it and what a repair would still need.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

mod address;
mod container;
mod destination;
mod history;
mod residence;
mod trust;

use crate::{
    finding::Owner,
    model::{
        CacheEntry, Container, ContainerId, HnsEndpoint, Lease, NodeState, Pod, PodUid, Sandbox,
        SandboxState, Timestamp,
    },
    settings::Settings,
};
use container::ById;
pub use residence::{Residence, Standing};

/// What an earlier reading of the same node adds to this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Since {
    /// Addresses whose tracked connections answered in between, by their counters (law 7).
    pub replied: HashSet<IpAddr>,
    /// Sources that lost most of what they told before (law 15).
    pub lost: Vec<String>,
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
    endpoints: HashMap<IpAddr, &'a HnsEndpoint>,
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
        let local = state.hns_endpoints.value.iter().filter(|e| e.is_local());
        let endpoints = local
            .flat_map(|e| e.addresses.iter().map(move |ip| (*ip, e)))
            .collect();
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
            endpoints,
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

/// The owner that CNI's cache names; none where the runtime did not tell the plugins the Pod.
fn owner_of_cached(entry: &CacheEntry, ended_at: Option<Timestamp>) -> Option<Owner> {
    let pod = entry.pod.as_ref()?;
    Some(Owner {
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        uid: entry.uid.clone(),
        ended_at,
    })
}
