//! Every limit of a server, by name, with defaults for a small machine that is open to strangers.
//!
//! Implements: RFC 9113 section 10.5 (denial-of-service considerations).

use std::time::Duration;

use quire_net::Live;

use super::memory::Memory;
use super::observer::Refusal;
use crate::lifetime::Lifetime;
use crate::status::Status;

/// Limits of a server. A field's unit is last in its name; times are [`Duration`]s. A [`Live`] number may be changed while the
/// server runs; it ends nothing that was admitted.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Limits of each connection's HTTP/2.
    pub http2: quire_http2::Config,
    /// Connections at once. Further ones are answered `RESOURCE_EXHAUSTED` and closed, unless another client has more
    /// and one of them can be spared.
    pub connections_max: Live,
    /// Connections at once that are only being refused, or are making room, at least 1; further ones wait to be
    /// accepted.
    pub refusals_max: usize,
    /// Waiting calls at once, over all connections; further ones get `RESOURCE_EXHAUSTED`. Clients have
    /// [`Shares`](super::Shares) of them.
    pub calls_max: Live,
    /// Of those calls, health watches, which need no credential; further ones get `RESOURCE_EXHAUSTED`.
    pub health_watches_max: Live,
    /// Of those calls, reflection streams; further ones get `RESOURCE_EXHAUSTED`.
    pub reflection_streams_max: Live,
    /// Size of a received message, also after decompression.
    pub message_bytes_max: usize,
    /// Incomplete messages of a connection together; a call that would exceed it gets `RESOURCE_EXHAUSTED`.
    pub gathered_bytes_max: usize,
    /// Messages of a stream not yet read by its handler; beyond, the stream's window stays closed.
    pub unread_bytes_max: usize,
    /// Answers waiting for the peer's windows; while there are more, further calls get `RESOURCE_EXHAUSTED`.
    pub unsent_bytes_max: usize,
    /// Account of the connections of every server with it, and of the process. While connections hold too much,
    /// the client that holds most loses its largest one; while the process does, new calls get `RESOURCE_EXHAUSTED`
    /// once large connections are cut.
    pub memory: Memory,
    /// A stream whose peer accepts none of its pending data for this long is reset.
    pub stream_stall_timeout: Duration,
    /// Pending output of a connection above which nothing is read from it.
    pub output_bytes_max: usize,
    /// Time for the TLS handshake and the protocol's first bytes.
    pub handshake_timeout: Duration,
    /// Time for a request to arrive if its handler needs it whole.
    pub request_timeout: Duration,
    /// Request bytes discarded after the answer, so that the client can finish; beyond, the stream is reset with
    /// `NO_ERROR`.
    pub discarded_bytes_max: usize,
    /// Time limit of that, from the answer on.
    pub discard_timeout: Duration,
    /// A connection that accepts no bytes for this long is closed.
    pub write_timeout: Duration,
    /// Silence after which a connection is pinged; `None`: never.
    pub keepalive_interval: Option<Duration>,
    /// Time limit for the answer to that ping.
    pub keepalive_timeout: Duration,
    /// A connection without calls is drained after this long; `None`: never.
    pub connection_idle_max: Option<Duration>,
    /// A connection is drained at this age; `None`: never.
    pub connection_age_max: Option<Duration>,
    /// Part of the last two limits, from 0 to 1, by which each connection's own may be shorter or longer, at random.
    pub connection_jitter: f64,
    /// Time for calls to finish in a drain, before they are cut off.
    pub drain_timeout: Duration,
    /// Size of an HTTP/1.1 request head.
    pub http1_head_bytes_max: usize,
    /// Sends each message of a stream in its own DATA frame. Otherwise messages that are ready together share one,
    /// which costs both sides less.
    pub is_message_per_frame: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            http2: quire_http2::Config::default(),
            connections_max: Live::from(10_000),
            refusals_max: 100,
            calls_max: Live::from(100_000),
            health_watches_max: Live::from(1024),
            reflection_streams_max: Live::from(128),
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
            connection_jitter: 0.1,
            drain_timeout: Duration::from_secs(30),
            http1_head_bytes_max: 64 * 1024,
            is_message_per_frame: false,
        }
    }
}

impl Limits {
    /// A new connection's limits of age and idle time.
    pub(super) fn lifetime(&self) -> Lifetime {
        Lifetime::draw(self.connection_age_max, self.connection_idle_max, self.connection_jitter)
    }

    /// Status for a caller refused by this limit.
    pub(super) fn refusal(&self, limit: Refusal) -> Status {
        let (at, advice) = match limit {
            Refusal::Connections => {
                (self.connections_max.get(), "close idle connections or share one, and try again later")
            }
            Refusal::Calls => (self.calls_max.get(), "try again after a pause"),
            Refusal::HealthWatches => (self.health_watches_max.get(), "end another watch, or call Check"),
            Refusal::ReflectionStreams => (self.reflection_streams_max.get(), "end another stream of reflection"),
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
