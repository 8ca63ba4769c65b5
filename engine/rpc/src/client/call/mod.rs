//! The life of a call over any transport: interceptors, options and deadline, encoding, attempts, and the response.
//!
//! Implements: the four kinds of method of gRPC's "Core concepts".

pub(crate) mod attempt;
#[cfg(any(feature = "http1", feature = "tower"))]
pub(crate) mod http;
pub(crate) mod path;
pub(super) mod raw;
mod repeat;
pub(crate) mod response;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use self::attempt::{Attempt, Body, Failure, Form, Outgoing, ReplyTo, UnaryResponse, next_number};
use self::path::PathRef;
use self::repeat::Attempts;
use self::response::with_head;
use super::channel::Channel;
use super::channel::subchannel::{Command, Subchannel};
use super::service_config::MethodConfig;
use super::settings::{Protocol, Settings};
use crate::envelope::{Compression, Request, Response, ResponseParts};
use crate::message::codec::{Decode, Encode, Payload};
use crate::message::compression::Encoding;
use crate::message::framing::{self, Framed, Framing};
use crate::message::streaming::Streaming;
use crate::message::transcode::{Json, Reading};
use crate::metadata::Metadata;
use crate::protocol::{self, ClientDialect};
use crate::status::Status;

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
        streaming(self, path.into(), false, request).await
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
        let reply = streaming(self, path.into(), false, request).await?;
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
        streaming(self, path.into(), false, request).await
    }
}

/// Cancels the call if the caller drops its future.
struct CancelOnDrop<'a> {
    subchannel: &'a Arc<Subchannel>,
    number: u64,
    armed: bool,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.subchannel.push(Command::Cancel(self.number));
        }
    }
}

/// Performs an attempt: hands it to a connection, or to the channel's layers, and awaits the response until the
/// deadline.
pub(super) async fn perform<R>(
    channel: &Channel,
    attempt: Attempt,
    receiver: oneshot::Receiver<Result<R, Failure>>,
) -> Result<R, Failure> {
    let deadline = attempt.deadline;
    let late = || Err(Status::deadline_exceeded("time is up").into());
    #[cfg(feature = "tower")]
    if let Some(layers) = channel.layers.as_ref().filter(|_| !matches!(attempt.form, Form::Http(_))) {
        let mut task = layers.spawn(attempt);
        let response = received(deadline, receiver).await;
        task.armed = response.is_none();
        return response.unwrap_or_else(late);
    }
    let subchannel = channel.subchannel();
    let mut guard = CancelOnDrop { subchannel, number: attempt.number, armed: true };
    subchannel.push(Command::Start(attempt));
    let response = received(deadline, receiver).await;
    guard.armed = response.is_none();
    response.unwrap_or_else(late)
}

/// Awaits a response; `None` if the deadline is first.
async fn received<R>(
    deadline: Option<Instant>,
    receiver: oneshot::Receiver<Result<R, Failure>>,
) -> Option<Result<R, Failure>> {
    let response = match deadline {
        None => receiver.await,
        Some(deadline) => timeout_at(deadline, receiver).await.ok()?,
    };
    let lost = |_| Err(Status::unavailable("the connection ended before the answer").into());
    Some(response.unwrap_or_else(lost))
}

/// A call that has passed the interceptors: all that its attempts have in common, from the request's options or else
/// the channel's settings.
#[derive(Clone)]
struct PreparedCall {
    path: PathRef,
    dialect: ClientDialect,
    metadata: Metadata,
    deadline: Option<Instant>,
    waits_for_ready: bool,
    is_safe_to_retry: bool,
    compression: Option<(Encoding, usize)>,
    message_bytes_max: usize,
    /// True if codec or compression are the request's own.
    is_own: bool,
}

impl PreparedCall {
    fn new(
        channel: &Channel,
        config: Option<&MethodConfig>,
        path: PathRef,
        request: Request<()>,
        is_stream: bool,
    ) -> Result<Self, Status> {
        let settings = channel.settings();
        let request = channel.pass(&path.text, request)?;
        let after = |timeout: Duration| Instant::now().checked_add(timeout);
        let own_deadline = request.deadline().or_else(|| settings.timeout.and_then(after));
        let methods_deadline = config.and_then(|config| config.timeout).and_then(after);
        let options = request.options().copied().unwrap_or_default();
        Ok(Self {
            path,
            dialect: settings.dialect(is_stream, options.codec.unwrap_or(settings.codec)),
            deadline: own_deadline.into_iter().chain(methods_deadline).min(),
            waits_for_ready: request.waits_for_ready().or(config.and_then(|it| it.wait_for_ready)).unwrap_or(false),
            is_safe_to_retry: request.is_safe_to_retry(),
            compression: match options.compression {
                Compression::OfChannel => settings.compression,
                Compression::Off => None,
                Compression::On(encoding, bytes_min) => Some((encoding, bytes_min)),
            },
            message_bytes_max: options.message_bytes_max.unwrap_or(settings.message_bytes_max),
            is_own: options.codec.is_some() || !matches!(options.compression, Compression::OfChannel),
            metadata: request.into_metadata(),
        })
    }

