//! What the lab's CRI servers share: gRPC over a Unix socket, by hand-written messages and without generated code.

use std::convert::Infallible;
use std::sync::Arc;

use axum::http::{Request, Response};
use tokio::net::{UnixListener, UnixStream};
use tonic::Status;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic_prost::ProstCodec;

/// Answers every call on every connection of `listener` by `route`, as long as its event loop runs.
pub(crate) async fn serve<T, F>(listener: UnixListener, all: Arc<T>, route: fn(Arc<T>, Request<Body>) -> F)
where
    T: Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let service = tower::service_fn(move |request| {
        let answer = route(all.clone(), request);
        async { Ok::<_, Infallible>(answer.await) }
    });
    let incoming = futures::stream::unfold(listener, |listener| async {
        let accepted: std::io::Result<UnixStream> = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    });
    // It ends with the event loop.
    let _ = tonic::transport::Server::builder()
        .serve_with_incoming(service, incoming)
        .await;
}

/// One unary call: the question is read, `work` answers it, and its answer or status is written.
pub(crate) async fn unary<Q, A, F>(request: Request<Body>, mut work: impl FnMut(Q) -> F) -> Response<Body>
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + 'static,
    F: Future<Output = Result<A, Status>>,
{
    let answer = tower::service_fn(|question: tonic::Request<Q>| {
        let answer = work(question.into_inner());
        async { answer.await.map(tonic::Response::new) }
    });
    let codec: ProstCodec<A, Q> = ProstCodec::default();
    Grpc::new(codec).unary(answer, request).await
}
