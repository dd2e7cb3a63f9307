//! What container runtimes say.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

use super::{ContainerId, PodName, PodUid, Timestamp};

/// A kind of runtime that can own containers on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeKind {
    /// A CRI endpoint: the kubelet's runtime.
    Cri,
    /// A containerd namespace other than CRI's.
    Containerd,
    /// Docker.
    Docker,
    /// Podman.
    Podman,
    /// Another one, by its name.
    Other(String),
}

impl fmt::Display for RuntimeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cri => "the CRI endpoint",
            Self::Containerd => "containerd",
            Self::Docker => "Docker",
            Self::Podman => "Podman",
            Self::Other(name) => name,
        })
    }
}

/// A runtime that was seen on the node (law 5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runtime {
    /// What it is.
    pub kind: RuntimeKind,
    /// Where it was seen: a socket, a process.
    pub seen_at: String,
    /// Whether its containers were read. One that is seen and not read makes what is keyed on a container ID unknown.
    pub read: bool,
    /// Why it was not read, or what it is.
    pub note: String,
}

/// Whether the runtime calls a sandbox ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SandboxState {
    /// `SANDBOX_READY`.
    Ready,
    /// `SANDBOX_NOTREADY`: ended, its DEL still to come.
    NotReady,
}

/// A Pod sandbox as CRI lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Its ID.
    pub id: ContainerId,
    /// The Pod's namespace and name.
    pub pod: PodName,
    /// The Pod's UID as the kubelet gave it (a static Pod's is the hash of its manifest).
    pub uid: PodUid,
    /// How often the kubelet tried before.
    pub attempt: u32,
    /// Ready or not.
    pub state: SandboxState,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// Its addresses by `PodSandboxStatus`; `None` where that was not read. A hostNetwork sandbox has none.
    pub ips: Option<Vec<IpAddr>>,
    /// True if it shares the node's network namespace.
    pub host_network: bool,
    /// Path of its network namespace, where told.
    pub netns: Option<String>,
    /// Its process, where told.
    pub pid: Option<u32>,
    /// True if the kubelet made it from a manifest on the node (annotation `kubernetes.io/config.source` is `file` or
    /// `http`): it lives even where the API server refused its mirror Pod.
    pub from_manifest: bool,
}

/// A container of a sandbox or of another runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Its ID.
    pub id: ContainerId,
    /// The sandbox that it runs in, where it has one.
    pub sandbox: Option<ContainerId>,
    /// Its name.
    pub name: String,
    /// True if it runs.
    pub running: bool,
}

/// Everything that the runtimes of a node told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeState {
    /// Runtimes that were seen, read or not.
    pub runtimes: Vec<Runtime>,
    /// Sandboxes of the CRI endpoint.
    pub sandboxes: Vec<Sandbox>,
    /// Containers of all runtimes.
    pub containers: Vec<Container>,
    /// IDs that a runtime's own records name although its list does not: containerd's metadata leases and sandbox
    /// store. An ADD may be running for them (law 6 a).
    pub recorded_ids: Vec<ContainerId>,
    /// True if the seen runtimes were looked for on the node itself. A recording cannot tell what else runs there.
    pub looked_for_others: bool,
}
