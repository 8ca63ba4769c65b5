//! Received heads, bodies and trailers, passed to the responses of their calls.
//!
//! Implements: RFC 9113 section 8.1 (responses).

use std::sync::Arc;

use quire_http2::{ErrorCode, Head, StreamKey};

use super::calls::{Active, Calls};
use crate::status::Status;

impl Calls {
    fn take(&mut self, stream: StreamKey) -> Option<Active> {
        self.active(stream)?;
        self.slots.get_mut(stream.index())?.take()
    }

    #[inline]
    pub(super) fn head(&mut self, stream: StreamKey, head: &Arc<Head>, end: bool) {
        self.time_head(stream);
        let Some(active) = self.active(stream) else { return };
        if end && active.answer.is_trailers(head) {
            return self.finish(stream, Some(head));
        }
        match active.answer.head(head) {
            Ok(()) if end => self.finish(stream, None),
            Ok(()) => {}
            Err(status) => self.give_up(stream, status),
        }
    }

    /// Records when a head was read. All heads of one read share one reading of the clock.
    #[inline]
    fn time_head(&mut self, stream: StreamKey) {
        let slot = self.slots.get_mut(stream.index()).and_then(Option::as_mut);
        if let Some(active) = slot.filter(|active| active.answer.is_timed && active.stream == stream) {
            active.answer.head_at = Some(*self.read_at.get_or_insert_with(std::time::Instant::now));
        }
    }

    #[inline]
    pub(super) fn data(&mut self, stream: StreamKey, data: &[u8], end: bool) {
        let length = data.len();
        let Some(active) = self.active(stream) else { return self.connection.release(stream, length) };
        active.unreleased += length;
        match active.answer.data(data) {
            Err(status) => return self.give_up(stream, status),
            Ok(true) => self.wakes.mark(stream.index()),
            Ok(false) => {}
        }
        if end {
            return self.finish(stream, None);
        }
        self.release(stream);
    }

    pub(super) fn release(&mut self, stream: StreamKey) {
        let Some(active) = self.active(stream) else { return };
        if !active.answer.is_stalled() {
            let bytes = std::mem::take(&mut active.unreleased);
            self.connection.release(stream, bytes);
        }
    }

    /// Completes a response.
    #[inline]
    pub(super) fn finish(&mut self, stream: StreamKey, trailers: Option<&Arc<Head>>) {
        let Some(active) = self.take(stream) else { return };
        if !self.connection.is_receive_closed(stream) || self.connection.is_live(stream) {
            // The server answered before the whole request was sent; the rest is not needed.
            self.connection.reset(stream, ErrorCode::CANCEL);
        }
        self.ended += 1;
        active.answer.end(trailers);
    }

    pub(super) fn fail(&mut self, stream: StreamKey, status: Status, untouched: bool) {
        let Some(active) = self.take(stream) else { return };
        active.answer.fail(status, untouched);
    }

    /// Fails the call and cancels its stream.
    pub(super) fn give_up(&mut self, stream: StreamKey, status: Status) {
        self.fail(stream, status, false);
        self.connection.reset(stream, ErrorCode::CANCEL);
    }

    pub(super) fn fail_all(&mut self, status: &Status) {
        let streams: Vec<StreamKey> = self.slots.iter().flatten().map(|active| active.stream).collect();
        for stream in streams {
            self.fail(stream, status.clone(), false);
        }
    }
}
