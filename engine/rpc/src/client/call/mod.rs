//! The life of a call over any transport: interceptors, options and deadline, encoding, attempts, and the response.
//!
//! Implements: the four kinds of method of gRPC's "Core concepts".

pub(crate) mod attempt;
#[cfg(any(feature = "http1", feature = "tower"))]
pub(crate) mod http;
pub(crate) mod path;
pub(super) mod prepared;
pub(super) mod raw;
mod repeat;
pub(crate) mod response;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};

use futures_core::Stream;

use self::attempt::{Body, Outgoing, ReplyTo, UnaryResponse};
use self::path::PathRef;
use self::prepared::{PreparedCall, perform_transparently};
use self::repeat::Attempts;
use self::response::with_head;
use super::channel::Channel;
use crate::envelope::{Request, Response, ResponseParts};
use crate::message::codec::{Decode, Encode, Payload};
use crate::message::compression::Encoding;
use crate::message::framing::{self, Framed, Framing};
use crate::message::streaming::Streaming;
use crate::message::transcode::{Json, Reading};
use crate::metadata::Metadata;
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
        let (message, request) = request.split();
        let body = |call: &PreparedCall, json: Option<&Json>| {
            let mut framed = Vec::with_capacity(message.encoded_len() + framing::PREFIX_BYTES);
            let writer = MessageWriter { framing: Framing::Envelopes, json, compression: call.compression };
            writer.write(message, &mut framed)?;
            Ok(Body::Message(framed))
        };
        respond_with_stream(self, path.into(), false, request, body).await
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
    let attempts = Attempts { channel: &channel, call, get_target, was_refused: AtomicBool::new(false) };
    let response = attempts.response(framed, config.and_then(|config| config.repeat.as_ref())).await?;
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
    let (stream, request) = request.split();
    let body = |call: &PreparedCall, json: Option<&Json>| {
        let messages = Messages { stream: Some(Box::pin(stream)), json: json.cloned(), compression: call.compression };
        Ok(Body::Messages(Box::new(messages)))
    };
    respond_with_stream(channel, path, is_raw, request, body).await
}

/// Makes a call whose response is a stream; `body` makes the request's, in JSON if there is some.
async fn respond_with_stream<Res: Decode>(
    channel: &Channel,
    path: PathRef,
    is_raw: bool,
    request: Request<()>,
    body: impl FnOnce(&PreparedCall, Option<&Json>) -> Result<Body, Status>,
) -> Result<Response<Streaming<Res>>, Status> {
    let config = channel.settings().service_config.of_method(&path.text);
    let call = PreparedCall::new(channel, config, path, request, true)?;
    let json = if is_raw { None } else { call.path.json(call.dialect.codec)? };
    let (request_json, json) = json.map(|(request, json)| (request, json.clone())).unzip();
    let body = body(&call, request_json)?;
    let (deadline, message_bytes_max) = (call.deadline, call.message_bytes_max);
    let attempt = |body, sender| call.attempt(body, ReplyTo::Stream(sender));
    let response = perform_transparently(channel, &AtomicBool::new(false), body, attempt)
        .await
        .map_err(|failure| failure.status)?;
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
