//! Commands of the application: opens streams, sends heads, bodies and trailers, resets, pings and closes the
//! connection. Queued bodies leave a frame from each stream in turn, as far as the windows and the output buffer allow.
//!
//! Implements: RFC 9113 sections 5.1 (stream states), 5.2 and 6.9 (flow control) and 6, the sending side.

use bytes::{Buf, Bytes};

use super::receive::DRAIN_PING;
use super::{Connection, Phase, Side, window_units};
use crate::error::{ErrorCode, StreamError};
use crate::field::Field;
use crate::frame::{self, FRAME_BYTES_DEFAULT, HEAD_BYTES, WINDOW_MAX, flag, kind};
use crate::hpack::{CachedBlock, Indexing};
use crate::streams::{QueuedEnd, StreamKey};

/// Pieces up to this size are cheaper to copy than to write as segments of their own.
const COPY_BYTES_MAX: usize = 2 * 1024;

enum Sent {
    /// The stream can send more.
    More,
    /// The stream has finished, or waits for its own window.
    Rest,
    /// The connection's window is used up.
    ConnectionFull,
}

/// Callback that takes the fields of a head, one by one.
type Put<'a> = &'a mut dyn FnMut(&[u8], &[u8], Indexing);

impl Connection {
    /// Succeeds if [`Connection::open`] would, and fails with its error otherwise.
    pub fn can_open(&self) -> Result<(), StreamError> {
        let over = self.phase != Phase::Open || self.peer_goaway.is_some() || self.next_stream > WINDOW_MAX;
        if over || self.side != Side::Client {
            return Err(StreamError::GoingAway);
        }
        if self.streams.live() >= self.peer.concurrent_streams_max as usize {
            return Err(StreamError::TooManyStreams);
        }
        Ok(())
    }

