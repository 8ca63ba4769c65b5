//! Calls in flight: started, polled, timed out, finished.
//!
//! A handler that panics fails its own call with `INTERNAL`; the connection and its other calls go on.
//!
//! Implements: gRPC over HTTP/2, "Timeout" and "Status".

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use quire_http2::{ErrorCode, Head, StreamKey};
use tokio::time::Instant;

use super::calls::Calls;
use super::method::{Incoming, Intake, Started};
use super::origin::Origin;
use super::plan::CallPlan;
use super::reply::{Reply, ReplyState};
use super::running::Running;
use super::sink::Sink;
use super::slot::{Active, Feed, Phase};
use crate::envelope::Request;
use crate::interceptor::Ending;
use crate::status::{Code, Status};
use crate::transcode::Reading;

/// Boxes kept per method for reuse.
const SPARES_MAX: usize = 128;

/// Ready if a call is ended from outside; otherwise `waker` is woken when it is.
#[inline]
fn poll_ending(ending: &mut Option<Ending>, waker: &Waker) -> Poll<Status> {
    ending.as_mut().map_or(Poll::Pending, |ending| ending.as_mut().poll(&mut Context::from_waker(waker)))
}

impl Calls {
    /// The call's deadline, if its caller set one.
    #[inline]
    pub(super) fn deadline(&self, stream: StreamKey, plan: &CallPlan) -> Option<Instant> {
        plan.terms.timeout.and_then(|timeout| self.slots[stream.index()].started_at.checked_add(timeout))
    }

    /// Begins a call whose message, or message stream, is available. `request` has passed the interceptors.
    #[inline]
    pub(super) fn start(
        &mut self,
        stream: StreamKey,
        plan: &CallPlan,
        head: &Arc<Head>,
        request: Option<Box<Request<()>>>,
        intake: Intake<'_>,
        feed: Feed,
    ) {
        self.slots[stream.index()].free();
        let deadline = self.deadline(stream, plan);
        if deadline.is_some_and(|deadline| deadline <= self.now) {
            let status = Status::deadline_exceeded("time was up before work began");
            return self.refuse(stream, self.shared.bare(plan.dialect, head), Some(plan.method), &status);
        }
        let (request_json, answer_json) = match plan.json(&self.shared.routes) {
            Ok(json) => json.unzip(),
            Err(status) => {
                return self.refuse(stream, self.shared.bare(plan.dialect, head), Some(plan.method), &status);
            }
        };
        let origin = Origin::new(plan.accepted(), head, deadline, &self.peer);
        let asked = if request.is_some() { Ok(request) } else { self.shared.intercepted(plan, &origin) };
        let request = match asked {
            Ok(request) => request,
            Err(status) => return self.refuse_head(stream, plan, head, &status),
        };
        self.caller.set(request.as_ref().and_then(|request| request.extensions().get()));
        if let Some(limit) = self.shared.calls_limit(&mut self.caller, Some(plan.method)) {
            let status = self.shared.limits.refusal(limit);
            return self.refuse(stream, self.shared.bare(plan.dialect, head), Some(plan.method), &status);
        }
        let mut ending = self.shared.ending(plan, request.as_deref());
        if let Poll::Ready(status) = poll_ending(&mut ending, &self.wakers[stream.index()]) {
            return self.refuse(stream, self.shared.bare(plan.dialect, head), Some(plan.method), &status);
        }
        if matches!(intake, Intake::Message(message) if message.compressed) {
            // Its cost is unknown.
            self.pace.look_soon();
        }
        let mut incoming = Incoming {
            origin,
            request,
            intake,
            reading: Reading {
                encoding: plan.terms.encoding,
                json: request_json,
                message_bytes_max: self.shared.limits.message_bytes_max,
                budget: plan.terms.encoding.map(|_| Arc::clone(&self.peer.budget)),
            },
        };
        let compression = self.shared.compression_for(plan);
        let mut reply = ReplyState::new(plan.dialect, answer_json, compression, self.shared.cors.allowed(head));
        let spare = self.spares[plan.method].pop();
        let handler = &self.shared.routes.table[plan.method].handler;
        let mut out = Reply {
            sink: Sink::Http2(&mut self.connection, stream, &self.lender),
            templates: &mut self.templates,
            state: &mut reply,
            output_bytes_max: self.shared.limits.output_bytes_max,
        };
        let mut cx = Context::from_waker(&self.wakers[stream.index()]);
        let started = catch_unwind(AssertUnwindSafe(|| handler.start(spare, &mut incoming, &mut cx, &mut out)));
        match started {
            Ok(Started::Running(running)) => {
                let has_room = out.has_room();
                self.note_blocked(stream, has_room);
                let method = Some(plan.method);
                let (unreleased, places) = (0, self.shared.call_places(&mut self.caller, method));
                let active = Active { method, running, reply, feed, unreleased, deadline, ending, _places: places };
                self.keep(stream, active);
            }
            Ok(Started::Done(spare)) => {
                if let Some(spare) = spare {
                    self.retire(Some(plan.method), spare);
                }
                self.finish(stream, Some(plan.method), reply.code);
            }
            Err(_) => {
                out.flush();
                out.finish(&panicked());
                self.finish(stream, Some(plan.method), Code::Internal);
            }
        }
    }

