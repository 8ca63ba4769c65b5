//! One call of each shape: its messages, and when its answer began and ended.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quire_rpc::client::{Channel, Path, PathRef, Settings, WireMessage};
use quire_rpc::{Code, Decode, Encoded, Ignored, Metadata, Request, Status, Stream};

use super::endings::{DATA, Endings, ending_of};
use super::payload::Requests;
use super::schema::Shape;
use super::target::Target;
use super::trace::Traces;
use crate::template::Turn;
use crate::workload::socket::{rest, settings};
use crate::workload::{Answer, Ending, Session, Traffic, Workload};

/// Maximum size of an answer's message, decompressed.
pub const REPLY_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Default requests in flight on a connection.
const IN_FLIGHT_DEFAULT: usize = 1024;

/// Calls of one method of one server.
#[derive(Clone)]
#[must_use]
pub struct GrpcWorkload {
    pub target: Target,
    pub path: PathRef,
    pub shape: Shape,
    /// In the codec of `settings` already.
    pub requests: Requests,
    pub metadata: Metadata,
    /// Deadline of a call, sent to the server.
    pub deadline: Option<Duration>,
    pub settings: Settings,
    pub endings: Endings,
    /// Set if calls have a `traceparent`.
    pub traces: Option<Traces>,
}

impl GrpcWorkload {
    /// Calls of `/package.Service/Method` with these requests, in gRPC with protobuf.
    pub fn new(target: Target, path: &str, shape: Shape, requests: Requests) -> Self {
        let settings = Settings { message_bytes_max: REPLY_BYTES_MAX, ..settings(IN_FLIGHT_DEFAULT) };
        let (metadata, deadline, endings, traces) = (Metadata::new(), None, Endings::default(), None);
        Self { target, path: Path::named(path), shape, requests, metadata, deadline, settings, endings, traces }
    }

    fn of_reply(&self, message: &[u8]) -> Ending {
        self.endings.of_reply(message, self.settings.codec)
    }
}

impl fmt::Debug for GrpcWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GrpcWorkload({:?} of {})", self.path, self.target)
    }
}

impl Workload for GrpcWorkload {
    type Session = GrpcSession;

    async fn open(&self, _: usize) -> anyhow::Result<GrpcSession> {
        let channel = self.target.connect(self.settings.clone()).await?;
        let wire = match &self.requests {
            Requests::Constant(messages) if self.shape == Shape::UNARY => {
                messages.first().map(|message| channel.wire_message(message))
            }
            _ => None,
        };
        let traces = self.traces.as_ref().map(Traces::of_connection);
        Ok(GrpcSession { workload: Self { traces, ..self.clone() }, channel, wire })
    }

    fn label(&self, ending: u16) -> String {
        self.endings.label(ending)
    }
}

/// A connection of a [`GrpcWorkload`].
pub struct GrpcSession {
    workload: GrpcWorkload,
    channel: Channel,
    /// The request message, if it is the same for every call.
    wire: Option<WireMessage>,
}

impl Session for GrpcSession {
    async fn request(&self, turn: Turn) -> Answer {
        if self.workload.shape == Shape::UNARY { self.unary(turn).await } else { self.stream(turn).await }
    }

    fn measured(&self, number: u64, answer: &Answer) {
        if let Some(traces) = &self.workload.traces {
            traces.note(number, answer.done_at.saturating_duration_since(answer.sent_at));
        }
    }

    fn traffic(&self) -> Traffic {
        self.channel.traffic().into()
    }
}

impl GrpcSession {
    fn request_of<T>(&self, message: T, number: u64) -> Request<T> {
        let mut request = Request::new(message);
        let workload = &self.workload;
        if !workload.metadata.is_empty() {
            *request.metadata_mut() = workload.metadata.clone();
        }
        if let Some(deadline) = workload.deadline {
            request.set_timeout(deadline);
        }
        if let Some(traces) = &workload.traces {
            request.set_trace(&traces.context(number));
        }
        request
    }

