//! One attempt of a call, as a connection gets it: the request's head and body, and the receiver of the response.
//!
//! Implements: RFC 9113 sections 8.2.2 (connection-specific fields) and 8.3.1 (request pseudo-header fields).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::uri::Authority;
use quire_http2::{Field, Indexing, is_hop_by_hop};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::path::{CacheSlot, Path, PathRef};
use crate::client::channel::target::Target;
use crate::message::compression::Encoding;
use crate::message::framing::{Framed, Framing, PREFIX_BYTES};
use crate::message::inbox::Inbox;
use crate::metadata::Metadata;
use crate::protocol::{ClientDialect, Put, RequestTerms};
use crate::status::{Reach, Status};
use crate::timeout;

/// One attempt of a call.
pub(crate) struct Attempt {
    pub(crate) number: u64,
    pub(crate) path: PathRef,
    pub(crate) dialect: ClientDialect,
    pub(crate) form: Form,
    pub(crate) metadata: Metadata,
    pub(crate) deadline: Option<Instant>,
    pub(crate) waits_for_ready: bool,
    pub(crate) compression: Option<Encoding>,
    /// Limit of a received message, also after decompression.
    pub(crate) message_bytes_max: usize,
    pub(crate) body: Body,
    pub(crate) reply_to: ReplyTo,
}

/// HTTP form of a request.
pub(crate) enum Form {
    /// A call by POST.
    Post,
    /// A call by POST, with another codec or compression than its channel's.
    OwnPost,
    /// A call by GET; the path and query contain the message.
    Get(String),
    /// A plain HTTP request.
    Http(Arc<HttpHead>),
}

pub(crate) enum Body {
    Message(Vec<u8>),
    /// A message that other calls may share.
    Shared(Bytes),
    Messages(Box<dyn Outgoing>),
}

impl Body {
    /// The framed message; empty for a stream.
    pub(crate) fn framed(&self) -> &[u8] {
        match self {
            Self::Message(framed) => framed,
            Self::Shared(framed) => framed,
            Self::Messages(_) => &[],
        }
    }
}

/// Outgoing messages, encoded as there is room for them.
pub(crate) trait Outgoing: Send {
    /// Appends the next framed message; `false` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Result<bool, Status>>;
}

/// Receiver of the response.
pub(crate) enum ReplyTo {
    Unary {
        to: oneshot::Sender<Result<UnaryResponse, Failure>>,
        /// True if the caller wants the time of the response's head.
        is_timed: bool,
        /// True if the caller discards the response's message; it is returned empty.
        is_unread: bool,
        /// Gets the attempt's number once the response has begun, if the caller hedges.
        begun: Option<(mpsc::UnboundedSender<u32>, u32)>,
    },
    Stream(oneshot::Sender<Result<StreamResponse, Failure>>),
}

/// The response to a unary call, not yet decoded.
#[derive(Debug)]
pub(crate) struct UnaryResponse {
    pub(crate) metadata: Metadata,
    pub(crate) encoding: Option<Encoding>,
    pub(crate) message: Framed<Bytes>,
    pub(crate) trailers: Metadata,
    /// Time when the head was read, if requested.
    pub(crate) head_at: Option<std::time::Instant>,
}

/// The beginning of a streaming response.
pub(crate) struct StreamResponse {
    pub(crate) metadata: Metadata,
    pub(crate) encoding: Option<Encoding>,
    pub(crate) inbox: Arc<Inbox>,
}

/// A failed attempt.
pub(crate) struct Failure {
    pub(crate) status: Status,
    /// Time when the response's head was read, if requested and known.
    pub(crate) head_at: Option<std::time::Instant>,
    /// True if the response had begun, so that the call must not be repeated.
    pub(crate) is_committed: bool,
    /// Set if the server has not processed the request, so that another attempt is transparent to the caller.
    pub(crate) unprocessed: Option<Unprocessed>,
}

