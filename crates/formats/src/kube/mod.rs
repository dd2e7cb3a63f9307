//! Kubernetes objects, in the few fields that judging needs.
//!
//! [`objects`] holds slim structs for serde that drop everything else while parsing, with [`From`] into the model;
//! they fit what `kubectl get ... -o json` prints and what the API server sends. [`list`] streams a whole list out of
//! JSON or YAML, one object at a time, and keeps what came before a cut.

pub mod list;
pub mod objects;

pub use list::{ListOutcome, read_json, read_yaml};
pub use objects::{
    EndpointSliceObject, EventObject, List, ListMeta, NodeObject, ObjectMeta, PodObject, ServiceCidrObject,
    ServiceObject,
};

use ipnet::IpNet;
use sexton_core::model::{EndpointSlice, KubeNode, PastEvent, Pod, Service};

/// A kind of object that is read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `Pod`.
    Pod,
    /// `Service`.
    Service,
    /// `EndpointSlice` of `discovery.k8s.io`.
    EndpointSlice,
    /// `Node`.
    Node,
    /// `ServiceCIDR` of `networking.k8s.io`.
    ServiceCidr,
    /// `Event`, of the core group or of `events.k8s.io`.
    Event,
}

impl Kind {
    /// From `kind` of an object (`Pod`) or of a typed list (`PodList`); `None` for a kind that is not read, and for
    /// `List`, which says nothing.
    pub fn parse(kind: &str) -> Option<Self> {
        match kind.strip_suffix("List").unwrap_or(kind) {
            "Pod" => Some(Self::Pod),
            "Service" => Some(Self::Service),
            "EndpointSlice" => Some(Self::EndpointSlice),
            "Node" => Some(Self::Node),
            "ServiceCIDR" => Some(Self::ServiceCidr),
            "Event" => Some(Self::Event),
            _ => None,
        }
    }

    /// The word for one of it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Node => "Node",
            Self::ServiceCidr => "ServiceCIDR",
            Self::Event => "Event",
        }
    }
}

/// An object that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeItem {
    /// A Pod, with the Service CIDRs that its flags tell if it is a static control plane Pod.
    Pod(Box<Pod>, Vec<IpNet>),
    /// A Service.
    Service(Service),
    /// An EndpointSlice.
    EndpointSlice(EndpointSlice),
    /// A Node.
    Node(KubeNode),
    /// The CIDRs of a ServiceCIDR.
    ServiceCidr(Vec<IpNet>),
    /// What an Event tells of a Pod's network; most tell nothing.
    Event(Option<PastEvent>),
}
