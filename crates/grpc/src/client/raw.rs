//! Calls whose messages are bytes: for tools that learn a contract at run time, and for those that send one message
//! a million times.
//!
//! Such calls are made once: retries are for calls whose meaning is known.
//!
//! Implements: gRPC over HTTP/2, "Length-Prefixed-Message", for messages that are encoded already.

use std::time::Instant;

use bytes::{Buf, BufMut, Bytes};
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType};
use tokio::sync::oneshot;

use super::call::{self, Body, ReplyTo, Start};
use super::{Channel, Path};
use crate::envelope::Request;
use crate::message::{self, Framed};
use crate::metadata::Metadata;
use crate::status::Status;

/// An encoded message as it goes over the wire, made by [`Channel::wire_message`]; clones share it.
#[derive(Clone, Debug)]
pub struct WireMessage(Bytes);

/// How a raw call ended.
#[derive(Debug)]
pub struct RawAnswer {
    /// When the head of the answer was read; none if no head came.
    pub head_at: Option<Instant>,
    /// The answer, or the failure.
    pub reply: Result<RawReply, Status>,
}

/// The answer to a raw call, looked into only if asked.
#[derive(Debug)]
pub struct RawReply {
    reply: call::RawReply,
    message_bytes_max: usize,
}

impl RawReply {
    /// The message, decompressed.
    pub fn message(&self) -> Result<Bytes, Status> {
        let Framed { compressed, bytes } = &self.reply.message;
        let framed = Framed { compressed: *compressed, bytes: &bytes[..] };
        let unpacked = message::unpack(&framed, self.reply.encoding, self.message_bytes_max)?;
        Ok(unpacked.map_or_else(|| bytes.clone(), Bytes::from))
    }

    /// Names and values sent before the message.
    pub fn metadata(&self) -> Metadata {
        Metadata::received(self.reply.head.clone())
    }

    /// Names and values sent after it.
    pub fn trailers(&self) -> Metadata {
        Metadata::received(self.reply.trailers.clone())
    }
}

impl Channel {
    /// Frames an encoded message, compressed if the channel's settings say so.
    pub fn wire_message(&self, encoded: &[u8]) -> WireMessage {
        let mut framed = Vec::with_capacity(message::PREFIX_BYTES + encoded.len());
        framed.extend_from_slice(&[0; message::PREFIX_BYTES]);
        framed.extend_from_slice(encoded);
        message::seal(&mut framed, 0, self.inner.settings.compression);
        WireMessage(framed.into())
    }

    /// One message there, one back; also says when the answer began.
    pub async fn unary_raw(&self, path: &'static Path, request: Request<WireMessage>) -> RawAnswer {
        self.raw(path, request, false).await
    }

    /// As [`Channel::unary_raw`], for loads: the answer's message is received and thrown away, and
    /// [`RawReply::message`] is empty. Megabytes that nobody reads are then not gathered.
    pub async fn unary_unread(&self, path: &'static Path, request: Request<WireMessage>) -> RawAnswer {
        self.raw(path, request, true).await
    }

    async fn raw(&self, path: &'static Path, request: Request<WireMessage>, is_unread: bool) -> RawAnswer {
        let settings = &self.inner.settings;
        let (sender, receiver) = oneshot::channel();
        let deadline = call::deadline_of(self, &request);
        let waits_for_ready = request.waits_for_ready;
        let (message, metadata) = request.into_message_and_metadata();
        let start = Start {
            number: call::next_number(),
            path,
            metadata,
            deadline,
            waits_for_ready,
            compression: settings.compression.map(|(encoding, _)| encoding),
            is_timed: true,
            is_unread,
            body: Body::Shared(message.0),
            reply_to: ReplyTo::Unary(sender),
        };
        match call::attempt(self, start, receiver).await {
            Ok(reply) => RawAnswer {
                head_at: reply.head_at,
                reply: Ok(RawReply { reply, message_bytes_max: settings.message_bytes_max }),
            },
            Err(failure) => RawAnswer { head_at: failure.head_at, reply: Err(failure.status) },
        }
    }
}

/// A message of a stream that is encoded already, or is to be left so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawMessage(pub Bytes);

/// A received message that nobody looks into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored;

/// What prost asks of a message; whole messages are taken by `decode`, never field by field.
macro_rules! opaque {
    ($type:ty, |$message:ident| $bytes:expr, |$buffer:ident| $decode:expr) => {
        impl prost::Message for $type {
            fn encode_raw(&self, buffer: &mut impl BufMut) {
                let $message = self;
                buffer.put_slice($bytes);
            }

            fn encoded_len(&self) -> usize {
                let $message = self;
                $bytes.len()
            }

            fn decode(mut $buffer: impl Buf) -> Result<Self, DecodeError> {
                Ok($decode)
            }

            fn merge_field(
                &mut self,
                tag: u32,
                wire_type: WireType,
                buffer: &mut impl Buf,
                context: DecodeContext,
            ) -> Result<(), DecodeError> {
                prost::encoding::skip_field(wire_type, tag, buffer, context)
            }

            fn clear(&mut self) {
                *self = Self::default();
            }
        }
    };
}

opaque!(RawMessage, |message| &message.0, |buffer| Self(buffer.copy_to_bytes(buffer.remaining())));
opaque!(Ignored, |_message| b"".as_slice(), |buffer| {
    buffer.advance(buffer.remaining());
    Self
});
