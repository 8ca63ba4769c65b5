//! Writes a call's answer: head, messages, end.
//!
//! A plain success, nearly every answer, is copied from pre-encoded blocks; others go through `dialect`.
//!
//! Implements: gRPC over HTTP/2, "Responses".

mod dialect;
pub(crate) mod plain_http;
pub(crate) mod sink;

use std::task::{Context, Poll};

use bytes::Bytes;
use quire_http2::{CachedBlock, Field, Indexing};

use crate::message::codec::{Chunks, Encode, Encoded};
use crate::message::compression::{ACCEPTED, Encoding};
use crate::message::framing::{self, PREFIX_BYTES};
use crate::message::transcode::Json;
use crate::metadata::Metadata;
use crate::protocol::{Dialect, put_metadata, put_status};
use crate::status::{Code, Status};
use sink::Sink;

/// Messages up to this size are copied into the connection's output; larger ones go there by reference.
pub(crate) const COPY_BYTES_MAX: usize = 8 * 1024;

/// Buffers and cached blocks shared by all answers of a connection.
#[derive(Default)]
pub(crate) struct Templates {
    head: CachedBlock,
    /// Cached head of the last used dialect besides plain gRPC.
    pub(crate) dialect_head: Option<(Dialect, CachedBlock)>,
    trailers: CachedBlock,
    /// The message being written, after space for its prefix.
    pub(crate) scratch: Vec<u8>,
    /// Messages of a stream that are ready together, each with its prefix.
    batch: Vec<u8>,
    /// Each message of a stream gets its own DATA frame.
    is_message_per_frame: bool,
    /// The message in JSON.
    pub(crate) text: Vec<u8>,
    /// Metadata of an answer that is sent in one piece.
    pub(crate) held: Metadata,
    /// Last refused call since the observer was called.
    pub(crate) refusal: Option<(Code, String)>,
}

impl Templates {
    pub(crate) fn new(is_message_per_frame: bool) -> Self {
        Self { is_message_per_frame, ..Self::default() }
    }

    /// Keeps the reason of a call that a limit or a missing credential refused.
    fn note_refusal(&mut self, status: &Status) {
        if matches!(status.code(), Code::ResourceExhausted | Code::Unauthenticated) {
            self.refusal = Some((status.code(), status.message().to_owned()));
        }
    }
}

/// State of one answer between polls.
#[derive(Debug)]
pub(crate) struct ReplyState {
    pub(crate) dialect: Dialect,
    /// Set if the answer's messages are JSON.
    pub(crate) json: Option<Json>,
    pub(crate) compression: Option<(Encoding, usize)>,
    /// The web page's origin, if it may read the answer.
    pub(crate) origin: Option<Field>,
    pub(crate) code: Code,
    pub(crate) head_sent: bool,
    /// A message of a stream was sent since this was last cleared.
    pub(crate) has_sent: bool,
    pub(crate) is_over: bool,
}

impl ReplyState {
    #[inline]
    pub(crate) fn new(
        dialect: Dialect,
        json: Option<Json>,
        compression: Option<(Encoding, usize)>,
        origin: Option<&Field>,
    ) -> Self {
        let origin = origin.cloned();
        Self { dialect, json, compression, origin, code: Code::Ok, head_sent: false, has_sent: false, is_over: false }
    }

    /// State of an answer without messages or CORS.
    pub(crate) fn bare(dialect: Dialect) -> Self {
        Self::new(dialect, None, None, None)
    }
}

/// An answer being written.
pub(crate) struct Reply<'a> {
    pub(crate) sink: Sink<'a>,
    pub(crate) templates: &'a mut Templates,
    pub(crate) state: &'a mut ReplyState,
    pub(crate) output_bytes_max: usize,
}

fn put_plain_head(put: crate::protocol::Put<'_>) {
    put(b":status", b"200", Indexing::Insert);
    put(b"content-type", b"application/grpc", Indexing::Insert);
}

fn put_success(put: crate::protocol::Put<'_>) {
    put(b"grpc-status", b"0", Indexing::Insert);
}