/// A request that the server has not processed.
pub(crate) struct Unprocessed {
    pub(crate) body: Body,
    /// True if it was sent, and the server refused it.
    pub(crate) was_sent: bool,
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self { status, head_at: None, is_committed: false, unprocessed: None }
    }
}

/// Status of a call at its deadline.
pub(crate) fn late() -> Status {
    Status::deadline_exceeded("time is up")
}

/// Marks a failure before which the server has done nothing.
pub(crate) fn untouched(status: Status) -> Status {
    status.with_reach(Reach::Untouched)
}

impl ReplyTo {
    /// True if no one waits for the response.
    pub(crate) fn is_abandoned(&self) -> bool {
        match self {
            Self::Unary { to, .. } => to.is_closed(),
            Self::Stream(to) => to.is_closed(),
        }
    }

    pub(crate) fn fail(self, failure: impl Into<Failure>) {
        let failure = failure.into();
        // If the caller is gone, the failure is dropped.
        match self {
            Self::Unary { to, .. } => drop(to.send(Err(failure))),
            Self::Stream(to) => drop(to.send(Err(failure))),
        }
    }
}

pub(crate) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Attempt {
    /// A plain HTTP request.
    pub(crate) fn http(head: Arc<HttpHead>, waits_for_ready: bool, body: Body, reply_to: ReplyTo) -> Self {
        static NO_METHOD: Path = Path::new("");
        Self {
            number: next_number(),
            path: (&NO_METHOD).into(),
            dialect: ClientDialect::http(),
            form: Form::Http(head),
            metadata: Metadata::new(),
            deadline: None,
            waits_for_ready,
            compression: None,
            message_bytes_max: usize::MAX,
            body,
            reply_to,
        }
    }

    /// Fails the attempt, which was not sent, so that another is made on another subchannel.
    pub(crate) fn turn_back(self) {
        let unprocessed = Some(Unprocessed { body: self.body, was_sent: false });
        let status = untouched(Status::unavailable("the server is gone"));
        self.reply_to.fail(Failure { unprocessed, ..status.into() });
    }

    /// Time left until the deadline; fails if that has passed.
    pub(crate) fn timeout(&self, now: Instant) -> Result<Option<Duration>, Status> {
        let late = || untouched(Status::deadline_exceeded("time was up before the call began"));
        self.deadline.map(|deadline| deadline.checked_duration_since(now).ok_or_else(late)).transpose()
    }

    /// True if the request ends with its head.
    pub(crate) fn is_bodiless(&self) -> bool {
        match &self.form {
            Form::Post | Form::OwnPost => false,
            Form::Get(_) => true,
            Form::Http(head) => head.is_bodiless,
        }
    }

    /// Start of the body within the framed message: some protocols omit the prefix.
    pub(crate) fn body_start(&self) -> usize {
        let is_unframed = self.dialect.framing() == Framing::Complete && !matches!(self.form, Form::Http(_));
        if is_unframed { PREFIX_BYTES } else { 0 }
    }

    /// Compression of the request's messages. For a body of one message, whether that message was compressed.
    fn encoding(&self) -> Option<Encoding> {
        let is_compressed = || self.body.framed().first() == Some(&1);
        self.compression.filter(|_| self.dialect.framing() != Framing::Complete || is_compressed())
    }
}

/// Head of an attempt's request.
pub(crate) struct RequestHead<'a> {
    attempt: &'a Attempt,
    target: &'a Target,
    pub(crate) terms: RequestTerms<'a>,
}

impl<'a> RequestHead<'a> {
    pub(crate) fn new(attempt: &'a Attempt, target: &'a Target, accepted: &'a str, timeout: Option<Duration>) -> Self {
        let terms = RequestTerms {
            codec: attempt.dialect.codec,
            encoding: attempt.encoding(),
            accepted,
            timeout: timeout.map(timeout::rounded_up),
            is_get: matches!(attempt.form, Form::Get(_)),
        };
        Self { attempt, target, terms }
    }

