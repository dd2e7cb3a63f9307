//! The nouns: everything that sources can say about one node.
//!
//! A [`NodeState`] is one reading. Each part of it is wrapped in [`Facts`], which carries where the part came from
//! and whether it is complete, since a missing source must never look like an empty node (law 1).

mod adapters;
mod cluster;
mod cni;
mod counters;
mod facts;
mod history;
mod ids;
mod iprule;
mod ipset;
mod ipvs;
mod kernel;
mod nft;
mod runtime;
mod traffic;
mod xtables;

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

pub use adapters::{Adapters, HnsEndpoint, Nic, NicAddress, NicSource};
pub use cluster::{
    ContainerPort, Endpoint, EndpointPort, EndpointSlice, KubeNode, NplAnnotation, NplEntry, Phase, Pod,
    Service, ServicePort,
};
pub use cni::{CacheEntry, CniConfig, CniPlugin, CorruptFile, IpamStore, Lease};
pub(crate) use counters::mean;
pub use counters::{Counter, CounterFile, CounterKind, Counters, Series, adapter_key};
pub use facts::{Completeness, Facts, SourceReport};
pub use history::{PastEvent, PastKind};
pub use ids::{ContainerId, Mac, PodName, PodUid, Proto};
pub use iprule::{IpRule, IpRuleAction};
pub use ipset::{IpSet, IpSetMember};
pub use ipvs::{IpvsForward, IpvsServer, IpvsService, IpvsVirtual};
pub use kernel::{
    Address, Conntrack, CtEntry, CtFlags, CtTuple, Direction, Family, Link, Neighbour, NetNs, Route,
};
pub use nft::{NftChain, NftElement, NftFamily, NftRaw, NftRule, NftSet, NftState, NftValue};
pub use runtime::{Container, Runtime, RuntimeKind, RuntimeState, Sandbox, SandboxState};
pub(crate) use traffic::rate;
pub use traffic::{
    Capture, Destination, Flow, FlowKey, Identity, Interface, LookAlike, Packet, Place, Point, Repeat,
    Rhythm, Strength, Tcp, Timeline, Totals, Way, flags_text,
};
pub(crate) use xtables::single_address;
pub use xtables::{Dnat, PortRange, XtChain, XtMatch, XtRule, XtTable, XtVariant};

/// A moment, to the nanosecond, without a zone.
pub type Timestamp = jiff::Timestamp;

/// Who this node is, joined from the Node object, the kernel and the caller's flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeIdentity {
    /// The Node's name in the API; empty where nothing told it.
    pub name: String,
    /// `/etc/machine-id` of the machine that was read, where it could be.
    pub machine_id: Option<String>,
    /// When the kernel was started (`btime` of `/proc/stat`), where it could be read.
    pub booted_at: Option<Timestamp>,
    /// How long the node's kubelet waits for one RunPodSandbox, where its configuration could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_pod_sandbox: Option<Duration>,
}

/// One reading of everything on a node that names a Pod's address, MAC or sandbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeState {
    /// Which node was read.
    pub identity: NodeIdentity,
    /// When the reading began; for a bundle when it was recorded, where that is told.
    pub taken_at: Option<Timestamp>,
    /// Whether this is the live node, as against a recording. Only live state can be repaired.
    pub live: bool,
    /// Pods: those of this node, or of the whole cluster where the source held them.
    pub pods: Facts<Vec<Pod>>,
    /// Services of the cluster.
    pub services: Facts<Vec<Service>>,
    /// EndpointSlices of the cluster.
    pub endpoint_slices: Facts<Vec<EndpointSlice>>,
    /// The Node objects that were read: this node's, or all.
    pub nodes: Facts<Vec<KubeNode>>,
    /// Service CIDRs, from `ServiceCIDR` objects, a static Pod's flag or `--service-cidr`.
    pub service_cidrs: Facts<Vec<ipnet::IpNet>>,
    /// Sandboxes and containers of every runtime that was read, and the runtimes that were seen.
    pub runtime: Facts<RuntimeState>,
    /// Network namespaces with their processes and addresses.
    pub namespaces: Facts<Vec<NetNs>>,
    /// iptables tables, every variant and family that exists.
    pub xtables: Facts<Vec<XtTable>>,
    /// nftables, without the tables that iptables-nft owns (those are in `xtables`).
    pub nft: Facts<NftState>,
    /// Connection tracking.
    pub conntrack: Facts<Conntrack>,
    /// Links of the node's own namespace.
    pub links: Facts<Vec<Link>>,
    /// Addresses of the node's own namespace.
    pub addresses: Facts<Vec<Address>>,
    /// Routes of the node's own namespace.
    pub routes: Facts<Vec<Route>>,
    /// Neighbours of the node's own namespace.
    pub neighbours: Facts<Vec<Neighbour>>,
    /// Rules of the routing policy of the node's own namespace.
    pub ip_rules: Facts<Vec<IpRule>>,
    /// Sets of ipset. Only recordings have them.
    pub ipsets: Facts<Vec<IpSet>>,
    /// Virtual servers of IPVS. Only recordings have them.
    pub ipvs: Facts<Vec<IpvsVirtual>>,
    /// host-local leases.
    pub ipam: Facts<IpamStore>,
    /// Cached CNI results.
    pub cni_cache: Facts<Vec<CacheEntry>>,
    /// CNI configuration files.
    pub cni_config: Facts<Vec<CniConfig>>,
    /// What kind of machine it is, where the recording says it: `NIC driver`, `VM size`, ... Beside the Node's own.
    pub traits: BTreeMap<String, String>,
    /// Who had addresses before, and when Pods ended.
    pub history: Facts<Vec<PastEvent>>,
    /// What the node's network adapters own, by each source that told it.
    pub adapters: Facts<Vec<Adapters>>,
    /// Endpoints of the Host Network Service, on Windows.
    pub hns_endpoints: Facts<Vec<HnsEndpoint>>,
    /// Captures of the node's traffic.
    pub captures: Facts<Vec<Capture>>,
    /// Performance counters of the node.
    pub counters: Facts<Vec<CounterFile>>,
    /// Files of a bundle that nothing read, with the reason.
    pub unread: Vec<Unread>,
    /// What was wrong with the input, each with its place. The rest of the input was used.
    pub problems: Vec<Problem>,
}

