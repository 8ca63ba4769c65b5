//! Answer messages already encoded: in one piece, in parts, or produced while being sent.
//!
//! Implements: gRPC over HTTP/2, "Responses".

use std::task::{Context, Poll};

use bytes::Bytes;

use super::reply::{COPY_BYTES_MAX, Reply};
use super::source::Source;
use crate::codec::{Chunks, Encoded};
use crate::message;
use crate::metadata::Metadata;
use crate::status::Status;

/// Chunks an answer may send in one poll, before the write and other calls get their turn.
const CHUNKS_PER_POLL_MAX: usize = 4;

impl Reply<'_> {
    pub(super) fn encoded(&mut self, encoded: Encoded) {
        let packs = self.state.compression.is_some_and(|(_, bytes_min)| encoded.length >= bytes_min);
        if packs || encoded.length <= COPY_BYTES_MAX || !self.state.dialect.is_plain {
            return self.plain(encoded);
        }
        // Small parts are joined until a large one comes, to avoid tiny frames.
        let mut small = message::prefix(encoded.length, false).to_vec();
        let mut send = |part: Bytes| {
            if part.len() <= COPY_BYTES_MAX {
                return small.extend_from_slice(&part);
            }
            self.sink.send_bytes(Bytes::from(std::mem::take(&mut small)), false);
            self.sink.send_bytes(part, false);
        };
        match encoded.chunks {
            Chunks::Whole(bytes) => send(bytes),
            Chunks::Parts(parts) => parts.into_iter().for_each(send),
            Chunks::Made(chunks) => chunks.for_each(send),
        }
        if !small.is_empty() {
            self.sink.send_bytes(Bytes::from(small), false);
        }
    }

    pub(super) fn only_encoded(&mut self, metadata: &Metadata, encoded: Encoded) -> Option<Source> {
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
        self.sink.send_slice(&message::prefix(length, encoding.is_some()), false);
        let chunks = match chunks {
            Chunks::Whole(bytes) => Box::new(std::iter::once(bytes)),
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
    Status::internal("the answer has not the length it was said to have")
}
