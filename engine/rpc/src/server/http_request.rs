//! Dispatch of an `http` crate request: to a call or to the HTTP service.

use std::sync::Arc;

use super::exchange::{Exchange, Refused, Task};
use super::http_calls::Unserved;
use super::plan::{CallPlan, Plan};
use super::request_head;
use super::shared::Shared;
use crate::body::Body;
use crate::envelope::Peer;
use crate::http_service;
use crate::protocol::PLAIN;

/// An answer in progress.
pub(super) enum Answering {
    Call(Box<Exchange>),
    Http(http_service::Answering),
    /// The path does not exist.
    NotFound,
}

impl Answering {
    /// Begins the answer, through the server's layers if any.
    pub(super) fn begin(shared: &Arc<Shared>, peer: &Arc<Peer>, mut request: http::Request<Body>) -> Self {
        if let Some(layered) = shared.layered.as_ref().filter(|_| may_be_call(shared, &request)) {
            request.extensions_mut().insert(Arc::clone(peer));
            return Self::Http(layered.call(request));
        }
        match begin_call(shared, peer, request) {
            Ok(exchange) => Self::Call(exchange),
            Err(mut request) => {
                let Some(http) = &shared.http else { return Self::NotFound };
                request.extensions_mut().insert(Arc::clone(peer));
                Self::Http(http.call(request))
            }
        }
    }

    pub(super) async fn answer(self) -> http::Response<Body> {
        match self {
            Self::Call(exchange) => exchange.answer().await,
            Self::Http(answering) => answering.await.unwrap_or_else(|_| bare(http::StatusCode::INTERNAL_SERVER_ERROR)),
            Self::NotFound => bare(http::StatusCode::NOT_FOUND),
        }
    }
}

/// A response without body that closes the connection.
pub(super) fn bare(status: http::StatusCode) -> http::Response<Body> {
    let mut response = http::Response::new(Body::default());
    *response.status_mut() = status;
    if status.is_server_error() {
        response.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    }
    response.headers_mut().insert(http::header::CONNECTION, http::HeaderValue::from_static("close"));
    response
}

fn may_be_call(shared: &Shared, request: &http::Request<Body>) -> bool {
    let content_type = request.headers().get(http::header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    shared.routes.may_be_call(request.uri().path(), content_type)
}

/// Begins the call of a request; returns the request if it is no call.
#[expect(clippy::result_large_err, reason = "the request is taken apart at once; a box would cost every request one")]
pub(super) fn begin_call(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    request: http::Request<Body>,
) -> Result<Box<Exchange>, http::Request<Body>> {
    if !may_be_call(shared, &request) {
        return Err(request);
    }
    let Some(head) = request_head::of(&request).map(Arc::new) else { return Err(request) };
    let has_trailers = request.version() >= http::Version::HTTP_2;
    let refused = |dialect, why| Task { dialect, call: Err(why) };
    let unsupported = || refused(PLAIN, Refused::Http(Unserved::Unsupported));
    let task = match Plan::read(&head, &shared.routes) {
        Plan::Http => return Err(request),
        Plan::Preflight => refused(PLAIN, Refused::Preflight),
        Plan::NotAllowed { get } => refused(PLAIN, Refused::Http(Unserved::NotAllowed { get })),
        Plan::Unsupported => unsupported(),
        // gRPC's trailers need HTTP/2.
        Plan::Call(CallPlan { dialect, .. }) | Plan::Fail(dialect, _) if dialect.needs_trailers() && !has_trailers => {
            unsupported()
        }
        Plan::Fail(dialect, status) => refused(dialect, Refused::Call(status)),
        Plan::Call(plan) => Task { dialect: plan.dialect, call: Ok((plan, None)) },
        Plan::Get(plan, message) => Task { dialect: plan.dialect, call: Ok((plan, Some(message))) },
    };
    Ok(Exchange::begin(shared, peer, task, head, request))
}
