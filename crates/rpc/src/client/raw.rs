//! Calls whose messages are bytes: for tools that learn a contract at run time, and for those that send one message
//! a million times.
//!
//! Such calls are not retried, because the channel does not know what they do.
//!
//! The messages are in the channel's codec.
//!
//! Implements: gRPC over HTTP/2, "Length-Prefixed-Message", for messages that are encoded already.

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
use crate::message::{self, Framed};
use crate::metadata::Metadata;
use crate::protocol::Framing;
use crate::status::Status;
use crate::streaming::Streaming;
use crate::transcode::Reading;

/// An encoded message as it goes over the wire, made by [`Channel::wire_message`]; clones share it.
#[derive(Clone, Debug)]
pub struct WireMessage(Bytes);

/// How a raw call ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct RawAnswer {
    /// When the head of the answer was read; none if no head came.
    pub head_at: Option<Instant>,
    /// The answer, or the failure.
    pub reply: Result<RawReply, Status>,
}

/// The answer to a raw call; its message is decompressed only on request.
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

    /// Names and values sent before the message.
    pub fn metadata(&self) -> Metadata {
        self.reply.metadata.clone()
    }

    /// Names and values sent after it.
    pub fn trailers(&self) -> Metadata {
        self.reply.trailers.clone()
    }
}

impl Channel {
    /// Frames an encoded message, compressed if the channel's settings say so.
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

    /// Sends one message and receives one; says when the answer's head was read.
    pub async fn unary_raw(&self, path: impl Into<PathRef>, request: Request<WireMessage>) -> RawAnswer {
        self.raw(path.into(), request, false).await
    }

    /// As [`Channel::unary_raw`], for load tests: the answer's message is received and dropped, so large answers take no
    /// memory, and [`RawReply::message`] is empty.
    pub async fn unary_unread(&self, path: impl Into<PathRef>, request: Request<WireMessage>) -> RawAnswer {
        self.raw(path.into(), request, true).await
    }

    /// As [`Channel::bidi_streaming`], with messages whose bytes are in the channel's codec. What comes is read as
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
