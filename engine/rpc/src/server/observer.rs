//! Server events for the embedding program's metrics and logs.

use std::net::SocketAddr;
use std::sync::{Arc, atomic::AtomicBool};
use std::time::Duration;

use http::Extensions;
use quire_http2::Head;
use tokio::time::Instant;

use crate::status::Code;
use crate::trace::TraceContext;
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
    /// Set if [`Observer::wants_details`], or the call is traced.
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
    /// The field `content-type`; a call of Connect by GET has none.
    pub content_type: Option<&'a [u8]>,
    /// The trace that the call is part of.
    pub trace_id: Option<[u8; 16]>,
    /// Parts of its time.
    pub times: CallTimes,
    /// Set if [`Observer::trace`] began one.
    pub span: Option<CallSpan<'a>>,
}

/// The span of a traced call.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CallSpan<'a> {
    /// The span itself.
    pub own: &'a TraceContext,
    /// The caller's span, if the caller sent one.
    pub parent: Option<[u8; 8]>,
}

/// Parts of a call's time.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CallTimes {
    /// From the call's head to its handler's start, or to its refusal: for its message and its turn.
    pub queued: Duration,
    /// From there to the last message of the answer.
    pub handled: Duration,
    /// Part of `handled`, as measured by [`Observer::polled`].
    pub waited: Duration,
    /// From the last message until the answer's batch was about to be written.
    pub batched: Duration,
}

/// A traced call until it is reported.
#[derive(Debug)]
struct Span {
    own: TraceContext,
    parent: Option<[u8; 8]>,
}

/// Details of a call, collected from its head on.
#[derive(Debug)]
pub(crate) struct Notes {
    head: Arc<Head>,
    credential: Option<Arc<str>>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) waited: Duration,
    begun_at: Instant,
    handled_at: Option<Instant>,
    ended_at: Option<Instant>,
    span: Option<Span>,
}

/// Names and values of a head.
fn fields(head: &Head) -> impl Iterator<Item = (&[u8], &[u8])> {
    head.fields().iter().map(|field| (field.name(), field.value()))
}

impl Notes {
    pub(crate) fn new(head: Arc<Head>, begun_at: Instant) -> Self {
        let (credential, waited, bytes_in, bytes_out) = Default::default();
        let (handled_at, ended_at, span) = (None, None, None);
        Self { head, credential, bytes_in, bytes_out, waited, begun_at, handled_at, ended_at, span }
    }

    /// Details of a call that the observer traces.
    pub(crate) fn traced(head: &Arc<Head>, observer: &dyn Observer, begun_at: Instant) -> Option<Self> {
        let caller = TraceContext::parent(fields(head));
        let own = observer.trace(caller.as_ref())?;
        // A state is of its trace alone.
        let is_callers = caller.as_ref().is_some_and(|caller| caller.trace_id == own.trace_id);
        let own = if is_callers { own.with_state(fields(head)) } else { own };
        let span = Span { own, parent: caller.map(|caller| caller.span_id) };
        Some(Self { span: Some(span), ..Self::new(Arc::clone(head), begun_at) })
    }

    /// The call's span, for its handler.
    pub(crate) fn extensions(&self) -> Extensions {
        let mut extensions = Extensions::new();
        if let Some(span) = &self.span {
            extensions.insert(span.own.clone());
        }
        extensions
    }

    /// Notes that the handler starts.
    pub(crate) fn start(&mut self) {
        self.handled_at = Some(Instant::now());
    }

    /// Notes that the answer is complete.
    pub(crate) fn end(&mut self) {
        self.ended_at = Some(Instant::now());
    }

    pub(crate) fn set_client(&mut self, client: &Client) {
        self.credential = match client {
            Client::Credential(name) => Some(Arc::clone(name)),
            _ => None,
        };
    }

    pub(crate) fn details(&self, peer: Option<SocketAddr>, elapsed: Duration) -> CallDetails<'_> {
        let ended_at = self.ended_at.unwrap_or(self.begun_at);
        let handled_at = self.handled_at.unwrap_or(ended_at);
        let queued = handled_at.saturating_duration_since(self.begun_at);
        let handled = ended_at.saturating_duration_since(handled_at);
        let batched = elapsed.saturating_sub(queued + handled);
        CallDetails {
            peer,
            credential: self.credential.as_deref(),
            request_id: self.head.get(b"x-request-id"),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            content_type: self.head.get(b"content-type"),
            trace_id: match &self.span {
                Some(span) => Some(span.own.trace_id),
                None => TraceContext::parent(fields(&self.head)).map(|caller| caller.trace_id),
            },
            times: CallTimes { queued, handled, waited: self.waited, batched },
            span: self.span.as_ref().map(|span| CallSpan { own: &span.own, parent: span.parent }),
        }
    }
}

/// Hooks; they run inside the connection's task and must be quick.
pub trait Observer: Send + Sync {
    /// A connection was accepted.
    fn connection_opened(&self, _peer: Option<SocketAddr>) {}
    /// A connection was closed; the reason is for a log.
    fn connection_closed(&self, _peer: Option<SocketAddr>, _reason: &str) {}
    /// True while reports of calls that begin should have details, which costs an allocation a call. Called once,
    /// when the server is built; the flag is read at each call.
    fn wants_details(&self) -> Arc<AtomicBool> {
        Arc::default()
    }
    /// True if [`trace`](Self::trace) is to be called. Called once, when the server is built.
    fn wants_traces(&self) -> bool {
        false
    }
    /// Begins the span of a call, below its caller's if it has one, or returns `None` if the call is not traced. Its
    /// handler gets the span by [`Request::trace`](crate::Request::trace), and its report has details.
    fn trace(&self, _caller: Option<&TraceContext>) -> Option<TraceContext> {
        None
    }
    /// The handler of a call with details is about to be polled, or dropped, on this thread.
    fn polling(&self) {}
    /// The same is over; returns what to add to [`CallTimes::waited`].
    fn polled(&self) -> Duration {
        Duration::ZERO
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
