//! containerd's own API: what CRI does not show.
//!
//! A containerd holds containers in namespaces of which CRI's (`k8s.io`) is only one, and keeps records of a sandbox
//! that is still being made: a lease and, since 1.7, an entry in its sandbox store, both under the sandbox's ID.
//! Sources: containerd, `api/services/{namespaces,containers,tasks,leases,sandbox}/v1`, and
//! `internal/cri/server/sandbox_run.go`.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use http::uri::PathAndQuery;
use sexton_core::model::{Completeness, Container, ContainerId, Runtime, RuntimeKind};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use super::SIDE_DEADLINE;
use crate::source::chain;

/// The namespace of CRI.
const CRI: &str = "k8s.io";

/// The namespace of Docker.
pub(super) const MOBY: &str = "moby";

/// Containers come with their whole specification.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// What a containerd said.
#[derive(Debug)]
pub(super) struct ContainerdReading {
    /// It itself, or its namespaces other than CRI's that hold something.
    pub(super) runtimes: Vec<Runtime>,
    /// Containers that CRI does not list.
    pub(super) containers: Vec<Container>,
    /// IDs that its records of CRI's namespace name.
    pub(super) recorded_ids: Vec<ContainerId>,
    pub(super) completeness: Completeness,
}

/// Reads a containerd. `is_cri` tells that it is the kubelet's, and `known` the IDs that CRI has listed.
pub(super) async fn read(
    socket: &Path,
    is_cri: bool,
    known: &HashSet<ContainerId>,
    deadline: Duration,
) -> ContainerdReading {
    let mut out = ContainerdReading {
        runtimes: Vec::new(),
        containers: Vec::new(),
        recorded_ids: Vec::new(),
        completeness: Completeness::Complete,
    };
    let why = match tokio::time::timeout(deadline, fill(socket, is_cri, known, &mut out)).await {
        Ok(Ok(())) => return out,
        Ok(Err(why)) => why,
        Err(_) => format!("no answer within {} ms", deadline.as_millis()),
    };
    // Something is there, and nothing is known of it.
    out.runtimes.push(Runtime {
        kind: RuntimeKind::Containerd,
        seen_at: socket.display().to_string(),
        read: false,
        note: format!("its namespaces cannot be read: {why}"),
    });
    out.completeness = Completeness::Partial(format!("{}: {why}", socket.display()));
    out
}

async fn fill(
    socket: &Path,
    is_cri: bool,
    known: &HashSet<ContainerId>,
    out: &mut ContainerdReading,
) -> Result<(), String> {
    let client = Client::connect(socket).await?;
    let namespaces: ListNamespaces = client
        .call(
            "/containerd.services.namespaces.v1.Namespaces/List",
            None,
            Filter::default(),
        )
        .await?;
    let names: Vec<&str> = namespaces
        .namespaces
        .iter()
        .map(|namespace| namespace.name.as_str())
        .collect();
    for name in &names {
        let list = || {
            client.call(
                "/containerd.services.containers.v1.Containers/List",
                Some(name),
                Filters::default(),
            )
        };
        let tasks = || {
            client.call(
                "/containerd.services.tasks.v1.Tasks/List",
                Some(name),
                Filter::default(),
            )
        };
        let (containers, tasks): (ListContainers, ListTasks) = tokio::try_join!(list(), tasks())?;
        let of_cri = is_cri && *name == CRI;
        let listed = containers.containers.len();
        for container in containers.containers {
            let id = ContainerId::new(&container.id);
            if of_cri && known.contains(&id) {
                continue;
            }
            // Made by CRI, which does not list it: it is still being made, or its end was lost.
            if of_cri && container.is_cri() {
                out.recorded_ids.push(id);
                continue;
            }
            let running = tasks.tasks.iter().any(|task| task.is_running(&container.id));
            out.containers.push(Container {
                id,
                sandbox: None,
                name: String::new(),
                running,
            });
        }
        if !of_cri {
            out.runtimes.push(Runtime {
                kind: RuntimeKind::Containerd,
                seen_at: socket.display().to_string(),
                read: true,
                note: format!("namespace {name}, {listed} containers"),
            });
        }
    }
    if names.is_empty() || (names == [CRI] && !is_cri) {
        out.runtimes.push(Runtime {
            kind: RuntimeKind::Containerd,
            seen_at: socket.display().to_string(),
            read: true,
            note: "no namespace but CRI's".to_owned(),
        });
    }
    if is_cri {
        recorded(&client, out).await?;
    }
    Ok(())
}

