//! [`Request`] and [`Response`]: messages with their metadata and context.
//!
//! Implements: gRPC over HTTP/2, "Call-Definition" and "Custom-Metadata".

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Extensions;
use tokio::time::Instant;

use crate::message::compression::{Accepted, Budget, Encoding};
use crate::metadata::Metadata;
use crate::protocol::Codec;
#[cfg(feature = "server")]
use crate::server::ConnectionState;

/// The remote end of a connection.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Peer {
    /// The address, if the transport has one.
    pub address: Option<SocketAddr>,
    /// The process at the other end of a Unix socket, from the kernel.
    pub credentials: Option<PeerCredentials>,
    /// Client certificates verified by mutual TLS, the client's own first, in DER.
    pub certificates: Vec<Bytes>,
    /// Budget of its compressed messages.
    pub(crate) budget: Arc<Budget>,
    /// Set when a credential was shown on the connection.
    pub(crate) is_known: Arc<AtomicBool>,
    /// The connection's place in its server's registry.
    #[cfg(feature = "server")]
    pub(crate) connection: Option<Arc<ConnectionState>>,
    /// Our address, while the channelz service shows the server.
    #[cfg(feature = "channelz")]
    pub(crate) local: Option<SocketAddr>,
}

/// User and process at the other end of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerCredentials {
    /// The user's number.
    pub user: u32,
    /// The group's number.
    pub group: u32,
    /// The process's number, if the system reports it.
    pub process: Option<i32>,
}

impl Peer {
    /// The peer of a Unix socket, with its credentials.
    #[cfg(unix)]
    pub fn of_unix(stream: &tokio::net::UnixStream) -> std::io::Result<Self> {
        let known = stream.peer_cred()?;
        let credentials = PeerCredentials { user: known.uid(), group: known.gid(), process: known.pid() };
        Ok(Self { credentials: Some(credentials), ..Self::default() })
    }

    /// Notes that a credential was shown. A full server closes idle connections on which none was first.
    pub fn set_known(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }
}

/// A message, or a stream of messages, sent to a method.
#[derive(Debug)]
pub struct Request<T> {
    message: T,
    envelope: Envelope,
}

/// Everything in a request but its message.
#[derive(Debug, Default)]
struct Envelope {
    metadata: Metadata,
    deadline: Option<Instant>,
    peer: Option<Arc<Peer>>,
    accepted: Accepted,
    is_safe_to_retry: bool,
    waits_for_ready: Option<bool>,
    /// Boxed, since few calls have options and requests are moved often.
    options: Option<Box<Options>>,
    extensions: Extensions,
}

/// Compression of a call's messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Compression {
    #[default]
    OfChannel,
    Off,
    /// Messages of at least this many bytes.
    On(Encoding, usize),
}

/// Overrides of the channel's settings, and the buffer of a large message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    buffer_bytes: usize,
    pub(crate) codec: Option<Codec>,
    pub(crate) compression: Compression,
    pub(crate) message_bytes_max: Option<usize>,
}

impl<T> Request<T> {
    /// Creates a request without metadata or deadline.
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

    /// True if the caller accepts responses in this encoding; on the server only.
    pub fn accepts(&self, encoding: Encoding) -> bool {
        self.envelope.accepted.has(encoding)
    }

    /// The message.
    pub fn get_ref(&self) -> &T {
        &self.message
    }