    /// Polls a call for the first time, and gives it a slot if it waits.
    #[inline]
    pub(super) fn activate(
        &mut self,
        stream: StreamKey,
        method: Option<usize>,
        mut running: Box<dyn Running>,
        mut reply: ReplyState,
        feed: Feed,
        deadline: Option<Instant>,
    ) {
        match self.poll_running(stream, &mut running, &mut reply) {
            Poll::Ready(()) => {
                self.retire(method, running);
                self.finish(stream, method, reply.code);
            }
            Poll::Pending => {
                let (unreleased, places) = (0, self.shared.call_places(&mut self.caller, method));
                let active =
                    Active { method, running, reply, feed, unreleased, deadline, ending: None, _places: places };
                self.keep(stream, active);
            }
        }
    }

    /// Stores a waiting call in its slot.
    fn keep(&mut self, stream: StreamKey, active: Active) {
        self.active += 1;
        self.note_deadline(active.deadline);
        self.slots[stream.index()].phase = Phase::Active(active);
    }

    /// Adds the call to those that wait for room, unless it has room.
    fn note_blocked(&mut self, stream: StreamKey, has_room: bool) {
        if !has_room && !self.blocked.contains(&stream) {
            self.blocked.push(stream);
        }
    }

    #[inline]
    fn poll_running(&mut self, stream: StreamKey, running: &mut Box<dyn Running>, state: &mut ReplyState) -> Poll<()> {
        let mut cx = Context::from_waker(&self.wakers[stream.index()]);
        let mut reply = Reply {
            sink: Sink::Http2(&mut self.connection, stream, &self.lender),
            templates: &mut self.templates,
            state,
            output_bytes_max: self.shared.limits.output_bytes_max,
        };
        match catch_unwind(AssertUnwindSafe(|| running.poll(&mut cx, &mut reply))) {
            Ok(Poll::Pending) => {
                let has_room = reply.has_room();
                self.note_blocked(stream, has_room);
                Poll::Pending
            }
            Ok(Poll::Ready(())) => Poll::Ready(()),
            Err(_) => {
                reply.flush();
                reply.finish(&panicked());
                Poll::Ready(())
            }
        }
    }