/// Something wrong in the input, which was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The file with the line (`iptables-save.txt:14`), or the object.
    pub place: String,
    /// What was expected and what was found.
    pub what: String,
}

/// A file that was not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread {
    /// Its path as it was given, inside the bundle.
    pub path: String,
    /// Why it was not used.
    pub why: String,
}

impl NodeState {
    /// The Node object of this node, if one was read.
    pub fn kube_node(&self) -> Option<&KubeNode> {
        self.nodes.value.iter().find(|n| n.name == self.identity.name)
    }

    /// What kind of machine it is, by the recording, its Node and its adapters.
    pub fn machine(&self) -> BTreeMap<String, String> {
        let mut out = self
            .kube_node()
            .map(|node| node.traits.clone())
            .unwrap_or_default();
        if let (Some(node), Some(at)) = (self.kube_node(), self.taken_at)
            && let Some(created) = node.created_at
        {
            let days = at.duration_since(created).as_hours() / 24;
            let age = match days {
                ..=1 => "up to a day",
                2..=7 => "up to a week",
                8..=30 => "up to a month",
                _ => "more than a month",
            };
            out.insert("node age".to_owned(), age.to_owned());
        }
        let nics = || self.adapters.value.iter().flat_map(|list| &list.nics);
        let mut say = |name: &str, told: Option<bool>| {
            if let Some(told) = told {
                out.insert(name.to_owned(), if told { "on" } else { "off" }.to_owned());
            }
        };
        say("accelerated networking", nics().find_map(|nic| nic.accelerated));
        say(
            "IP forwarding of the adapter",
            nics().find_map(|nic| nic.forwarding),
        );
        out.extend(self.traits.clone());
        out
    }

    /// Pods that are bound to this node. A Pod without a node name is nowhere yet.
    pub fn local_pods(&self) -> impl Iterator<Item = &Pod> {
        let name = self.identity.name.as_str();
        self.pods
            .value
            .iter()
            .filter(move |p| p.node.as_deref() == Some(name))
    }

    /// The report of every source, in a fixed order. A part that no source was read for is one that is missing.
    pub fn source_reports(&self) -> Vec<SourceReport> {
        let mut out = Vec::new();
        macro_rules! push { ($($field:ident $name:literal),* $(,)?) => { $( self.$field.report_to($name, &mut out); )* } }
        push!(
            pods "pods", services "services", endpoint_slices "endpointslices", nodes "nodes",
            service_cidrs "servicecidrs", runtime "runtime", namespaces "namespaces", xtables "iptables", nft "nft",
            conntrack "conntrack", links "links", addresses "addresses", routes "routes",
            neighbours "neighbours", ipam "host-local", cni_cache "cni-cache", cni_config "cni-config",
        );
        // No rule looks at the first three yet, and the others are for one kind of node or one kind of question: one that is not
        // there lacks nothing.
        for reports in [
            &self.ip_rules.reports,
            &self.ipsets.reports,
            &self.ipvs.reports,
            &self.history.reports,
            &self.adapters.reports,
            &self.hns_endpoints.reports,
            &self.captures.reports,
            &self.counters.reports,
        ] {
            out.extend(reports.iter().cloned());
        }
        out
    }
}
