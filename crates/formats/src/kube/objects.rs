//! Slim serde structs for the API's objects.
//!
//! An address that cannot be read fails its object: an object without one of its addresses would look like an address
//! that nobody has.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, SeqAccess, Visitor},
};
use sexton_core::model::{
    ContainerPort, Endpoint, EndpointPort, EndpointSlice, KubeNode, NplAnnotation, NplEntry, PastEvent,
    PastKind, Phase, Pod, PodName, PodUid, Proto, Service, ServicePort, Timestamp,
};

use crate::addr::{parse_ip, parse_net};

/// `null` is the default, as Go's JSON prints empty slices and maps.
pub(crate) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// An address, canonical.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KubeIp(pub IpAddr);

impl<'de> Deserialize<'de> for KubeIp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let ip = parse_ip(&text).ok_or_else(|| D::Error::custom(format!("not an IP address: {text:?}")))?;
        Ok(Self(ip))
    }
}

/// An address, or none for the empty text and `None`.
fn some_ip<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IpAddr>, D::Error> {
    match Option::<String>::deserialize(deserializer)?.as_deref() {
        None | Some("" | "None") => Ok(None),
        Some(text) => parse_ip(text)
            .map(Some)
            .ok_or_else(|| D::Error::custom(format!("not an IP address: {text:?}"))),
    }
}

/// Addresses, without empty texts and `None`.
fn ips<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpAddr>, D::Error> {
    #[derive(Deserialize)]
    struct One(#[serde(deserialize_with = "some_ip")] Option<IpAddr>);
    let all: Vec<One> = nullable(deserializer)?;
    Ok(all.into_iter().filter_map(|one| one.0).collect())
}

/// Prefixes.
fn nets<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let all: Vec<String> = nullable(deserializer)?;
    all.iter()
        .filter(|text| !text.is_empty())
        .map(|text| parse_net(text).ok_or_else(|| D::Error::custom(format!("not a CIDR: {text:?}"))))
        .collect()
}

/// A list as the API server and kubectl send it.
#[derive(Clone, Debug, Deserialize)]
pub struct List<T> {
    /// Its metadata: whether it was cut by a limit.
    #[serde(default, deserialize_with = "nullable")]
    pub metadata: ListMeta,
    /// Its items.
    #[serde(
        default,
        deserialize_with = "nullable",
        bound(deserialize = "T: Deserialize<'de>")
    )]
    pub items: Vec<T>,
}

/// The metadata of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListMeta {
    /// The token for the next page; one that is not empty means that the list was cut.
    pub r#continue: Option<String>,
    /// How many items the list lacks, where the server counts them.
    pub remaining_item_count: Option<i64>,
    /// The version that was listed.
    pub resource_version: Option<String>,
}

impl ListMeta {
    /// Why the list is not all, if it is not.
    pub fn cut(&self) -> Option<String> {
        let token = self.r#continue.as_deref().unwrap_or_default();
        let remaining = self.remaining_item_count.filter(|count| *count > 0);
        match (token.is_empty(), remaining) {
            (true, None) => None,
            (_, Some(count)) => Some(format!(
                "the list was cut by a limit: its continue token is set and {count} more items remain"
            )),
            (false, None) => Some(
                "the list was cut by a limit: its continue token is set and the server did not count what remains"
                    .to_owned(),
            ),
        }
    }
}

/// The metadata of any object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectMeta {
    /// The name.
    #[serde(default)]
    pub name: String,
    /// The namespace; empty for a cluster-scoped object.
    #[serde(default, deserialize_with = "nullable")]
    pub namespace: String,
    /// The UID.
    pub uid: Option<String>,
    /// When it was created.
    pub creation_timestamp: Option<Timestamp>,
    /// When its deletion was asked for, plus its grace period.
    pub deletion_timestamp: Option<Timestamp>,
    /// The version; opaque.
    pub resource_version: Option<String>,
    /// The annotations that are read.
    #[serde(default, deserialize_with = "nullable")]
    pub annotations: Annotations,
    /// The labels that are read.
    #[serde(default, deserialize_with = "nullable")]
    pub labels: Labels,
}

