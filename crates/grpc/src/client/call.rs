//! A call from the caller's side: what is handed to a connection, and what is waited for.
//!
//! Implements: gRPC over HTTP/2, "Requests", as far as the caller has a part in it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use http2::Head;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};

use super::lane::Lane;
use super::{Channel, Path};
use crate::codec::{Decode, Encode, Payload};
use crate::compression::Encoding;
use crate::envelope::{Request, Response, ResponseParts};
use crate::message::{self, Framed};
use crate::metadata::Metadata;
use crate::status::{Code, Reach, Status};
use crate::streaming::{Inbox, Streaming};

/// A failure, and whether the server is known to have done nothing.
pub(super) struct Failure {
    pub(super) status: Status,
    pub(super) untouched: bool,
    /// As [`RawReply::head_at`].
    pub(super) head_at: Option<std::time::Instant>,
}

impl Failure {
    pub(super) fn new(status: Status, untouched: bool) -> Self {
        let status = if untouched { status.with_reach(Reach::Untouched) } else { status };
        Self { status, untouched, head_at: None }
    }
}

/// The answer to a unary call, not yet decoded.
#[derive(Debug)]
pub(super) struct RawReply {
    pub(super) head: Arc<Head>,
    pub(super) encoding: Option<Encoding>,
    pub(super) message: Framed<Bytes>,
    pub(super) trailers: Arc<Head>,
    /// When the head was read, if the call asked for that.
    pub(super) head_at: Option<std::time::Instant>,
}

/// The beginning of an answer that is a stream.
pub(super) struct RawStream {
    pub(super) head: Option<Arc<Head>>,
    pub(super) encoding: Option<Encoding>,
    pub(super) inbox: Arc<Inbox>,
}

/// Messages on their way out, made as there is room for them.
pub(super) trait Outgoing: Send {
    /// Appends the next message, framed; `false` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<bool>;
}

pub(super) enum ReplyTo {
    Unary(oneshot::Sender<Result<RawReply, Failure>>),
    Stream(oneshot::Sender<Result<RawStream, Failure>>),
}

pub(super) enum Body {
    Message(Vec<u8>),
    /// A message that others may send too.
    Shared(Bytes),
    Messages(Box<dyn Outgoing>),
}

/// A call for a connection to make.
pub(super) struct Start {
    pub(super) number: u64,
    pub(super) path: &'static Path,
    pub(super) metadata: Metadata,
    pub(super) deadline: Option<Instant>,
    pub(super) waits_for_ready: bool,
    pub(super) compression: Option<Encoding>,
    /// The caller wants to know when the head of the answer was read.
    pub(super) is_timed: bool,
    /// Nobody will look into the answer's message; it comes out empty.
    pub(super) is_unread: bool,
    pub(super) body: Body,
    pub(super) reply_to: ReplyTo,
}

/// What callers ask of a connection.
pub(super) enum Command {
    /// Only connect.
    Connect,
    Start(Start),
    /// Nobody waits for the answer any more.
    Cancel(u64),
}

impl Command {
    pub(super) fn waits_for_ready(&self) -> bool {
        matches!(self, Self::Start(start) if start.waits_for_ready)
    }

    pub(super) fn fail(self, status: &Status, untouched: bool) {
        if let Self::Start(start) = self {
            start.reply_to.fail(status.clone(), untouched);
        }
    }
}

impl ReplyTo {
    pub(super) fn fail(self, status: Status, untouched: bool) {
        // Nobody listens when the caller is gone, and that is fine.
        match self {
            Self::Unary(to) => drop(to.send(Err(Failure::new(status, untouched)))),
            Self::Stream(to) => drop(to.send(Err(Failure::new(status, untouched)))),
        }
    }
}

/// Tells the connection when the caller loses interest.
struct CancelOnDrop<'a> {
    lane: &'a Arc<Lane>,
    number: u64,
    armed: bool,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.lane.push(Command::Cancel(self.number));
        }
    }
}

pub(super) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn deadline_exceeded() -> Failure {
    Failure::new(Status::deadline_exceeded("time is up"), false)
}

/// Hands the call to a connection and waits for its answer, until the deadline.
pub(super) async fn attempt<R>(
    channel: &Channel,
    start: Start,
    receiver: oneshot::Receiver<Result<R, Failure>>,
) -> Result<R, Failure> {
    let lane = channel.lane();
    let deadline = start.deadline;
    let mut guard = CancelOnDrop { lane, number: start.number, armed: true };
    lane.push(Command::Start(start));
    let answer = match deadline {
        None => receiver.await,
        Some(deadline) => timeout_at(deadline, receiver).await.map_err(|_| deadline_exceeded())?,
    };
    guard.armed = false;
    answer.unwrap_or_else(|_| Err(Failure::new(Status::unavailable("the connection ended before the answer"), false)))
}

pub(super) fn deadline_of<T>(channel: &Channel, request: &Request<T>) -> Option<Instant> {
    let usual = || channel.inner.settings.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    request.deadline().or_else(usual)
}