    /// Cache slot for this request's header block, or `None` if it cannot be cached.
    pub(crate) fn cache_slot(&self) -> Option<&'a CacheSlot> {
        match &self.attempt.form {
            Form::Post if self.attempt.metadata.is_empty() => Some(self.attempt.path.cache_slot()),
            Form::Post | Form::OwnPost | Form::Get(_) => None,
            Form::Http(head) => head.cache_slot.as_deref(),
        }
    }

    pub(crate) fn put(&self, put: Put<'_>) {
        let Self { attempt, target, terms } = self;
        let (method, path, once): (&[u8], _, _) = match &attempt.form {
            Form::Post | Form::OwnPost => (b"POST", &*attempt.path.text, Indexing::Insert),
            Form::Get(target) => (b"GET", target.as_str(), Indexing::Literal),
            Form::Http(head) => return head.put(put),
        };
        put(b":method", method, Indexing::Insert);
        put(b":scheme", if target.is_https { b"https" } else { b"http" }, Indexing::Insert);
        put(b":path", path.as_bytes(), once);
        put(b":authority", target.authority.as_bytes(), Indexing::Insert);
        put(b"user-agent", target.user_agent.as_bytes(), Indexing::Insert);
        attempt.dialect.protocol.put_request(terms, put);
        for field in attempt.metadata.wire() {
            let is_secret = matches!(field.name(), b"authorization" | b"cookie");
            put(field.name(), field.value(), if is_secret { Indexing::Never } else { Indexing::Literal });
        }
    }
}

/// Head of a plain HTTP request, in HTTP/2 form.
#[derive(Clone, Debug)]
pub(crate) struct HttpHead {
    fields: Vec<Field>,
    /// Cache slot of a repeated head: each connection keeps it encoded.
    pub(crate) cache_slot: Option<Arc<CacheSlot>>,
    is_bodiless: bool,
}

impl HttpHead {
    /// Head of a request whose body has a known length.
    pub(crate) fn new(parts: &http::request::Parts, body_bytes: usize) -> Self {
        let is_bodiless = body_bytes == 0;
        let length = (!is_bodiless && !parts.headers.contains_key(CONTENT_LENGTH)).then(|| body_bytes.to_string());
        Self::of(parts, is_bodiless, length.map(|length| Field::new(b"content-length", length.as_bytes())))
    }

    /// Head of a request whose body length is unknown, unless a field gives it.
    #[cfg(feature = "tower")]
    pub(crate) fn streamed(parts: &http::request::Parts, is_bodiless: bool) -> Self {
        Self::of(parts, is_bodiless, None)
    }

    fn of(parts: &http::request::Parts, is_bodiless: bool, length: Option<Field>) -> Self {
        let (uri, headers) = (&parts.uri, &parts.headers);
        let pseudo = [
            (":method", Some(parts.method.as_str())),
            (":scheme", uri.scheme_str()),
            (":path", Some(uri.path_and_query().map_or("/", |path| path.as_str()))),
            (":authority", uri.authority().map(Authority::as_str)),
        ];
        let pseudo = pseudo.iter().filter_map(|(name, value)| Some(Field::new(name.as_bytes(), (*value)?.as_bytes())));
        let regular = headers.iter().filter(|(name, _)| !is_hop_by_hop(name.as_str().as_bytes()));
        let regular = regular.map(|(name, value)| Field::new(name.as_str().as_bytes(), value.as_bytes()));
        Self { fields: pseudo.chain(regular).chain(length).collect(), cache_slot: None, is_bodiless }
    }

    fn put(&self, put: Put<'_>) {
        for field in &self.fields {
            let (name, value) = (field.name(), field.value());
            let indexing = match name {
                b"authorization" | b"cookie" => Indexing::Never,
                b":method" | b":scheme" | b":authority" => Indexing::Insert,
                // These fields differ between requests that are not repeated.
                _ if self.cache_slot.is_none() => Indexing::Literal,
                _ => Indexing::Insert,
            };
            put(name, value, indexing);
        }
    }
}