/// The annotations that are read; all others are dropped while parsing.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Annotations {
    /// The mappings that a NodePortLocal controller announces.
    #[serde(rename = "nodeportlocal.antrea.io")]
    pub npl: Option<String>,
    /// Multus' report of all interfaces.
    #[serde(rename = "k8s.v1.cni.cncf.io/network-status")]
    pub network_status: Option<String>,
    /// The same under its old name.
    #[serde(rename = "k8s.v1.cni.cncf.io/networks-status")]
    pub networks_status: Option<String>,
    /// On the mirror of a static Pod: its hash, which is the UID that kubelet and runtime know.
    #[serde(rename = "kubernetes.io/config.mirror")]
    pub config_mirror: Option<String>,
    /// On a static Pod: its hash.
    #[serde(rename = "kubernetes.io/config.hash")]
    pub config_hash: Option<String>,
}

/// The labels that are read.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Labels {
    /// The Service that an EndpointSlice belongs to.
    #[serde(rename = "kubernetes.io/service-name")]
    pub service_name: Option<String>,
    /// The kind of machine of a Node.
    #[serde(rename = "node.kubernetes.io/instance-type")]
    pub instance_type: Option<String>,
    /// The zone of a Node.
    #[serde(rename = "topology.kubernetes.io/zone")]
    pub zone: Option<String>,
    /// The image of a Node, on Azure.
    #[serde(rename = "kubernetes.azure.com/node-image-version")]
    pub node_image: Option<String>,
    /// The pool of a Node, on Azure.
    #[serde(rename = "kubernetes.azure.com/agentpool")]
    pub pool: Option<String>,
    /// The build of Windows.
    #[serde(rename = "node.kubernetes.io/windows-build")]
    pub windows_build: Option<String>,
}

/// A Pod, slim.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PodObject {
    /// Its metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(default, deserialize_with = "nullable")]
    pub spec: PodSpec,
    /// Its status.
    #[serde(default, deserialize_with = "nullable")]
    pub status: PodStatus,
}

/// `spec` of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec {
    /// The node that it is bound to.
    pub node_name: Option<String>,
    /// Whether it uses the node's network.
    #[serde(default, deserialize_with = "nullable")]
    pub host_network: bool,
    /// Its containers.
    #[serde(default, deserialize_with = "nullable")]
    pub containers: Vec<PodContainer>,
    /// Its init containers.
    #[serde(default, deserialize_with = "nullable")]
    pub init_containers: Vec<PodContainer>,
    /// Its claims to devices; only how many there are.
    #[serde(default, deserialize_with = "nullable")]
    pub resource_claims: Vec<serde::de::IgnoredAny>,
}

/// A container of a Pod's spec.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodContainer {
    /// Its declared ports.
    #[serde(default, deserialize_with = "nullable")]
    pub ports: Vec<PodPort>,
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Option<String>,
    /// Service ranges that its command names.
    #[serde(default)]
    pub command: ServiceRangeFlags,
    /// Service ranges that its arguments name.
    #[serde(default)]
    pub args: ServiceRangeFlags,
}

/// A declared port.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodPort {
    /// Its name.
    pub name: Option<String>,
    /// The port inside the Pod.
    pub container_port: u16,
    /// The port on the node.
    pub host_port: Option<u16>,
    /// The node's address that it is bound to.
    #[serde(default, rename = "hostIP", deserialize_with = "some_ip")]
    pub host_ip: Option<IpAddr>,
    /// The protocol; TCP unless told.
    #[serde(default)]
    pub protocol: KubeProto,
}

/// A protocol as the API spells it: `TCP` unless told.
#[derive(Clone, Copy, Debug)]
pub struct KubeProto(pub Proto);

impl Default for KubeProto {
    fn default() -> Self {
        Self(Proto::Tcp)
    }
}