pub(super) async fn unary<Req, Res>(
    channel: Channel,
    path: &'static Path,
    request: Request<Req>,
) -> Result<Response<Res>, Status>
where
    Req: Encode,
    Res: Decode,
{
    let settings = &channel.inner.settings;
    let deadline = deadline_of(&channel, &request);
    let (message, request) = request.split();
    let mut framed = Vec::with_capacity(message.encoded_len() + message::PREFIX_BYTES);
    message::encode(message, settings.compression, &mut framed);
    let mut tries = 1;
    loop {
        let (sender, receiver) = oneshot::channel();
        let may_repeat = settings.retry.as_ref().is_some_and(|retry| tries < retry.attempts_max);
        let start = Start {
            number: next_number(),
            path,
            metadata: request.metadata().clone(),
            deadline,
            waits_for_ready: request.waits_for_ready,
            compression: settings.compression.map(|(encoding, _)| encoding),
            is_timed: false,
            is_unread: false,
            body: Body::Message(if may_repeat { framed.clone() } else { std::mem::take(&mut framed) }),
            reply_to: ReplyTo::Unary(sender),
        };
        match attempt(&channel, start, receiver).await {
            Ok(reply) => return finish(reply, settings.message_bytes_max),
            Err(failure) => {
                let repeatable = request.is_safe_to_retry || failure.untouched;
                let retry = settings.retry.as_ref().filter(|_| may_repeat && repeatable);
                let pause = retry.and_then(|retry| retry.pause(tries + 1, &failure.status));
                let Some(pause) = pause else { return Err(failure.status) };
                if deadline.is_some_and(|deadline| Instant::now() + pause >= deadline) {
                    return Err(failure.status);
                }
                sleep(pause).await;
                tries += 1;
            }
        }
    }
}

fn finish<Res: Decode>(reply: RawReply, message_bytes_max: usize) -> Result<Response<Res>, Status> {
    let framed = Framed { compressed: reply.message.compressed, bytes: Payload::Owned(reply.message.bytes) };
    let message = message::decode(framed, reply.encoding, message_bytes_max)?;
    Ok(Response::received(message, Metadata::received(reply.head), Metadata::received(reply.trailers)))
}

pub(super) async fn streaming<S, Res>(
    channel: &Channel,
    path: &'static Path,
    request: Request<S>,
) -> Result<Response<Streaming<Res>>, Status>
where
    S: Stream + Send + 'static,
    S::Item: Encode,
    Res: Decode,
{
    let settings = &channel.inner.settings;
    let (sender, receiver) = oneshot::channel();
    let deadline = deadline_of(channel, &request);
    let (stream, request) = request.split();
    let messages = Messages { stream: Some(Box::pin(stream)), compression: settings.compression };
    let start = Start {
        number: next_number(),
        path,
        metadata: request.metadata().clone(),
        deadline,
        waits_for_ready: request.waits_for_ready,
        compression: settings.compression.map(|(encoding, _)| encoding),
        is_timed: false,
        is_unread: false,
        body: Body::Messages(Box::new(messages)),
        reply_to: ReplyTo::Stream(sender),
    };
    let raw = attempt(channel, start, receiver).await.map_err(|failure| failure.status)?;
    let mut stream = Streaming::new(raw.inbox, raw.encoding, settings.message_bytes_max);
    if let Some(deadline) = deadline {
        stream.end_at(deadline);
    }
    let metadata = raw.head.map_or_else(Metadata::new, Metadata::received);
    Ok(Response::received(stream, metadata, Metadata::new()))
}

/// The one message of an answer that may have no more.
pub(super) async fn only_message<Res: Decode>(reply: Response<Streaming<Res>>) -> Result<Response<Res>, Status> {
    let ResponseParts { message: mut stream, metadata, .. } = reply.into_parts();
    let Some(message) = stream.message().await? else {
        return Err(Status::new(Code::Internal, "the answer holds no message"));
    };
    if stream.message().await?.is_some() {
        return Err(Status::new(Code::Internal, "the answer holds more than one message"));
    }
    Ok(Response::received(message, metadata, stream.trailers().unwrap_or_default()))
}

struct Messages<S> {
    stream: Option<Pin<Box<S>>>,
    compression: Option<(Encoding, usize)>,
}

impl<S> Outgoing for Messages<S>
where
    S: Stream + Send,
    S::Item: Encode,
{
    fn poll_next(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<bool> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(false) };
        stream.as_mut().poll_next(cx).map(|next| {
            if let Some(message) = next {
                message::encode(message, self.compression, out);
                true
            } else {
                self.stream = None;
                false
            }
        })
    }
}

/// A stream of one message, which is at hand.
pub(super) struct Single<T>(Option<T>);

impl<T> Single<T> {
    pub(super) fn new(message: T) -> Self {
        Self(Some(message))
    }
}

impl<T> Unpin for Single<T> {}

impl<T> Stream for Single<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<T>> {
        Poll::Ready(self.0.take())
    }
}
