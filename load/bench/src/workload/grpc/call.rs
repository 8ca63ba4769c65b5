//! One call of each shape: its messages, and when its answer began and ended.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quire_rpc::client::{Channel, PathRef, Settings, WireMessage};
use quire_rpc::{Code, Decode, Encoded, Ignored, Metadata, Request, Status, Stream};

use super::endings::{DATA, Endings, ending_of};
use super::payload::Requests;
use super::schema::Shape;
use super::target::Target;
use crate::template::Turn;
use crate::workload::channel::rest;
use crate::workload::{Answer, Ending, Session, Traffic};

/// State shared by all connections of a load.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) target: Target,
    pub(super) path: PathRef,
    pub(super) shape: Shape,
    pub(super) requests: Requests,
    pub(super) metadata: Metadata,
    pub(super) deadline: Option<Duration>,
    pub(super) settings: Settings,
    pub(super) endings: Endings,
}

impl Shared {
    fn of_reply(&self, message: &[u8]) -> Ending {
        self.endings.of_reply(message, self.settings.codec)
    }
}

/// A connection of a [`super::GrpcWorkload`].
pub struct GrpcSession {
    pub(super) shared: Arc<Shared>,
    pub(super) channel: Channel,
    /// The request message, if it is the same for every call.
    pub(super) wire: Option<WireMessage>,
}

impl Session for GrpcSession {
    async fn request(&self, turn: Turn) -> Answer {
        if self.shared.shape == Shape::UNARY { self.unary(turn).await } else { self.stream(turn).await }
    }

    fn traffic(&self) -> Traffic {
        self.channel.traffic().into()
    }
}

impl GrpcSession {
    fn request_of<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let shared = &*self.shared;
        if !shared.metadata.is_empty() {
            *request.metadata_mut() = shared.metadata.clone();
        }
        if let Some(deadline) = shared.deadline {
            request.set_timeout(deadline);
        }
        request
    }

    async fn unary(&self, turn: Turn) -> Answer {
        let (path, wire) = match &self.wire {
            Some(wire) => (self.shared.path.clone(), wire.clone()),
            None => match self.shared.requests.one(turn) {
                Ok((path, message)) => {
                    (path.unwrap_or_else(|| self.shared.path.clone()), self.channel.wire_message(&message))
                }
                Err(_) => return Answer::failed(Instant::now(), DATA),
            },
        };
        let request = self.request_of(wire);
        let sent_at = Instant::now();
        let answer = if self.shared.endings.reads_replies() {
            self.channel.unary_raw(path, request).await
        } else {
            self.channel.unary_unread(path, request).await
        };
        let done_at = Instant::now();
        let ending = match answer.reply {
            Ok(reply) if self.shared.endings.reads_replies() => match reply.message() {
                Ok(message) => self.shared.of_reply(&message),
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
        let Ok(messages) = self.shared.requests.all(turn) else { return Answer::failed(Instant::now(), DATA) };
        let request = self.request_of(Outgoing { messages, next: 0 });
        let sent_at = Instant::now();
        let (first_byte_at, result) = if self.shared.endings.reads_replies() {
            self.read::<Encoded>(request).await
        } else {
            self.read::<Ignored>(request).await
        };
        let done_at = Instant::now();
        let ending = match result {
            Ok(Some(last)) => self.shared.of_reply(&last),
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
        let shared = &*self.shared;
        let mut first_at = None;
        let mut replies = match self.channel.bidi_streaming_raw::<_, T>(&shared.path, request).await {
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
                Ok(None) if count != 1 && !shared.shape.server_streams => {
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
