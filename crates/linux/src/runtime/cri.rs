//! The kubelet's runtime, by CRI.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use sexton_core::model::{Completeness, Container, ContainerId, PodName, PodUid, Sandbox, SandboxState};

use crate::cri::proto::{ContainerState, PodSandbox, PodSandboxState};
use crate::cri::{CriClient, CriError, SandboxInfo};
use crate::source::chain;

/// How many `PodSandboxStatus` calls run side by side.
const SIDE_BY_SIDE: usize = 32;

/// What the runtime said.
pub(super) struct CriReading {
    pub(super) runtime_name: Option<String>,
    pub(super) runtime_version: Option<String>,
    pub(super) sandboxes: Vec<Sandbox>,
    pub(super) containers: Vec<Container>,
    pub(super) completeness: Completeness,
}

impl CriReading {
    /// Nothing, and why.
    pub(super) fn unavailable(why: String) -> Self {
        Self {
            runtime_name: None,
            runtime_version: None,
            sandboxes: Vec::new(),
            containers: Vec::new(),
            completeness: Completeness::Unavailable(why),
        }
    }
}

/// Reads sandboxes with their addresses, and containers.
pub(super) async fn read(socket: &Path, deadline: Duration) -> CriReading {
    let mut out = CriReading::unavailable(String::new());
    out.completeness = Completeness::Complete;
    let result = tokio::time::timeout(deadline, fill(socket, deadline, &mut out)).await;
    let why = match result {
        Ok(Ok(())) => return out,
        Ok(Err(error)) => chain(&error),
        Err(_) => format!(
            "{} did not answer within {} ms",
            socket.display(),
            deadline.as_millis()
        ),
    };
    // A list without its addresses, or the other way round, would be a half-truth.
    out.sandboxes.clear();
    out.containers.clear();
    out.completeness = Completeness::Unavailable(why);
    out
}

async fn fill(socket: &Path, deadline: Duration, out: &mut CriReading) -> Result<(), CriError> {
    let client = CriClient::connect(socket).await?.with_deadline(deadline);
    let version = client.version().await?;
    out.runtime_name = Some(version.runtime_name);
    out.runtime_version = Some(version.runtime_version);
    let (sandboxes, containers) =
        tokio::try_join!(client.list_pod_sandboxes(None), client.list_containers(None))?;
    out.containers = containers
        .into_iter()
        .map(|container| Container {
            running: container.state() == ContainerState::Running,
            id: ContainerId::new(&container.id),
            sandbox: Some(ContainerId::new(&container.pod_sandbox_id)),
            name: container
                .metadata
                .map(|metadata| metadata.name)
                .unwrap_or_default(),
        })
        .collect();
    let statuses: Vec<Result<Option<Sandbox>, (Sandbox, CriError)>> = futures::stream::iter(sandboxes)
        .map(|listed| status(&client, listed))
        .buffered(SIDE_BY_SIDE)
        .collect()
        .await;
    let mut failed = Vec::new();
    for status in statuses {
        match status {
            Ok(sandbox) => out.sandboxes.extend(sandbox),
            Err((sandbox, error)) => {
                out.sandboxes.push(sandbox);
                failed.push(error);
            }
        }
    }
    if let Some(first) = failed.first() {
        out.completeness = Completeness::Partial(format!(
            "the addresses of {} sandboxes could not be read, the first: {}",
            failed.len(),
            chain(first)
        ));
    }
    Ok(())
}

/// A listed sandbox with its status. One that was removed since the list is left out.
async fn status(client: &CriClient, listed: PodSandbox) -> Result<Option<Sandbox>, (Sandbox, CriError)> {
    let mut sandbox = listed_sandbox(&listed);
    match client.pod_sandbox_status(&listed.id, true).await {
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err((sandbox, error)),
        Ok(answer) => {
            if let Some(status) = &answer.status {
                sandbox.state = state(status.state());
                sandbox.host_network = status.is_host_network();
                let ips = status.ips().filter_map(|ip| ip.parse::<IpAddr>().ok());
                sandbox.ips = Some(ips.map(|ip| ip.to_canonical()).collect());
            }
            // The verbose part is the runtime's own format: what cannot be read of it is not known.
            if let Ok(Some(info)) = SandboxInfo::parse(&answer.info) {
                sandbox.pid = info.pid;
                sandbox.netns = info.netns.map(|path| path.display().to_string());
            }
            // CRI-O and containerd fill in the node's addresses for such a Pod; they are not its own.
            if sandbox.host_network {
                sandbox.ips = Some(Vec::new());
            }
            Ok(Some(sandbox))
        }
    }
}

fn listed_sandbox(listed: &PodSandbox) -> Sandbox {
    let metadata = listed.metadata.clone().unwrap_or_default();
    Sandbox {
        id: ContainerId::new(&listed.id),
        pod: PodName {
            namespace: metadata.namespace,
            name: metadata.name,
        },
        uid: PodUid::new(&metadata.uid),
        attempt: metadata.attempt,
        state: state(listed.state()),
        created_at: Timestamp::from_nanosecond(i128::from(listed.created_at)).ok(),
        ips: None,
        host_network: false,
        netns: None,
        pid: None,
        // The kubelet's other source is `api`.
        from_manifest: listed
            .annotations
            .get("kubernetes.io/config.source")
            .is_some_and(|source| matches!(source.as_str(), "file" | "http")),
    }
}

fn state(state: PodSandboxState) -> SandboxState {
    match state {
        PodSandboxState::Ready => SandboxState::Ready,
        PodSandboxState::NotReady => SandboxState::NotReady,
    }
}