impl<'de> Deserialize<'de> for KubeProto {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Option::<String>::deserialize(deserializer)?.as_deref() {
            None | Some("") => Ok(Self::default()),
            Some(text) => Proto::parse(text).map(Self).ok_or_else(|| {
                D::Error::custom(format!("not a protocol: {text:?} (expected TCP, UDP or SCTP)"))
            }),
        }
    }
}

/// What `--service-cluster-ip-range` says in a command line; all other words are dropped while parsing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceRangeFlags(pub Vec<String>);

impl<'de> Deserialize<'de> for ServiceRangeFlags {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;
        impl<'de> Visitor<'de> for Words {
            type Value = ServiceRangeFlags;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a command line's words")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(ServiceRangeFlags::default())
            }

            fn visit_none<E>(self) -> Result<Self::Value, E> {
                Ok(ServiceRangeFlags::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                const FLAG: &str = "--service-cluster-ip-range";
                let mut out = Vec::new();
                let mut value_follows = false;
                while let Some(word) = seq.next_element::<String>()? {
                    if value_follows {
                        out.push(word);
                        value_follows = false;
                    } else if let Some(rest) = word.strip_prefix(FLAG) {
                        match rest.strip_prefix('=') {
                            Some(value) => out.push(value.to_owned()),
                            None => value_follows = rest.is_empty(),
                        }
                    }
                }
                Ok(ServiceRangeFlags(out))
            }
        }
        deserializer.deserialize_any(Words)
    }
}

/// `status` of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    /// Its phase.
    pub phase: Option<String>,
    /// When the kubelet took it up.
    pub start_time: Option<Timestamp>,
    /// Its first address.
    #[serde(default, rename = "podIP", deserialize_with = "some_ip")]
    pub pod_ip: Option<IpAddr>,
    /// All its addresses.
    #[serde(default, rename = "podIPs", deserialize_with = "nullable")]
    pub pod_ips: Vec<PodIp>,
}

/// An element of `status.podIPs`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct PodIp {
    /// The address.
    #[serde(default, deserialize_with = "some_ip")]
    pub ip: Option<IpAddr>,
}

impl PodObject {
    /// What is wrong with the Pod although it could be read: an unreadable `network-status`, whose addresses are then
    /// not known. A list with such a Pod does not tell everybody who lives.
    pub fn problems(&self) -> Vec<String> {
        self.network_status()
            .err()
            .map(|err| format!("annotation k8s.v1.cni.cncf.io/network-status: {err}"))
            .into_iter()
            .collect()
    }

    /// Service CIDRs that a static API server or controller manager has in its flags; none for any other Pod, since
    /// a tenant's own control plane has the same flags.
    pub fn service_cidrs(&self) -> Vec<IpNet> {
        let is_static = self.metadata.annotations.config_mirror.is_some()
            || self.metadata.annotations.config_hash.is_some();
        if self.metadata.namespace != "kube-system" || !is_static || !self.spec.host_network {
            return Vec::new();
        }
        let mut out = Vec::new();
        for container in &self.spec.containers {
            for value in container.command.0.iter().chain(&container.args.0) {
                out.extend(value.split(',').filter_map(parse_net));
            }
        }
        out.dedup();
        out
    }

    fn network_status(&self) -> Result<Vec<IpAddr>, String> {
        #[derive(Deserialize)]
        struct Interface {
            #[serde(default, deserialize_with = "ips")]
            ips: Vec<IpAddr>,
        }
        let annotations = &self.metadata.annotations;
        let text = annotations
            .network_status
            .as_deref()
            .or(annotations.networks_status.as_deref());
        let Some(text) = text.filter(|text| !text.trim().is_empty()) else {
            return Ok(Vec::new());
        };
        let all: Option<Vec<Interface>> = serde_json::from_str(text).map_err(|err| err.to_string())?;
        Ok(all.unwrap_or_default().into_iter().flat_map(|i| i.ips).collect())
    }
}

