//! The lab's own small CRI runtime, for machines where containerd cannot run: without root, in a user namespace.
//!
//! Its sandboxes are a network namespace with a sleeping process in it, joined to the network by the same CNI plugins, which it calls as
//! libcni does; it has no images and no containers. What it keeps survives its end, as containerd's store does.

mod cni;
mod sandboxes;

use std::sync::Arc;
use std::time::Duration;

use axum::http::{Request, Response};
use sexton_linux::cri::proto::{
    ListContainersRequest, ListContainersResponse, ListPodSandboxRequest, ListPodSandboxResponse, PodSandbox,
    PodSandboxStatusRequest, PodSandboxStatusResponse, RuntimeCondition, RuntimeStatus, StatusRequest,
    StatusResponse, VersionRequest, VersionResponse,
};
use tokio::net::UnixListener;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::cri::{IdRequest, Nothing, RunPodSandboxRequest, RunPodSandboxResponse};
use crate::error::LabError;
use crate::grpc::{serve, unary};
use crate::keeper::chain;
use crate::node::Place;
pub(crate) use sandboxes::Sandboxes;

/// How long the end of the server may take.
const END_DEADLINE: Duration = Duration::from_millis(500);

/// A running server.
#[derive(Debug)]
pub(crate) struct CriServer {
    // An event loop of its own: with it end all connections at once, as those of a killed runtime do.
    runtime: Option<tokio::runtime::Runtime>,
}

impl CriServer {
    /// Serves `sandboxes` at the usual socket of the node in `place`.
    pub(crate) fn start(place: &Place, sandboxes: Arc<Sandboxes>) -> Result<Self, LabError> {
        let error = |source| LabError::Socket {
            what: "the CRI socket".into(),
            source,
        };
        let path = place.cri_socket();
        if path.exists() {
            // What a killed runtime leaves.
            std::fs::remove_file(&path).map_err(LabError::file("remove", &path))?;
        }
        let listener = std::os::unix::net::UnixListener::bind(&path).map_err(error)?;
        listener.set_nonblocking(true).map_err(error)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("lab-cri")
            .enable_all()
            .build()
            .map_err(error)?;
        let listener = {
            let _entered = runtime.enter();
            UnixListener::from_std(listener).map_err(error)?
        };
        runtime.spawn(serve(listener, sandboxes, route));
        Ok(Self {
            runtime: Some(runtime),
        })
    }

    /// Ends the server and its connections. Sandboxes go on.
    pub(crate) fn crash(mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(END_DEADLINE);
        }
    }
}

impl Drop for CriServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The service `runtime.v1.RuntimeService`, as far as a kubelet of the lab and a reader need it.
async fn route(all: Arc<Sandboxes>, request: Request<Body>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    match path
        .strip_prefix("/runtime.v1.RuntimeService/")
        .unwrap_or_default()
    {
        "Version" => answer(request, all, version).await,
        "Status" => answer(request, all, status).await,
        "ListPodSandbox" => answer(request, all, list).await,
        "PodSandboxStatus" => answer(request, all, one).await,
        "ListContainers" => answer(request, all, containers).await,
        "RunPodSandbox" => answer(request, all, run).await,
        "StopPodSandbox" => answer(request, all, stop).await,
        "RemovePodSandbox" => answer(request, all, remove).await,
        other => Status::unimplemented(format!("the lab's runtime has no {other}")).into_http(),
    }
}

/// Answers on a thread for such work: a method may wait for plugins.
async fn answer<Q, A>(
    request: Request<Body>,
    all: Arc<Sandboxes>,
    work: fn(&Sandboxes, Q) -> Result<A, Status>,
) -> Response<Body>
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + 'static,
{
    let on_a_thread = |question| {
        let all = all.clone();
        let answer = tokio::task::spawn_blocking(move || work(&all, question));
        async {
            answer
                .await
                .unwrap_or_else(|ended| Err(Status::internal(ended.to_string())))
        }
    };
    unary(request, on_a_thread).await
}

fn version(_: &Sandboxes, _: VersionRequest) -> Result<VersionResponse, Status> {
    Ok(VersionResponse {
        version: "0.1.0".into(),
        runtime_name: "sexton-lab".into(),
        runtime_version: env!("CARGO_PKG_VERSION").into(),
        runtime_api_version: "v1".into(),
    })
}

fn status(all: &Sandboxes, _: StatusRequest) -> Result<StatusResponse, Status> {
    let condition = |name: &str| RuntimeCondition {
        r#type: name.into(),
        status: true,
        reason: String::new(),
        message: String::new(),
    };
    let conditions = vec![condition("RuntimeReady"), condition("NetworkReady")];
    let config = all.cni_config().map_err(|error| failed(&error))?;
    Ok(StatusResponse {
        status: Some(RuntimeStatus { conditions }),
        info: [("cniconfig".to_owned(), config)].into(),
    })
}

fn list(all: &Sandboxes, question: ListPodSandboxRequest) -> Result<ListPodSandboxResponse, Status> {
    let filter = question.filter.unwrap_or_default();
    let wanted = |sandbox: &PodSandbox| {
        (filter.id.is_empty() || sandbox.id.starts_with(&filter.id))
            && filter
                .state
                .as_ref()
                .is_none_or(|state| state.state == sandbox.state)
            && filter
                .label_selector
                .iter()
                .all(|(key, value)| sandbox.labels.get(key) == Some(value))
    };
    Ok(ListPodSandboxResponse {
        items: all.list().into_iter().filter(wanted).collect(),
    })
}

fn one(all: &Sandboxes, question: PodSandboxStatusRequest) -> Result<PodSandboxStatusResponse, Status> {
    all.status(&question.pod_sandbox_id, question.verbose)
        .ok_or_else(|| {
            Status::not_found(format!(
                "an error occurred when try to find sandbox: {}: not found",
                question.pod_sandbox_id
            ))
        })
}

fn containers(_: &Sandboxes, _: ListContainersRequest) -> Result<ListContainersResponse, Status> {
    // The lab's sandboxes have no containers; what answers in them is the lab's own.
    Ok(ListContainersResponse {
        containers: Vec::new(),
    })
}

fn run(all: &Sandboxes, question: RunPodSandboxRequest) -> Result<RunPodSandboxResponse, Status> {
    let config = question
        .config
        .ok_or_else(|| Status::invalid_argument("no sandbox configuration"))?;
    all.run(config)
        .map(|id| RunPodSandboxResponse { pod_sandbox_id: id })
        .map_err(|error| failed(&error))
}

fn stop(all: &Sandboxes, question: IdRequest) -> Result<Nothing, Status> {
    all.stop(&question.id)
        .map(|()| Nothing {})
        .map_err(|error| failed(&error))
}

fn remove(all: &Sandboxes, question: IdRequest) -> Result<Nothing, Status> {
    all.remove(&question.id)
        .map(|()| Nothing {})
        .map_err(|error| failed(&error))
}

fn failed(error: &LabError) -> Status {
    Status::new(Code::Unknown, chain(error))
}
