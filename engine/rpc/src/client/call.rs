//! Calls on the caller's side: hands a request to a connection and awaits the response.
//!
//! Implements: the four kinds of method of gRPC's "Core concepts".

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};

use super::answer::with_head;
use super::channel::Channel;
use super::command::{Body, Command, Failure, Form, Outgoing, RawReply, ReplyTo, Start};
use super::lane::Lane;
use super::path::{Path, PathRef};
use super::settings::{Protocol, Settings};
use super::terms::Terms;
use crate::codec::{Decode, Encode, Payload};
use crate::compression::Encoding;
use crate::envelope::{Request, Response, ResponseParts};
use crate::message::{self, Framed, Framing};
use crate::metadata::Metadata;
use crate::protocol;
use crate::status::Status;
use crate::streaming::Streaming;
use crate::transcode::{Json, Reading};

/// Argument of a client-streaming method: a stream, or one in a [`Request`].
pub trait IntoStreamingRequest {
    /// The stream.
    type Stream: Stream<Item = Self::Message> + Send + 'static;
    /// Its messages.
    type Message;
    /// Wraps the stream in a [`Request`].
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
    /// Sends one message and receives one.
    pub fn unary<Req, Res, P>(
        &self,
        path: P,
        request: Request<Req>,
    ) -> impl Future<Output = Result<Response<Res>, Status>> + Send + use<Req, Res, P>
    where
        Req: Encode,
        Res: Decode,
        P: Into<PathRef>,
    {
        unary(self.clone(), path.into(), request)
    }

    /// Sends one message and receives a stream.
    pub async fn server_streaming<Req, Res>(
        &self,
        path: impl Into<PathRef>,
        request: Request<Req>,
    ) -> Result<Response<Streaming<Res>>, Status>
    where
        Req: Encode + 'static,
        Res: Decode,
    {
        let request = request.map(Single::new);
        streaming(self, path.into(), request).await
    }

    /// Sends a stream and receives one message.
    pub async fn client_streaming<S, Res>(
        &self,
        path: impl Into<PathRef>,
        request: Request<S>,
    ) -> Result<Response<Res>, Status>
    where
        S: Stream + Send + 'static,
        S::Item: Encode,
        Res: Decode,
    {
        let reply = streaming(self, path.into(), request).await?;
        only_message(reply).await
    }

    /// Sends a stream and receives a stream.
    pub async fn bidi_streaming<S, Res>(
        &self,
        path: impl Into<PathRef>,
        request: Request<S>,
    ) -> Result<Response<Streaming<Res>>, Status>
    where
        S: Stream + Send + 'static,
        S::Item: Encode,
        Res: Decode,
    {
        streaming(self, path.into(), request).await
    }
}

/// Cancels the call if the caller drops its future.
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

/// Hands the call to a connection and awaits its response, until the deadline.
pub(super) async fn attempt<R>(
    channel: &Channel,
    start: Start,
    receiver: oneshot::Receiver<Result<R, Failure>>,
) -> Result<R, Failure> {
    let deadline = start.deadline;
    #[cfg(feature = "tower")]
    if let Some(layered) = channel.layered.as_ref().filter(|_| !matches!(start.form, Form::Http(_))) {
        let mut task = super::layered::spawn(layered, start);
        let answer = answer(deadline, receiver).await;
        task.armed = answer.is_none();
        return answer.unwrap_or_else(|| Err(deadline_exceeded()));
    }
    let lane = channel.lane();
    let mut guard = CancelOnDrop { lane, number: start.number, armed: true };
    lane.push(Command::Start(start));
    let answer = answer(deadline, receiver).await;
    guard.armed = answer.is_none();
    answer.unwrap_or_else(|| Err(deadline_exceeded()))
}

