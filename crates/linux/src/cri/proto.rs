//! The messages of CRI v1 that Sexton reads (`pkg/apis/runtime/v1/api.proto`, package `runtime.v1`).
//!
//! Field numbers are those of the `.proto` file. Times are nanoseconds since the Unix epoch, as CRI sends them.

use std::collections::HashMap;

/// Asks which runtime answers.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct VersionRequest {
    /// Version of the kubelet's runtime API (`v1`).
    #[prost(string, tag = "1")]
    pub version: String,
}

/// Names the runtime.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct VersionResponse {
    /// Version of the kubelet's runtime API.
    #[prost(string, tag = "1")]
    pub version: String,
    /// Name of the runtime, such as `containerd` or `cri-o`.
    #[prost(string, tag = "2")]
    pub runtime_name: String,
    /// Version of the runtime.
    #[prost(string, tag = "3")]
    pub runtime_version: String,
    /// Version of the API that the runtime speaks.
    #[prost(string, tag = "4")]
    pub runtime_api_version: String,
}

/// Asks for the runtime's own health.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StatusRequest {
    /// Whether [`StatusResponse::info`] is filled in.
    #[prost(bool, tag = "1")]
    pub verbose: bool,
}

/// One condition of the runtime, `RuntimeReady` or `NetworkReady`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RuntimeCondition {
    /// `RuntimeReady`, `NetworkReady`.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// Whether the condition holds.
    #[prost(bool, tag = "2")]
    pub status: bool,
    /// A word for why it does not hold.
    #[prost(string, tag = "3")]
    pub reason: String,
    /// A sentence for why it does not hold.
    #[prost(string, tag = "4")]
    pub message: String,
}

/// The runtime's conditions.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RuntimeStatus {
    /// All conditions.
    #[prost(message, repeated, tag = "1")]
    pub conditions: Vec<RuntimeCondition>,
}

/// The runtime's own health; with `verbose` also its configuration as JSON under the key `config`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StatusResponse {
    /// The conditions.
    #[prost(message, optional, tag = "1")]
    pub status: Option<RuntimeStatus>,
    /// What the runtime adds when asked verbosely, by key; the values are JSON in containerd and CRI-O.
    #[prost(map = "string, string", tag = "2")]
    pub info: HashMap<String, String>,
}

/// Whether a sandbox is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum PodSandboxState {
    /// The sandbox's processes run and its network was set up.
    Ready = 0,
    /// The sandbox ended, was stopped, or its state is not known to the runtime.
    NotReady = 1,
}

/// Who a sandbox belongs to.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodSandboxMetadata {
    /// The Pod's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The Pod's UID.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// The Pod's namespace.
    #[prost(string, tag = "3")]
    pub namespace: String,
    /// How many sandboxes the Pod had before this one.
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
}

/// A state to select by, as a message so that "any state" can be said.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodSandboxStateValue {
    /// The state.
    #[prost(enumeration = "PodSandboxState", tag = "1")]
    pub state: i32,
}

/// Selects sandboxes; empty fields select all.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodSandboxFilter {
    /// One sandbox's ID.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Only sandboxes of this state.
    #[prost(message, optional, tag = "2")]
    pub state: Option<PodSandboxStateValue>,
    /// Only sandboxes with these labels.
    #[prost(map = "string, string", tag = "3")]
    pub label_selector: HashMap<String, String>,
}

/// Asks for the sandboxes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListPodSandboxRequest {
    /// Which ones; none means all.
    #[prost(message, optional, tag = "1")]
    pub filter: Option<PodSandboxFilter>,
}

/// A sandbox as a list shows it: without address and namespace, for which [`PodSandboxStatusRequest`] is needed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodSandbox {
    /// The sandbox's container ID.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Whose it is.
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<PodSandboxMetadata>,
    /// Ready or not.
    #[prost(enumeration = "PodSandboxState", tag = "3")]
    pub state: i32,
    /// Start of the sandbox, nanoseconds since the Unix epoch.
    #[prost(int64, tag = "4")]
    pub created_at: i64,
    /// Labels, among them `io.kubernetes.pod.uid`.
    #[prost(map = "string, string", tag = "5")]
    pub labels: HashMap<String, String>,
    /// Annotations.
    #[prost(map = "string, string", tag = "6")]
    pub annotations: HashMap<String, String>,
    /// The runtime handler (`RuntimeClass`), empty for the default one.
    #[prost(string, tag = "7")]
    pub runtime_handler: String,
}

/// The sandboxes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListPodSandboxResponse {
    /// All that matched.
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<PodSandbox>,
}

/// Asks for one sandbox.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodSandboxStatusRequest {
    /// The sandbox's container ID; runtimes accept a unique prefix too.
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
    /// Whether [`PodSandboxStatusResponse::info`] is filled in.
    #[prost(bool, tag = "2")]
    pub verbose: bool,
}

/// One more address of a sandbox.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodIp {
    /// The address as text.
    #[prost(string, tag = "1")]
    pub ip: String,
}

/// The sandbox's addresses. Empty for `hostNetwork` Pods.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodSandboxNetworkStatus {
    /// The first address.
    #[prost(string, tag = "1")]
    pub ip: String,
    /// The others.
    #[prost(message, repeated, tag = "2")]
    pub additional_ips: Vec<PodIp>,
}

/// Whose namespace is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum NamespaceMode {
    /// The Pod's own.
    Pod = 0,
    /// The container's own.
    Container = 1,
    /// The node's (`hostNetwork`, `hostPID`, `hostIPC`).
    Node = 2,
    /// Another container's.
    Target = 3,
}

