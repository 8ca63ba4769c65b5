//! Calls with messages as bytes: for tools that learn a contract at run time or send the same message a million times.
//!
//! Such calls are not retried, because the channel does not know their effects.
//!
//! Messages are in the channel's codec.
//!
//! Implements: gRPC over HTTP/2, "Length-Prefixed-Message", for encoded messages.

use std::time::Instant;

use bytes::Bytes;
use futures_core::Stream;
use tokio::sync::oneshot;

use super::call;
use super::channel::Channel;
use super::command::{self, Body, Form, ReplyTo, Start};
use super::path::PathRef;
use crate::codec::{Decode, Encoded, Payload};
use crate::envelope::{Request, Response};
use crate::message::{self, Framed, Framing};
use crate::metadata::Metadata;
use crate::status::Status;
use crate::streaming::Streaming;
use crate::transcode::Reading;

/// An encoded message in wire form, made by [`Channel::wire_message`]; clones share it.
#[derive(Clone, Debug)]
pub struct WireMessage(Bytes);

/// The result of a raw call.
#[derive(Debug)]
#[non_exhaustive]
pub struct RawAnswer {
    /// Time when the response's head was read; none if it never arrived.
    pub head_at: Option<Instant>,
    /// The response, or the failure.
    pub reply: Result<RawReply, Status>,
}

/// The response to a raw call; its message is decompressed only on request.
#[derive(Debug)]
pub struct RawReply {
    reply: command::RawReply,
    message_bytes_max: usize,
}

impl RawReply {
    /// The message, decompressed.
    pub fn message(&self) -> Result<Bytes, Status> {
        let Framed { compressed, bytes } = &self.reply.message;
        let framed = Framed { compressed: *compressed, bytes: Payload::Owned(bytes.clone()) };
        let message_bytes_max = self.message_bytes_max;
        let reading = Reading { encoding: self.reply.encoding, json: None, message_bytes_max, budget: None };
        Ok(reading.open(framed)?.into_bytes())
    }

    /// Leading metadata.
    pub fn metadata(&self) -> Metadata {
        self.reply.metadata.clone()
    }

    /// Trailing metadata.
    pub fn trailers(&self) -> Metadata {
        self.reply.trailers.clone()
    }
}

impl Channel {
    /// Frames an encoded message, compressed if the channel's settings require it.
    pub fn wire_message(&self, encoded: &[u8]) -> WireMessage {
        let mut framed = Vec::with_capacity(message::PREFIX_BYTES + encoded.len());
        framed.extend_from_slice(&message::prefix(0, false));
        framed.extend_from_slice(encoded);
        match self.settings().dialect(false, self.settings().codec).framing() {
            Framing::Whole => message::seal_whole(&mut framed, 0, self.settings().compression),
            _ => message::seal(&mut framed, 0, self.settings().compression),
        }
        WireMessage(framed.into())
    }

    /// Sends one message and receives one; also returns when the response's head was read.
    pub async fn unary_raw(&self, path: impl Into<PathRef>, request: Request<WireMessage>) -> RawAnswer {
        self.raw(path.into(), request, false).await
    }

    /// Like [`Channel::unary_raw`], for load tests: the response's message is received and dropped, so large responses
    /// take no memory, and [`RawReply::message`] is empty.
    pub async fn unary_unread(&self, path: impl Into<PathRef>, request: Request<WireMessage>) -> RawAnswer {
        self.raw(path.into(), request, true).await
    }

    /// Like [`Channel::bidi_streaming`], with messages as bytes in the channel's codec. Responses are read as
    /// [`Encoded`](crate::Encoded), or dropped as [`Ignored`](crate::Ignored).
    pub async fn bidi_streaming_raw<S, Res>(
        &self,
        path: impl Into<PathRef>,
        request: Request<S>,
    ) -> Result<Response<Streaming<Res>>, Status>
    where
        S: Stream<Item = Encoded> + Send + 'static,
        Res: Decode,
    {
        call::streaming_as(self, path.into(), true, request).await
    }

    async fn raw(&self, path: PathRef, request: Request<WireMessage>, is_unread: bool) -> RawAnswer {
        let settings = self.settings();
        let (sender, receiver) = oneshot::channel();
        let (message, request) = request.split();
        let request = match self.pass(&path.text, request) {
            Ok(request) => request,
            Err(status) => return RawAnswer { head_at: None, reply: Err(status) },
        };
        let deadline = call::deadline_of(self, &request);
        let message_bytes_max = request.message_bytes_max().unwrap_or(settings.message_bytes_max);
        let start = Start {
            number: call::next_number(),
            path,
            dialect: settings.dialect(false, settings.codec),
            form: Form::Post,
            metadata: request.metadata().clone(),
            deadline,
            waits_for_ready: request.waits_for_ready(),
            compression: settings.compression.map(|(encoding, _)| encoding),
            message_bytes_max,
            is_timed: true,
            is_unread,
            body: Body::Shared(message.0),
            reply_to: ReplyTo::Unary(sender),
        };
        match call::attempt(self, start, receiver).await {
            Ok(reply) => RawAnswer { head_at: reply.head_at, reply: Ok(RawReply { reply, message_bytes_max }) },
            Err(failure) => RawAnswer { head_at: failure.head_at, reply: Err(failure.status) },
        }
    }
}