    /// Polls the calls woken since the last time; true if there were any.
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
        let Some(slot) = self.slots.get_mut(index) else { return };
        let stream = slot.stream;
        if !matches!(slot.phase, Phase::Active(_)) {
            return;
        }
        let Phase::Active(mut active) = std::mem::take(&mut slot.phase) else { return };
        let polled = match poll_ending(&mut active.ending, &self.wakers[index]) {
            Poll::Pending => self.poll_running(stream, &mut active.running, &mut active.reply),
            Poll::Ready(status) => {
                self.reply_with(stream, &mut active.reply).finish(&status);
                Poll::Ready(())
            }
        };
        match polled {
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
    pub(super) fn retire(&mut self, method: Option<usize>, mut running: Box<dyn Running>) {
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

    /// Ends an answered call; discards the rest of its request.
    #[inline]
    pub(super) fn finish(&mut self, stream: StreamKey, method: Option<usize>, code: Code) {
        if !self.connection.is_receive_closed(stream) {
            self.begin_discarding(stream);
        }
        if method.is_some() {
            self.ended(stream, method, code);
        }
    }

    /// Answers without a handler; the method may not exist.
    pub(super) fn refuse(&mut self, stream: StreamKey, mut state: ReplyState, method: Option<usize>, status: &Status) {
        self.reply_with(stream, &mut state).finish(status);
        self.slots[stream.index()].phase = Phase::Free;
        if method.is_none() {
            self.ended(stream, None, status.code());
        }
        self.finish(stream, method, status.code());
    }

    pub(super) fn reply_with<'a>(&'a mut self, stream: StreamKey, state: &'a mut ReplyState) -> Reply<'a> {
        Reply {
            sink: Sink::Http2(&mut self.connection, stream, &self.lender),
            templates: &mut self.templates,
            state,
            output_bytes_max: self.shared.limits.output_bytes_max,
        }
    }

    /// Polls the calls that waited for room; call it when output was written or windows grew.
    pub(super) fn poll_unblocked(&mut self) -> bool {
        let mut any = false;
        for position in (0..self.blocked.len()).rev() {
            let stream = self.blocked[position];
            let room = self.connection.queued_bytes(stream) == 0
                && self.connection.output().len() < self.shared.limits.output_bytes_max;
            if room {
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

    pub(super) fn note_deadline(&mut self, deadline: Option<Instant>) {
        if let Some(deadline) = deadline {
            self.earliest_deadline = Some(self.earliest_deadline.map_or(deadline, |other| other.min(deadline)));
        }
    }

    /// Ends the calls past their deadline.
    pub(super) fn expire(&mut self) {
        if self.earliest_deadline.is_none_or(|deadline| deadline > self.now) {
            return;
        }
        self.earliest_deadline = None;
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            let deadline = match &slot.phase {
                Phase::Gathering(gathering) => Some(gathering.expires_at),
                Phase::Active(active) => active.deadline,
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
        let (method, mut state, unreleased) = match std::mem::take(&mut self.slots[stream.index()].phase) {
            Phase::Active(active) => {
                self.active -= 1;
                self.retire(active.method, active.running);
                (active.method, active.reply, active.unreleased)
            }
            Phase::Gathering(gathering) => {
                self.gathered_bytes -= gathering.held_bytes();
                (Some(gathering.plan.method), self.shared.bare(gathering.plan.dialect, &gathering.head), 0)
            }
            Phase::Discarding(_) => return self.closing.push(stream),
            Phase::Free => return,
        };
        if self.connection.queued_bytes(stream) > 0 {
            self.connection.reset(stream, ErrorCode::CANCEL);
        } else {
            self.reply_with(stream, &mut state).finish(&Status::deadline_exceeded("time is up"));
        }
        self.finish(stream, method, Code::DeadlineExceeded);
        self.connection.release(stream, unreleased);
    }

    /// True while a call waits for something, or an answer to be taken.
    pub(super) fn is_busy(&self) -> bool {
        self.active > 0 || self.connection.queued_bytes_total() > 0
    }

    /// True if no call is unanswered.
    pub(super) fn is_idle(&self) -> bool {
        self.connection.live_streams() == 0
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.report();
    }
}

fn panicked() -> Status {
    Status::internal("the handler panicked")
}
