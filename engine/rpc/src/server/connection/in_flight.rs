//! Calls in flight: polled, timed out, finished, and the rest of their requests discarded.
//!
//! A reset right after the answer would be legal, but some clients then report the reset instead of the answer. So it
//! waits until the limits on discarded bytes and time are reached. Until then the rest of the request is checked as
//! usual.
//!
//! curl 7 notices that such a stream is closed only when the connection brings more data: hence the PING.
//!
//! Implements: RFC 9113 section 8.1, a response before the end of its request.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use quire_http2::{ErrorCode, Head, StreamKey};
use tokio::time::Instant;

use super::calls::{Calls, Ended, Phase, Rest};
use crate::protocol::Dialect;
use crate::server::call::running::Running;
use crate::server::call::{Active, time_is_up};
use crate::server::reply::sink::Sink;
use crate::server::reply::{Reply, ReplyState};
use crate::status::{Code, Status};

/// Boxes kept per method for reuse.
const SPARES_MAX: usize = 128;
/// Ended calls of a batch, whose end is reported by one reading of the clock.
const ENDED_MAX: usize = 256;
/// Bytes, and below the time, for discarding after a refused head: no more than is in flight anyhow.
pub(crate) const REFUSED_BYTES_MAX: usize = 16 * 1024;
const REFUSED_TIMEOUT: Duration = Duration::from_secs(1);

impl Calls {
    /// Stores a waiting call in its slot.
    pub(crate) fn keep(&mut self, stream: StreamKey, active: Active) {
        self.active += 1;
        self.note_deadline(active.due());
        self.slots[stream.index()].phase = Phase::Active(active);
    }

    fn has_room(&mut self, stream: StreamKey) -> bool {
        self.connection.queued_bytes(stream) == 0
            && self.connection.output().len() < self.shared.limits.output_bytes_max
    }

    /// Adds the call to those that wait for room, unless it has room.
    pub(crate) fn note_blocked(&mut self, stream: StreamKey) {
        if !self.has_room(stream) && !self.blocked.contains(&stream) {
            self.blocked.push(stream);
        }
    }

    #[inline]
    pub(crate) fn poll_active(&mut self, stream: StreamKey, active: &mut Active) -> Poll<()> {
        let before = self.polling(stream);
        let mut cx = Context::from_waker(&self.wakers[stream.index()]);
        let sink = Sink::Http2(&mut self.connection, stream, &self.lender);
        let polled = active.poll(sink, &mut self.templates, self.shared.limits.output_bytes_max, &mut cx);
        self.polled(stream, before);
        if polled.is_pending() {
            active.note_messages(false, self.now);
            self.note_blocked(stream);
        }
        polled
    }

    /// Polls the calls woken since the last time; true if there were any.
    pub(crate) fn poll_woken(&mut self) -> bool {
        let wakes = Arc::clone(&self.wakes);
        let mut any = false;
        wakes.take(|index| {
            any = true;
            self.poll_slot(index);
        });
        any
    }

