//! Calls with messages as bytes in the channel's codec, for tools that learn a contract at run time or send the same
//! message a million times; and plain HTTP requests, for load tests.
//!
//! Neither is retried once it was sent, because the channel does not know their effects. Interceptors do not see plain
//! requests.
//!
//! Implements: gRPC over HTTP/2, "Length-Prefixed-Message", for encoded messages.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use bytes::Bytes;
use futures_core::Stream;

use super::attempt::{Attempt, Body, HttpHead, ReplyTo, UnaryResponse};
use super::path::{CacheSlot, PathRef};
use super::prepared::{PreparedCall, perform_transparently};
use super::streaming;
use crate::client::channel::Channel;
use crate::envelope::{Request, Response};
use crate::message::codec::{Decode, Encoded, Payload};
use crate::message::framing::{self, Framed, Framing};
use crate::message::streaming::Streaming;
use crate::message::transcode::Reading;
use crate::metadata::Metadata;
use crate::status::{Code, Reach, Status};

/// An encoded message in wire form, made by [`Channel::wire_message`]; clones share it.
#[derive(Clone, Debug)]
pub struct WireMessage(Bytes);

/// The result of a raw call.
#[derive(Debug)]
#[non_exhaustive]
pub struct RawAnswer {
    /// Time when the response's head was read; none if it never arrived.
    pub head_at: Option<Instant>,
    /// The response, or the failure.
    pub reply: Result<RawReply, Status>,
}

/// The response to a raw call; its message is decompressed only on request.
#[derive(Debug)]
pub struct RawReply {
    response: UnaryResponse,
    message_bytes_max: usize,
}

impl RawReply {
    /// The message, decompressed.
    pub fn message(&self) -> Result<Bytes, Status> {
        let Framed { compressed, bytes } = &self.response.message;
        let framed = Framed { compressed: *compressed, bytes: Payload::Owned(bytes.clone()) };
        let message_bytes_max = self.message_bytes_max;
        let reading = Reading { encoding: self.response.encoding, json: None, message_bytes_max, budget: None };
        Ok(reading.open(framed)?.into_bytes())
    }

    /// Leading metadata.
    pub fn metadata(&self) -> Metadata {
        self.response.metadata.clone()
    }

    /// Trailing metadata.
    pub fn trailers(&self) -> Metadata {
        self.response.trailers.clone()
    }
}

impl Channel {
    /// Frames an encoded message, compressed if the channel's settings require it.
    pub fn wire_message(&self, encoded: &[u8]) -> WireMessage {
        let mut framed = Vec::with_capacity(framing::PREFIX_BYTES + encoded.len());
        framed.extend_from_slice(&framing::prefix(0, false));
        framed.extend_from_slice(encoded);
        match self.settings().dialect(false, self.settings().codec).framing() {
            Framing::Complete => framing::seal_unframed(&mut framed, 0, self.settings().compression),
            _ => framing::seal(&mut framed, 0, self.settings().compression),
        }
        WireMessage(framed.into())
    }

    /// Sends one message and receives one; also returns when the response's head was read.
    pub async fn unary_raw(&self, path: impl Into<PathRef>, request: Request<WireMessage>) -> RawAnswer {
        self.raw(path.into(), request, false).await
    }

    /// Like [`Channel::unary_raw`], for load tests: the response's message is received and dropped, so large responses
    /// take no memory, and [`RawReply::message`] is empty.
    pub async fn unary_unread(&self, path: impl Into<PathRef>, request: Request<WireMessage>) -> RawAnswer {
        self.raw(path.into(), request, true).await
    }

    /// Like [`Channel::bidi_streaming`], with messages as bytes in the channel's codec. Responses are read as
    /// [`Encoded`](crate::Encoded), or dropped as [`Ignored`](crate::Ignored).
    pub async fn bidi_streaming_raw<S, Res>(
        &self,
        path: impl Into<PathRef>,
        request: Request<S>,
    ) -> Result<Response<Streaming<Res>>, Status>
    where
        S: Stream<Item = Encoded> + Send + 'static,
        Res: Decode,
    {
        streaming(self, path.into(), true, request).await
    }

    async fn raw(&self, path: PathRef, request: Request<WireMessage>, is_unread: bool) -> RawAnswer {
        let settings = self.settings();
        let (message, request) = request.split();
        let config = settings.service_config.of_method(&path.text);
        let call = match PreparedCall::new(self, config, path, request, false) {
            Ok(call) => call,
            Err(status) => return RawAnswer { head_at: None, reply: Err(status) },
        };
        // The message is already encoded as the channel's settings require.
        let dialect = settings.dialect(false, settings.codec);
        let call = PreparedCall { dialect, compression: settings.compression, is_own: false, ..call };
        let message_bytes_max = call.message_bytes_max;
        let attempt = |body, to| call.attempt(body, ReplyTo::Unary { to, is_timed: true, is_unread, begun: None });
        match perform_transparently(self, &AtomicBool::new(true), Body::Shared(message.0), attempt).await {
            Ok(response) => {
                RawAnswer { head_at: response.head_at, reply: Ok(RawReply { response, message_bytes_max }) }
            }
            Err(failure) => RawAnswer { head_at: failure.head_at, reply: Err(failure.status) },
        }
    }
}

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
        Arc::make_mut(&mut self.head).cache_slot = Some(Arc::new(CacheSlot::new()));
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
        let attempt = |body, to| {
            let reply_to = ReplyTo::Unary { to, is_timed: true, is_unread: true, begun: None };
            Attempt::http(Arc::clone(&request.head), false, body, reply_to)
        };
        let body = Body::Shared(request.body.clone());
        match perform_transparently(self, &AtomicBool::new(true), body, attempt).await {
            Ok(reply) => {
                HttpAnswer { head_at: reply.head_at, status: reply.metadata.http_status().ok_or(HttpFailure::Reset) }
            }
            Err(failure) => HttpAnswer { head_at: failure.head_at, status: Err(self.explain(&failure.status)) },
        }
    }

    fn explain(&self, status: &Status) -> HttpFailure {
        match (status.code(), status.reach()) {
            (Code::Unavailable, Reach::Untouched) if self.balancer().is_failing() => HttpFailure::Unreachable,
            (Code::Unavailable, reach) if reach != Reach::Untouched => HttpFailure::Closed,
            _ => HttpFailure::Reset,
        }
    }
}
