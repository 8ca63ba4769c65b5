//! Sends request streams, batching ready messages as room allows, and cancels calls whose caller is gone.
//!
//! Implements: gRPC over HTTP/2, "Length-Prefixed-Message", and RFC 9113 section 6.4 (resets) for cancelling.

use std::sync::Arc;
use std::task::{Context, Poll};

use quire_http2::{ErrorCode, StreamKey};

use super::calls::Calls;
use super::command::Outgoing;

/// Messages a stream may send in one poll before other calls get their turn.
const MESSAGES_PER_POLL_MAX: usize = 64;
/// Size up to which ready messages share one DATA frame.
const BATCH_BYTES_MAX: usize = 8 * 1024;

impl Calls {
    /// Polls the streams that were woken; returns whether there were any.
    pub(super) fn poll_woken(&mut self) -> bool {
        let wakes = Arc::clone(&self.wakes);
        let mut any = false;
        wakes.take(|index| {
            any = true;
            self.poll_slot(index);
        });
        any
    }

    fn poll_slot(&mut self, index: usize) {
        let Some(Some(active)) = self.slots.get_mut(index) else { return };
        let stream = active.stream;
        if active.answer.is_abandoned() {
            self.slots[index] = None;
            self.connection.reset(stream, ErrorCode::CANCEL);
            return self.start_waiting();
        }
        if let Some(mut outgoing) = active.outgoing.take()
            && self.send(stream, outgoing.as_mut())
            && let Some(active) = self.active(stream)
        {
            active.outgoing = Some(outgoing);
        }
        self.release(stream);
    }

    /// Sends messages while there is room; returns whether there may be more.
    fn send(&mut self, stream: StreamKey, outgoing: &mut dyn Outgoing) -> bool {
        let waker = self.wakers[stream.index()].clone();
        let mut cx = Context::from_waker(&waker);
        self.scratch.clear();
        for _ in 0..MESSAGES_PER_POLL_MAX {
            if !self.has_room(stream) {
                self.blocked.push(stream);
                self.send_batch(stream, false);
                return true;
            }
            match outgoing.poll_next(&mut cx, &mut self.scratch) {
                Poll::Pending => {
                    self.send_batch(stream, false);
                    return true;
                }
                Poll::Ready(Err(status)) => {
                    self.give_up(stream, status);
                    return false;
                }
                Poll::Ready(Ok(false)) => {
                    self.send_batch(stream, true);
                    return false;
                }
                Poll::Ready(Ok(true)) => {
                    if self.settings.is_message_per_frame || self.scratch.len() >= BATCH_BYTES_MAX {
                        self.send_batch(stream, false);
                    }
                }
            }
        }
        self.send_batch(stream, false);
        waker.wake_by_ref();
        true
    }

    fn send_batch(&mut self, stream: StreamKey, end: bool) {
        if end || !self.scratch.is_empty() {
            let _ = self.connection.send_slice(stream, &self.scratch, end);
            self.scratch.clear();
        }
    }

    fn has_room(&mut self, stream: StreamKey) -> bool {
        self.connection.queued_bytes(stream) == 0 && self.connection.output().len() < self.settings.output_bytes_max
    }

    /// Wakes streams that have room again; returns whether there are any.
    pub(super) fn unblock(&mut self) -> bool {
        let mut any = false;
        for position in (0..self.blocked.len()).rev() {
            let stream = self.blocked[position];
            if self.has_room(stream) {
                self.blocked.swap_remove(position);
                self.wakes.mark(stream.index());
                any = true;
            }
        }
        any
    }
}