/// Which namespaces a sandbox has for itself.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NamespaceOption {
    /// The network namespace.
    #[prost(enumeration = "NamespaceMode", tag = "1")]
    pub network: i32,
    /// The PID namespace.
    #[prost(enumeration = "NamespaceMode", tag = "2")]
    pub pid: i32,
    /// The IPC namespace.
    #[prost(enumeration = "NamespaceMode", tag = "3")]
    pub ipc: i32,
    /// The container meant by `Target`.
    #[prost(string, tag = "4")]
    pub target_id: String,
}

/// A sandbox's namespaces.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Namespace {
    /// The options (field 1 was a path once and is reserved).
    #[prost(message, optional, tag = "2")]
    pub options: Option<NamespaceOption>,
}

/// What is particular to Linux.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxPodSandboxStatus {
    /// The namespaces.
    #[prost(message, optional, tag = "1")]
    pub namespaces: Option<Namespace>,
}

/// A sandbox with its addresses.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodSandboxStatus {
    /// The sandbox's container ID.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Whose it is.
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<PodSandboxMetadata>,
    /// Ready or not.
    #[prost(enumeration = "PodSandboxState", tag = "3")]
    pub state: i32,
    /// Start of the sandbox, nanoseconds since the Unix epoch.
    #[prost(int64, tag = "4")]
    pub created_at: i64,
    /// Its addresses.
    #[prost(message, optional, tag = "5")]
    pub network: Option<PodSandboxNetworkStatus>,
    /// What is particular to Linux.
    #[prost(message, optional, tag = "6")]
    pub linux: Option<LinuxPodSandboxStatus>,
    /// Labels, among them `io.kubernetes.pod.uid`.
    #[prost(map = "string, string", tag = "7")]
    pub labels: HashMap<String, String>,
    /// Annotations.
    #[prost(map = "string, string", tag = "8")]
    pub annotations: HashMap<String, String>,
    /// The runtime handler (`RuntimeClass`), empty for the default one.
    #[prost(string, tag = "9")]
    pub runtime_handler: String,
}

impl PodSandboxStatus {
    /// All addresses of the sandbox as the runtime wrote them, the first one first; none for `hostNetwork` Pods and
    /// for sandboxes without a network.
    pub fn ips(&self) -> impl Iterator<Item = &str> {
        self.network
            .iter()
            .flat_map(|net| {
                std::iter::once(net.ip.as_str()).chain(net.additional_ips.iter().map(|more| more.ip.as_str()))
            })
            .filter(|ip| !ip.is_empty())
    }

    /// Whether the sandbox shares the node's network namespace.
    pub fn is_host_network(&self) -> bool {
        self.linux
            .as_ref()
            .and_then(|linux| linux.namespaces.as_ref())
            .and_then(|namespaces| namespaces.options.as_ref())
            .is_some_and(|options| options.network() == NamespaceMode::Node)
    }
}

/// One sandbox.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodSandboxStatusResponse {
    /// The sandbox.
    #[prost(message, optional, tag = "1")]
    pub status: Option<PodSandboxStatus>,
    /// What the runtime adds when asked verbosely; read it with [`super::SandboxInfo::parse`].
    #[prost(map = "string, string", tag = "2")]
    pub info: HashMap<String, String>,
    /// When the runtime made this answer, nanoseconds since the Unix epoch; 0 where it does not say.
    #[prost(int64, tag = "4")]
    pub timestamp: i64,
}

/// What a container does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum ContainerState {
    /// Made, not started.
    Created = 0,
    /// Runs.
    Running = 1,
    /// Ended.
    Exited = 2,
    /// The runtime cannot tell.
    Unknown = 3,
}

/// A container's name.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerMetadata {
    /// Name as in the Pod's spec.
    #[prost(string, tag = "1")]
    pub name: String,
    /// How often it was started again.
    #[prost(uint32, tag = "2")]
    pub attempt: u32,
}

/// A state to select by.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerStateValue {
    /// The state.
    #[prost(enumeration = "ContainerState", tag = "1")]
    pub state: i32,
}

/// Selects containers; empty fields select all.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerFilter {
    /// One container's ID.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Only containers of this state.
    #[prost(message, optional, tag = "2")]
    pub state: Option<ContainerStateValue>,
    /// Only containers of this sandbox.
    #[prost(string, tag = "3")]
    pub pod_sandbox_id: String,
    /// Only containers with these labels.
    #[prost(map = "string, string", tag = "4")]
    pub label_selector: HashMap<String, String>,
}

/// Asks for the containers.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListContainersRequest {
    /// Which ones; none means all.
    #[prost(message, optional, tag = "1")]
    pub filter: Option<ContainerFilter>,
}

/// A container as a list shows it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Container {
    /// The container's ID.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The sandbox that it runs in.
    #[prost(string, tag = "2")]
    pub pod_sandbox_id: String,
    /// Its name.
    #[prost(message, optional, tag = "3")]
    pub metadata: Option<ContainerMetadata>,
    /// What it does.
    #[prost(enumeration = "ContainerState", tag = "6")]
    pub state: i32,
    /// When it was made, nanoseconds since the Unix epoch.
    #[prost(int64, tag = "7")]
    pub created_at: i64,
    /// Labels, among them `io.kubernetes.pod.uid`.
    #[prost(map = "string, string", tag = "8")]
    pub labels: HashMap<String, String>,
}

/// The containers.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListContainersResponse {
    /// All that matched.
    #[prost(message, repeated, tag = "1")]
    pub containers: Vec<Container>,
}
