//! Settings of a channel, with defaults for a small machine, and its pauses between attempts to connect.

use std::fmt;
use std::time::Duration;

use super::service_config::ServiceConfig;
use crate::failure::TransportError;
use crate::lifetime::Lifetime;
use crate::message::compression::Encoding;
use crate::protocol::{ClientDialect, Codec};
use crate::status::{Reach, Status};

/// RPC protocol of a channel. A server of this crate serves all three on one port.
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

/// HTTP version of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// Any number of concurrent calls on a connection.
    #[default]
    Http2,
    /// One call at a time on a connection; gRPC, and bidirectional streams, need HTTP/2.
    #[cfg(feature = "http1")]
    Http1,
}

impl HttpVersion {
    /// True if this version can carry the protocol.
    pub(super) fn carries(self, protocol: Protocol) -> bool {
        self == Self::Http2 || protocol != Protocol::Grpc
    }

    /// Its ALPN name (RFC 7301).
    pub(super) fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http2 => b"h2",
            #[cfg(feature = "http1")]
            Self::Http1 => b"http/1.1",
        }
    }
}

/// Settings of a channel.
#[derive(Clone, Debug)]
pub struct Settings {
    /// RPC protocol.
    pub protocol: Protocol,
    /// Encoding of messages. JSON needs methods of a generated client, whose contract is known.
    pub codec: Codec,
    /// Connect only: unary calls of methods without side effects are GETs, which caches can answer, if path and query
    /// have at most this many bytes; `None`: all calls are POSTs.
    pub get_bytes_max: Option<usize>,
    /// HTTP version.
    pub http: HttpVersion,
    /// Maximum number of HTTP/1.1 connections; further calls wait for one.
    pub http1_connections_max: usize,
    /// Limits of each HTTP/2 connection.
    pub http2: quire_http2::Config,
    /// Number of HTTP/2 connections, with round robin to each server; calls use them in turn, skipping unreachable
    /// ones.
    pub connections: usize,
    /// Servers that round robin uses; the addresses of further ones are ignored.
    pub servers_max: usize,
    /// Concurrent calls on a connection, if the server allows as many; further ones wait.
    pub calls_per_connection_max: usize,
    /// Calls waiting for a connection or a slot on it; further ones fail with `RESOURCE_EXHAUSTED`.
    pub waiting_calls_max: usize,
    /// Maximum size of a received message, also after decompression.
    pub message_bytes_max: usize,
    /// Unread bytes of a stream's messages above which its window stays closed.
    pub unread_bytes_max: usize,
    /// True to send each message of a stream in its own DATA frame; otherwise ready messages share one.
    pub is_message_per_frame: bool,
    /// Unsent bytes of a connection above which its streams are not polled for messages.
    pub output_bytes_max: usize,
    /// Time limit for the resolver, and at each address for TCP and TLS, for the server's first frame, and for the
    /// first report of each watch of its health.
    pub connect_timeout: Duration,
    /// Pause after the first failure to connect; doubles with each further one. Round robin's connections to a server
    /// begin at least half of this apart.
    pub reconnect_first: Duration,
    /// Longest pause between attempts to connect.
    pub reconnect_max: Duration,
    /// Time without input after which a connection with calls in flight is pinged; `None`: never.
    pub keepalive_interval: Option<Duration>,
    /// Time limit for the answer to that PING.
    pub keepalive_timeout: Duration,
    /// A connection without calls is closed after this long; the next call opens another. `None`: never.
    pub connection_idle_max: Option<Duration>,
    /// A connection of this age gets no more calls; `None`: it gets them until the server ends it.
    pub connection_age_max: Option<Duration>,
    /// Part of the last two limits, from 0 to 1, by which each connection's own may be shorter or longer, at random.
    pub connection_jitter: f64,
    /// Load balancing; and deadlines, retries and hedging by method, of which there are none by default.
    pub service_config: ServiceConfig,
    /// Compression of requests, and the minimum size to compress.
    pub compression: Option<(Encoding, usize)>,
    /// Encodings offered for responses. A response in another encoding known to this crate is read as well.
    pub accepts: Vec<Encoding>,
    /// Timeout of calls that set none.
    pub timeout: Option<Duration>,
    /// `user-agent` of calls, in printable ASCII.
    pub user_agent: &'static str,
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
            servers_max: 256,
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
            connection_idle_max: None,
            connection_age_max: None,
            connection_jitter: 0.1,
            service_config: ServiceConfig::default(),
            compression: None,
            accepts: Encoding::BUILT.to_vec(),
            timeout: None,
            user_agent: concat!("quire-grpc/", env!("CARGO_PKG_VERSION")),
        }
    }
}

impl Settings {
    /// A new connection's limits of age and idle time.
    pub(super) fn lifetime(&self) -> Lifetime {
        Lifetime::draw(self.connection_age_max, self.connection_idle_max, self.connection_jitter)
    }

    /// Dialect of streaming or unary methods' calls.
    pub(super) fn dialect(&self, is_stream: bool, codec: Codec) -> ClientDialect {
        match self.protocol {
            Protocol::Grpc => ClientDialect::grpc(codec),
            Protocol::GrpcWeb => ClientDialect::grpc_web(codec),
            Protocol::Connect => ClientDialect::connect(codec, is_stream),
        }
    }
}

/// The address is invalid, or the server cannot be reached.
#[derive(Clone, Debug)]
pub struct ConnectError {
    text: String,
    transport: Option<TransportError>,
}

impl ConnectError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), transport: None }
    }

    /// Failure of the transport, unless the channel is closed or its settings are wrong. The text has its reason.
    pub fn transport(&self) -> Option<&TransportError> {
        self.transport.as_ref()
    }

    /// The failure to reach this server.
    pub(super) fn unreachable(authority: &str, failure: TransportError) -> Self {
        Self { text: format!("cannot reach {authority}: {}", failure.reason()), transport: Some(failure) }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ConnectError {}

impl From<ConnectError> for Status {
    fn from(error: ConnectError) -> Self {
        let status = Self::unavailable(error.text).with_reach(Reach::Untouched);
        match error.transport {
            Some(failure) => status.with_transport(failure),
            None => status,
        }
    }
}

/// `first` doubled `doublings` times, at most `max`; then a random part from half to all of it, so that clients that
/// failed together do not all return at once.
fn backoff(first: Duration, max: Duration, doublings: u32) -> Duration {
    let pause = first.saturating_mul(2u32.saturating_pow(doublings.min(20))).min(max);
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// Shortest pause, so that settings without one make no busy loop.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// Pauses between failed attempts to connect (gRPC's "Connection Backoff").
pub(super) struct ConnectBackoff {
    /// Pause after the first failure, before its random part is taken off.
    pub(super) first: Duration,
    max: Duration,
    failures: u32,
}

impl ConnectBackoff {
    pub(super) fn new(settings: &Settings) -> Self {
        let max = settings.reconnect_max.max(PAUSE_MIN);
        Self { first: settings.reconnect_first.clamp(PAUSE_MIN, max), max, failures: 0 }
    }

    /// Pause after a further failure.
    pub(super) fn pause(&mut self) -> Duration {
        self.failures += 1;
        backoff(self.first, self.max, self.failures - 1)
    }

    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}
