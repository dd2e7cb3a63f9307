//! Asks a container runtime over its unix socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::uri::PathAndQuery;
use tonic::Code;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::proto::{
    Container, ContainerFilter, ListContainersRequest, ListContainersResponse, ListPodSandboxRequest,
    ListPodSandboxResponse, PodSandbox, PodSandboxFilter, PodSandboxStatusRequest, PodSandboxStatusResponse,
    StatusRequest, StatusResponse, VersionRequest, VersionResponse,
};

/// The kubelet allows 16 MiB an answer, and runtimes are configured for that.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// How long connecting to a local socket may take.
const CONNECT_DEADLINE: Duration = Duration::from_secs(2);

/// How long a call may take where the caller sets nothing else.
const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// How much longer than us the runtime may work on a call that we gave up.
const SERVER_GRACE: Duration = Duration::from_millis(500);

/// Why the runtime gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum CriError {
    /// The path of the socket cannot be written as an address (it is not UTF-8, or not absolute).
    #[error("CRI socket {}: not an absolute UTF-8 path", socket.display())]
    BadSocket {
        /// The path.
        socket: PathBuf,
    },
    /// Nobody answers at the socket: the runtime is not there, or is just being started again. That is no empty
    /// answer.
    #[error("CRI socket {}: cannot connect", socket.display())]
    Connect {
        /// The path of the socket.
        socket: PathBuf,
        /// What the transport said.
        #[source]
        source: tonic::transport::Error,
    },
    /// The runtime took the call and did not answer in time.
    #[error("CRI socket {}: {call} did not answer within {} ms", socket.display(), deadline.as_millis())]
    Deadline {
        /// The path of the socket.
        socket: PathBuf,
        /// The method, such as `ListPodSandbox`.
        call: &'static str,
        /// How long was waited.
        deadline: Duration,
    },
    /// The runtime, or the connection to it, refused the call.
    #[error("CRI socket {}: {call} failed", socket.display())]
    Call {
        /// The path of the socket.
        socket: PathBuf,
        /// The method, such as `ListPodSandbox`.
        call: &'static str,
        /// What it said.
        #[source]
        status: Box<tonic::Status>,
    },
}

impl CriError {
    /// Whether the runtime says that the sandbox or container that was asked for is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Call { status, .. } if status.code() == Code::NotFound)
    }

    /// Whether asking again in a moment may help: nobody was at the socket, the connection broke, or time ran out.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::BadSocket { .. } => false,
            Self::Connect { .. } | Self::Deadline { .. } => true,
            Self::Call { status, .. } => {
                matches!(
                    status.code(),
                    Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled
                )
            }
        }
    }
}

/// A connection to one runtime. Cloning it is cheap and shares the connection, so that many calls can run side by
/// side.
#[derive(Clone, Debug)]
pub struct CriClient {
    socket: PathBuf,
    channel: Channel,
    deadline: Duration,
}

impl CriClient {
    /// Connects to the runtime at `socket` (a path, with or without `unix://` before it). Calls get a deadline of 10 s
    /// each; see [`CriClient::with_deadline`].
    ///
    /// # Errors
    ///
    /// [`CriError::BadSocket`] for a path that cannot be an address, [`CriError::Connect`] when nobody accepts within
    /// 2 s.
    pub async fn connect(socket: impl AsRef<Path>) -> Result<Self, CriError> {
        let given = socket.as_ref();
        let bad = || CriError::BadSocket {
            socket: given.to_path_buf(),
        };
        let text = given.to_str().ok_or_else(bad)?;
        let path = text.strip_prefix("unix://").unwrap_or(text);
        if !path.starts_with('/') {
            return Err(bad());
        }
        let endpoint = Endpoint::from_shared(format!("unix://{path}")).map_err(|_| bad())?;
        let socket = PathBuf::from(path);
        let channel = endpoint
            .connect_timeout(CONNECT_DEADLINE)
            .connect()
            .await
            .map_err(|source| CriError::Connect {
                socket: socket.clone(),
                source,
            })?;
        Ok(Self {
            socket,
            channel,
            deadline: CALL_DEADLINE,
        })
    }