    async fn unary(&self, turn: Turn) -> Answer {
        let number = turn.number;
        let (path, wire) = match &self.wire {
            Some(wire) => (self.workload.path.clone(), wire.clone()),
            None => match self.workload.requests.one(turn) {
                Ok((path, message)) => {
                    (path.unwrap_or_else(|| self.workload.path.clone()), self.channel.wire_message(&message))
                }
                Err(_) => return Answer::failed(Instant::now(), DATA),
            },
        };
        let request = self.request_of(wire, number);
        let sent_at = Instant::now();
        let answer = if self.workload.endings.reads_replies() {
            self.channel.unary_raw(path, request).await
        } else {
            self.channel.unary_unread(path, request).await
        };
        let done_at = Instant::now();
        let ending = match answer.reply {
            Ok(reply) if self.workload.endings.reads_replies() => match reply.message() {
                Ok(message) => self.workload.of_reply(&message),
                Err(status) => ending_of(status.code()),
            },
            Ok(_) => ending_of(Code::Ok),
            Err(status) => {
                rest_if_unreachable(&status, answer.head_at).await;
                ending_of(status.code())
            }
        };
        Answer { sent_at, first_byte_at: answer.head_at, done_at, ending }
    }

    async fn stream(&self, turn: Turn) -> Answer {
        let number = turn.number;
        let Ok(messages) = self.workload.requests.all(turn) else { return Answer::failed(Instant::now(), DATA) };
        let request = self.request_of(Outgoing { messages, next: 0 }, number);
        let sent_at = Instant::now();
        let (first_byte_at, result) = if self.workload.endings.reads_replies() {
            self.read::<Encoded>(request).await
        } else {
            self.read::<Ignored>(request).await
        };
        let done_at = Instant::now();
        let ending = match result {
            Ok(Some(last)) => self.workload.of_reply(&last),
            Ok(None) => ending_of(Code::Ok),
            Err(status) => {
                rest_if_unreachable(&status, first_byte_at).await;
                ending_of(status.code())
            }
        };
        Answer { sent_at, first_byte_at, done_at, ending }
    }

    /// Sends and reads to the end; returns the time of the first message, and the last message if it was kept.
    async fn read<T: Incoming>(&self, request: Request<Outgoing>) -> (Option<Instant>, Result<Option<Bytes>, Status>) {
        let workload = &self.workload;
        let mut first_at = None;
        let mut replies = match self.channel.bidi_streaming_raw::<_, T>(&workload.path, request).await {
            Ok(replies) => replies.into_inner(),
            Err(status) => return (None, Err(status)),
        };
        let (mut last, mut count) = (None, 0u64);
        loop {
            match replies.message().await {
                Ok(Some(message)) => {
                    first_at.get_or_insert_with(Instant::now);
                    last = message.kept();
                    count += 1;
                }
                Ok(None) if count != 1 && !workload.shape.server_streams => {
                    let status = Status::internal("an answer of one message was due");
                    return (first_at, Err(status));
                }
                Ok(None) => return (first_at, Ok(last)),
                Err(status) => return (first_at, Err(status)),
            }
        }
    }
}

async fn rest_if_unreachable(status: &Status, head_at: Option<Instant>) {
    if status.code() == Code::Unavailable && head_at.is_none() {
        rest().await;
    }
}

/// A message of an answer, kept or dropped.
trait Incoming: Decode {
    fn kept(self) -> Option<Bytes>;
}

impl Incoming for Encoded {
    fn kept(self) -> Option<Bytes> {
        Some(self.into_bytes())
    }
}

impl Incoming for Ignored {
    fn kept(self) -> Option<Bytes> {
        None
    }
}

/// Messages of a request, in order.
struct Outgoing {
    messages: Arc<[Bytes]>,
    next: usize,
}

impl Stream for Outgoing {
    type Item = Encoded;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Encoded>> {
        let message = self.messages.get(self.next).cloned().map(Encoded::from);
        self.next += 1;
        Poll::Ready(message)
    }
}

impl Requests {
    /// The encoded message of a call that takes one, and its method if that varies.
    fn one(&self, turn: Turn) -> anyhow::Result<(Option<PathRef>, Bytes)> {
        let message = match self {
            Self::Constant(messages) => messages.first().cloned().unwrap_or_default(),
            Self::Made(make) => return Ok(make(turn)),
            Self::Rendered(payload) => payload.render(turn)?.pop().unwrap_or_default(),
        };
        Ok((None, message))
    }

    fn all(&self, turn: Turn) -> anyhow::Result<Arc<[Bytes]>> {
        match self {
            Self::Constant(messages) => Ok(Arc::clone(messages)),
            Self::Made(make) => Ok(Arc::new([make(turn).1])),
            Self::Rendered(payload) => Ok(payload.render(turn)?.into()),
        }
    }
}
