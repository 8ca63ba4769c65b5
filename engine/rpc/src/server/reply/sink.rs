//! Output of an answer: a stream of our HTTP/2, or the outbox of an exchange on a connection managed elsewhere.

use std::collections::VecDeque;

use bytes::Bytes;
use quire_http2::{CachedBlock, Connection, ErrorCode, Indexing, StreamKey};

use crate::protocol::Put;
use crate::server::memory::{Lender, SHARED_BYTES_MIN};

/// The parts of an answer ready to be sent.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// The head, until it is taken.
    pub(crate) head: Option<http::response::Parts>,
    has_head: bool,
    pub(crate) body: VecDeque<Bytes>,
    /// The trailers after the body.
    pub(crate) trailers: Option<http::HeaderMap>,
    /// Length of the body so far.
    pub(crate) body_bytes: u64,
    pub(crate) is_ended: bool,
}

/// Output of an answer.
#[derive(Debug)]
pub(crate) enum Sink<'a> {
    Http2(&'a mut Connection, StreamKey, &'a Lender),
    Outbox(&'a mut Outbox),
}

impl Sink<'_> {
    #[inline]
    pub(crate) fn reborrow(&mut self) -> Sink<'_> {
        match self {
            Self::Http2(connection, stream, lender) => Sink::Http2(connection, *stream, lender),
            Self::Outbox(outbox) => Sink::Outbox(outbox),
        }
    }

    /// Bytes waiting for the peer's windows, over all streams of the connection.
    pub(crate) fn queued_bytes_total(&self) -> usize {
        match self {
            Self::Http2(connection, ..) => connection.queued_bytes_total(),
            Self::Outbox(outbox) => outbox.body.len(),
        }
    }

    /// True if another message would not just wait.
    #[inline]
    pub(crate) fn has_room(&mut self, output_bytes_max: usize) -> bool {
        match self {
            Self::Http2(connection, stream, _) => {
                connection.queued_bytes(*stream) == 0 && connection.output().len() < output_bytes_max
            }
            Self::Outbox(outbox) => outbox.body.is_empty(),
        }
    }

    // Each fails only on a closed stream, which has its own event.

    /// Sends a head or trailers from the cache for exactly these fields.
    #[inline]
    pub(crate) fn send_head_cached(&mut self, cache: &mut CachedBlock, end: bool, fields: impl FnOnce(Put<'_>)) {
        match self {
            Self::Http2(connection, stream, _) => {
                let _ = connection.send_head_cached(*stream, cache, end, fields);
            }
            Self::Outbox(outbox) => outbox.send_head(end, fields),
        }
    }

    /// Sends an answer in one piece if possible. It ends with the trailers, or with the body if there are none.
    #[inline]
    pub(crate) fn answer(&mut self, head: &CachedBlock, body: &[u8], trailers: Option<&CachedBlock>) -> bool {
        match self {
            Self::Http2(connection, stream, _) => connection.answer(*stream, head, body, trailers),
            Self::Outbox(_) => false,
        }
    }

    pub(crate) fn send_head(&mut self, end: bool, fields: impl FnOnce(Put<'_>)) {
        self.send_head_cached(&mut CachedBlock::default(), end, fields);
    }

    #[inline]
    pub(crate) fn send_slice(&mut self, data: &[u8], end: bool) {
        match self {
            Self::Http2(connection, stream, _) => {
                let _ = connection.send_slice(*stream, data, end);
            }
            Self::Outbox(outbox) => outbox.send(Bytes::copy_from_slice(data), end),
        }
    }

    /// Aborts the answer.
    pub(crate) fn reset(&mut self) {
        match self {
            Self::Http2(connection, stream, _) => connection.reset(*stream, ErrorCode::INTERNAL_ERROR),
            Self::Outbox(outbox) => outbox.is_ended = true,
        }
    }

    /// True if the request is complete.
    pub(crate) fn is_receive_closed(&self) -> bool {
        match self {
            Self::Http2(connection, stream, _) => connection.is_receive_closed(*stream),
            Self::Outbox(_) => true,
        }
    }

    pub(crate) fn send_bytes(&mut self, data: Bytes, end: bool) {
        match self {
            Self::Http2(connection, stream, lender) if data.len() >= SHARED_BYTES_MIN => {
                let _ = connection.send_lent(*stream, lender.lend(data), end);
            }
            Self::Http2(connection, stream, _) => {
                let _ = connection.send_bytes(*stream, data, end);
            }
            Self::Outbox(outbox) => outbox.send(data, end),
        }
    }
}

impl Outbox {
    /// Stores the head, or after it the trailers.
    fn send_head(&mut self, end: bool, fields: impl FnOnce(Put<'_>)) {
        self.is_ended |= end;
        let (mut head, ()) = http::Response::new(()).into_parts();
        fields(&mut |name: &[u8], value: &[u8], _: Indexing| {
            if name == b":status" {
                head.status = http::StatusCode::from_bytes(value).unwrap_or_default();
            } else if let (Ok(name), Ok(value)) =
                (http::HeaderName::from_bytes(name), http::HeaderValue::from_bytes(value))
            {
                head.headers.append(name, value);
            }
        });
        if std::mem::replace(&mut self.has_head, true) {
            self.trailers = Some(head.headers);
        } else {
            self.head = Some(head);
        }
    }

    fn send(&mut self, data: Bytes, end: bool) {
        self.is_ended |= end;
        if !data.is_empty() {
            self.body_bytes += data.len() as u64;
            self.body.push_back(data);
        }
    }
}