/// Reads the annotation `nodeportlocal.antrea.io`.
///
/// Source: Antrea, `pkg/agent/nodeportlocal/types`: `protocol` since v1.7; before that `protocols`, a list.
pub fn parse_npl_annotation(text: &str) -> NplAnnotation {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Raw {
        pod_port: u16,
        #[serde(default, rename = "nodeIP", deserialize_with = "some_ip")]
        node_ip: Option<IpAddr>,
        node_port: u16,
        protocol: Option<String>,
        protocols: Option<Vec<String>>,
        ip_family: Option<String>,
    }
    let raw: Option<Vec<Raw>> = match serde_json::from_str(text) {
        Ok(raw) => raw,
        Err(err) => return NplAnnotation::Unreadable(err.to_string()),
    };
    let mut out = Vec::new();
    for entry in raw.unwrap_or_default() {
        let protocols = match (entry.protocol, entry.protocols) {
            (Some(one), _) => vec![one],
            (None, Some(many)) if !many.is_empty() => many,
            (None, _) => vec!["tcp".to_owned()],
        };
        let ipv6 = match entry.ip_family.as_deref() {
            None | Some("" | "IPv4") => false,
            Some("IPv6") => true,
            Some(other) => {
                return NplAnnotation::Unreadable(format!("ipFamily {other:?} (expected IPv4 or IPv6)"));
            }
        };
        for protocol in protocols {
            let Some(proto) = Proto::parse(&protocol) else {
                return NplAnnotation::Unreadable(format!("protocol {protocol:?} (expected tcp or udp)"));
            };
            out.push(NplEntry {
                pod_port: entry.pod_port,
                node_ip: entry.node_ip,
                node_port: entry.node_port,
                proto,
                ipv6,
            });
        }
    }
    NplAnnotation::Entries(out)
}

fn not_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

impl From<PodObject> for Pod {
    fn from(pod: PodObject) -> Self {
        let mut ips: Vec<IpAddr> = pod.status.pod_ips.iter().filter_map(|ip| ip.ip).collect();
        if let Some(ip) = pod.status.pod_ip
            && !ips.contains(&ip)
        {
            ips.insert(0, ip);
        }
        let mut extra_ips = pod.network_status().unwrap_or_default();
        extra_ips.retain(|ip| !ips.contains(ip));
        extra_ips.dedup();
        let sidecars = pod
            .spec
            .init_containers
            .iter()
            .filter(|c| c.restart_policy.as_deref() == Some("Always"));
        let ports = pod
            .spec
            .containers
            .iter()
            .chain(sidecars)
            .flat_map(|container| &container.ports)
            .map(|port| ContainerPort {
                name: not_empty(port.name.clone()),
                container_port: port.container_port,
                host_port: port.host_port.filter(|port| *port != 0),
                host_ip: port.host_ip,
                proto: port.protocol.0,
            })
            .collect();
        let annotations = pod.metadata.annotations;
        Self {
            namespace: pod.metadata.namespace,
            name: pod.metadata.name,
            uid: not_empty(pod.metadata.uid).map(|uid| PodUid::new(&uid)),
            static_uid: not_empty(annotations.config_mirror)
                .or(not_empty(annotations.config_hash))
                .map(|uid| PodUid::new(&uid)),
            node: not_empty(pod.spec.node_name),
            host_network: pod.spec.host_network,
            phase: match pod.status.phase.as_deref() {
                Some("Pending") => Phase::Pending,
                Some("Running") => Phase::Running,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                _ => Phase::Unknown,
            },
            ips,
            extra_ips,
            created_at: pod.metadata.creation_timestamp,
            deleting_since: pod.metadata.deletion_timestamp,
            started_at: pod.status.start_time,
            ports,
            npl: annotations
                .npl
                .map_or(NplAnnotation::Absent, |text| parse_npl_annotation(&text)),
            has_resource_claims: !pod.spec.resource_claims.is_empty(),
        }
    }
}

/// A Service, slim.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ServiceObject {
    /// Its metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(default, deserialize_with = "nullable")]
    pub spec: ServiceSpec,
    /// Its status.
    #[serde(default, deserialize_with = "nullable")]
    pub status: ServiceStatus,
}

