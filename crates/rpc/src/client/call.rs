//! A call from the caller's side: what is handed to a connection, and what is waited for.
//!
//! Must not know how a connection makes the call.
//!
//! Implements: gRPC over HTTP/2, "Requests", as far as the caller has a part in it, and the four kinds of method of
//! gRPC's "Core concepts".

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};

use super::channel::Channel;
use super::command::{Body, Command, Failure, Outgoing, RawReply, ReplyTo, Start};
use super::lane::Lane;
use super::path::Path;
use crate::codec::{Decode, Encode, Payload};
use crate::compression::Encoding;
use crate::envelope::{Request, Response, ResponseParts};
use crate::message::{self, Framed};
use crate::metadata::Metadata;
use crate::status::{Code, Status};
use crate::streaming::Streaming;
use crate::transcode::Reading;

/// What can be sent to a method that takes a stream: a stream, or one in a [`Request`].
pub trait IntoStreamingRequest {
    /// The stream.
    type Stream: Stream<Item = Self::Message> + Send + 'static;
    /// Its messages.
    type Message;
    /// With metadata around it.
    fn into_streaming_request(self) -> Request<Self::Stream>;
}

impl<S: Stream + Send + 'static> IntoStreamingRequest for S {
    type Stream = S;
    type Message = S::Item;

    fn into_streaming_request(self) -> Request<S> {
        Request::new(self)
    }
}

impl<S: Stream + Send + 'static> IntoStreamingRequest for Request<S> {
    type Stream = S;
    type Message = S::Item;

    fn into_streaming_request(self) -> Self {
        self
    }
}

impl Channel {
    /// One message there, one back.
    pub fn unary<Req, Res>(
        &self,
        path: &'static Path,
        request: Request<Req>,
    ) -> impl Future<Output = Result<Response<Res>, Status>> + Send + use<Req, Res>
    where
        Req: Encode,
        Res: Decode,
    {
        unary(self.clone(), path, request)
    }

    /// One message there, a stream back.
    pub async fn server_streaming<Req, Res>(
        &self,
        path: &'static Path,
        request: Request<Req>,
    ) -> Result<Response<Streaming<Res>>, Status>
    where
        Req: Encode + 'static,
        Res: Decode,
    {
        let request = request.map(Single::new);
        streaming(self, path, request).await
    }

    /// A stream there, one message back.
    pub async fn client_streaming<S, Res>(
        &self,
        path: &'static Path,
        request: Request<S>,
    ) -> Result<Response<Res>, Status>
    where
        S: Stream + Send + 'static,
        S::Item: Encode,
        Res: Decode,
    {
        let reply = streaming(self, path, request).await?;
        only_message(reply).await
    }

    /// A stream there, a stream back.
    pub async fn bidi_streaming<S, Res>(
        &self,
        path: &'static Path,
        request: Request<S>,
    ) -> Result<Response<Streaming<Res>>, Status>
    where
        S: Stream + Send + 'static,
        S::Item: Encode,
        Res: Decode,
    {
        streaming(self, path, request).await
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
    let usual = || channel.settings().timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    request.deadline().or_else(usual)
}

async fn unary<Req, Res>(channel: Channel, path: &'static Path, request: Request<Req>) -> Result<Response<Res>, Status>
where
    Req: Encode,
    Res: Decode,
{
    let settings = channel.settings();
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
    let message = Reading { encoding: reply.encoding, json: None, message_bytes_max }.decode(framed)?;
    Ok(Response::received(message, Metadata::received(reply.head), Metadata::received(reply.trailers)))
}

async fn streaming<S, Res>(
    channel: &Channel,
    path: &'static Path,
    request: Request<S>,
) -> Result<Response<Streaming<Res>>, Status>
where
    S: Stream + Send + 'static,
    S::Item: Encode,
    Res: Decode,
{
    let settings = channel.settings();
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
    let reading = Reading { encoding: raw.encoding, json: None, message_bytes_max: settings.message_bytes_max };
    let mut stream = Streaming::new(raw.inbox, reading);
    if let Some(deadline) = deadline {
        stream.end_at(deadline);
    }
    let metadata = raw.head.map_or_else(Metadata::new, Metadata::received);
    Ok(Response::received(stream, metadata, Metadata::new()))
}

/// The one message of an answer that may have no more.
async fn only_message<Res: Decode>(reply: Response<Streaming<Res>>) -> Result<Response<Res>, Status> {
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

/// A stream of one message.
struct Single<T>(Option<T>);

impl<T> Single<T> {
    fn new(message: T) -> Self {
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
