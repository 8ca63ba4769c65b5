//! What a channel allows and does, with defaults for a small machine.
//!
//! Must not know connections.

use std::fmt;
use std::time::Duration;

use super::retry::RetryPolicy;
use crate::compression::Encoding;
use crate::protocol::{ClientDialect, Codec};
use crate::status::{Reach, Status};

/// What a channel speaks. A server of this crate answers all three on one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC.
    #[default]
    Grpc,
    /// gRPC-Web.
    GrpcWeb,
    /// Connect.
    Connect,
}

/// The version of HTTP under a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// One connection takes any number of calls at once.
    #[default]
    Http2,
    /// A connection takes one call at a time; streams both ways at once, and gRPC, need HTTP/2.
    #[cfg(feature = "http1")]
    Http1,
}

impl HttpVersion {
    /// Whether calls in this protocol can be made over it.
    pub(super) fn carries(self, protocol: Protocol) -> bool {
        self == Self::Http2 || protocol != Protocol::Grpc
    }

    /// Its name in TLS (RFC 7301).
    pub(super) fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http2 => b"h2",
            #[cfg(feature = "http1")]
            Self::Http1 => b"http/1.1",
        }
    }
}

/// What a channel allows and does.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the channel speaks.
    pub protocol: Protocol,
    /// How messages are written. JSON needs methods of a generated client, whose contract is known.
    pub codec: Codec,
    /// Connect only: a unary call of a method without side effects is a GET, which caches can answer, if its path and
    /// query have at most so many bytes; `None`: every call is a POST.
    pub get_bytes_max: Option<usize>,
    /// The version of HTTP.
    pub http: HttpVersion,
    /// Connections over HTTP/1.1; further calls wait for one.
    pub http1_connections_max: usize,
    /// Limits of each connection's HTTP/2.
    pub http2: quire_http2::Config,
    /// Connections over HTTP/2; calls take them in turn, passing over those that cannot be reached.
    pub connections: usize,
    /// Calls at once on a connection, if the server allows as many; further ones wait for their turn.
    pub calls_per_connection_max: usize,
    /// Calls that wait for a connection or their turn on it; further ones fail with `RESOURCE_EXHAUSTED`.
    pub waiting_calls_max: usize,
    /// A received message, after decompression too.
    pub message_bytes_max: usize,
    /// Bytes of a stream's messages that wait for their reader; above, the stream's window stays closed.
    pub unread_bytes_max: usize,
    /// Whether each message of a stream leaves in a DATA frame of its own; otherwise those that are ready together share
    /// one.
    pub is_message_per_frame: bool,
    /// Unsent bytes of a connection above which its streams are not asked for more messages.
    pub output_bytes_max: usize,
    /// Time for TCP, TLS and the server's first frame.
    pub connect_timeout: Duration,
    /// Pause after the first failure to connect; doubles with each.
    pub reconnect_first: Duration,
    /// Longest pause between attempts to connect.
    pub reconnect_max: Duration,
    /// A connection with calls in flight is pinged after this long without input; `None`: never.
    pub keepalive_interval: Option<Duration>,
    /// How long the answer to that ping may take.
    pub keepalive_timeout: Duration,
    /// Which calls are retried, and how; `None`: none are.
    pub retry: Option<RetryPolicy>,
    /// Compresses requests of at least so many bytes.
    pub compression: Option<(Encoding, usize)>,
    /// The encodings offered for answers. An answer in another encoding that this crate knows is read as well.
    pub accepts: Vec<Encoding>,
    /// Timeout of calls that set none.
    pub timeout: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            protocol: Protocol::default(),
            codec: Codec::default(),
            get_bytes_max: None,
            http: HttpVersion::default(),
            http1_connections_max: 8,
            http2: quire_http2::Config {
                stream_window_bytes: 1024 * 1024,
                connection_window_bytes: 4 * 1024 * 1024,
                ..quire_http2::Config::default()
            },
            connections: 1,
            calls_per_connection_max: 1024,
            waiting_calls_max: 100_000,
            message_bytes_max: 4 * 1024 * 1024,
            unread_bytes_max: 256 * 1024,
            is_message_per_frame: false,
            output_bytes_max: 1024 * 1024,
            connect_timeout: Duration::from_secs(10),
            reconnect_first: Duration::from_millis(100),
            reconnect_max: Duration::from_secs(10),
            keepalive_interval: None,
            keepalive_timeout: Duration::from_secs(20),
            retry: None,
            compression: None,
            accepts: Encoding::BUILT.to_vec(),
            timeout: None,
        }
    }
}

impl Settings {
    /// How calls of methods that stream are made, or of those that do not.
    pub(super) fn dialect(&self, is_stream: bool, codec: Codec) -> ClientDialect {
        match self.protocol {
            Protocol::Grpc => ClientDialect::grpc(codec),
            Protocol::GrpcWeb => ClientDialect::grpc_web(codec),
            Protocol::Connect => ClientDialect::connect(codec, is_stream),
        }
    }
}

/// The address is invalid, or the server cannot be reached.
#[derive(Debug)]
pub struct ConnectError(pub(super) String);

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConnectError {}

impl From<ConnectError> for Status {
    fn from(error: ConnectError) -> Self {
        Self::unavailable(error.0).with_reach(Reach::Untouched)
    }
}