/// `spec` of a Service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceSpec {
    /// The first cluster address; `None` for a headless Service.
    #[serde(default, rename = "clusterIP", deserialize_with = "some_ip")]
    pub cluster_ip: Option<IpAddr>,
    /// All cluster addresses.
    #[serde(default, rename = "clusterIPs", deserialize_with = "ips")]
    pub cluster_ips: Vec<IpAddr>,
    /// External addresses.
    #[serde(default, rename = "externalIPs", deserialize_with = "ips")]
    pub external_ips: Vec<IpAddr>,
    /// Its ports.
    #[serde(default, deserialize_with = "nullable")]
    pub ports: Vec<ServicePortObject>,
    /// The health check's port on the node.
    pub health_check_node_port: Option<u16>,
}

/// A port of a Service.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePortObject {
    /// Its name.
    #[serde(default, deserialize_with = "nullable")]
    pub name: String,
    /// The port at the Service's addresses.
    pub port: u16,
    /// The port on every node.
    pub node_port: Option<u16>,
    /// The protocol.
    #[serde(default)]
    pub protocol: KubeProto,
}

/// `status` of a Service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceStatus {
    /// The load balancer's part.
    #[serde(default, deserialize_with = "nullable")]
    pub load_balancer: LoadBalancerStatus,
}

/// `status.loadBalancer` of a Service.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct LoadBalancerStatus {
    /// Its addresses.
    #[serde(default, deserialize_with = "nullable")]
    pub ingress: Vec<PodIp>,
}

impl From<ServiceObject> for Service {
    fn from(service: ServiceObject) -> Self {
        let spec = service.spec;
        let cluster_ips = if spec.cluster_ips.is_empty() {
            spec.cluster_ip.into_iter().collect()
        } else {
            spec.cluster_ips
        };
        Self {
            namespace: service.metadata.namespace,
            name: service.metadata.name,
            cluster_ips,
            external_ips: spec.external_ips,
            load_balancer_ips: service
                .status
                .load_balancer
                .ingress
                .iter()
                .filter_map(|ingress| ingress.ip)
                .collect(),
            ports: spec
                .ports
                .into_iter()
                .map(|port| ServicePort {
                    name: port.name,
                    port: port.port,
                    node_port: port.node_port.filter(|port| *port != 0),
                    proto: port.protocol.0,
                })
                .collect(),
            health_check_node_port: spec.health_check_node_port.filter(|port| *port != 0),
        }
    }
}

/// An EndpointSlice, slim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSliceObject {
    /// Its metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Its endpoints.
    #[serde(default, deserialize_with = "nullable")]
    pub endpoints: Vec<EndpointObject>,
    /// Its ports.
    #[serde(default, deserialize_with = "nullable")]
    pub ports: Vec<EndpointPortObject>,
}

/// An endpoint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointObject {
    /// Its addresses; host names (`addressType: FQDN`) are dropped.
    #[serde(default, deserialize_with = "nullable")]
    pub addresses: Vec<String>,
    /// Its conditions.
    #[serde(default, deserialize_with = "nullable")]
    pub conditions: EndpointConditions,
    /// The node that it is on.
    pub node_name: Option<String>,
    /// What it is.
    pub target_ref: Option<TargetRef>,
}

/// The conditions of an endpoint.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct EndpointConditions {
    /// Ready; true unless told.
    pub ready: Option<bool>,
    /// Serving; as ready unless told.
    pub serving: Option<bool>,
    /// Terminating; false unless told.
    pub terminating: Option<bool>,
}

/// The object that an endpoint is, or that an Event is about.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct TargetRef {
    /// `Pod`, mostly.
    #[serde(default, deserialize_with = "nullable")]
    pub kind: String,
    /// The namespace.
    #[serde(default, deserialize_with = "nullable")]
    pub namespace: String,
    /// The name.
    #[serde(default, deserialize_with = "nullable")]
    pub name: String,
    /// The UID.
    pub uid: Option<String>,
}