    fn poll_slot(&mut self, index: usize) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let stream = slot.stream;
        if !matches!(slot.phase, Phase::Active(_)) {
            return;
        }
        let Phase::Active(mut active) = std::mem::take(&mut slot.phase) else { return };
        match self.poll_active(stream, &mut active) {
            Poll::Pending => {
                self.slots[index].phase = Phase::Active(active);
                self.release(stream);
            }
            Poll::Ready(()) => {
                let (method, code) = (active.method, active.reply.code);
                self.active -= 1;
                self.retire(method, active.running);
                self.finish(stream, method, code);
                self.connection.release(stream, active.unreleased);
            }
        }
    }

    /// Keeps a box for the next call of its method.
    pub(crate) fn retire(&mut self, method: Option<usize>, mut running: Box<dyn Running>) {
        // A future's fields may panic on drop.
        if catch_unwind(AssertUnwindSafe(|| running.clear())).is_err() {
            return;
        }
        if let Some(spares) = method.and_then(|method| self.spares.get_mut(method))
            && spares.len() < SPARES_MAX
        {
            spares.push(running);
        }
    }

    /// Drops the handler of a call that is not answered.
    fn abandon(&mut self, stream: StreamKey, active: Active) -> (Option<usize>, ReplyState, usize) {
        self.active -= 1;
        let before = self.polling(stream);
        self.retire(active.method, active.running);
        self.polled(stream, before);
        (active.method, active.reply, active.unreleased)
    }

    /// Ends an answered call; discards the rest of its request.
    #[inline]
    pub(crate) fn finish(&mut self, stream: StreamKey, method: Option<usize>, code: Code) {
        if !self.connection.is_receive_closed(stream) {
            self.begin_discarding(stream);
        }
        if method.is_some() {
            self.ended(stream, method, code);
        } else {
            // A request of a page is reported where it is answered.
            self.slots[stream.index()].notes = None;
        }
    }

    /// Answers without a handler; the method may not exist.
    pub(crate) fn refuse(
        &mut self,
        stream: StreamKey,
        head: &Head,
        dialect: Dialect,
        method: Option<usize>,
        status: &Status,
    ) {
        let mut state = self.shared.bare(dialect, head);
        let before = self.sent_so_far(stream);
        self.reply_with(stream, &mut state).finish(status);
        self.note_sent(stream, before);
        self.slots[stream.index()].phase = Phase::Free;
        if method.is_none() {
            self.ended(stream, None, status.code());
        }
        self.finish(stream, method, status.code());
    }

    pub(crate) fn reply_with<'a>(&'a mut self, stream: StreamKey, state: &'a mut ReplyState) -> Reply<'a> {
        Reply {
            sink: Sink::Http2(&mut self.connection, stream, &self.lender),
            templates: &mut self.templates,
            state,
            output_bytes_max: self.shared.limits.output_bytes_max,
        }
    }

    /// Polls the calls that waited for room; call it when output was written or windows grew.
    pub(crate) fn poll_unblocked(&mut self) -> bool {
        let mut any = false;
        for position in (0..self.blocked.len()).rev() {
            let stream = self.blocked[position];
            if self.has_room(stream) {
                self.blocked.swap_remove(position);
                self.wakes.mark(stream.index());
                any = true;
            }
        }
        for position in (0..self.closing.len()).rev() {
            let stream = self.closing[position];
            if !self.connection.is_sending(stream) {
                self.closing.swap_remove(position);
                any |= self.connection.is_live(stream);
                self.connection.reset(stream, ErrorCode::NO_ERROR);
            }
        }
        any
    }

    pub(crate) fn note_deadline(&mut self, deadline: Option<Instant>) {
        if let Some(deadline) = deadline {
            self.earliest_deadline = Some(self.earliest_deadline.map_or(deadline, |other| other.min(deadline)));
        }
    }

    /// Ends the calls past their deadline.
    pub(crate) fn expire(&mut self) {
        if self.earliest_deadline.is_none_or(|deadline| deadline > self.now) {
            return;
        }
        self.earliest_deadline = None;
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            let deadline = match &slot.phase {
                Phase::Gathering(gathering) => Some(gathering.expires_at),
                Phase::Active(active) => active.due(),
                Phase::Discarding(rest) => Some(rest.expires_at),
                Phase::Free => None,
            };
            if deadline.is_some_and(|deadline| deadline <= self.now) {
                self.expire_call(slot.stream);
            } else {
                self.note_deadline(deadline);
            }
        }
    }

    fn expire_call(&mut self, stream: StreamKey) {
        let (method, mut state, unreleased, status) = match std::mem::take(&mut self.slots[stream.index()].phase) {
            Phase::Active(active) => {
                let status = active.overdue();
                let (method, reply, unreleased) = self.abandon(stream, active);
                (method, reply, unreleased, status)
            }
            Phase::Gathering(gathering) => {
                self.gathered_bytes -= gathering.held_bytes();
                let state = self.shared.bare(gathering.plan.dialect, &gathering.head);
                (Some(gathering.plan.method), state, 0, time_is_up())
            }
            Phase::Discarding(_) => return self.closing.push(stream),
            Phase::Free => return,
        };
        if self.connection.queued_bytes(stream) > 0 {
            self.connection.reset(stream, ErrorCode::CANCEL);
        } else {
            let before = self.sent_so_far(stream);
            self.reply_with(stream, &mut state).finish(&status);
            self.note_sent(stream, before);
        }
        self.finish(stream, method, Code::DeadlineExceeded);
        self.connection.release(stream, unreleased);
    }

    /// Clears the slot; returns the method that was called.
    pub(crate) fn forget(&mut self, stream: StreamKey) -> Option<usize> {
        let slot = self.slots.get_mut(stream.index()).filter(|slot| slot.stream == stream)?;
        match std::mem::take(&mut slot.phase) {
            Phase::Gathering(gathering) => {
                self.gathered_bytes -= gathering.held_bytes();
                Some(gathering.plan.method)
            }
            Phase::Active(active) => self.abandon(stream, active).0,
            Phase::Free | Phase::Discarding(_) => None,
        }
    }

    /// Reopens the stream's window, unless its reader has enough unread.
    pub(crate) fn release(&mut self, stream: StreamKey) {
        let Some(slot) = self.slots.get_mut(stream.index()) else { return };
        let Phase::Active(active) = &mut slot.phase else { return };
        if !active.feed.is_stalled() && active.unreleased > 0 {
            self.connection.release(stream, std::mem::take(&mut active.unreleased));
        }
    }

    /// Resets the streams whose peer has accepted nothing since this time, in milliseconds of the connection.
    pub(crate) fn reset_stalled(&mut self, since_ms: u64) {
        let stalled: Vec<StreamKey> = self.connection.stalled(since_ms).collect();
        for stream in stalled {
            self.connection.reset(stream, ErrorCode::CANCEL);
            self.cancel(stream);
        }
    }

    /// Cancels all streams of a failed connection.
    pub(crate) fn cancel_all(&mut self) {
        for index in 0..self.slots.len() {
            self.cancel(self.slots[index].stream);
        }
    }

    /// Cancels a stream that the peer reset or violated the protocol on.
    pub(crate) fn cancel(&mut self, stream: StreamKey) {
        let method = self.forget(stream);
        if method.is_some() {
            self.ended(stream, method, Code::Cancelled);
        } else if let Some(slot) = self.slots.get_mut(stream.index()).filter(|slot| slot.stream == stream) {
            slot.notes = None;
        }
    }

    /// Lets the client finish its request after the answer.
    #[cold]
    fn begin_discarding(&mut self, stream: StreamKey) {
        let limits = &self.shared.limits;
        let expires_at = self.now.checked_add(limits.discard_timeout).unwrap_or(self.now);
        let rest = Rest { left_bytes: limits.discarded_bytes_max, expires_at };
        self.slots[stream.index()].phase = Phase::Discarding(rest);
        self.note_deadline(Some(expires_at));
    }

    /// Discards little of a request that was refused by its head.
    pub(crate) fn discard_little(&mut self, stream: StreamKey) {
        let expires_at = self.now + REFUSED_TIMEOUT;
        if let Phase::Discarding(rest) = &mut self.slots[stream.index()].phase {
            rest.left_bytes = rest.left_bytes.min(REFUSED_BYTES_MAX);
            rest.expires_at = rest.expires_at.min(expires_at);
            self.note_deadline(Some(expires_at));
        }
    }

    pub(crate) fn discard(&mut self, stream: StreamKey, bytes: usize, end: bool) {
        let phase = &mut self.slots[stream.index()].phase;
        let Phase::Discarding(rest) = phase else { return };
        if end {
            *phase = Phase::Free;
            self.is_wake_ping_due |= !self.connection.is_live(stream);
        } else if let Some(left) = rest.left_bytes.checked_sub(bytes) {
            rest.left_bytes = left;
            self.connection.release(stream, bytes);
        } else {
            *phase = Phase::Free;
            self.closing.push(stream);
        }
    }

    #[inline]
    pub(crate) fn ended(&mut self, stream: StreamKey, method: Option<usize>, code: Code) {
        let started_at = self.slots[stream.index()].started_at;
        let mut notes = self.slots[stream.index()].notes.take();
        if let Some(notes) = &mut notes {
            notes.end();
        } else if let Some(last) = self.ended.last_mut()
            && last.notes.is_none()
            && last.method == method
            && last.code == code
            && last.started_at == started_at
        {
            last.calls += 1;
            return;
        }
        if self.ended.len() >= ENDED_MAX {
            self.report();
        }
        self.ended.push(Ended { method, code, started_at, calls: 1, notes });
    }

    /// Reports ended calls to the observer. Called before every write, so that a client finds its answered call
    /// counted.
    pub(crate) fn report(&mut self) {
        if self.ended.is_empty() {
            return;
        }
        let now = Instant::now();
        for Ended { method, code, started_at, calls, notes } in self.ended.drain(..) {
            let elapsed = now.saturating_duration_since(started_at);
            match notes {
                None => self.shared.report(method, code, elapsed, calls, &self.peer),
                Some(notes) => self.shared.report_details(method, code, elapsed, &notes, &self.peer),
            }
        }
        if let Some((code, reason)) = self.templates.refusal.take() {
            self.shared.observer.call_refused(self.caller.client(), code, &reason);
        }
    }

    /// True while a call waits for something, or an answer to be taken.
    pub(crate) fn is_busy(&self) -> bool {
        self.active > 0 || self.connection.queued_bytes_total() > 0
    }

    /// True if no call is unanswered.
    pub(crate) fn is_idle(&self) -> bool {
        self.connection.live_streams() == 0
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.report();
    }
}