impl Reply<'_> {
    /// Reborrows the answer.
    #[inline]
    pub(crate) fn reborrow(&mut self) -> Reply<'_> {
        Reply {
            sink: self.sink.reborrow(),
            templates: self.templates,
            state: self.state,
            output_bytes_max: self.output_bytes_max,
        }
    }

    /// True if another message would not just wait.
    pub(crate) fn has_room(&mut self) -> bool {
        self.sink.has_room(self.output_bytes_max)
    }

    #[inline]
    pub(crate) fn head(&mut self, metadata: &Metadata) {
        if !self.state.dialect.is_plain {
            return self.dialect_head(metadata);
        }
        if std::mem::replace(&mut self.state.head_sent, true) {
            return;
        }
        if self.state.compression.is_none() && metadata.is_empty() {
            self.sink.send_head_cached(&mut self.templates.head, false, put_plain_head);
        } else {
            self.send_full_head(metadata);
        }
    }

    #[inline(never)]
    fn send_full_head(&mut self, metadata: &Metadata) {
        let compression = self.state.compression;
        self.sink.send_head(false, |put| {
            put_plain_head(put);
            if let Some((encoding, _)) = compression {
                put(b"grpc-encoding", encoding.name().as_bytes(), Indexing::Insert);
            }
            put_metadata(metadata, put);
        });
    }

    /// Begins a message that [`Reply::send_message`] sends.
    #[inline]
    pub(crate) fn begin_message(&mut self) {
        self.templates.scratch.clear();
        self.templates.scratch.extend_from_slice(&[0; PREFIX_BYTES]);
    }

    /// Buffer to append the begun message's bytes to.
    #[inline]
    pub(crate) fn message_out(&mut self) -> &mut Vec<u8> {
        &mut self.templates.scratch
    }

    /// Sends the begun message.
    #[inline]
    pub(crate) fn send_message(&mut self) {
        if !self.state.dialect.is_plain {
            return self.dialect_message();
        }
        framing::seal(&mut self.templates.scratch, 0, self.state.compression);
        self.send_scratch(false);
    }

    /// Sends the begun message as the whole answer.
    #[inline]
    pub(crate) fn answer(&mut self, trailers: &Metadata) {
        if !self.state.dialect.is_plain {
            return self.dialect_answer(trailers);
        }
        if self.state.compression.is_none() && trailers.is_empty() {
            let Templates { head, scratch, trailers, .. } = &mut *self.templates;
            framing::seal(scratch, 0, None);
            let is_first = !self.state.head_sent && scratch.len() <= COPY_BYTES_MAX;
            if is_first && self.sink.answer(head, scratch, Some(trailers)) {
                (self.state.head_sent, self.state.is_over) = (true, true);
                return;
            }
        }
        self.head(&Metadata::new());
        self.send_message();
        self.finish_ok(trailers);
    }

    #[inline]
    pub(crate) fn send_scratch(&mut self, end: bool) {
        let scratch = &mut self.templates.scratch;
        if scratch.len() <= COPY_BYTES_MAX {
            self.sink.send_slice(scratch, end);
        } else {
            self.sink.send_bytes(std::mem::take(scratch).into(), end);
        }
    }

    /// Sends a message.
    #[inline]
    pub(crate) fn message<T: Encode>(&mut self, message: T) {
        match message.into_encoded() {
            Err(message) => self.plain(message),
            Ok(encoded) => self.encoded(encoded),
        }
    }

    /// Batches a message of a stream with others that are ready; see [`Reply::flush`]. Returns the bytes sent, often
    /// zero.
    #[inline]
    pub(crate) fn batched<T: Encode>(&mut self, message: T) -> usize {
        let length = message.encoded_len() + PREFIX_BYTES;
        if !self.state.dialect.is_plain || self.templates.is_message_per_frame {
            self.message(message);
            return length;
        }
        match message.into_encoded() {
            Ok(encoded) if encoded.encoding.is_some() || length > COPY_BYTES_MAX => {
                self.flush();
                self.encoded(encoded);
                length
            }
            Ok(encoded) => self.append(encoded, length),
            Err(message) if length > COPY_BYTES_MAX => {
                self.flush();
                self.plain(message);
                length
            }
            Err(message) => self.append(message, length),
        }
    }

    #[inline]
    fn append<T: Encode>(&mut self, message: T, length: usize) -> usize {
        let batch = &mut self.templates.batch;
        batch.reserve(length);
        framing::encode(message, self.state.compression, batch);
        if batch.len() < COPY_BYTES_MAX {
            return 0;
        }
        self.flush()
    }

    /// Sends the batch; returns its bytes. Must be called before leaving the stream, since answers share the batch.
    #[inline]
    pub(crate) fn flush(&mut self) -> usize {
        let bytes = self.templates.batch.len();
        if bytes > 0 {
            self.sink.send_slice(&self.templates.batch, false);
            self.templates.batch.clear();
        }
        bytes
    }

    #[inline]
    pub(crate) fn plain<T: Encode>(&mut self, message: T) {
        let length = message.encoded_len() + PREFIX_BYTES;
        if length > COPY_BYTES_MAX && self.state.dialect.is_plain {
            // A separate buffer, so that the connection's own stays small.
            let mut framed = Vec::with_capacity(length);
            framing::encode(message, self.state.compression, &mut framed);
            self.sink.send_bytes(Bytes::from(framed), false);
            return;
        }
        self.begin_message();
        message.encode(self.message_out());
        self.send_message();
    }

    /// Sends a single-message answer. Send the returned rest with [`Reply::go_on`], then the trailers.
    #[inline]
    pub(crate) fn only_message<T: Encode>(
        &mut self,
        metadata: &Metadata,
        message: T,
        trailers: &Metadata,
    ) -> Option<Source> {
        match message.into_encoded() {
            Err(message) if metadata.is_empty() && message.encoded_len() < COPY_BYTES_MAX => {
                self.begin_message();
                message.encode(self.message_out());
                self.answer(trailers);
            }
            Err(message) => {
                self.head(metadata);
                self.plain(message);
                self.finish_ok(trailers);
            }
            Ok(encoded) => {
                let source = self.only_encoded(metadata, encoded);
                if source.is_some() {
                    return source;
                }
                self.finish_ok(trailers);
            }
        }
        None
    }

    /// Ends the answer successfully.
    #[inline]
    pub(crate) fn finish_ok(&mut self, trailers: &Metadata) {
        if !self.state.dialect.is_plain {
            return self.dialect_end(Ok(trailers));
        }
        if !trailers.is_empty() {
            let mut status = Status::ok();
            *status.metadata_mut() = trailers.clone();
            return self.finish(&status);
        }
        self.state.is_over = true;
        self.sink.send_head_cached(&mut self.templates.trailers, true, put_success);
    }

    /// Ends the answer; trailers-only if nothing was sent yet.
    pub(crate) fn finish(&mut self, status: &Status) {
        if !self.state.dialect.is_plain {
            return self.dialect_end(Err(status));
        }
        if std::mem::replace(&mut self.state.is_over, true) {
            return;
        }
        self.state.code = status.code();
        self.templates.note_refusal(status);
        let head_sent = std::mem::replace(&mut self.state.head_sent, true);
        self.sink.send_head(true, |put| {
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

impl std::fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reply({:?})", self.state)
    }
}

/// Chunks an answer may send in one poll, before the write and other calls get their turn.
const CHUNKS_PER_POLL_MAX: usize = 4;

impl Reply<'_> {
    pub(crate) fn encoded(&mut self, encoded: Encoded) {
        let packs = self.state.compression.is_some_and(|(_, bytes_min)| encoded.length >= bytes_min);
        if packs || encoded.length <= COPY_BYTES_MAX || !self.state.dialect.is_plain {
            return self.plain(encoded);
        }
        // Small parts are joined until a large one comes, to avoid tiny frames.
        let mut small = framing::prefix(encoded.length, false).to_vec();
        let mut send = |part: Bytes| {
            if part.len() <= COPY_BYTES_MAX {
                return small.extend_from_slice(&part);
            }
            self.sink.send_bytes(Bytes::from(std::mem::take(&mut small)), false);
            self.sink.send_bytes(part, false);
        };
        match encoded.chunks {
            Chunks::Complete(bytes) => send(bytes),
            Chunks::Parts(parts) => parts.into_iter().for_each(send),
            Chunks::Made(chunks) => chunks.for_each(send),
        }
        if !small.is_empty() {
            self.sink.send_bytes(Bytes::from(small), false);
        }
    }

    pub(crate) fn only_encoded(&mut self, metadata: &Metadata, encoded: Encoded) -> Option<Source> {
        let Encoded { length, encoding, chunks } = encoded;
        if !self.state.dialect.is_plain {
            // In other dialects no encoding counts as accepted.
            if encoding.is_some() {
                self.finish(&Status::internal("the answer is compressed, and the caller does not accept that"));
                return None;
            }
            self.head(metadata);
            self.plain(Encoded { length, encoding, chunks });
            return None;
        }
        let is_final = encoding.is_some() || matches!(chunks, Chunks::Made(_));
        if !is_final {
            self.head(metadata);
            self.encoded(Encoded { length, encoding, chunks });
            return None;
        }
        // Keeps the compression it has.
        self.state.compression = encoding.map(|encoding| (encoding, usize::MAX));
        self.head(metadata);
        self.sink.send_slice(&framing::prefix(length, encoding.is_some()), false);
        let chunks = match chunks {
            Chunks::Complete(bytes) => Box::new(std::iter::once(bytes)),
            Chunks::Parts(parts) => Box::new(parts.into_iter()) as Box<dyn Iterator<Item = Bytes> + Send>,
            Chunks::Made(chunks) => chunks,
        };
        Some(Source { left_bytes: length, chunks })
    }

    /// Sends as much as there is room for.
    pub(crate) fn go_on(&mut self, source: &mut Source, cx: &Context<'_>) -> Poll<Result<(), Status>> {
        for _ in 0..CHUNKS_PER_POLL_MAX {
            if !self.has_room() {
                return Poll::Pending;
            }
            match source.chunks.next() {
                Some(chunk) if chunk.len() <= source.left_bytes => {
                    source.left_bytes -= chunk.len();
                    self.sink.send_bytes(chunk, false);
                }
                None if source.left_bytes == 0 => return Poll::Ready(Ok(())),
                _ => return Poll::Ready(Err(wrong_length())),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sends everything at once, regardless of room.
    pub(crate) fn send_all(&mut self, source: Source) -> Result<(), Status> {
        let Source { mut left_bytes, chunks } = source;
        for chunk in chunks {
            left_bytes = left_bytes.checked_sub(chunk.len()).ok_or_else(wrong_length)?;
            self.sink.send_bytes(chunk, false);
        }
        if left_bytes == 0 { Ok(()) } else { Err(wrong_length()) }
    }
}

fn wrong_length() -> Status {
    Status::internal("the encoded length differs from the declared length")
}

/// A message produced while it is sent.
pub(crate) struct Source {
    pub(crate) left_bytes: usize,
    pub(crate) chunks: Box<dyn Iterator<Item = Bytes> + Send>,
}
