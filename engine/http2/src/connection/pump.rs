//! Sends queued bodies (RFC 9113 sections 5.2 and 6.9): a frame from each stream in turn, as far as the windows and the
//! output buffer allow.

use bytes::Buf;

use super::{Connection, window_units};
use crate::frame::{self, flag, kind};
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

    fn write_data(&mut self, stream: StreamKey, piece: bytes::Bytes, end: bool) {
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