    fn attempt(self, body: Body, reply_to: ReplyTo) -> Attempt {
        Attempt {
            number: next_number(),
            path: self.path,
            dialect: self.dialect,
            form: if self.is_own { Form::OwnPost } else { Form::Post },
            metadata: self.metadata,
            deadline: self.deadline,
            waits_for_ready: self.waits_for_ready,
            compression: self.compression.map(|(encoding, _)| encoding),
            message_bytes_max: self.message_bytes_max,
            body,
            reply_to,
        }
    }

    /// Path and query of a GET that carries the message; `None` if the call must be a POST.
    fn get_target(&self, settings: &Settings, framed: &[u8]) -> Option<String> {
        let may_get = settings.protocol == Protocol::Connect && !self.path.has_side_effects;
        let bytes_max = settings.get_bytes_max.filter(|_| may_get)?;
        let compression = self.compression.map(|(encoding, _)| encoding).filter(|_| framed[0] == 1);
        let message = &framed[framing::PREFIX_BYTES..];
        let target = protocol::get_target(&self.path.text, self.dialect.codec, compression, message);
        Some(target).filter(|target| target.len() <= bytes_max)
    }
}

/// Encoder of a request's messages.
struct MessageWriter<'a> {
    framing: Framing,
    json: Option<&'a Json>,
    compression: Option<(Encoding, usize)>,
}

impl MessageWriter<'_> {
    /// Appends a message and its prefix.
    #[inline]
    fn write<T: Encode>(&self, message: T, out: &mut Vec<u8>) -> Result<(), Status> {
        if self.json.is_none() && self.framing != Framing::Complete {
            framing::encode(message, self.compression, out);
            return Ok(());
        }
        let start = out.len();
        out.extend_from_slice(&framing::prefix(0, false));
        match self.json {
            None => message.encode(out),
            Some(json) => {
                let mut encoded = Vec::with_capacity(message.encoded_len());
                message.encode(&mut encoded);
                json.write(&encoded, out)?;
            }
        }
        match self.framing {
            Framing::Complete => framing::seal_unframed(out, start, self.compression),
            _ => framing::seal(out, start, self.compression),
        }
        Ok(())
    }
}

async fn unary<Req, Res>(channel: Channel, path: PathRef, request: Request<Req>) -> Result<Response<Res>, Status>
where
    Req: Encode,
    Res: Decode,
{
    let settings = channel.settings();
    let (message, request) = request.split();
    let config = settings.service_config.of_method(&path.text);
    let call = PreparedCall::new(&channel, config, path, request, false)?;
    let (request_json, json) = call.path.json(call.dialect.codec)?.map(|(request, json)| (request, json)).unzip();
    let mut framed = Vec::with_capacity(message.encoded_len() + framing::PREFIX_BYTES);
    let writer = MessageWriter { framing: call.dialect.framing(), json: request_json, compression: call.compression };
    writer.write(message, &mut framed)?;
    let get_target = call.get_target(settings, &framed);
    let message_bytes_max = call.message_bytes_max;
    let json = json.cloned();
    let attempts = Attempts { channel: &channel, call, framed, get_target };
    let response = attempts.response(config.and_then(|config| config.repeat.as_ref())).await?;
    decoded(response, json, message_bytes_max)
}

fn decoded<Res: Decode>(
    response: UnaryResponse,
    json: Option<Json>,
    message_bytes_max: usize,
) -> Result<Response<Res>, Status> {
    let framed = Framed { compressed: response.message.compressed, bytes: Payload::Owned(response.message.bytes) };
    let message = Reading { encoding: response.encoding, json, message_bytes_max, budget: None }.decode(framed)?;
    Ok(Response::received(message, response.metadata, response.trailers))
}

/// Makes a call with a stream each way. `is_raw`: the caller's messages are bytes in the call's codec.
pub(super) async fn streaming<S, Res>(
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
    let (sender, receiver) = oneshot::channel();
    let (stream, request) = request.split();
    let config = channel.settings().service_config.of_method(&path.text);
    let call = PreparedCall::new(channel, config, path, request, true)?;
    let json = if is_raw { None } else { call.path.json(call.dialect.codec)?.cloned() };
    let (request_json, json) = json.unzip();
    let messages = Messages { stream: Some(Box::pin(stream)), json: request_json, compression: call.compression };
    let (deadline, message_bytes_max) = (call.deadline, call.message_bytes_max);
    let attempt = call.attempt(Body::Messages(Box::new(messages)), ReplyTo::Stream(sender));
    let response = perform(channel, attempt, receiver).await.map_err(|failure| failure.status)?;
    let reading = Reading { encoding: response.encoding, json, message_bytes_max, budget: None };
    let mut stream = Streaming::new(response.inbox, reading);
    if let Some(deadline) = deadline {
        stream.end_at(deadline);
    }
    Ok(Response::received(stream, response.metadata, Metadata::new()))
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

/// The messages of a request stream.
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
                MessageWriter { framing: Framing::Envelopes, json, compression }.write(message, out).map(|()| true)
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
