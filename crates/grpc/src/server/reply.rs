//! A call's answer on its way out (gRPC over HTTP/2, "Responses"): head, messages, trailers.
//!
//! The plain success, which is nearly every answer, is copied from blocks encoded before. Must not know handlers.

use std::marker::PhantomData;

use bytes::Bytes;
use http2::{CachedBlock, Connection, Indexing, StreamKey};

use crate::compression::{ACCEPTED, Encoding};
use crate::message::{self, PREFIX_BYTES};
use crate::metadata::{Metadata, encode_bytes};
use crate::status::{Code, Status, encode_message};

/// Messages up to this size are copied into the connection's output; larger ones go there by reference.
const COPY_BYTES_MAX: usize = 8 * 1024;

/// What all answers of a connection share.
#[derive(Default)]
pub(crate) struct Templates {
    head: CachedBlock,
    trailers: CachedBlock,
    scratch: Vec<u8>,
}

/// What one answer has to remember between polls.
#[derive(Debug)]
pub(crate) struct ReplyState {
    pub(crate) compression: Option<(Encoding, usize)>,
    pub(crate) code: Code,
    pub(crate) head_sent: bool,
    pub(crate) is_over: bool,
}

impl ReplyState {
    pub(crate) fn new(compression: Option<(Encoding, usize)>) -> Self {
        Self { compression, code: Code::Ok, head_sent: false, is_over: false }
    }
}

/// An answer in the making.
pub(crate) struct Reply<'a> {
    pub(crate) connection: &'a mut Connection,
    pub(crate) stream: StreamKey,
    pub(crate) templates: &'a mut Templates,
    pub(crate) state: &'a mut ReplyState,
    pub(crate) output_bytes_max: usize,
}

type Put<'a> = &'a mut dyn FnMut(&[u8], &[u8], Indexing);

fn put_plain_head(put: Put<'_>) {
    put(b":status", b"200", Indexing::Insert);
    put(b"content-type", b"application/grpc", Indexing::Insert);
}

fn put_metadata(metadata: &Metadata, put: Put<'_>) {
    for field in metadata.wire() {
        put(field.name(), field.value(), Indexing::Literal);
    }
}

fn put_status(status: &Status, put: Put<'_>) {
    let code = status.code() as u8;
    let digits = [b'0' + code / 10, b'0' + code % 10];
    put(b"grpc-status", if code < 10 { &digits[1..] } else { &digits }, Indexing::Insert);
    if !status.message().is_empty() {
        put(b"grpc-message", &encode_message(status.message()), Indexing::Literal);
    }
    if !status.details().is_empty() {
        put(b"grpc-status-details-bin", encode_bytes(status.details()).as_bytes(), Indexing::Literal);
    }
    put_metadata(status.metadata(), put);
}

