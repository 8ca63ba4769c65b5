//! DATA received and its flow control (RFC 9113 sections 6.1, 6.9 and 8.1.1).
//!
//! The connection's window is replenished as soon as bytes are read, so a stream that is not consumed stalls only
//! itself; a stream's window when its bytes are consumed. WINDOW_UPDATE is sent once half the window is used, not per
//! frame.

use super::{Connection, Event, USEFUL_BYTES};
use crate::error::{ConnectionError, ErrorCode};
use crate::frame::{self, flag};
use crate::streams::StreamKey;

impl Connection {
    #[inline]
    pub(super) fn data<'a>(
        &mut self,
        head: frame::Head,
        payload: &'a [u8],
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        if head.stream == 0 {
            return Err(ConnectionError::protocol("DATA on stream 0"));
        }
        self.take_connection_window(head.length)?;
        let end = head.has(flag::END_STREAM);
        let data = frame::strip_padding(head, payload)?;
        if data.len() >= USEFUL_BYTES || end {
            self.control_frames.earn(2);
        } else {
            self.charge_control()?;
        }
        let Some(stream) = self.streams.find(head.stream) else { return self.data_on_closed(head.stream) };
        let Some(slot) = self.streams.get_mut(stream) else { return Ok(None) };
        if slot.receive_closed {
            return self.stream_fault(head.stream, ErrorCode::STREAM_CLOSED);
        }
        if i64::from(head.length) > slot.receive_window {
            return self.stream_fault(head.stream, ErrorCode::FLOW_CONTROL_ERROR);
        }
        slot.receive_window -= i64::from(head.length);
        let length = data.len() as u64;
        if let Some(left) = slot.content_left {
            match left.checked_sub(length) {
                Some(left) if left == 0 || !end => slot.content_left = Some(left),
                _ => return self.stream_fault(head.stream, ErrorCode::PROTOCOL_ERROR),
            }
        }
        if end {
            self.receive_ended(stream);
        } else if head.has(flag::PADDED) {
            self.release(stream, payload.len() - data.len());
        }
        Ok(Some(Event::Data { stream, data, end }))
    }

    #[inline]
    fn take_connection_window(&mut self, length: u32) -> Result<(), ConnectionError> {
        if i64::from(length) > self.receive_window {
            return Err(ConnectionError::flow("more DATA than the connection's window"));
        }
        self.count_received(length);
        Ok(())
    }

    /// Deducts a length from the connection's window; sends WINDOW_UPDATE once half of it is used.
    #[inline]
    pub(super) fn count_received(&mut self, length: u32) {
        self.receive_window -= i64::from(length);
        self.unannounced += length;
        if self.unannounced >= self.config.connection_window_bytes / 2 {
            frame::put_window_update(self.output.buffer(), 0, self.unannounced);
            self.receive_window += i64::from(self.unannounced);
            self.unannounced = 0;
        }
    }

    fn data_on_closed<'a>(&mut self, id: u32) -> Result<Option<Event<'a>>, ConnectionError> {
        if self.is_idle(id) {
            return Err(ConnectionError::protocol("DATA on an idle stream"));
        }
        if self.streams.lately_closed(id) == Some(true) {
            // It was in flight when we reset the stream.
            return self.charge_control().map(|()| None);
        }
        self.stream_fault(id, ErrorCode::STREAM_CLOSED)
    }

    /// Returns window to the stream: the application has consumed `bytes` of its DATA.
    pub fn release(&mut self, stream: StreamKey, bytes: usize) {
        let threshold = (self.config.stream_window_bytes / 2).max(1);
        let Some(slot) = self.streams.get_mut(stream) else { return };
        if slot.receive_closed {
            return;
        }
        slot.unannounced = slot.unannounced.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        if slot.unannounced >= threshold {
            let increment = slot.unannounced.min(frame::WINDOW_MAX);
            slot.receive_window += i64::from(increment);
            slot.unannounced = 0;
            frame::put_window_update(self.output.buffer(), stream.id(), increment);
        }
    }
}
