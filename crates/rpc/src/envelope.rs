//! What goes around a message: [`Request`] and [`Response`].
//!
//! Implements: gRPC over HTTP/2, "Call-Definition" and "Custom-Metadata".

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Extensions;
use tokio::time::Instant;

use crate::compression::Encoding;
use crate::metadata::Metadata;

/// Who is at the other end of a connection.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Peer {
    /// The address, if the transport has one.
    pub address: Option<SocketAddr>,
    /// Certificates the client proved to own (mutual TLS), its own first, in DER.
    pub certificates: Vec<Bytes>,
}

/// How a caller lets answers be compressed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accepted {
    pub(crate) gzip: bool,
    pub(crate) zstd: bool,
}

impl Accepted {
    pub(crate) fn has(self, encoding: Encoding) -> bool {
        match encoding {
            Encoding::Gzip => self.gzip,
            Encoding::Zstd => self.zstd,
        }
    }
}

/// A message, or a stream of them, on its way to a method.
#[derive(Debug)]
pub struct Request<T> {
    message: T,
    metadata: Metadata,
    deadline: Option<Instant>,
    peer: Option<Arc<Peer>>,
    pub(crate) buffer_bytes: usize,
    accepted: Accepted,
    pub(crate) is_safe_to_retry: bool,
    pub(crate) waits_for_ready: bool,
    extensions: Extensions,
}

impl<T> Request<T> {
    /// Without metadata or deadline.
    pub fn new(message: T) -> Self {
        Self {
            message,
            metadata: Metadata::new(),
            deadline: None,
            peer: None,
            buffer_bytes: 0,
            accepted: Accepted::default(),
            is_safe_to_retry: false,
            waits_for_ready: false,
            extensions: Extensions::new(),
        }
    }

    pub(crate) fn received(message: T, metadata: Metadata, deadline: Option<Instant>, peer: Arc<Peer>) -> Self {
        Self { metadata, deadline, peer: Some(peer), ..Self::new(message) }
    }

    pub(crate) fn accepting(mut self, accepted: Accepted) -> Self {
        self.accepted = accepted;
        self
    }

    /// Whether the caller reads answers that are compressed so; on the server only.
    pub fn accepts(&self, encoding: Encoding) -> bool {
        self.accepted.has(encoding)
    }

    /// The message.
    pub fn get_ref(&self) -> &T {
        &self.message
    }

    /// The message, to change.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.message
    }

    /// The message alone.
    pub fn into_inner(self) -> T {
        self.message
    }

    /// The message, and what was around it.
    pub(crate) fn split(self) -> (T, Request<()>) {
        let Self {
            message,
            metadata,
            deadline,
            peer,
            buffer_bytes,
            accepted,
            is_safe_to_retry,
            waits_for_ready,
            extensions,
        } = self;
        let envelope = Request {
            message: (),
            metadata,
            deadline,
            peer,
            buffer_bytes,
            accepted,
            is_safe_to_retry,
            waits_for_ready,
            extensions,
        };
        (message, envelope)
    }

    /// Names and values beside the message.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// As [`Request::metadata`], to add to.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    /// When the caller gives up.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Gives up after this long, from now.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.deadline = Instant::now().checked_add(timeout);
    }

    /// Gives up at this time.
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
    }

    /// Says that doing the call twice does what doing it once does: it only reads, or carries an idempotency key.
    /// Only such calls are tried again by the channel's retry policy.
    pub fn set_safe_to_retry(&mut self, safe: bool) {
        self.is_safe_to_retry = safe;
    }

    /// Waits for a connection instead of failing while the server cannot be reached.
    pub fn set_wait_for_ready(&mut self, wait: bool) {
        self.waits_for_ready = wait;
    }

    /// Values of any type that an interceptor leaves for the handler. They are not sent.
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// As [`Request::extensions`], to add to.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }

    /// Who calls; on the server only.
    pub fn peer(&self) -> Option<&Peer> {
        self.peer.as_deref()
    }

    /// As [`Request::peer`]; all calls of a connection share one, which lives as long as the connection or a call of it.
    pub fn shared_peer(&self) -> Option<&Arc<Peer>> {
        self.peer.as_ref()
    }

    /// The caller's address.
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.peer.as_ref().and_then(|peer| peer.address)
    }

    /// Bytes of memory that any field of type `Bytes` keeps alive, because the fields share the buffer that the message
    /// came in; 0 if each field has its own memory. On the server only, for services that keep a field.
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// The same around another message.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Request<U> {
        let (message, envelope) = self.split();
        let Request {
            metadata,
            deadline,
            peer,
            buffer_bytes,
            accepted,
            is_safe_to_retry,
            waits_for_ready,
            extensions,
            ..
        } = envelope;
        let message = change(message);
        Request {
            message,
            metadata,
            deadline,
            peer,
            buffer_bytes,
            accepted,
            is_safe_to_retry,
            waits_for_ready,
            extensions,
        }
    }
}

/// A message, or a stream of them, on its way back.
#[derive(Debug)]
pub struct Response<T> {
    message: T,
    metadata: Metadata,
    trailers: Metadata,
}

/// What a [`Response`] consists of.
pub(crate) struct ResponseParts<T> {
    pub(crate) message: T,
    pub(crate) metadata: Metadata,
    pub(crate) trailers: Metadata,
}

impl<T> Response<T> {
    /// Without metadata.
    pub fn new(message: T) -> Self {
        Self { message, metadata: Metadata::new(), trailers: Metadata::new() }
    }

    pub(crate) fn received(message: T, metadata: Metadata, trailers: Metadata) -> Self {
        Self { message, metadata, trailers }
    }

    /// The message.
    pub fn get_ref(&self) -> &T {
        &self.message
    }

    /// The message, to change.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.message
    }

    /// The message alone.
    pub fn into_inner(self) -> T {
        self.message
    }

    /// Names and values sent before the message.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// As [`Response::metadata`], to add to.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    /// Names and values sent after the last message. A client's are here when the call was unary.
    pub fn trailers(&self) -> &Metadata {
        &self.trailers
    }

    /// As [`Response::trailers`], to add to.
    pub fn trailers_mut(&mut self) -> &mut Metadata {
        &mut self.trailers
    }

    pub(crate) fn into_parts(self) -> ResponseParts<T> {
        let Self { message, metadata, trailers } = self;
        ResponseParts { message, metadata, trailers }
    }

    /// The same around another message.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Response<U> {
        let Self { message, metadata, trailers } = self;
        Response { message: change(message), metadata, trailers }
    }
}

impl<T> From<T> for Request<T> {
    fn from(message: T) -> Self {
        Self::new(message)
    }
}

impl<T> From<T> for Response<T> {
    fn from(message: T) -> Self {
        Self::new(message)
    }
}