impl Reply<'_> {
    /// Whether another message should be made now, or would only wait.
    pub(crate) fn has_room(&mut self) -> bool {
        self.connection.queued_bytes(self.stream) == 0 && self.connection.output().len() < self.output_bytes_max
    }

    pub(crate) fn head(&mut self, metadata: &Metadata) {
        if std::mem::replace(&mut self.state.head_sent, true) {
            return;
        }
        let compression = self.state.compression;
        // The only error is that the stream is gone; its end is on its way as an event of its own.
        let _ = if compression.is_none() && metadata.is_empty() {
            self.connection.send_head_cached(self.stream, &mut self.templates.head, false, put_plain_head)
        } else {
            self.connection.send_head(self.stream, false, |put| {
                put_plain_head(put);
                if let Some((encoding, _)) = compression {
                    put(b"grpc-encoding", encoding.name().as_bytes(), Indexing::Insert);
                }
                put_metadata(metadata, put);
            })
        };
    }

    #[inline]
    pub(crate) fn message<T: prost::Message>(&mut self, message: &T) {
        let length = message.encoded_len() + PREFIX_BYTES;
        if length <= COPY_BYTES_MAX {
            let mut scratch = std::mem::take(&mut self.templates.scratch);
            scratch.clear();
            message::encode(message, self.state.compression, &mut scratch);
            let _ = self.connection.send_slice(self.stream, &scratch, false);
            self.templates.scratch = scratch;
        } else {
            let mut framed = Vec::with_capacity(length);
            message::encode(message, self.state.compression, &mut framed);
            let _ = self.connection.send_bytes(self.stream, Bytes::from(framed), false);
        }
    }

    /// A message that is encoded already, without its prefix.
    pub(crate) fn encoded(&mut self, message: &[u8]) {
        let mut scratch = std::mem::take(&mut self.templates.scratch);
        scratch.clear();
        scratch.extend_from_slice(&[0; PREFIX_BYTES]);
        scratch.extend_from_slice(message);
        message::seal(&mut scratch, 0, self.state.compression);
        let _ = self.connection.send_slice(self.stream, &scratch, false);
        self.templates.scratch = scratch;
    }

    /// A message that is encoded already, in parts: large ones leave from where they lie.
    pub(crate) fn segments(&mut self, segments: Vec<Bytes>) {
        let length: usize = segments.iter().map(Bytes::len).sum();
        let packs = self.state.compression.is_some_and(|(_, bytes_min)| length >= bytes_min);
        if packs || length <= COPY_BYTES_MAX {
            return self.encoded(&segments.concat());
        }
        let mut prefix = [0; PREFIX_BYTES];
        prefix[1..].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        // Small parts gather until a large one comes, so that frames are not cut into crumbs.
        let mut small = prefix.to_vec();
        for segment in segments {
            if segment.len() <= COPY_BYTES_MAX {
                small.extend_from_slice(&segment);
                continue;
            }
            let _ = self.connection.send_bytes(self.stream, Bytes::from(std::mem::take(&mut small)), false);
            let _ = self.connection.send_bytes(self.stream, segment, false);
        }
        if !small.is_empty() {
            let _ = self.connection.send_bytes(self.stream, Bytes::from(small), false);
        }
    }

    /// What stands before a message's bytes.
    pub(crate) fn prefix(&mut self, length: usize, compressed: bool) {
        let mut prefix = [0; PREFIX_BYTES];
        prefix[0] = compressed.into();
        prefix[1..].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        let _ = self.connection.send_slice(self.stream, &prefix, false);
    }

    /// Some of a message's bytes.
    pub(crate) fn chunk(&mut self, chunk: Bytes) {
        let _ = self.connection.send_bytes(self.stream, chunk, false);
    }

    /// Ends the answer well.
    #[inline]
    pub(crate) fn finish_ok(&mut self, trailers: &Metadata) {
        if !trailers.is_empty() {
            let mut status = Status::ok();
            *status.metadata_mut() = trailers.clone();
            return self.finish(&status);
        }
        self.state.is_over = true;
        let _ = self.connection.send_head_cached(self.stream, &mut self.templates.trailers, true, |put| {
            put(b"grpc-status", b"0", Indexing::Insert);
        });
    }

    /// Ends the answer, with trailers only if nothing was sent yet.
    pub(crate) fn finish(&mut self, status: &Status) {
        if std::mem::replace(&mut self.state.is_over, true) {
            return;
        }
        self.state.code = status.code();
        let head_sent = std::mem::replace(&mut self.state.head_sent, true);
        let _ = self.connection.send_head(self.stream, true, |put| {
            if !head_sent {
                put_plain_head(put);
                if status.code() == Code::Unimplemented {
                    put(b"grpc-accept-encoding", ACCEPTED.as_bytes(), Indexing::Insert);
                }
            }
            put_status(status, put);
        });
    }
}

/// The door for a unary method that can answer at once, without a future: take a reference, answer, done.
#[derive(Debug)]
pub struct Answer<'a, 'b, T> {
    pub(crate) reply: &'a mut Reply<'b>,
    pub(crate) message: PhantomData<fn(T)>,
}

/// Proof that an [`Answer`] was given.
#[derive(Debug)]
pub struct Answered(());

impl<T: prost::Message> Answer<'_, '_, T> {
    /// Answers with a message, encoded where it lies.
    #[inline]
    pub fn message(self, message: &T) -> Answered {
        self.reply.head(&Metadata::new());
        self.reply.message(message);
        self.reply.finish_ok(&Metadata::new());
        Answered(())
    }

    /// Answers with a message that was encoded before; it must be a valid `T`.
    #[inline]
    pub fn encoded(self, message: &[u8]) -> Answered {
        self.reply.head(&Metadata::new());
        self.reply.encoded(message);
        self.reply.finish_ok(&Metadata::new());
        Answered(())
    }

    /// As [`Answer::encoded`], in parts: large ones are sent from where they lie, without a copy.
    pub fn segments(self, segments: Vec<Bytes>) -> Answered {
        self.reply.head(&Metadata::new());
        self.reply.segments(segments);
        self.reply.finish_ok(&Metadata::new());
        Answered(())
    }

    /// Answers with a failure.
    pub fn status(self, status: &Status) -> Answered {
        self.reply.finish(status);
        Answered(())
    }
}

impl std::fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reply({:?}, {:?})", self.stream, self.state)
    }
}
