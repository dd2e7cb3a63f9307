//! What the API server says, in the few fields that judging needs.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{PodName, PodUid, Proto, Timestamp};

/// A Pod's phase. Terminal phases are `Succeeded` and `Failed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Accepted; not all containers run yet.
    Pending,
    /// Bound and started.
    Running,
    /// Every container ended well.
    Succeeded,
    /// Every container ended, one of them badly.
    Failed,
    /// Not told, or a word that is not known here.
    #[default]
    Unknown,
}

impl Phase {
    /// True for `Succeeded` and `Failed`.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// A container's declared port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerPort {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The port inside the Pod.
    pub container_port: u16,
    /// The port on the node, if the Pod asks for one.
    pub host_port: Option<u16>,
    /// The node address that the host port is bound to, if not all.
    pub host_ip: Option<IpAddr>,
    /// The protocol; TCP unless told.
    pub proto: Proto,
}

/// One mapping that a NodePortLocal controller has announced on a Pod.
///
/// Source: Antrea, `pkg/agent/nodeportlocal/types`. `protocol` exists since v1.7 and `ipFamily` since v2.6.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NplEntry {
    /// The port inside the Pod.
    pub pod_port: u16,
    /// The node's address as announced.
    pub node_ip: Option<IpAddr>,
    /// The port on the node.
    pub node_port: u16,
    /// TCP or UDP.
    pub proto: Proto,
    /// True for an `ipFamily` of `IPv6`; a missing one is IPv4.
    pub ipv6: bool,
}

/// The annotation `nodeportlocal.antrea.io`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NplAnnotation {
    /// The Pod has none.
    #[default]
    Absent,
    /// Its entries.
    Entries(Vec<NplEntry>),
    /// There is one, and it cannot be read; the reason.
    Unreadable(String),
}

/// A Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its identity; empty only where a recording lacks it.
    pub uid: Option<PodUid>,
    /// For the mirror of a static Pod, the UID that the kubelet and the runtime know it by
    /// (annotation `kubernetes.io/config.mirror`, or `config.hash`).
    pub static_uid: Option<PodUid>,
    /// `spec.nodeName`.
    pub node: Option<String>,
    /// `spec.hostNetwork`: its addresses are the node's.
    pub host_network: bool,
    /// `status.phase`.
    pub phase: Phase,
    /// `status.podIPs` (or `podIP`), canonical.
    pub ips: Vec<IpAddr>,
    /// Addresses of further interfaces: Multus' `network-status`, canonical, without those in `ips`.
    pub extra_ips: Vec<IpAddr>,
    /// `metadata.creationTimestamp`.
    pub created_at: Option<Timestamp>,
    /// `metadata.deletionTimestamp`: the Pod is terminating, and still owns its network.
    pub deleting_since: Option<Timestamp>,
    /// `status.startTime`.
    pub started_at: Option<Timestamp>,
    /// The declared ports of all its containers, restartable init containers included.
    pub ports: Vec<ContainerPort>,
    /// NodePortLocal mappings that it announces.
    pub npl: NplAnnotation,
    /// `spec.resourceClaims` names claims whose devices may carry addresses of their own.
    pub has_resource_claims: bool,
}

impl Pod {
    /// `namespace/name`.
    pub fn pod_name(&self) -> PodName {
        PodName {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// All its addresses of its own: none for a hostNetwork Pod.
    pub fn own_ips(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let ips = if self.host_network { &[][..] } else { &self.ips[..] };
        ips.iter().chain(&self.extra_ips).copied()
    }

    /// True if `uid` is its UID or, for a static Pod's mirror, the UID that the runtime knows.
    pub fn is_known_as(&self, uid: &PodUid) -> bool {
        self.uid.as_ref() == Some(uid) || self.static_uid.as_ref() == Some(uid)
    }
}

/// One port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePort {
    /// Its name; empty for the only port of a Service.
    pub name: String,
    /// The port at the Service's addresses.
    pub port: u16,
    /// The port on every node, for NodePort and LoadBalancer.
    pub node_port: Option<u16>,
    /// The protocol; TCP unless told.
    pub proto: Proto,
}

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `clusterIPs` without `None`, canonical.
    pub cluster_ips: Vec<IpAddr>,
    /// `externalIPs`, canonical.
    pub external_ips: Vec<IpAddr>,
    /// `status.loadBalancer.ingress[].ip`, canonical.
    pub load_balancer_ips: Vec<IpAddr>,
    /// Its ports.
    pub ports: Vec<ServicePort>,
    /// `spec.healthCheckNodePort`.
    pub health_check_node_port: Option<u16>,
}

impl Service {
    /// Every address that the data plane serves for it.
    pub fn vips(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.cluster_ips
            .iter()
            .chain(&self.external_ips)
            .chain(&self.load_balancer_ips)
            .copied()
    }
}

/// One address of an EndpointSlice with its conditions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Its addresses; by the API's contract they are the same endpoint. Canonical.
    pub addresses: Vec<IpAddr>,
    /// `conditions.ready`; true unless told.
    pub ready: bool,
    /// `conditions.serving`; `ready` unless told.
    pub serving: bool,
    /// `conditions.terminating`; false unless told.
    pub terminating: bool,
    /// The node that it is on.
    pub node: Option<String>,
    /// `targetRef`, where it is a Pod.
    pub pod: Option<PodName>,
    /// `targetRef.uid`.
    pub pod_uid: Option<PodUid>,
}

/// A port of an EndpointSlice: the port that endpoints really listen on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointPort {
    /// The Service port's name.
    pub name: String,
    /// The endpoints' port; `None` means all ports.
    pub port: Option<u16>,
    /// The protocol.
    pub proto: Proto,
}

/// An EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointSlice {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The Service that it belongs to (label `kubernetes.io/service-name`).
    pub service: Option<String>,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Its ports.
    pub ports: Vec<EndpointPort>,
}

/// A Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeNode {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: Option<String>,
    /// InternalIP and ExternalIP addresses, canonical.
    pub addresses: Vec<IpAddr>,
    /// `spec.podCIDRs`.
    pub pod_cidrs: Vec<IpNet>,
    /// `status.nodeInfo.machineID`, where set.
    pub machine_id: Option<String>,
    /// `status.nodeInfo.containerRuntimeVersion`, such as `containerd://2.1.4`.
    pub runtime_version: Option<String>,
    /// `metadata.creationTimestamp`.
    #[serde(default)]
    pub created_at: Option<Timestamp>,
    /// What kind of machine it is: `VM size`, `OS`, `kernel`, `image`, ..., from its labels and `status.nodeInfo`.
    #[serde(default)]
    pub traits: BTreeMap<String, String>,
}