    /// Opens a stream with a request's head; `cache` belongs to requests with these very fields.
    pub fn open(
        &mut self,
        cache: &mut CachedBlock,
        end: bool,
        fields: impl FnOnce(Put<'_>),
    ) -> Result<StreamKey, StreamError> {
        self.can_open()?;
        let id = self.next_stream;
        self.next_stream += 2;
        let receive_window = self.new_receive_window();
        let stream = self.streams.insert(id, receive_window, i64::from(self.peer.stream_window_bytes));
        self.write_head(id, end, |connection, out| connection.encoder.cached(cache, out, fields));
        if end {
            self.send_ended(stream);
        }
        Ok(stream)
    }

    /// Sends a head, or trailers with `end`, encoded field by field. Trailers wait for the queued body.
    pub fn send_head(&mut self, stream: StreamKey, end: bool, fields: impl FnOnce(Put<'_>)) -> Result<(), StreamError> {
        self.send_head_cached(stream, &mut CachedBlock::default(), end, fields)
    }

    /// Like [`Connection::send_head`], with a cache that belongs to heads with these very fields.
    #[inline]
    pub fn send_head_cached(
        &mut self,
        stream: StreamKey,
        cache: &mut CachedBlock,
        end: bool,
        fields: impl FnOnce(Put<'_>),
    ) -> Result<(), StreamError> {
        self.place();
        let slot = self.streams.get_mut(stream).ok_or(StreamError::Closed)?;
        if slot.send_closed || !matches!(slot.queued_end, QueuedEnd::Open) {
            return Err(StreamError::Closed);
        }
        if slot.queued_bytes > 0 {
            let mut kept = Vec::new();
            fields(&mut |name, value, indexing| kept.push((Field::new(name, value), indexing)));
            debug_assert!(end, "only trailers may follow a body");
            slot.queued_end = QueuedEnd::WithTrailers(kept);
            return Ok(());
        }
        self.write_head(stream.id(), end, |connection, out| connection.encoder.cached(cache, out, fields));
        if end {
            self.send_ended(stream);
        }
        Ok(())
    }

    /// Writes HEADERS, and CONTINUATION frames if the block is larger than the peer's frames.
    #[inline]
    pub(super) fn write_head(&mut self, id: u32, end: bool, encode: impl FnOnce(&mut Self, &mut Vec<u8>)) {
        let mut out = std::mem::take(self.output.buffer());
        let start = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        encode(self, &mut out);
        let length = out.len() - start - HEAD_BYTES;
        let end_flag = if end { flag::END_STREAM } else { 0 };
        let frame_max = self.peer.frame_bytes_max as usize;
        if length <= frame_max {
            let length = u32::try_from(length).unwrap_or(FRAME_BYTES_DEFAULT);
            let head = frame::Head { length, kind: kind::HEADERS, flags: end_flag | flag::END_HEADERS, stream: id };
            out[start..start + HEAD_BYTES].copy_from_slice(&head.write());
        } else {
            let block = out.split_off(start + HEAD_BYTES);
            out.truncate(start);
            let chunks = block.chunks(frame_max);
            let last = chunks.len() - 1;
            for (position, chunk) in chunks.enumerate() {
                let end_headers = if position == last { flag::END_HEADERS } else { 0 };
                let (kind, flags) = if position == 0 {
                    (kind::HEADERS, end_flag | end_headers)
                } else {
                    (kind::CONTINUATION, end_headers)
                };
                frame::put(&mut out, kind, flags, id, chunk);
            }
        }
        *self.output.buffer() = out;
    }

    /// Records that our side has ended; frees the slot if the peer's has too.
    #[inline]
    pub(super) fn send_ended(&mut self, stream: StreamKey) {
        let Some(slot) = self.streams.get_mut(stream) else { return };
        slot.send_closed = true;
        slot.queued_end = QueuedEnd::Open;
        if slot.receive_closed {
            self.remove_stream(stream, false);
            self.resets.earn(1);
        }
    }

    /// Sends body bytes by copying; what exceeds the windows is queued in the stream.
    #[inline]
    pub fn send_slice(&mut self, stream: StreamKey, data: &[u8], end: bool) -> Result<(), StreamError> {
        self.place();
        let frame_max = self.peer.frame_bytes_max as usize;
        let length = window_units(data.len());
        let room = self.send_window;
        let wait = !self.ready.is_empty() || self.output.len() >= self.config.output_bytes_target;
        let slot = self.streams.get_mut(stream).ok_or(StreamError::Closed)?;
        if wait || slot.has_queued() || length > room || length > slot.send_window || data.len() > frame_max {
            return self.send_bytes(stream, Bytes::copy_from_slice(data), end);
        }
        if slot.send_closed {
            return Err(StreamError::Closed);
        }
        slot.send_window -= length;
        self.send_window -= length;
        let flags = if end { flag::END_STREAM } else { 0 };
        frame::put(self.output.buffer(), kind::DATA, flags, stream.id(), data);
        self.count_sent(data.len());
        if end {
            self.send_ended(stream);
        }
        Ok(())
    }

    /// Sends body bytes without copying, unless they are few.
    pub fn send_bytes(&mut self, stream: StreamKey, data: Bytes, end: bool) -> Result<(), StreamError> {
        self.queue(stream, data, end, false)
    }

    /// As [`Connection::send_bytes`], with bytes that the caller accounts for; [`Connection::lent_bytes_total`] counts
    /// them apart.
    pub fn send_lent(&mut self, stream: StreamKey, data: Bytes, end: bool) -> Result<(), StreamError> {
        self.queue(stream, data, end, true)
    }

    fn queue(&mut self, stream: StreamKey, data: Bytes, end: bool, is_lent: bool) -> Result<(), StreamError> {
        self.place();
        let slot = self.streams.get_mut(stream).ok_or(StreamError::Closed)?;
        if slot.send_closed || !matches!(slot.queued_end, QueuedEnd::Open) {
            return Err(StreamError::Closed);
        }
        if end && data.is_empty() && slot.queue.is_empty() {
            // An empty frame needs no window, so it need not queue behind streams that do.
            frame::put(self.output.buffer(), kind::DATA, flag::END_STREAM, stream.id(), &[]);
            self.send_ended(stream);
            return Ok(());
        }
        if slot.queued_bytes == 0 {
            slot.waiting_since_ms = self.now_ms;
        }
        slot.queued_bytes += data.len();
        self.queued_total += data.len();
        if is_lent {
            slot.lent_bytes += data.len();
            self.lent_total += data.len();
        }
        if !data.is_empty() {
            slot.queue.push_back((data, is_lent));
        }
        if end {
            slot.queued_end = QueuedEnd::WithData;
        }
        self.make_ready(stream);
        self.pump();
        Ok(())
    }

    /// Bytes queued in the stream for a window or its turn; send more when there are few.
    #[inline]
    pub fn queued_bytes(&self, stream: StreamKey) -> usize {
        self.streams.get(stream).map_or(0, |slot| slot.queued_bytes)
    }

    /// Streams with queued bytes, none of which were sent since this time.
    pub fn stalled(&self, since_ms: u64) -> impl Iterator<Item = StreamKey> {
        let is_stalled = move |key: &StreamKey| {
            self.streams.get(*key).is_some_and(|slot| slot.queued_bytes > 0 && slot.waiting_since_ms <= since_ms)
        };
        self.streams.keys().filter(is_stalled)
    }

    /// Body bytes given to the connection so far, whether sent or queued; those of a reset stream that were not sent are
    /// taken off.
    #[inline]
    pub fn body_bytes(&self) -> u64 {
        self.sent_bytes + self.queued_total as u64
    }

    /// Sum of [`Connection::queued_bytes`] over all streams.
    #[inline]
    pub fn queued_bytes_total(&self) -> usize {
        self.queued_total
    }

    /// Of [`Connection::queued_bytes_total`], what was sent by [`Connection::send_lent`].
    #[inline]
    pub fn lent_bytes_total(&self) -> usize {
        self.lent_total
    }

    /// True if bytes or the end of the stream wait for a window or for its turn.
    pub fn is_sending(&self, stream: StreamKey) -> bool {
        self.streams.get(stream).is_some_and(crate::streams::Stream::has_queued)
    }

    /// True while the key names a stream.
    pub fn is_live(&self, stream: StreamKey) -> bool {
        self.streams.get(stream).is_some() || self.unplaced == Some(stream)
    }

    /// True if the peer has ended its side, or the stream is gone.
    pub fn is_receive_closed(&self, stream: StreamKey) -> bool {
        self.streams.get(stream).is_none_or(|slot| slot.receive_closed)
    }

    /// Ends the stream at once, in both directions; what was queued is dropped.
    pub fn reset(&mut self, stream: StreamKey, code: ErrorCode) {
        self.place();
        if self.is_live(stream) {
            frame::put_reset(self.output.buffer(), stream.id(), code);
            self.remove_stream(stream, true);
        }
    }

    /// Sends a PING; [`Event::Pong`](super::Event::Pong) returns the payload.
    pub fn ping(&mut self, payload: [u8; 8]) {
        debug_assert_ne!(payload, DRAIN_PING, "that payload is taken");
        if self.failure().is_none() {
            self.put_ping(payload);
        }
    }

    fn put_ping(&mut self, payload: [u8; 8]) {
        self.pings_unanswered = self.pings_unanswered.saturating_add(1);
        frame::put_ping(self.output.buffer(), false, payload);
    }

    /// Begins a graceful shutdown: a server still serves streams opened before the peer has seen its GOAWAY.
    pub fn drain(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Announced;
            if self.side == Side::Server {
                frame::put_goaway(self.output.buffer(), WINDOW_MAX, ErrorCode::NO_ERROR, "");
                self.put_ping(DRAIN_PING);
            } else {
                self.drain_now();
            }
        }
    }

    /// Sends the final GOAWAY: streams the peer opens from now on are not served.
    pub fn drain_now(&mut self) {
        if matches!(self.phase, Phase::Open | Phase::Announced) {
            self.phase = Phase::Draining;
            frame::put_goaway(self.output.buffer(), self.last_peer_stream, ErrorCode::NO_ERROR, "");
        }
    }

    /// True once draining with no stream left: close when the output is flushed.
    pub fn is_drained(&self) -> bool {
        let over = match self.side {
            Side::Server => self.phase == Phase::Draining,
            Side::Client => self.phase == Phase::Draining || self.peer_goaway.is_some(),
        };
        over && self.live_streams() == 0
    }

    /// True if either side has sent GOAWAY: no new streams.
    pub fn is_going_away(&self) -> bool {
        self.phase != Phase::Open || self.peer_goaway.is_some()
    }
}

/// Queued bodies.
impl Connection {
    pub(super) fn make_ready(&mut self, stream: StreamKey) {
        let Some(slot) = self.streams.get_mut(stream) else { return };
        if slot.has_queued() && !slot.is_ready {
            slot.is_ready = true;
            self.ready.push_back(stream.index);
        }
    }

    /// Moves queued bodies to the output; call it before each write.
    pub fn pump(&mut self) {
        // Before a stream ends below and frees a slot: the key already given out names the slot free now.
        self.place();
        while self.output.len() < self.config.output_bytes_target {
            let Some(&index) = self.ready.front() else { break };
            let sent = self.streams.key_at(index).map_or(Sent::Rest, |stream| self.send_queued(stream));
            match sent {
                Sent::ConnectionFull => break,
                Sent::More => self.ready.rotate_left(1),
                Sent::Rest => {
                    self.ready.pop_front();
                    if let Some(slot) = self.streams.slot_mut(index) {
                        slot.is_ready = false;
                    }
                }
            }
        }
    }

    fn send_queued(&mut self, stream: StreamKey) -> Sent {
        let frame_max = self.peer.frame_bytes_max as usize;
        let Some(slot) = self.streams.get_mut(stream) else { return Sent::Rest };
        if let Some((front, is_lent)) = slot.queue.front_mut() {
            let window = usize::try_from(slot.send_window).unwrap_or(0);
            let connection_window = usize::try_from(self.send_window).unwrap_or(0);
            let length = front.len().min(frame_max).min(window).min(connection_window);
            if length == 0 {
                return if window == 0 { Sent::Rest } else { Sent::ConnectionFull };
            }
            let piece = front.split_to(length);
            let lent = if *is_lent { length } else { 0 };
            if !front.has_remaining() {
                slot.queue.pop_front();
            }
            slot.queued_bytes -= length;
            slot.lent_bytes -= lent;
            slot.waiting_since_ms = self.now_ms;
            self.queued_total -= length;
            self.lent_total -= lent;
            slot.send_window -= window_units(length);
            self.send_window -= window_units(length);
            let end = slot.queue.is_empty() && matches!(slot.queued_end, QueuedEnd::WithData);
            self.count_sent(length);
            self.write_data(stream, piece, end);
            if end {
                self.send_ended(stream);
                return Sent::Rest;
            }
        }
        self.finish_queue(stream)
    }

    fn write_data(&mut self, stream: StreamKey, piece: Bytes, end: bool) {
        let flags = if end { flag::END_STREAM } else { 0 };
        let out = self.output.buffer();
        if piece.len() <= COPY_BYTES_MAX {
            return frame::put(out, kind::DATA, flags, stream.id(), &piece);
        }
        let length = u32::try_from(piece.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&frame::Head { length, kind: kind::DATA, flags, stream: stream.id() }.write());
        self.output.splice(piece);
    }

    /// After the last queued byte: sends the stream's end if it is queued.
    fn finish_queue(&mut self, stream: StreamKey) -> Sent {
        let Some(slot) = self.streams.get_mut(stream) else { return Sent::Rest };
        if !slot.queue.is_empty() {
            return Sent::More;
        }
        match std::mem::take(&mut slot.queued_end) {
            QueuedEnd::Open => {}
            QueuedEnd::WithData => {
                frame::put(self.output.buffer(), kind::DATA, flag::END_STREAM, stream.id(), &[]);
                self.send_ended(stream);
            }
            QueuedEnd::WithTrailers(fields) => {
                self.write_head(stream.id(), true, |connection, out| {
                    connection.encoder.begin(out);
                    for (field, indexing) in &fields {
                        connection.encoder.field(field.name(), field.value(), *indexing, out);
                    }
                });
                self.send_ended(stream);
            }
        }
        Sent::Rest
    }
}