    /// The message, mutable.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.message
    }

    /// Returns the message alone.
    pub fn into_inner(self) -> T {
        self.message
    }

    /// Splits off the message.
    pub(crate) fn split(self) -> (T, Request<()>) {
        (self.message, Request { message: (), envelope: self.envelope })
    }

    /// The request's metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.envelope.metadata
    }

    /// The request's metadata, mutable.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.envelope.metadata
    }

    /// Time when the caller gives up.
    pub fn deadline(&self) -> Option<Instant> {
        self.envelope.deadline
    }

    /// Gives up after this long, from now. The server is sent up to 1% more; see [`Request::set_deadline`].
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.envelope.deadline = Instant::now().checked_add(timeout);
    }

    /// Gives up at this time. The timeout sent to the server is rounded up to three digits, so that calls with the same
    /// timeout have the same head.
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.envelope.deadline = Some(deadline);
    }

    /// Declares that repeating the call is harmless: it only reads, or carries an idempotency key. See
    /// [`RetryPolicy::is_for_marked`](crate::client::RetryPolicy::is_for_marked).
    pub fn set_safe_to_retry(&mut self, safe: bool) {
        self.envelope.is_safe_to_retry = safe;
    }

    /// Waits for a connection instead of failing while the server is unreachable, overriding the channel's settings.
    pub fn set_wait_for_ready(&mut self, wait: bool) {
        self.envelope.waits_for_ready = Some(wait);
    }

    /// Compresses messages of at least this many bytes, or none, overriding the channel's settings.
    pub fn set_compression(&mut self, compression: Option<(Encoding, usize)>) {
        let on = |(encoding, bytes_min)| Compression::On(encoding, bytes_min);
        self.options_mut().compression = compression.map_or(Compression::Off, on);
    }

    /// Limits messages of the response, also after decompression, overriding the channel's settings.
    pub fn set_message_bytes_max(&mut self, bytes_max: usize) {
        self.options_mut().message_bytes_max = Some(bytes_max);
    }

    /// Makes the call in this codec, overriding the channel's settings.
    pub fn set_codec(&mut self, codec: Codec) {
        self.options_mut().codec = Some(codec);
    }

    fn options_mut(&mut self) -> &mut Options {
        self.envelope.options.get_or_insert_default()
    }

    pub(crate) fn options(&self) -> Option<&Options> {
        self.envelope.options.as_deref()
    }

    pub(crate) fn into_metadata(self) -> Metadata {
        self.envelope.metadata
    }

    /// Values of any type that an interceptor leaves for the handler. They are not sent.
    pub fn extensions(&self) -> &Extensions {
        &self.envelope.extensions
    }

    /// Like [`Request::extensions`], mutable.
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

    pub(crate) fn waits_for_ready(&self) -> Option<bool> {
        self.envelope.waits_for_ready
    }

    /// The caller; on the server only.
    pub fn peer(&self) -> Option<&Peer> {
        self.envelope.peer.as_deref()
    }

    /// Like [`Request::peer`]; shared by all calls of a connection, and alive as long as the connection or one of them.
    pub fn shared_peer(&self) -> Option<&Arc<Peer>> {
        self.envelope.peer.as_ref()
    }

    /// The caller's address.
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.envelope.peer.as_ref().and_then(|peer| peer.address)
    }

    /// Memory, in bytes, that any field of type `Bytes` keeps alive because it shares the message's buffer; 0 if each
    /// field owns its memory. On the server only, for services that keep a field.
    pub fn buffer_bytes(&self) -> usize {
        self.options().map_or(0, |options| options.buffer_bytes)
    }

    /// Replaces the message.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Request<U> {
        Request { message: change(self.message), envelope: self.envelope }
    }
}

/// A message, or a stream of messages, sent back.
#[derive(Debug)]
pub struct Response<T> {
    message: T,
    metadata: Metadata,
    trailers: Metadata,
}

/// The parts of a [`Response`].
pub(crate) struct ResponseParts<T> {
    pub(crate) message: T,
    pub(crate) metadata: Metadata,
    pub(crate) trailers: Metadata,
}

impl<T> Response<T> {
    /// Creates a response without metadata.
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

    /// The message, mutable.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.message
    }

    /// Returns the message alone.
    pub fn into_inner(self) -> T {
        self.message
    }

    /// Leading metadata, sent before the message.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Like [`Response::metadata`], mutable.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    /// Trailing metadata, sent after the last message. On a client, only for unary calls.
    pub fn trailers(&self) -> &Metadata {
        &self.trailers
    }

    /// Like [`Response::trailers`], mutable.
    pub fn trailers_mut(&mut self) -> &mut Metadata {
        &mut self.trailers
    }

    pub(crate) fn into_parts(self) -> ResponseParts<T> {
        let Self { message, metadata, trailers } = self;
        ResponseParts { message, metadata, trailers }
    }

    /// Replaces the message.
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
