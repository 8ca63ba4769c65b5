//! Every limit of a server, by name, with defaults for a small machine that is open to strangers.
//!
//! Implements: RFC 9113 section 10.5 (denial-of-service considerations).

use std::time::Duration;

use super::memory::Memory;
use super::observer::Refusal;
use crate::status::Status;

/// What a server allows. A field's unit is last in its name; times are [`Duration`]s.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Limits of each connection's HTTP/2.
    pub http2: quire_http2::Config,
    /// Connections at once. Further ones are answered `RESOURCE_EXHAUSTED` and closed, unless another client has more and
    /// one of them can be spared.
    pub connections_max: usize,
    /// Connections at once that are only being refused, or are making room, at least 1; further ones wait to be accepted.
    pub refusals_max: usize,
    /// Calls at once, over all connections, that wait for something; further ones get `RESOURCE_EXHAUSTED`. Clients have
    /// [`Shares`](super::Shares) of them.
    pub calls_max: usize,
    /// Of them, watches of health, which callers without a credential may make; further ones get `RESOURCE_EXHAUSTED`.
    pub health_watches_max: usize,
    /// Of them, streams of reflection; further ones get `RESOURCE_EXHAUSTED`.
    pub reflection_streams_max: usize,
    /// A received message, after decompression too.
    pub message_bytes_max: usize,
    /// Unfinished messages of a connection together; a call that would exceed it gets `RESOURCE_EXHAUSTED`.
    pub gathered_bytes_max: usize,
    /// Messages of a stream that its handler has not read; beyond, the stream's window stays closed.
    pub unread_bytes_max: usize,
    /// Answers that wait for the peer's windows; while there are more, further calls get `RESOURCE_EXHAUSTED`.
    pub unsent_bytes_max: usize,
    /// What the connections of every server with this account hold together, and what the application adds. While
    /// they hold too much, the client that holds most loses its largest connection; while the application does, new calls
    /// get `RESOURCE_EXHAUSTED`.
    pub memory: Memory,
    /// A stream whose peer takes none of what waits for it is reset after this long.
    pub stream_stall_timeout: Duration,
    /// Output of a connection above which nothing more is read from it.
    pub output_bytes_max: usize,
    /// TLS and the first bytes of a protocol.
    pub handshake_timeout: Duration,
    /// A call whose handler needs the whole request must have it by then.
    pub request_timeout: Duration,
    /// What is taken of a request after its answer, and dropped, so that the client can finish; beyond, its stream is
    /// reset with `NO_ERROR`.
    pub discarded_bytes_max: usize,
    /// How long that is done, from the answer on.
    pub discard_timeout: Duration,
    /// A peer that takes none of our bytes for so long is gone.
    pub write_timeout: Duration,
    /// Silence after which a connection is pinged; none: never.
    pub keepalive_interval: Option<Duration>,
    /// How long the answer to that ping may take.
    pub keepalive_timeout: Duration,
    /// A connection without calls is drained after this long; none: never.
    pub connection_idle_max: Option<Duration>,
    /// A connection is drained at this age; none: never.
    pub connection_age_max: Option<Duration>,
    /// What calls have to finish in a drain, before they are cut off.
    pub drain_timeout: Duration,
    /// The head of an HTTP/1.1 request.
    pub http1_head_bytes_max: usize,
    /// Whether each message of a stream leaves in a DATA frame of its own. Messages that are ready together share one
    /// otherwise, which costs both sides less.
    pub is_message_per_frame: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            http2: quire_http2::Config::default(),
            connections_max: 10_000,
            refusals_max: 100,
            calls_max: 100_000,
            health_watches_max: 1024,
            reflection_streams_max: 128,
            message_bytes_max: 4 * 1024 * 1024,
            gathered_bytes_max: 64 * 1024 * 1024,
            unread_bytes_max: 64 * 1024,
            unsent_bytes_max: 16 * 1024 * 1024,
            memory: Memory::new(160 * 1024 * 1024, usize::MAX),
            stream_stall_timeout: Duration::from_mins(1),
            output_bytes_max: 1024 * 1024,
            handshake_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_mins(1),
            discarded_bytes_max: 64 * 1024 * 1024,
            discard_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            keepalive_interval: Some(Duration::from_mins(1)),
            keepalive_timeout: Duration::from_secs(20),
            connection_idle_max: None,
            connection_age_max: None,
            drain_timeout: Duration::from_secs(30),
            http1_head_bytes_max: 64 * 1024,
            is_message_per_frame: false,
        }
    }
}

impl Limits {
    /// What a caller is told of a limit that it ran into.
    pub(super) fn refusal(&self, limit: Refusal) -> Status {
        let (at, advice) = match limit {
            Refusal::Connections => (self.connections_max, "close idle connections or share one, and try again later"),
            Refusal::Calls => (self.calls_max, "try again after a pause"),
            Refusal::HealthWatches => (self.health_watches_max, "end another watch, or call Check"),
            Refusal::ReflectionStreams => (self.reflection_streams_max, "end another stream of reflection"),
            Refusal::MessageBytes => (self.message_bytes_max, "send a smaller message"),
            Refusal::GatheredBytes => (self.gathered_bytes_max, "send fewer unfinished messages on a connection"),
            Refusal::UnsentBytes => (self.unsent_bytes_max, "read the answers that wait"),
            Refusal::Memory => (self.memory.bytes_max(), "try again after a pause"),
            Refusal::BufferBytes => {
                (self.memory.buffers_max(), "read the answers that wait, and finish what was begun")
            }
            Refusal::HeaderBytes => {
                (self.http2.header_list_bytes_max.try_into().unwrap_or(usize::MAX), "send smaller headers")
            }
        };
        Status::resource_exhausted(format!("the server's limit {} is {at}: {advice}", limit.name()))
    }
}
