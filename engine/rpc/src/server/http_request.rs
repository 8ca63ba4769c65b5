//! Dispatch of an `http` crate request: to a call or to the HTTP service.
//!
//! Implements: RFC 9113 section 8.2.2 (fields of a connection) and 8.3.1 (request pseudo-header fields).

use std::sync::Arc;

use quire_http2::{Field, Head, is_hop_by_hop};

use super::exchange::Exchange;
use super::http_calls::Unserved;
use super::plan::Plan;
use super::request::CallPlan;
use super::shared::Shared;
use crate::body::Body;
use crate::envelope::Peer;
use crate::http_service;

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
    let Some(head) = head(&request).map(Arc::new) else { return Err(request) };
    let has_trailers = request.version() >= http::Version::HTTP_2;
    let plan = match Plan::read(&head, &shared.routes) {
        Plan::Http => return Err(request),
        // gRPC's trailers need HTTP/2.
        Plan::Call(CallPlan { dialect, .. }, _) | Plan::Fail(dialect, _)
            if dialect.needs_trailers() && !has_trailers =>
        {
            Plan::Unserved(Unserved::Unsupported)
        }
        plan => plan,
    };
    Ok(Exchange::begin(shared, peer, plan, head, request))
}

/// The request's head in HTTP/2 form; `None` if it cannot be a call's.
fn head<B>(request: &http::Request<B>) -> Option<Head> {
    let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let host = || request.headers().get(http::header::HOST).map_or(&b""[..], http::HeaderValue::as_bytes);
    let authority = request.uri().authority().map_or_else(host, |authority| authority.as_str().as_bytes());
    let mut fields = vec![
        Field::new(b":method", request.method().as_str().as_bytes()),
        Field::new(b":scheme", request.uri().scheme_str().unwrap_or("http").as_bytes()),
        Field::new(b":authority", authority),
        Field::new(b":path", path.as_bytes()),
    ];
    for (name, value) in request.headers() {
        let name = name.as_str().as_bytes();
        if !is_hop_by_hop(name) && name != b"te" {
            fields.push(Field::new(name, value.as_bytes()));
        }
    }
    Head::request(fields).ok()
}
