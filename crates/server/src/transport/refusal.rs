//! What a connection is told for which there is no place: every call is refused, then it is closed.

use std::{convert::Infallible, time::Duration};

use bookstore::fault::Fault;
use http::{Request, Response, StatusCode, header};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::{net::TcpStream, sync::OwnedSemaphorePermit, time::timeout};
use tonic::{Status, body::Body};

/// Long enough to send one request and read its answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the caller speaks gRPC.
pub(super) fn is_grpc<B>(request: &Request<B>) -> bool {
    let kind = request.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// A refusal in the caller's protocol.
pub(super) fn answer(grpc: bool, fault: Fault) -> Response<Body> {
    if grpc {
        return Status::from(fault).into_http();
    }
    let mut response = Response::new(Body::new(axum::body::Body::from(format!("{fault}\n"))));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    response
}

pub(super) async fn tell(stream: TcpStream, fault: Fault, turn: OwnedSemaphorePermit) {
    tracing::debug!("refusing a connection: {fault}");
    let refuse = tower::service_fn(move |request: Request<_>| {
        let refused = answer(is_grpc::<hyper::body::Incoming>(&request), fault.clone());
        async move { Ok::<_, Infallible>(refused) }
    });
    let builder = Builder::new(TokioExecutor::new());
    let told = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(refuse));
    // Whatever the peer makes of it, it is closed after this.
    drop(timeout(PATIENCE, told).await);
    drop(turn);
}