/// Awaits a response; `None` if the deadline is first.
async fn answer<R>(
    deadline: Option<Instant>,
    receiver: oneshot::Receiver<Result<R, Failure>>,
) -> Option<Result<R, Failure>> {
    let answer = match deadline {
        None => receiver.await,
        Some(deadline) => timeout_at(deadline, receiver).await.ok()?,
    };
    let answer = answer
        .unwrap_or_else(|_| Err(Failure::new(Status::unavailable("the connection ended before the answer"), false)));
    Some(answer)
}

pub(super) fn deadline_of<T>(channel: &Channel, request: &Request<T>) -> Option<Instant> {
    let usual = || channel.settings().timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    request.deadline().or_else(usual)
}

/// Encoding of a request's messages.
struct Writing<'a> {
    framing: Framing,
    json: Option<&'a Json>,
    compression: Option<(Encoding, usize)>,
}

impl Writing<'_> {
    /// Appends a message and its prefix.
    #[inline]
    fn write<T: Encode>(&self, message: T, out: &mut Vec<u8>) -> Result<(), Status> {
        if self.json.is_none() && self.framing != Framing::Whole {
            message::encode(message, self.compression, out);
            return Ok(());
        }
        let start = out.len();
        out.extend_from_slice(&message::prefix(0, false));
        match self.json {
            None => message.encode(out),
            Some(json) => {
                let mut encoded = Vec::with_capacity(message.encoded_len());
                message.encode(&mut encoded);
                json.write(&encoded, out)?;
            }
        }
        match self.framing {
            Framing::Whole => message::seal_whole(out, start, self.compression),
            _ => message::seal(out, start, self.compression),
        }
        Ok(())
    }
}

/// Path and query of a GET that carries the message; `None` if the call must be a POST.
fn get_target(settings: &Settings, terms: &Terms, path: &Path, framed: &[u8]) -> Option<String> {
    let bytes_max =
        settings.get_bytes_max.filter(|_| settings.protocol == Protocol::Connect && !path.has_side_effects)?;
    let compression = terms.encoding().filter(|_| framed[0] == 1);
    let target = protocol::get_target(&path.text, terms.codec, compression, &framed[message::PREFIX_BYTES..]);
    Some(target).filter(|target| target.len() <= bytes_max)
}

