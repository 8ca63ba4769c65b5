//! Complete requests within one read (server): a cached head and a body of one frame, possibly interleaved with other
//! such requests.
//!
//! Most RPCs are such, and most are answered at once in one piece, so they never need a stream slot. A head waits here
//! for its body while no other frame comes; then its request begins like any other.
//!
//! Implements: RFC 9113 section 8.1, for messages of two frames.

use std::cmp::min;
use std::sync::Arc;

use super::{Connection, Event, Phase, Side, window_units};
use crate::frame::{self, HEAD_BYTES, flag, kind};
use crate::head::{Head, Section};
use crate::hpack::{CachedBlock, SHORT_BYTES, ShortBlock};
use crate::streams::StreamKey;

/// A complete request.
#[derive(Debug)]
pub struct CompleteRequest<'a> {
    /// Its stream; the peer's side has ended.
    pub stream: StreamKey,
    /// Its head; `None` if it is the `last` that the caller passed.
    pub head: Option<Arc<Head>>,
    /// Its body, borrowed from the input.
    pub body: &'a [u8],
}

impl Connection {
    /// Takes frames off `input` until a request is complete; `None` if another frame comes first, which is left to
    /// [`Connection::receive`]. Answer the request with [`Connection::answer`] or like any other. `last` is the
    /// previous request's head, which most requests share.
    #[inline]
    pub fn receive_complete<'a>(
        &mut self,
        input: &mut &'a [u8],
        now_ms: u64,
        last: Option<&Arc<Head>>,
    ) -> Option<CompleteRequest<'a>> {
        self.now_ms = now_ms;
        self.place();
        let is_usual = self.phase == Phase::Open && self.peer_settings_seen && self.side == Side::Server;
        if !is_usual || self.assembly.is_some() || !self.events.is_empty() {
            return None;
        }
        loop {
            let (frame, rest) = input.split_first_chunk::<HEAD_BYTES>()?;
            let frame = frame::Head::parse(frame);
            if frame.length > self.config.frame_bytes_max {
                return None;
            }
            let (payload, rest) = rest.split_at_checked(frame.length as usize)?;
            match (frame.kind, frame.flags) {
                (kind::HEADERS, flag::END_HEADERS) if self.accepts(frame.stream) => {
                    let head = self.block_cache.get(Section::Request, payload, self.decoder.generation())?;
                    self.waiting.push(frame.stream, head);
                    self.last_peer_stream = frame.stream;
                    self.control_frames.earn(4);
                    *input = rest;
                }
                (kind::DATA, flag::END_STREAM) => {
                    let head = self.head_of(frame)?;
                    let is_last = last.is_some_and(|last| Arc::ptr_eq(last, head));
                    let head = (!is_last).then(|| Arc::clone(head));
                    self.waiting.pop();
                    self.control_frames.earn(2);
                    self.count_received(frame.length);
                    let stream = self.streams.next(frame.stream);
                    self.unplaced = Some(stream);
                    *input = rest;
                    return Some(CompleteRequest { stream, head, body: payload });
                }
                _ => return None,
            }
        }
    }

    /// True if the peer may open this stream now.
    #[inline]
    fn accepts(&self, id: u32) -> bool {
        let is_new = id % 2 == 1 && id > self.last_peer_stream;
        is_new && self.live_streams() < self.config.concurrent_streams_max as usize
    }

    /// Head of the waiting request that a DATA frame completes, if the body may have that length.
    #[inline]
    fn head_of(&self, frame: frame::Head) -> Option<&Arc<Head>> {
        let (id, head) = self.waiting.first()?;
        let is_right = head.content_length().is_none_or(|length| length == u64::from(frame.length));
        let has_room = i64::from(frame.length) <= min(self.receive_window, self.new_receive_window());
        (id == frame.stream && is_right && has_room).then_some(head)
    }

    /// Begins the first waiting request.
    #[inline]
    pub(super) fn begin_waiting(&mut self) -> Option<Event<'static>> {
        let (id, head) = self.waiting.first()?;
        let head = Arc::clone(head);
        self.waiting.pop();
        Some(self.begin_request(id, head, false))
    }

    /// Gives the last complete request a stream slot, unless it has been answered.
    #[inline]
    pub(super) fn place(&mut self) {
        if let Some(stream) = self.unplaced.take() {
            self.place_complete(stream);
        }
    }

    fn place_complete(&mut self, stream: StreamKey) {
        let placed = self.insert(stream.id);
        debug_assert_eq!(placed, stream, "no stream has ended since the key was told");
        if let Some(slot) = self.streams.get_mut(stream) {
            slot.receive_closed = true;
            slot.head_seen = true;
        }
    }

    /// Answers a complete request right after [`Connection::receive_complete`]: a head, a body, and trailers unless the
    /// body ends the stream. Does nothing and returns false if it must be sent piecemeal: the stream was already used,
    /// a block must be encoded, or the body would wait for other streams or for a window.
    #[inline]
    pub fn answer(
        &mut self,
        stream: StreamKey,
        head: &CachedBlock,
        body: &[u8],
        trailers: Option<&CachedBlock>,
    ) -> bool {
        let Some(head) = self.encoder.short(head) else { return false };
        let Some(trailers) = trailers.map_or(Some(None), |trailers| self.encoder.short(trailers).map(Some)) else {
            return false;
        };
        let length = window_units(body.len());
        let window = min(self.send_window, i64::from(self.peer.stream_window_bytes));
        let waits = !self.ready.is_empty() || self.output.len() >= self.config.output_bytes_target;
        let is_large = length > window || body.len() > self.peer.frame_bytes_max as usize;
        if self.unplaced != Some(stream) || waits || is_large {
            return false;
        }
        self.unplaced = None;
        self.send_window -= length;
        let (id, out) = (stream.id(), self.output.buffer());
        put_short(out, flag::END_HEADERS, id, head);
        frame::put(out, kind::DATA, if trailers.is_none() { flag::END_STREAM } else { 0 }, id, body);
        if let Some(trailers) = trailers {
            put_short(out, flag::END_HEADERS | flag::END_STREAM, id, trailers);
        }
        self.count_sent(body.len());
        self.resets.earn(1);
        self.streams.remember_closed(id, false);
        true
    }
}

/// Writes HEADERS with a short block.
#[inline]
fn put_short(out: &mut Vec<u8>, flags: u8, stream: u32, (block, padding): ShortBlock) {
    let length = u32::try_from(SHORT_BYTES - padding).unwrap_or(0);
    let mut frame = [0; HEAD_BYTES + SHORT_BYTES];
    frame[..HEAD_BYTES].copy_from_slice(&frame::Head { length, kind: kind::HEADERS, flags, stream }.write());
    frame[HEAD_BYTES..].copy_from_slice(&block);
    out.extend_from_slice(&frame);
    out.truncate(out.len() - padding);
}