    /// The same connection with another deadline for every call made through it.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The path of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Which runtime this is.
    ///
    /// # Errors
    ///
    /// [`CriError::Deadline`], [`CriError::Call`].
    pub async fn version(&self) -> Result<VersionResponse, CriError> {
        self.call("Version", VersionRequest { version: "v1".into() })
            .await
    }

    /// The runtime's own health; with `verbose` also its configuration.
    ///
    /// # Errors
    ///
    /// [`CriError::Deadline`], [`CriError::Call`].
    pub async fn status(&self, verbose: bool) -> Result<StatusResponse, CriError> {
        self.call("Status", StatusRequest { verbose }).await
    }

    /// The sandboxes, all of them where `filter` is none.
    ///
    /// # Errors
    ///
    /// [`CriError::Deadline`], [`CriError::Call`].
    pub async fn list_pod_sandboxes(
        &self,
        filter: Option<PodSandboxFilter>,
    ) -> Result<Vec<PodSandbox>, CriError> {
        let answer: ListPodSandboxResponse = self
            .call("ListPodSandbox", ListPodSandboxRequest { filter })
            .await?;
        Ok(answer.items)
    }

    /// One sandbox with its addresses; with `verbose` also with what [`super::SandboxInfo`] reads.
    ///
    /// # Errors
    ///
    /// [`CriError::Call`] (see [`CriError::is_not_found`]), [`CriError::Deadline`].
    pub async fn pod_sandbox_status(
        &self,
        id: &str,
        verbose: bool,
    ) -> Result<PodSandboxStatusResponse, CriError> {
        self.call(
            "PodSandboxStatus",
            PodSandboxStatusRequest {
                pod_sandbox_id: id.to_owned(),
                verbose,
            },
        )
        .await
    }

    /// The containers in the sandboxes, all of them where `filter` is none. Sandboxes' own containers are not in it.
    ///
    /// # Errors
    ///
    /// [`CriError::Deadline`], [`CriError::Call`].
    pub async fn list_containers(&self, filter: Option<ContainerFilter>) -> Result<Vec<Container>, CriError> {
        let answer: ListContainersResponse = self
            .call("ListContainers", ListContainersRequest { filter })
            .await?;
        Ok(answer.containers)
    }

    /// Calls one method of `runtime.v1.RuntimeService`. The test node uses it for the methods that change something,
    /// which Sexton itself never calls.
    ///
    /// # Errors
    ///
    /// [`CriError::Deadline`], [`CriError::Call`].
    pub async fn call<Q, A>(&self, method: &'static str, question: Q) -> Result<A, CriError>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let failed = |status| CriError::Call {
            socket: self.socket.clone(),
            call: method,
            status: Box::new(status),
        };
        let path = PathAndQuery::try_from(format!("/runtime.v1.RuntimeService/{method}"))
            .map_err(|bad| failed(tonic::Status::invalid_argument(bad.to_string())))?;
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES);
        let mut request = tonic::Request::new(question);
        // The runtime learns how long we wait, so that it gives up too; a little more, so that our own clock speaks first.
        request.set_timeout(self.deadline.saturating_add(SERVER_GRACE));
        let answer = async {
            grpc.ready().await.map_err(|source| CriError::Connect {
                socket: self.socket.clone(),
                source,
            })?;
            let codec: ProstCodec<Q, A> = ProstCodec::default();
            grpc.unary(request, path, codec).await.map_err(failed)
        };
        match tokio::time::timeout(self.deadline, answer).await {
            Ok(answer) => Ok(answer?.into_inner()),
            Err(_) => Err(CriError::Deadline {
                socket: self.socket.clone(),
                call: method,
                deadline: self.deadline,
            }),
        }
    }
}

#[cfg(test)]
mod tests;
