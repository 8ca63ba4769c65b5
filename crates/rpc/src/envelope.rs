//! What goes around a message: [`Request`] and [`Response`].
//!
//! Implements: gRPC over HTTP/2, "Call-Definition" and "Custom-Metadata".

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Extensions;
use tokio::time::Instant;

use crate::compression::{Accepted, Budget, Encoding};
use crate::metadata::Metadata;
use crate::protocol::Codec;

/// Who is at the other end of a connection.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Peer {
    /// The address, if the transport has one.
    pub address: Option<SocketAddr>,
    /// Certificates the client proved to own (mutual TLS), its own first, in DER.
    pub certificates: Vec<Bytes>,
    /// What its compressed messages may hold.
    pub(crate) budget: Arc<Budget>,
    /// Set when a credential was shown on the connection.
    pub(crate) is_known: Arc<AtomicBool>,
}

impl Peer {
    /// Notes that a credential was shown. A full server closes idle connections on which none was first.
    pub fn set_known(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }
}

/// A message, or a stream of them, on its way to a method.
#[derive(Debug)]
pub struct Request<T> {
    message: T,
    envelope: Envelope,
}

/// All of a request but its message.
#[derive(Debug, Default)]
struct Envelope {
    metadata: Metadata,
    deadline: Option<Instant>,
    peer: Option<Arc<Peer>>,
    accepted: Accepted,
    is_safe_to_retry: bool,
    waits_for_ready: bool,
    /// Apart, since nearly no call has any: a request is moved often.
    options: Option<Box<Options>>,
    extensions: Extensions,
}

/// How a call's messages are compressed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Compression {
    #[default]
    OfChannel,
    Off,
    /// Those of at least so many bytes.
    On(Encoding, usize),
}

/// What a call has in place of its channel's settings, and what one with a large message has besides.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    buffer_bytes: usize,
    pub(crate) codec: Option<Codec>,
    pub(crate) compression: Compression,
    pub(crate) message_bytes_max: Option<usize>,
}

impl<T> Request<T> {
    /// Without metadata or deadline.
    pub fn new(message: T) -> Self {
        Self { message, envelope: Envelope::default() }
    }

    pub(crate) fn received(message: T, metadata: Metadata, deadline: Option<Instant>, peer: Arc<Peer>) -> Self {
        Self { message, envelope: Envelope { metadata, deadline, peer: Some(peer), ..Envelope::default() } }
    }

    pub(crate) fn accepting(mut self, accepted: Accepted) -> Self {
        self.envelope.accepted = accepted;
        self
    }

    /// Whether the caller reads answers that are compressed so; on the server only.
    pub fn accepts(&self, encoding: Encoding) -> bool {
        self.envelope.accepted.has(encoding)
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
        (self.message, Request { message: (), envelope: self.envelope })
    }

    /// Names and values beside the message.
    pub fn metadata(&self) -> &Metadata {
        &self.envelope.metadata
    }

    /// As [`Request::metadata`], to add to.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.envelope.metadata
    }

    /// When the caller gives up.
    pub fn deadline(&self) -> Option<Instant> {
        self.envelope.deadline
    }

    /// Gives up after this long, from now. The server is told up to a hundredth more; see [`Request::set_deadline`].
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.envelope.deadline = Instant::now().checked_add(timeout);
    }

    /// Gives up at this time. The server is told how long that is in three digits, rounded up, so that calls with the same
    /// timeout have the same head.
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.envelope.deadline = Some(deadline);
    }

    /// Says that doing the call twice does what doing it once does: it only reads, or carries an idempotency key.
    /// Only such calls are tried again by the channel's retry policy.
    pub fn set_safe_to_retry(&mut self, safe: bool) {
        self.envelope.is_safe_to_retry = safe;
    }

    /// Waits for a connection instead of failing while the server cannot be reached.
    pub fn set_wait_for_ready(&mut self, wait: bool) {
        self.envelope.waits_for_ready = wait;
    }

    /// Compresses the call's messages of at least so many bytes, or none, in place of what the channel's settings say.
    pub fn set_compression(&mut self, compression: Option<(Encoding, usize)>) {
        let on = |(encoding, bytes_min)| Compression::On(encoding, bytes_min);
        self.options_mut().compression = compression.map_or(Compression::Off, on);
    }

    /// Reads messages of up to so many bytes in the call's answer, after decompression too, in place of what the
    /// channel's settings say.
    pub fn set_message_bytes_max(&mut self, bytes_max: usize) {
        self.options_mut().message_bytes_max = Some(bytes_max);
    }

    /// Makes the call in this codec, not in the one of the channel's settings.
    pub fn set_codec(&mut self, codec: Codec) {
        self.options_mut().codec = Some(codec);
    }

    fn options_mut(&mut self) -> &mut Options {
        self.envelope.options.get_or_insert_default()
    }

    pub(crate) fn options(&self) -> Option<&Options> {
        self.envelope.options.as_deref()
    }

    pub(crate) fn message_bytes_max(&self) -> Option<usize> {
        self.options().and_then(|options| options.message_bytes_max)
    }

    /// Values of any type that an interceptor leaves for the handler. They are not sent.
    pub fn extensions(&self) -> &Extensions {
        &self.envelope.extensions
    }

    /// As [`Request::extensions`], to add to.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.envelope.extensions
    }

    pub(crate) fn set_buffer_bytes(&mut self, bytes: usize) {
        if bytes > 0 {
            self.options_mut().buffer_bytes = bytes;
        }
    }

    pub(crate) fn is_safe_to_retry(&self) -> bool {
        self.envelope.is_safe_to_retry
    }

    pub(crate) fn waits_for_ready(&self) -> bool {
        self.envelope.waits_for_ready
    }

    /// Who calls; on the server only.
    pub fn peer(&self) -> Option<&Peer> {
        self.envelope.peer.as_deref()
    }

    /// As [`Request::peer`]; all calls of a connection share one, which lives as long as the connection or a call of it.
    pub fn shared_peer(&self) -> Option<&Arc<Peer>> {
        self.envelope.peer.as_ref()
    }

    /// The caller's address.
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.envelope.peer.as_ref().and_then(|peer| peer.address)
    }

    /// Bytes of memory that any field of type `Bytes` keeps alive, because the fields share the buffer that the message
    /// came in; 0 if each field has its own memory. On the server only, for services that keep a field.
    pub fn buffer_bytes(&self) -> usize {
        self.options().map_or(0, |options| options.buffer_bytes)
    }

    /// The same around another message.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Request<U> {
        Request { message: change(self.message), envelope: self.envelope }
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
