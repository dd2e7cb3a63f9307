//! What was made on a node, for whoever checks a program against it: `lab.json`.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::node::{CLIENT_IP, LabOptions, NODE_IP, Place, RuntimeKind, UPLINK, Variant};

/// Name of the file in the lab's directory.
pub const FILE: &str = "lab.json";

/// A transport protocol, written `tcp` and `udp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// As iptables writes it.
    pub fn lower(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// As Kubernetes writes it.
    pub fn upper(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

/// How a client outside reaches a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetPath {
    /// At the Pod's own address.
    Pod,
    /// By a hostPort at the node's address.
    HostPort,
    /// By a NodePortLocal port at the node's address.
    Npl,
    /// By a Service's virtual address.
    Service,
}

/// One thing that a client can talk to, and who must answer there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// `namespace/name` of the Pod.
    pub pod: String,
    /// UID that must be in the banner.
    pub uid: String,
    /// Address that the client talks to.
    pub ip: Ipv4Addr,
    /// Port that the client talks to.
    pub port: u16,
    /// Protocol.
    pub protocol: Protocol,
    /// How it gets there.
    pub path: TargetPath,
    /// Whether it answers now. False for what a fault broke: there it is the repair that must make it true.
    pub works: bool,
}

/// What has become of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PodState {
    /// In the API, its sandbox ready.
    Living,
    /// Deleted, and cleaned up as it should be.
    Ended,
    /// Deleted from the API, while no runtime knows its sandbox: what it had is left over.
    Lost,
    /// Deleted from the API, while its sandbox is still ready.
    Zombie,
    /// In the API, its sandbox not ready.
    NotReady,
    /// In the API and running, while the runtime has lost its store and lists nothing.
    Unlisted,
}

/// A Pod that was made here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRecord {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Address that it has or had.
    pub ip: Ipv4Addr,
    /// Container ID of its sandbox.
    pub sandbox: String,
    /// What has become of it.
    pub state: PodState,
}

/// A finding that a good program must have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// The fault that made it.
    pub fault: String,
    /// The rule that must name it.
    pub rule: String,
    /// The verdict.
    pub verdict: String,
    /// `repair` or `report`.
    pub action: String,
    /// What the object's text must hold; a whole line where its own tool prints the same one at every look.
    pub contains: Vec<String>,
}

/// Something alive that looks almost the same as something stale, and may never be touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alive {
    /// The fault that it stands beside.
    pub fault: String,
    /// What it is and what its one difference is.
    pub why: String,
    /// Words that its text holds.
    pub contains: Vec<String>,
}

/// All that was made on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    /// Name of the node.
    pub node: String,
    /// Directory of the lab.
    pub dir: PathBuf,
    /// The node's iptables.
    pub variant: Variant,
    /// The node's runtime.
    pub runtime: RuntimeKind,
    /// Kubeconfig for the stand-in of the API; its address is on the node's loopback.
    pub kubeconfig: PathBuf,
    /// Name of the node's uplink.
    pub uplink: String,
    /// The node's own address.
    pub node_ip: Ipv4Addr,
    /// The clients' address.
    pub client_ip: Ipv4Addr,
    /// Faults that were made, in order.
    pub faults: Vec<String>,
    /// Pods, in the order in which they were made.
    pub pods: Vec<PodRecord>,
    /// What clients can talk to.
    pub targets: Vec<Target>,
    /// What must be found.
    pub expected: Vec<Expected>,
    /// What must never be touched.
    pub alive: Vec<Alive>,
}

impl Truth {
    pub(crate) fn new(place: &Place, options: &LabOptions) -> Self {
        Self {
            node: options.node_name.clone(),
            dir: place.dir().to_path_buf(),
            variant: options.variant,
            runtime: options.runtime,
            kubeconfig: place.kubeconfig(),
            uplink: UPLINK.into(),
            node_ip: NODE_IP.parse().unwrap_or(Ipv4Addr::UNSPECIFIED),
            client_ip: CLIENT_IP.parse().unwrap_or(Ipv4Addr::UNSPECIFIED),
            faults: Vec::new(),
            pods: Vec::new(),
            targets: Vec::new(),
            expected: Vec::new(),
            alive: Vec::new(),
        }
    }

    /// Reads what the lab in `place` wrote down.
    ///
    /// # Errors
    ///
    /// [`LabError::NoLab`] when there is no such file, [`LabError::Json`] when it is not what the lab writes.
    pub fn load(place: &Place) -> Result<Self, LabError> {
        let path = place.path(FILE);
        let text = std::fs::read_to_string(&path).map_err(|source| LabError::NoLab {
            dir: place.dir().to_path_buf(),
            source,
        })?;
        serde_json::from_str(&text).map_err(|source| LabError::Json {
            what: path.display().to_string(),
            source,
        })
    }

    pub(crate) fn save(&self, place: &Place) -> Result<(), LabError> {
        let path = place.path(FILE);
        let text = serde_json::to_string_pretty(self).map_err(|source| LabError::Json {
            what: path.display().to_string(),
            source,
        })?;
        // Readers never see half of it.
        let new = place.path("lab.json.new");
        crate::node::write(&new, text)?;
        std::fs::rename(&new, &path).map_err(LabError::file("replace", &path))
    }

    /// The record of a Pod by UID.
    pub fn pod(&self, uid: &str) -> Option<&PodRecord> {
        self.pods.iter().find(|pod| pod.uid == uid)
    }

    /// Targets that answer now.
    pub fn working(&self) -> impl Iterator<Item = &Target> {
        self.targets.iter().filter(|target| target.works)
    }
}