async fn unary<Req, Res>(channel: Channel, path: PathRef, request: Request<Req>) -> Result<Response<Res>, Status>
where
    Req: Encode,
    Res: Decode,
{
    let settings = channel.settings();
    let (message, request) = request.split();
    let request = channel.pass(&path.text, request)?;
    let deadline = deadline_of(&channel, &request);
    let terms = Terms::of(settings, &request);
    let json = path.json(terms.codec)?;
    let mut framed = Vec::with_capacity(message.encoded_len() + message::PREFIX_BYTES);
    let dialect = settings.dialect(false, terms.codec);
    let json_out = json.map(|(request, _)| request);
    let writing = Writing { framing: dialect.framing(), json: json_out, compression: terms.compression };
    writing.write(message, &mut framed)?;
    let get_target = get_target(settings, &terms, &path, &framed);
    let mut tries = 1;
    loop {
        let (sender, receiver) = oneshot::channel();
        let may_repeat = settings.retry.as_ref().is_some_and(|retry| tries < retry.attempts_max);
        let start = Start {
            number: next_number(),
            path: path.clone(),
            dialect,
            form: get_target.clone().map_or_else(|| terms.form(), Form::Get),
            metadata: request.metadata().clone(),
            deadline,
            waits_for_ready: request.waits_for_ready(),
            compression: terms.encoding(),
            message_bytes_max: terms.message_bytes_max,
            is_timed: false,
            is_unread: false,
            body: Body::Message(if may_repeat { framed.clone() } else { std::mem::take(&mut framed) }),
            reply_to: ReplyTo::Unary(sender),
        };
        match attempt(&channel, start, receiver).await {
            Ok(reply) => return finish(reply, json.map(|(_, answer)| answer.clone()), terms.message_bytes_max),
            Err(failure) => {
                let repeatable = request.is_safe_to_retry() || failure.untouched;
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

fn finish<Res: Decode>(reply: RawReply, json: Option<Json>, message_bytes_max: usize) -> Result<Response<Res>, Status> {
    let framed = Framed { compressed: reply.message.compressed, bytes: Payload::Owned(reply.message.bytes) };
    let message = Reading { encoding: reply.encoding, json, message_bytes_max, budget: None }.decode(framed)?;
    Ok(Response::received(message, reply.metadata, reply.trailers))
}

async fn streaming<S, Res>(
    channel: &Channel,
    path: PathRef,
    request: Request<S>,
) -> Result<Response<Streaming<Res>>, Status>
where
    S: Stream + Send + 'static,
    S::Item: Encode,
    Res: Decode,
{
    streaming_as(channel, path, false, request).await
}

/// Like [`streaming`]; `is_raw`: the caller's messages are bytes in the call's codec.
pub(super) async fn streaming_as<S, Res>(
    channel: &Channel,
    path: PathRef,
    is_raw: bool,
    request: Request<S>,
) -> Result<Response<Streaming<Res>>, Status>
where
    S: Stream + Send + 'static,
    S::Item: Encode,
    Res: Decode,
{
    let settings = channel.settings();
    let (sender, receiver) = oneshot::channel();
    let (stream, request) = request.split();
    let request = channel.pass(&path.text, request)?;
    let deadline = deadline_of(channel, &request);
    let terms = Terms::of(settings, &request);
    let json = if is_raw { None } else { path.json(terms.codec)?.cloned() };
    let (request_json, json) = json.unzip();
    let messages = Messages { stream: Some(Box::pin(stream)), json: request_json, compression: terms.compression };
    let start = Start {
        number: next_number(),
        path,
        dialect: settings.dialect(true, terms.codec),
        form: terms.form(),
        metadata: request.metadata().clone(),
        deadline,
        waits_for_ready: request.waits_for_ready(),
        compression: terms.encoding(),
        message_bytes_max: terms.message_bytes_max,
        is_timed: false,
        is_unread: false,
        body: Body::Messages(Box::new(messages)),
        reply_to: ReplyTo::Stream(sender),
    };
    let raw = attempt(channel, start, receiver).await.map_err(|failure| failure.status)?;
    let reading = Reading { encoding: raw.encoding, json, message_bytes_max: terms.message_bytes_max, budget: None };
    let mut stream = Streaming::new(raw.inbox, reading);
    if let Some(deadline) = deadline {
        stream.end_at(deadline);
    }
    Ok(Response::received(stream, raw.metadata, Metadata::new()))
}

/// The only message of a response that must have exactly one.
async fn only_message<Res: Decode>(reply: Response<Streaming<Res>>) -> Result<Response<Res>, Status> {
    let ResponseParts { message: mut stream, metadata, .. } = reply.into_parts();
    let failed = |status| with_head(status, &metadata);
    let Some(message) = stream.message().await.map_err(failed)? else {
        return Err(Status::unimplemented("the answer holds no message"));
    };
    if stream.message().await.map_err(failed)?.is_some() {
        return Err(Status::unimplemented("the answer holds more than one message"));
    }
    Ok(Response::received(message, metadata, stream.trailers().unwrap_or_default()))
}

struct Messages<S> {
    stream: Option<Pin<Box<S>>>,
    json: Option<Json>,
    compression: Option<(Encoding, usize)>,
}

impl<S> Outgoing for Messages<S>
where
    S: Stream + Send,
    S::Item: Encode,
{
    fn poll_next(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Result<bool, Status>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(false)) };
        stream.as_mut().poll_next(cx).map(|next| {
            if let Some(message) = next {
                let (json, compression) = (self.json.as_ref(), self.compression);
                Writing { framing: Framing::Envelopes, json, compression }.write(message, out).map(|()| true)
            } else {
                self.stream = None;
                Ok(false)
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
