//! Plain HTTP requests over a channel's connections, for load tests: the response body is received and dropped.
//!
//! They are not retried, and interceptors do not see them.
//!
//! Implements: RFC 9113 section 8.1 (a request and its response).

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::call;
use super::channel::Channel;
use super::command::{Body, Form, ReplyTo, Start};
use super::http_head::HttpHead;
use super::path::{Path, Place};
use crate::metadata::Metadata;
use crate::protocol::ClientDialect;
use crate::status::{Code, Reach, Status};

/// A plain HTTP request; clones share it.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    head: Arc<HttpHead>,
    body: Bytes,
}

impl HttpRequest {
    /// Creates a request from one whose URI has a scheme and an authority. A body gets a content-length.
    pub fn new(request: http::Request<Bytes>) -> Self {
        let (parts, body) = request.into_parts();
        Self { head: Arc::new(HttpHead::new(&parts, body.len())), body }
    }

    /// Marks the request as repeated: each connection encodes its head once.
    #[must_use]
    pub fn repeated(mut self) -> Self {
        Arc::make_mut(&mut self.head).place = Some(Arc::new(Place::new()));
        self
    }
}

/// The result of a plain request.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HttpAnswer {
    /// Time when the response's head was read; none if it never arrived.
    pub head_at: Option<Instant>,
    /// Status of the response once its body is complete, or the failure.
    pub status: Result<u16, HttpFailure>,
}

/// Reason why a plain request has no complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpFailure {
    /// There is no connection: the request was not sent.
    Unreachable,
    /// The connection ended first.
    Closed,
    /// The server reset the stream or violated the protocol on it.
    Reset,
}

impl Channel {
    /// Sends a plain request and reads the response to its end; dropping the future cancels the request.
    pub async fn http(&self, request: &HttpRequest) -> HttpAnswer {
        static NO_METHOD: Path = Path::new("");
        let (sender, receiver) = oneshot::channel();
        let start = Start {
            number: call::next_number(),
            path: (&NO_METHOD).into(),
            dialect: ClientDialect::http(),
            form: Form::Http(Arc::clone(&request.head)),
            metadata: Metadata::new(),
            deadline: None,
            waits_for_ready: false,
            compression: None,
            message_bytes_max: 0,
            is_timed: true,
            is_unread: true,
            body: Body::Shared(request.body.clone()),
            reply_to: ReplyTo::Unary(sender),
        };
        match call::attempt(self, start, receiver).await {
            Ok(reply) => {
                HttpAnswer { head_at: reply.head_at, status: reply.metadata.http_status().ok_or(HttpFailure::Reset) }
            }
            Err(failure) => HttpAnswer { head_at: failure.head_at, status: Err(self.explain(&failure.status)) },
        }
    }

    fn explain(&self, status: &Status) -> HttpFailure {
        match (status.code(), status.reach()) {
            (Code::Unavailable, Reach::Untouched) if self.is_failing() => HttpFailure::Unreachable,
            (Code::Unavailable, reach) if reach != Reach::Untouched => HttpFailure::Closed,
            _ => HttpFailure::Reset,
        }
    }
}
