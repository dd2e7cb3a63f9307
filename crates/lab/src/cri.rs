//! The CRI calls that change something: what the kubelet does with a runtime, so that the lab has real sandboxes. Sexton itself only
//! reads ([`sexton_linux::cri`]).

use std::collections::HashMap;

use sexton_linux::cri::proto::{ContainerMetadata, NamespaceOption, PodSandboxMetadata};
use sexton_linux::cri::{CriClient, CriError};

/// Transport protocol of a port mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum PortProtocol {
    /// TCP.
    Tcp = 0,
    /// UDP.
    Udp = 1,
    /// SCTP.
    Sctp = 2,
}

/// A hostPort.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PortMapping {
    /// Its protocol.
    #[prost(enumeration = "PortProtocol", tag = "1")]
    pub protocol: i32,
    /// The Pod's port.
    #[prost(int32, tag = "2")]
    pub container_port: i32,
    /// The node's port.
    #[prost(int32, tag = "3")]
    pub host_port: i32,
    /// The node's address, empty for all.
    #[prost(string, tag = "4")]
    pub host_ip: String,
}

/// Security settings of a sandbox, as far as the lab sets them.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxSandboxSecurityContext {
    /// Which namespaces the sandbox has for itself.
    #[prost(message, optional, tag = "1")]
    pub namespace_options: Option<NamespaceOption>,
}

/// Linux settings of a sandbox, as far as the lab sets them.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxPodSandboxConfig {
    /// Parent of the sandbox's cgroup.
    #[prost(string, tag = "1")]
    pub cgroup_parent: String,
    /// Security settings.
    #[prost(message, optional, tag = "2")]
    pub security_context: Option<LinuxSandboxSecurityContext>,
}

/// A sandbox to be made.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodSandboxConfig {
    /// Whose it is.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<PodSandboxMetadata>,
    /// Host name in it.
    #[prost(string, tag = "2")]
    pub hostname: String,
    /// Where the containers' logs go.
    #[prost(string, tag = "3")]
    pub log_directory: String,
    /// Its hostPorts.
    #[prost(message, repeated, tag = "5")]
    pub port_mappings: Vec<PortMapping>,
    /// Labels.
    #[prost(map = "string, string", tag = "6")]
    pub labels: HashMap<String, String>,
    /// Annotations.
    #[prost(map = "string, string", tag = "7")]
    pub annotations: HashMap<String, String>,
    /// Linux settings.
    #[prost(message, optional, tag = "8")]
    pub linux: Option<LinuxPodSandboxConfig>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct RunPodSandboxRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) config: Option<PodSandboxConfig>,
    #[prost(string, tag = "2")]
    runtime_handler: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct RunPodSandboxResponse {
    #[prost(string, tag = "1")]
    pub(crate) pod_sandbox_id: String,
}

/// Request of the calls that name one sandbox or container only.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct IdRequest {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Nothing {}

/// An image by name.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ImageSpec {
    /// Its name.
    #[prost(string, tag = "1")]
    pub image: String,
}

/// A container to be made, as far as the lab sets it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerConfig {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ContainerMetadata>,
    /// Its image.
    #[prost(message, optional, tag = "2")]
    pub image: Option<ImageSpec>,
    /// What it runs; the image's own entry point where empty.
    #[prost(string, repeated, tag = "3")]
    pub command: Vec<String>,
    /// Labels.
    #[prost(map = "string, string", tag = "9")]
    pub labels: HashMap<String, String>,
    /// Log file below the sandbox's log directory.
    #[prost(string, tag = "11")]
    pub log_path: String,
    /// Linux settings; containerd needs them to be there.
    #[prost(message, optional, tag = "15")]
    pub linux: Option<LinuxContainerConfig>,
}

/// Linux settings of a container; the lab sets none.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxContainerConfig {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct CreateContainerRequest {
    #[prost(string, tag = "1")]
    pod_sandbox_id: String,
    #[prost(message, optional, tag = "2")]
    config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    sandbox_config: Option<PodSandboxConfig>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct CreateContainerResponse {
    #[prost(string, tag = "1")]
    container_id: String,
}

/// Makes and starts a sandbox; answers its container ID.
///
/// # Errors
///
/// [`CriError`].
pub async fn run_pod_sandbox(cri: &CriClient, config: PodSandboxConfig) -> Result<String, CriError> {
    let request = RunPodSandboxRequest {
        config: Some(config),
        runtime_handler: String::new(),
    };
    let answer: RunPodSandboxResponse = cri.call("RunPodSandbox", request).await?;
    Ok(answer.pod_sandbox_id)
}

/// Ends a sandbox and takes its network down (CNI DEL).
///
/// # Errors
///
/// [`CriError`].
pub async fn stop_pod_sandbox(cri: &CriClient, id: &str) -> Result<(), CriError> {
    let _: Nothing = cri
        .call("StopPodSandbox", IdRequest { id: id.to_owned() })
        .await?;
    Ok(())
}

/// Takes a stopped sandbox out of the runtime's store.
///
/// # Errors
///
/// [`CriError`].
pub async fn remove_pod_sandbox(cri: &CriClient, id: &str) -> Result<(), CriError> {
    let _: Nothing = cri
        .call("RemovePodSandbox", IdRequest { id: id.to_owned() })
        .await?;
    Ok(())
}

/// Makes a container in a sandbox; answers its ID. `sandbox` is the configuration that the sandbox was made with.
///
/// # Errors
///
/// [`CriError`].
pub async fn create_container(
    cri: &CriClient,
    id: &str,
    config: ContainerConfig,
    sandbox: PodSandboxConfig,
) -> Result<String, CriError> {
    let request = CreateContainerRequest {
        pod_sandbox_id: id.to_owned(),
        config: Some(config),
        sandbox_config: Some(sandbox),
    };
    let answer: CreateContainerResponse = cri.call("CreateContainer", request).await?;
    Ok(answer.container_id)
}

/// Starts a container.
///
/// # Errors
///
/// [`CriError`].
pub async fn start_container(cri: &CriClient, id: &str) -> Result<(), CriError> {
    let _: Nothing = cri
        .call("StartContainer", IdRequest { id: id.to_owned() })
        .await?;
    Ok(())
}