/// A port of an EndpointSlice.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct EndpointPortObject {
    /// The Service port's name.
    #[serde(default, deserialize_with = "nullable")]
    pub name: String,
    /// The port; none means all.
    pub port: Option<u16>,
    /// The protocol.
    #[serde(default)]
    pub protocol: KubeProto,
}

impl From<EndpointSliceObject> for EndpointSlice {
    fn from(slice: EndpointSliceObject) -> Self {
        let endpoints = slice.endpoints.into_iter().map(|endpoint| {
            let ready = endpoint.conditions.ready.unwrap_or(true);
            let pod = endpoint.target_ref.filter(|target| target.kind == "Pod");
            Endpoint {
                addresses: endpoint
                    .addresses
                    .iter()
                    .filter_map(|text| parse_ip(text))
                    .collect(),
                ready,
                serving: endpoint.conditions.serving.unwrap_or(ready),
                terminating: endpoint.conditions.terminating.unwrap_or(false),
                node: not_empty(endpoint.node_name),
                pod_uid: pod
                    .as_ref()
                    .and_then(|pod| pod.uid.as_deref())
                    .filter(|uid| !uid.is_empty())
                    .map(PodUid::new),
                pod: pod.map(|pod| PodName {
                    namespace: pod.namespace,
                    name: pod.name,
                }),
            }
        });
        Self {
            endpoints: endpoints.collect(),
            ports: slice
                .ports
                .into_iter()
                .map(|port| EndpointPort {
                    name: port.name,
                    port: port.port,
                    proto: port.protocol.0,
                })
                .collect(),
            namespace: slice.metadata.namespace,
            name: slice.metadata.name,
            service: not_empty(slice.metadata.labels.service_name),
        }
    }
}

/// A Node, slim.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct NodeObject {
    /// Its metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(default, deserialize_with = "nullable")]
    pub spec: NodeSpec,
    /// Its status.
    #[serde(default, deserialize_with = "nullable")]
    pub status: NodeStatus,
}

/// `spec` of a Node.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct NodeSpec {
    /// The first Pod range.
    #[serde(rename = "podCIDR")]
    pub pod_cidr: Option<String>,
    /// All Pod ranges.
    #[serde(default, rename = "podCIDRs", deserialize_with = "nets")]
    pub pod_cidrs: Vec<IpNet>,
}

/// `status` of a Node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Its addresses.
    #[serde(default, deserialize_with = "nullable")]
    pub addresses: Vec<NodeAddress>,
    /// What its kubelet says about it.
    #[serde(default, deserialize_with = "nullable")]
    pub node_info: NodeInfo,
}

/// An address of a Node.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct NodeAddress {
    /// `InternalIP`, `ExternalIP`, `Hostname`, ...
    #[serde(default)]
    pub r#type: String,
    /// The address or name.
    #[serde(default)]
    pub address: String,
}

/// `status.nodeInfo` of a Node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeInfo {
    /// The machine's ID.
    #[serde(rename = "machineID")]
    pub machine_id: Option<String>,
    /// The runtime with its version.
    pub container_runtime_version: Option<String>,
    /// The operating system, in words.
    pub os_image: Option<String>,
    /// The kernel, or the build of Windows.
    pub kernel_version: Option<String>,
    /// The kubelet's version.
    pub kubelet_version: Option<String>,
}

/// An Event, slim: of either API group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventObject {
    /// Its metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What it is about.
    #[serde(default, alias = "regarding", deserialize_with = "nullable")]
    pub involved_object: TargetRef,
    /// Why it was sent, in one word.
    #[serde(default, deserialize_with = "nullable")]
    pub reason: String,
    /// The same in a sentence.
    #[serde(default, alias = "note", deserialize_with = "nullable")]
    pub message: String,
    /// When it happened last.
    #[serde(default, alias = "deprecatedLastTimestamp")]
    pub last_timestamp: Option<Timestamp>,
    /// When it happened, where it happened once.
    pub event_time: Option<Timestamp>,
}

