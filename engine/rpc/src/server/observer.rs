//! Server events for the embedding program's metrics and logs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quire_http2::Head;

use crate::status::Code;
use quire_net::Client;

/// A limit that refused something.
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

    /// Name of the limit for callers and metrics.
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
    /// The method's index in [`Builder::paths`](super::Builder::paths); `None` for an unknown method.
    pub method: Option<usize>,
    /// `/package.Service/Method`; `unknown` for an unknown method, so that strangers cannot fill a table.
    pub path: &'a str,
    /// Its outcome.
    pub code: Code,
    /// Time from the end of the read that brought its head until its batch of answers was about to be written; it
    /// includes waiting for the batch's other calls, but neither the write nor the time before the read.
    pub elapsed: Duration,
    /// Set if [`Observer::wants_details`].
    pub details: Option<CallDetails<'a>>,
}

/// Details of a finished call.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CallDetails<'a> {
    /// The caller's address.
    pub peer: Option<SocketAddr>,
    /// The name of the caller's credential, if an interceptor found one and the call was admitted.
    pub credential: Option<&'a str>,
    /// The field `x-request-id`.
    pub request_id: Option<&'a [u8]>,
    /// Bytes of the request's body that came before the call ended.
    pub bytes_in: u64,
    /// Bytes of the answer's body, sent or waiting for the caller's windows.
    pub bytes_out: u64,
}

/// Details of a call, collected from its head on.
#[derive(Debug)]
pub(crate) struct Notes {
    head: Arc<Head>,
    credential: Option<Arc<str>>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

impl Notes {
    pub(crate) fn new(head: Arc<Head>) -> Self {
        Self { head, credential: None, bytes_in: 0, bytes_out: 0 }
    }

    pub(crate) fn set_client(&mut self, client: &Client) {
        self.credential = match client {
            Client::Credential(name) => Some(Arc::clone(name)),
            _ => None,
        };
    }

    pub(crate) fn details(&self, peer: Option<SocketAddr>) -> CallDetails<'_> {
        CallDetails {
            peer,
            credential: self.credential.as_deref(),
            request_id: self.head.get(b"x-request-id"),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
        }
    }
}

/// Hooks; they run inside the connection's task and must be quick.
pub trait Observer: Send + Sync {
    /// A connection was accepted.
    fn connection_opened(&self, _peer: Option<SocketAddr>) {}
    /// A connection was closed; the reason is for a log.
    fn connection_closed(&self, _peer: Option<SocketAddr>, _reason: &str) {}
    /// True if reports of calls should have details, which costs an allocation a call. Asked once, when the server is
    /// built.
    fn wants_details(&self) -> bool {
        false
    }
    /// A gRPC call ended, successfully or not.
    fn call_finished(&self, _call: &CallReport<'_>) {}
    /// A limit was reached.
    fn refused(&self, _limit: Refusal) {}
    /// A limit refused this client: its share, or everything, is taken.
    fn refused_client(&self, limit: Refusal, _client: &Client) {
        self.refused(limit);
    }
    /// Calls of this client ended with [`Code::ResourceExhausted`] or [`Code::Unauthenticated`], the last one for this
    /// reason. At most once for all calls that a connection answers together.
    fn call_refused(&self, _client: &Client, _code: Code, _reason: &str) {}
    /// A limit was reached, and what a client has of it made room for another.
    fn made_room(&self, _limit: Refusal, _client: &Client) {}
}

/// Hooks that do nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}