/// IDs that containerd has noted for CRI, whether or not CRI lists them.
async fn recorded(client: &Client, out: &mut ContainerdReading) -> Result<(), String> {
    let leases: ListLeases = client
        .call(
            "/containerd.services.leases.v1.Leases/List",
            Some(CRI),
            Filters::default(),
        )
        .await?;
    let mut ids: Vec<String> = leases.leases.into_iter().map(|lease| lease.id).collect();
    match client
        .raw(
            "/containerd.services.sandbox.v1.Store/List",
            Some(CRI),
            Filters::default(),
        )
        .await
    {
        Ok(list) => {
            let list: ListSandboxes = list;
            ids.extend(list.sandboxes.into_iter().map(|sandbox| sandbox.id));
        }
        // Versions before 1.7 have no such store.
        Err(status) if status.code() == Code::Unimplemented => {}
        Err(status) => return Err(chain(&status)),
    }
    // Other leases guard images and snapshots; their names are no container IDs.
    let ids = ids
        .iter()
        .map(|id| ContainerId::new(id))
        .filter(ContainerId::is_generated);
    out.recorded_ids.extend(ids);
    Ok(())
}

struct Client(Channel);

impl Client {
    async fn connect(socket: &Path) -> Result<Self, String> {
        let address = format!("unix://{}", socket.display());
        let endpoint = Endpoint::from_shared(address).map_err(|error| chain(&error))?;
        let channel = endpoint.connect_timeout(SIDE_DEADLINE).connect().await;
        channel.map(Self).map_err(|error| chain(&error))
    }

    async fn call<Q, A>(
        &self,
        method: &'static str,
        namespace: Option<&str>,
        question: Q,
    ) -> Result<A, String>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        self.raw(method, namespace, question).await.map_err(|status| {
            let name = method.rsplit_once('.').map_or(method, |(_, name)| name);
            format!("{name}: {}", chain(&status))
        })
    }

    async fn raw<Q, A>(&self, method: &'static str, namespace: Option<&str>, question: Q) -> Result<A, Status>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut grpc = Grpc::new(self.0.clone()).max_decoding_message_size(MAX_ANSWER_BYTES);
        let mut request = tonic::Request::new(question);
        if let Some(namespace) = namespace {
            let value = namespace
                .parse()
                .map_err(|_| Status::invalid_argument("the namespace's name cannot be sent"))?;
            request.metadata_mut().insert("containerd-namespace", value);
        }
        grpc.ready()
            .await
            .map_err(|error| Status::unavailable(chain(&error)))?;
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        let answer = grpc
            .unary(request, PathAndQuery::from_static(method), codec)
            .await?;
        Ok(answer.into_inner())
    }
}

/// A question that one expression narrows; none does not.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Filter {
    #[prost(string, tag = "1")]
    filter: String,
}

/// A question that several expressions narrow.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Filters {
    #[prost(string, repeated, tag = "1")]
    filters: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct ListNamespaces {
    #[prost(message, repeated, tag = "1")]
    namespaces: Vec<NamespaceMessage>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct NamespaceMessage {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct ListContainers {
    #[prost(message, repeated, tag = "1")]
    containers: Vec<ContainerMessage>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct ContainerMessage {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(map = "string, string", tag = "2")]
    labels: std::collections::HashMap<String, String>,
}

impl ContainerMessage {
    fn is_cri(&self) -> bool {
        self.labels.contains_key("io.cri-containerd.kind")
    }
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct ListTasks {
    #[prost(message, repeated, tag = "1")]
    tasks: Vec<TaskMessage>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct TaskMessage {
    #[prost(string, tag = "1")]
    container_id: String,
    #[prost(string, tag = "2")]
    id: String,
    #[prost(int32, tag = "4")]
    status: i32,
}

impl TaskMessage {
    /// `Status.RUNNING`; a paused one holds its network as well.
    fn is_running(&self, container: &str) -> bool {
        (self.id == container || self.container_id == container) && matches!(self.status, 2 | 4 | 5)
    }
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct ListLeases {
    #[prost(message, repeated, tag = "1")]
    leases: Vec<LeaseMessage>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct LeaseMessage {
    #[prost(string, tag = "1")]
    id: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct ListSandboxes {
    #[prost(message, repeated, tag = "1")]
    sandboxes: Vec<SandboxMessage>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct SandboxMessage {
    #[prost(string, tag = "1")]
    id: String,
}