impl EventObject {
    /// What it tells of a Pod's network: that it got addresses (Multus' `AddedInterface`), or that its containers were stopped or
    /// the Pod was deleted.
    pub fn past(&self) -> Option<PastEvent> {
        let of_pod = self.involved_object.kind == "Pod";
        let named = |name: &str| PodName {
            namespace: self.involved_object.namespace.clone(),
            name: name.to_owned(),
        };
        let (pod, uid, what) = match self.reason.as_str() {
            "Killing" | "Evicted" | "Preempted" if of_pod => (
                named(&self.involved_object.name),
                self.involved_object.uid.clone(),
                PastKind::Ended,
            ),
            "AddedInterface" if of_pod => {
                let (_, rest) = self.message.split_once('[')?;
                let (list, _) = rest.split_once(']')?;
                let ips: Vec<IpAddr> = list
                    .split([' ', ','])
                    .filter_map(|text| parse_ip(text.split('/').next().unwrap_or(text)))
                    .collect();
                if ips.is_empty() {
                    return None;
                }
                (
                    named(&self.involved_object.name),
                    self.involved_object.uid.clone(),
                    PastKind::Got(ips),
                )
            }
            // A controller's: `Deleted pod: web-7d4-x2k`, `delete Pod web-0 in StatefulSet web successful`.
            "SuccessfulDelete" => {
                let name = self
                    .message
                    .strip_prefix("Deleted pod: ")
                    .or_else(|| self.message.strip_prefix("delete Pod ")?.split(' ').next())?;
                (named(name.trim()), None, PastKind::Ended)
            }
            _ => return None,
        };
        Some(PastEvent {
            at: self
                .last_timestamp
                .or(self.event_time)
                .or(self.metadata.creation_timestamp),
            pod,
            uid: not_empty(uid).map(|uid| PodUid::new(&uid)),
            container: None,
            what,
            source: format!("Event {}", self.reason),
        })
    }
}

impl From<NodeObject> for KubeNode {
    fn from(node: NodeObject) -> Self {
        let pod_cidrs = if node.spec.pod_cidrs.is_empty() {
            node.spec
                .pod_cidr
                .as_deref()
                .and_then(parse_net)
                .into_iter()
                .collect()
        } else {
            node.spec.pod_cidrs
        };
        Self {
            name: node.metadata.name,
            uid: not_empty(node.metadata.uid),
            addresses: node
                .status
                .addresses
                .iter()
                .filter(|address| matches!(address.r#type.as_str(), "InternalIP" | "ExternalIP"))
                .filter_map(|address| parse_ip(&address.address))
                .collect(),
            pod_cidrs,
            machine_id: not_empty(node.status.node_info.machine_id),
            created_at: node.metadata.creation_timestamp,
            traits: [
                ("OS", node.status.node_info.os_image),
                ("OS build", node.metadata.labels.windows_build),
                ("kernel", node.status.node_info.kernel_version),
                ("kubelet", node.status.node_info.kubelet_version),
                ("runtime", node.status.node_info.container_runtime_version.clone()),
                ("VM size", node.metadata.labels.instance_type),
                ("image", node.metadata.labels.node_image),
                ("pool", node.metadata.labels.pool),
                ("zone", node.metadata.labels.zone),
            ]
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), not_empty(value)?)))
            .collect(),
            runtime_version: not_empty(node.status.node_info.container_runtime_version),
        }
    }
}

/// A ServiceCIDR, slim.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ServiceCidrObject {
    /// Its metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(default, deserialize_with = "nullable")]
    pub spec: ServiceCidrSpec,
}

/// `spec` of a ServiceCIDR.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ServiceCidrSpec {
    /// Its ranges.
    #[serde(default, deserialize_with = "nets")]
    pub cidrs: Vec<IpNet>,
}

impl From<ServiceCidrObject> for Vec<IpNet> {
    fn from(object: ServiceCidrObject) -> Self {
        object.spec.cidrs
    }
}

#[cfg(test)]
mod tests;
