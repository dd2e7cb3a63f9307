//! A runtime that answers for sleeping sandboxes, each status after a set time, as a real one needs some.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{Request, Response};
use serde_json::json;
use sexton_linux::cri::proto::{
    ListContainersRequest, ListContainersResponse, ListPodSandboxRequest, ListPodSandboxResponse, PodSandbox,
    PodSandboxMetadata, PodSandboxNetworkStatus, PodSandboxState, PodSandboxStatus, PodSandboxStatusRequest,
    PodSandboxStatusResponse, RuntimeCondition, RuntimeStatus, StatusRequest, StatusResponse, VersionRequest,
    VersionResponse,
};
use tokio::net::UnixListener;
use tonic::body::Body;
use tonic::{Code, Status};

use super::{pod_ip, pod_uid, sandbox_id};
use crate::error::LabError;
use crate::grpc::{serve, unary};

/// How long an answer to `PodSandboxStatus` takes.
const ANSWER: Duration = Duration::from_millis(1);

/// What the runtime knows: the process of each Pod's sandbox.
pub(super) struct Sandboxes {
    pids: Vec<u32>,
    by_id: HashMap<String, usize>,
}

/// Serves at `socket` on a thread of its own, until the program ends.
pub(super) fn start(socket: &Path, pids: Vec<u32>) -> Result<tokio::runtime::Runtime, LabError> {
    let error = |source| LabError::Socket {
        what: "the CRI socket".into(),
        source,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("bench-cri")
        .enable_all()
        .build()
        .map_err(error)?;
    let listener = {
        let _entered = runtime.enter();
        UnixListener::bind(socket).map_err(error)?
    };
    let by_id = (0..pids.len()).map(|pod| (sandbox_id(pod), pod)).collect();
    let all = Arc::new(Sandboxes { pids, by_id });
    runtime.spawn(serve(listener, all, route));
    Ok(runtime)
}

async fn route(all: Arc<Sandboxes>, request: Request<Body>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    match path.rsplit('/').next().unwrap_or_default() {
        "Version" => answer(request, all, version).await,
        "Status" => answer(request, all, status).await,
        "ListPodSandbox" => answer(request, all, list).await,
        "ListContainers" => answer(request, all, containers).await,
        "PodSandboxStatus" => {
            tokio::time::sleep(ANSWER).await;
            answer(request, all, one).await
        }
        other => Status::unimplemented(format!("the bench's runtime has no {other}")).into_http(),
    }
}

/// Answers at once: no method waits for anything.
async fn answer<Q, A>(
    request: Request<Body>,
    all: Arc<Sandboxes>,
    work: fn(&Sandboxes, Q) -> Result<A, Status>,
) -> Response<Body>
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + 'static,
{
    unary(request, |question| std::future::ready(work(&all, question))).await
}

fn version(_: &Sandboxes, _: VersionRequest) -> Result<VersionResponse, Status> {
    Ok(VersionResponse {
        version: "0.1.0".into(),
        runtime_name: "bench".into(),
        runtime_version: env!("CARGO_PKG_VERSION").into(),
        runtime_api_version: "v1".into(),
    })
}

fn status(_: &Sandboxes, _: StatusRequest) -> Result<StatusResponse, Status> {
    let conditions = ["RuntimeReady", "NetworkReady"].map(|name| RuntimeCondition {
        r#type: name.into(),
        status: true,
        reason: String::new(),
        message: String::new(),
    });
    Ok(StatusResponse {
        status: Some(RuntimeStatus {
            conditions: conditions.into(),
        }),
        info: HashMap::new(),
    })
}

fn metadata(pod: usize) -> PodSandboxMetadata {
    PodSandboxMetadata {
        name: format!("pod-{pod}"),
        uid: pod_uid(pod),
        namespace: "bench".into(),
        attempt: 0,
    }
}

/// 2026-01-01, in nanoseconds.
const CREATED_AT: i64 = 1_767_225_600_000_000_000;

fn list(all: &Sandboxes, _: ListPodSandboxRequest) -> Result<ListPodSandboxResponse, Status> {
    let items = (0..all.pids.len())
        .map(|pod| PodSandbox {
            id: sandbox_id(pod),
            metadata: Some(metadata(pod)),
            state: PodSandboxState::Ready as i32,
            created_at: CREATED_AT,
            labels: HashMap::default(),
            annotations: HashMap::default(),
            runtime_handler: String::new(),
        })
        .collect();
    Ok(ListPodSandboxResponse { items })
}

fn containers(_: &Sandboxes, _: ListContainersRequest) -> Result<ListContainersResponse, Status> {
    Ok(ListContainersResponse {
        containers: Vec::new(),
    })
}

fn one(all: &Sandboxes, question: PodSandboxStatusRequest) -> Result<PodSandboxStatusResponse, Status> {
    let id = question.pod_sandbox_id;
    let Some(&pod) = all.by_id.get(&id) else {
        return Err(Status::new(Code::NotFound, format!("sandbox {id}: not found")));
    };
    let netns = format!("/run/netns/pod{pod}");
    let info = json!({
        "pid": all.pids[pod],
        "runtimeSpec": {"linux": {"namespaces": [{"type": "network", "path": netns}]}},
        "cniResult": {"Interfaces": {"eth0": {"IPConfigs": [{"IP": pod_ip(pod)}], "Sandbox": netns}}},
    });
    let status = PodSandboxStatus {
        id,
        metadata: Some(metadata(pod)),
        state: PodSandboxState::Ready as i32,
        created_at: CREATED_AT,
        network: Some(PodSandboxNetworkStatus {
            ip: pod_ip(pod),
            additional_ips: Vec::new(),
        }),
        ..PodSandboxStatus::default()
    };
    Ok(PodSandboxStatusResponse {
        status: Some(status),
        info: [("info".to_owned(), info.to_string())].into(),
        timestamp: 0,
    })
}
