//! What a server tells the program that embeds it, for metrics and logs.
//!
//! Must not know how anything is counted or written: every hook does nothing unless it is replaced.
//!
//! Implements: no specification; it reports what the others do.

use std::net::SocketAddr;
use std::time::Duration;

use super::shares::Client;
use crate::status::Code;

/// Which limit refused something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// `connections_max`: every call on the connection is refused.
    Connections,
    /// `calls_max`.
    Calls,
    /// `health_watches_max`.
    HealthWatches,
    /// `reflection_streams_max`.
    ReflectionStreams,
    /// `message_bytes_max`.
    MessageBytes,
    /// `gathered_bytes_max`.
    GatheredBytes,
    /// `unsent_bytes_max`.
    UnsentBytes,
    /// `header_list_bytes_max`.
    HeaderBytes,
    /// `memory`, all of it.
    Memory,
    /// `memory`, what connections hold.
    BufferBytes,
}

impl Refusal {
    /// Every limit.
    pub const ALL: [Self; 10] = [
        Self::Connections,
        Self::Calls,
        Self::HealthWatches,
        Self::ReflectionStreams,
        Self::MessageBytes,
        Self::GatheredBytes,
        Self::UnsentBytes,
        Self::HeaderBytes,
        Self::Memory,
        Self::BufferBytes,
    ];

    /// The limit's name for callers and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connections => "limits.connections",
            Self::Calls => "limits.calls_in_flight",
            Self::HealthWatches => "limits.health_watches",
            Self::ReflectionStreams => "limits.reflection_streams",
            Self::MessageBytes => "limits.message_bytes",
            Self::GatheredBytes => "gathered_bytes",
            Self::UnsentBytes => "unsent_bytes",
            Self::HeaderBytes => "header_bytes",
            Self::Memory => "limits.memory_bytes",
            Self::BufferBytes => "limits.buffer_bytes",
        }
    }
}

/// A finished call.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CallReport<'a> {
    /// The method's place in [`Builder::paths`](super::Builder::paths); `None` for a method that does not exist.
    pub method: Option<usize>,
    /// `/package.Service/Method`; `unknown` for a method that does not exist, so that strangers cannot fill a table.
    pub path: &'a str,
    /// Its outcome.
    pub code: Code,
    /// From the end of the read that brought its head until the answers of its batch were about to be written, so a
    /// call waits for those that were answered in the same batch. Neither the write nor what the bytes waited for
    /// before they were read is in it.
    pub elapsed: Duration,
}

/// Hooks; they run inside the connection's task and must be quick.
pub trait Observer: Send + Sync {
    /// A connection was accepted.
    fn connection_opened(&self, _peer: Option<SocketAddr>) {}
    /// It is gone; the reason is for a log.
    fn connection_closed(&self, _peer: Option<SocketAddr>, _reason: &str) {}
    /// A gRPC call ended, well or not.
    fn call_finished(&self, _call: &CallReport<'_>) {}
    /// A limit was reached.
    fn refused(&self, _limit: Refusal) {}
    /// A limit was reached by this client, which has its share, or because all is taken.
    fn refused_client(&self, limit: Refusal, _client: &Client) {
        self.refused(limit);
    }
    /// A limit was reached, and what a client has of it made room for another.
    fn made_room(&self, _limit: Refusal, _client: &Client) {}
}

/// Hooks that do nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}
