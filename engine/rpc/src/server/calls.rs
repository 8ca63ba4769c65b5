//! The calls of one connection: events in, handlers polled, answers out.
//!
//! A handler is polled at once, inside the read that completed its request; it gets its own slot only if it waits.
//! Independent of the transport: bytes come in by `take_in` and leave through the connection's output.
//!
//! Implements: gRPC over HTTP/2, "Requests", the server's side.

use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use quire_http2::{Connection, ConnectionError, ErrorCode, Event, Head, StreamKey, Whole};
use tokio::time::Instant;

use super::http_calls::{self, Unserved};
use super::kind::Kind;
use super::memory::Lender;
use super::method::Intake;
use super::observer::Refusal;
use super::origin::Origin;
use super::plan::{CallPlan, Plan};
use super::reply::{ReplyState, Templates};
use super::running::Running;
use super::shared::Shared;
use super::shares::{Caller, Client};
use super::slot::{Ended, Feed, Gathering, Phase, Slot};
use super::turn::Pace;
use super::unread::Unread;
use crate::codec::Payload;
use crate::envelope::Peer;
use crate::http_service::{Counted, HttpService};
use crate::inbox::Inbox;
use crate::message::{Assembler, Framed};
use crate::metadata::Metadata;
use crate::protocol::{Dialect, PLAIN};
use crate::status::{Code, Status};
use crate::wake::WakeSet;

/// Payload of the PING sent after requests that ended behind their answer; one per read.
const NUDGE: [u8; 8] = *b"answered";

pub(crate) struct Calls {
    pub(super) connection: Connection,
    pub(super) shared: Arc<Shared>,
    pub(super) peer: Arc<Peer>,
    pub(super) slots: Vec<Slot>,
    pub(super) spares: Vec<Vec<Box<dyn Running>>>,
    pub(super) templates: Templates,
    pub(super) wakes: Arc<WakeSet>,
    pub(super) wakers: Vec<Waker>,
    /// Calls whose output waits for room.
    pub(super) blocked: Vec<StreamKey>,
    /// Answered calls whose request exceeded the discard limit while the answer waits for windows.
    pub(super) closing: Vec<StreamKey>,
    pub(super) gathered_bytes: usize,
    epoch: Instant,
    pub(super) now: Instant,
    pub(super) earliest_deadline: Option<Instant>,
    /// Ended calls not yet reported.
    pub(super) ended: Vec<Ended>,
    pub(super) pong_seen: bool,
    /// A request ended behind its answer.
    pub(super) nudge_due: bool,
    /// Excess connection: every call is refused, then it is drained.
    pub(super) refusing: bool,
    pub(super) pace: Pace,
    pub(super) caller: Caller,
    /// Calls that wait for something.
    pub(super) active: usize,
    unread: Unread,
    pub(super) lender: Lender,
}

impl Calls {
    pub(crate) fn new(shared: Arc<Shared>, peer: Arc<Peer>, refusing: bool, lender: Lender) -> Self {
        let now = Instant::now();
        let config = shared.limits.http2.clone();
        let wakes = WakeSet::new(config.concurrent_streams_max as usize);
        let mut spares = Vec::new();
        spares.resize_with(shared.routes.table.len(), Vec::new);
        let address = peer.address.map(|address| address.ip());
        Self {
            caller: Caller::new(Client::at(address)),
            active: 0,
            connection: Connection::new(quire_http2::Side::Server, config, 0),
            peer,
            slots: Vec::new(),
            spares,
            templates: Templates::new(shared.limits.is_message_per_frame),
            wakes,
            wakers: Vec::new(),
            blocked: Vec::new(),
            closing: Vec::new(),
            gathered_bytes: 0,
            epoch: now,
            now,
            earliest_deadline: None,
            ended: Vec::new(),
            pong_seen: false,
            nudge_due: false,
            refusing,
            pace: Pace::default(),
            unread: Unread::default(),
            lender,
            shared,
        }
    }

    pub(super) fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.now.duration_since(self.epoch).as_millis()).unwrap_or(u64::MAX)
    }

    /// Handles complete frames of `input` until the connection's turn is over; the rest stays in it.
    pub(super) fn take_in(&mut self, input: &mut &[u8]) -> Result<(), ConnectionError> {
        let now_ms = self.elapsed_ms();
        self.pace.is_interrupted = false;
        let mut kind: Option<Kind> = None;
        loop {
            let last = kind.as_ref().map(|kind| &kind.head);
            if let Some(Whole { stream, head, body }) = self.connection.receive_whole(input, now_ms, last) {
                if let Some(head) = head {
                    kind = Some(self.kind(head));
                }
                if let Some(kind) = &kind {
                    self.whole(stream, kind, body);
                }
            } else if let Some(event) = self.connection.receive(input, now_ms)? {
                self.event(event);
            } else {
                break;
            }
            if self.pace.is_turn_over() && !input.is_empty() {
                self.pace.is_interrupted = true;
                break;
            }
        }
        if std::mem::take(&mut self.nudge_due) {
            self.connection.ping(NUDGE);
        }
        if self.refusing && !self.slots.is_empty() {
            // It is answered; the next connection waits for its permit.
            self.connection.drain();
        }
        Ok(())
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Headers { stream, head, end } => self.begin(stream, &head, end),
            Event::Data { stream, data, end } => self.data(stream, data, end),
            Event::Trailers { stream, .. } => self.data(stream, &[], true),
            Event::Reset { stream, .. } => self.cancel(stream),
            Event::Pong(_) => self.pong_seen = true,
            Event::GoAway { .. } => {}
        }
    }

    /// Gives a new stream its slot.
    #[inline]
    pub(super) fn take_slot(&mut self, stream: StreamKey) {
        let index = stream.index();
        while self.slots.len() <= index {
            self.wakers.push(self.wakes.waker(self.slots.len()));
            // Doubles from one, not from four: an idle connection keeps this room.
            if self.slots.len() == self.slots.capacity() {
                self.slots.reserve_exact(self.slots.len().max(1));
            }
            self.slots.push(Slot { stream, phase: Phase::Free, started_at: self.now });
        }
        let slot = &mut self.slots[index];
        slot.stream = stream;
        slot.started_at = self.now;
        slot.free();
    }

    /// Plan for a request with this head.
    #[inline]
    pub(super) fn plan<'a>(&self, head: &'a Head) -> Option<&'a Plan> {
        head.memo(|| Plan::read(head, &self.shared.routes))
    }

    #[inline]
    pub(super) fn begin(&mut self, stream: StreamKey, head: &Arc<Head>, end: bool) {
        self.take_slot(stream);
        if head.is_oversized() {
            self.pace.look_soon();
            self.shared.observer.refused(Refusal::HeaderBytes);
            let status = self.shared.limits.refusal(Refusal::HeaderBytes);
            return self.refuse(stream, ReplyState::bare(PLAIN), None, &status);
        }
        let refusing = self.refusing && !self.shared.is_always_answered(head.path());
        match self.plan(head) {
            Some(plan) if !plan.is_grpc() && self.shared.hosts.refuse(head) => {
                self.refuse_http(stream, Unserved::Misdirected);
            }
            Some(Plan::Call(plan) | Plan::Get(plan, _)) if refusing => {
                let status = self.shared.limits.refusal(Refusal::Connections);
                self.refuse(stream, self.shared.bare(plan.dialect, head), Some(plan.method), &status);
            }
            Some(
                Plan::Call(CallPlan { dialect, .. }) | Plan::Get(CallPlan { dialect, .. }, _) | Plan::Fail(dialect, _),
            ) if self.shared.layered.is_some() => {
                self.begin_layered(stream, *dialect, head, end);
            }
            Some(Plan::Call(plan)) => self.begin_call(stream, *plan, head, end),
            Some(Plan::Get(plan, message)) => self.begin_get(stream, *plan, head, message.clone()),
            Some(Plan::Fail(dialect, status)) => {
                let (dialect, status) = (*dialect, status.clone());
                self.refuse(stream, self.shared.bare(dialect, head), None, &status);
            }
            Some(Plan::Unsupported) => self.refuse_http(stream, Unserved::Unsupported),
            Some(Plan::Preflight) => {
                let shared = Arc::clone(&self.shared);
                self.reply_with(stream, &mut ReplyState::bare(PLAIN)).preflight(head, &shared.cors);
                self.finish(stream, None, Code::Ok);
            }
            Some(Plan::NotAllowed { get }) => self.refuse_http(stream, Unserved::NotAllowed { get: *get }),
            Some(Plan::Http) if refusing => self.refuse_http(stream, Unserved::TooMany),
            Some(Plan::Http) | None => self.begin_http(stream, head, end),
        }
    }

    /// Hands the call to the layers, which see and answer it as HTTP.
    #[cold]
    fn begin_layered(&mut self, stream: StreamKey, dialect: Dialect, head: &Arc<Head>, end: bool) {
        let Some(service) = self.shared.layered.clone() else { return };
        if let Some(limit) = self.memory_limit(head).or_else(|| self.calls_limit()) {
            return self.refuse_over(limit, stream, dialect, head, None);
        }
        self.hand_over(stream, head, end, &*service, Some(Counted));
    }

    fn begin_call(&mut self, stream: StreamKey, plan: CallPlan, head: &Arc<Head>, end: bool) {
        if let Some(limit) = self.memory_limit(head) {
            return self.refuse_over(limit, stream, plan.dialect, head, Some(plan.method));
        }
        if self.shared.routes.table[plan.method].is_streaming_in {
            let index = stream.index();
            let inbox = Inbox::new(self.wakers[index].clone(), self.shared.limits.unread_bytes_max);
            if end {
                inbox.end(Ok(Metadata::new()));
            }
            let feed = Feed::Messages(Arc::clone(&inbox), Assembler::of(plan.dialect.framing()));
            return self.start(stream, &plan, head, None, Intake::Stream(&inbox), feed);
        }
        let assembler = Assembler::of(plan.dialect.framing());
        if end && !assembler.is_whole() {
            let status = Status::unimplemented("the call takes one message and none came");
            return self.refuse(stream, self.shared.bare(plan.dialect, head), Some(plan.method), &status);
        }
        let allowed = self.shared.limits.request_timeout;
        let allowed = plan.terms.timeout.map_or(allowed, |timeout| timeout.min(allowed));
        let expires_at = self.now.checked_add(allowed).unwrap_or(self.now);
        let deadline = self.deadline(stream, &plan);
        let origin = Origin::new(plan.accepted(), head, deadline, &self.peer);
        // Before the body, so that none is buffered for a rejected caller.
        let request = match self.shared.intercepted(&plan, &origin) {
            Ok(request) => request,
            Err(status) => return self.refuse_head(stream, &plan, head, &status),
        };
        let gathering = Gathering { plan, head: Arc::clone(head), request, assembler, message: None, expires_at };
        self.slots[stream.index()].phase = Phase::Gathering(gathering);
        if end {
            // An empty body is a message with default fields.
            return self.start_whole(stream, Payload::Borrowed(&[]));
        }
        // Now, not when data comes: a caller may send nothing after its head.
        self.note_deadline(Some(expires_at));
    }

    fn begin_get(&mut self, stream: StreamKey, plan: CallPlan, head: &Arc<Head>, message: Bytes) {
        if let Some(limit) = self.memory_limit(head) {
            return self.refuse_over(limit, stream, plan.dialect, head, Some(plan.method));
        }
        let framed = Framed { compressed: plan.terms.encoding.is_some(), bytes: Payload::Owned(message) };
        self.start(stream, &plan, head, None, Intake::Message(&framed), Feed::None);
    }

    fn begin_http(&mut self, stream: StreamKey, head: &Arc<Head>, end: bool) {
        match self.shared.http.clone() {
            Some(_) if self.memory_limit(head).is_some() => {
                self.refuse_http(stream, Unserved::TooMuch);
            }
            Some(_) if !self.shared.is_always_answered(head.path()) && self.calls_limit().is_some() => {
                self.refuse_http(stream, Unserved::Busy);
            }
            Some(service) => self.hand_over(stream, head, end, &*service, None),
            None => self.refuse_http(stream, Unserved::NotFound),
        }
    }

    fn hand_over(
        &mut self,
        stream: StreamKey,
        head: &Arc<Head>,
        end: bool,
        service: &dyn HttpService,
        counted: Option<Counted>,
    ) {
        self.caller.set(None);
        // A page may cost a hundred times as much as a call.
        self.pace.look_soon();
        let inbox = Inbox::new(self.wakers[stream.index()].clone(), self.shared.limits.unread_bytes_max);
        if end {
            inbox.end(Ok(Metadata::new()));
        }
        let Some(mut request) = http_calls::request(head, Arc::clone(&inbox), &self.peer) else {
            return self.refuse_http(stream, Unserved::Malformed);
        };
        if let Some(counted) = counted {
            request.extensions_mut().insert(counted);
        }
        let running = Box::new(http_calls::HttpRunning::new(service.call(request), Arc::clone(&self.shared.limits)));
        let reply = ReplyState::bare(PLAIN);
        self.activate(stream, None, running, reply, Feed::Chunks(inbox), None);
    }

    /// Limit that refuses another call of a caller known only by address.
    fn calls_limit(&mut self) -> Option<Refusal> {
        self.caller.set(None);
        self.shared.calls_limit(&mut self.caller, None)
    }

    /// Memory limit that refuses new work on the connection.
    #[inline]
    fn memory_limit(&self, head: &Head) -> Option<Refusal> {
        let limits = &self.shared.limits;
        if self.connection.queued_bytes_total() > limits.unsent_bytes_max {
            self.shared.observer.refused(Refusal::UnsentBytes);
            return Some(Refusal::UnsentBytes);
        }
        let held = self.connection.queued_bytes_total() + self.gathered_bytes;
        let limit = limits.memory.refusal(held)?;
        // Health and metrics report it, and other calls free memory, unless they are what fills it.
        if held < limits.unread_bytes_max && self.shared.is_answered_when_full(head.path()) {
            return None;
        }
        self.shared.observer.refused_client(limit, self.caller.client());
        Some(limit)
    }

    #[cold]
    fn refuse_over(
        &mut self,
        limit: Refusal,
        stream: StreamKey,
        dialect: Dialect,
        head: &Arc<Head>,
        method: Option<usize>,
    ) {
        let status = self.shared.limits.refusal(limit);
        self.refuse(stream, self.shared.bare(dialect, head), method, &status);
    }

    fn refuse_http(&mut self, stream: StreamKey, why: Unserved) {
        http_calls::refuse(&mut self.reply_with(stream, &mut ReplyState::bare(PLAIN)), why);
        self.finish(stream, None, Code::Ok);
    }

    #[inline]
    pub(super) fn data(&mut self, stream: StreamKey, data: &[u8], end: bool) {
        let Some(slot) = self.slots.get_mut(stream.index()).filter(|slot| slot.stream == stream) else { return };
        match &mut slot.phase {
            Phase::Gathering(_) => {
                self.gather(stream, data, end);
                if !end {
                    self.connection.release(stream, data.len());
                }
            }
            Phase::Active(active) => {
                let marked = active.feed.push(data, end, self.shared.limits.message_bytes_max);
                active.unreleased += data.len();
                if marked {
                    self.wakes.mark(stream.index());
                }
                self.release(stream);
            }
            Phase::Discarding(_) => self.discard(stream, data.len(), end),
            Phase::Free => {}
        }
    }

    /// Bytes held now, without what is shared, for the account of memory. `moved` counts all that the connection has
    /// read and written.
    pub(super) fn held_bytes(&mut self, moved: u64) -> usize {
        let connection = &mut self.connection;
        let queued = connection.queued_bytes_total() - connection.lent_bytes_total() + connection.output().len();
        queued + self.gathered_bytes + self.unread.count(&self.slots, moved, !self.blocked.is_empty())
    }

    /// Clears the slot; returns the method that was called.
    pub(super) fn forget(&mut self, stream: StreamKey) -> Option<usize> {
        let slot = self.slots.get_mut(stream.index()).filter(|slot| slot.stream == stream)?;
        match std::mem::take(&mut slot.phase) {
            Phase::Gathering(gathering) => {
                self.gathered_bytes -= gathering.held_bytes();
                Some(gathering.plan.method)
            }
            Phase::Active(active) => {
                self.active -= 1;
                self.retire(active.method, active.running);
                active.method
            }
            Phase::Free | Phase::Discarding(_) => None,
        }
    }

    /// Reopens the stream's window, unless its reader has enough unread.
    pub(super) fn release(&mut self, stream: StreamKey) {
        let Some(slot) = self.slots.get_mut(stream.index()) else { return };
        let Phase::Active(active) = &mut slot.phase else { return };
        if !active.feed.is_stalled() && active.unreleased > 0 {
            self.connection.release(stream, std::mem::take(&mut active.unreleased));
        }
    }

    /// Resets the streams whose peer has accepted nothing since this time, in milliseconds of the connection.
    pub(super) fn reset_stalled(&mut self, since_ms: u64) {
        let stalled: Vec<StreamKey> = self.connection.stalled(since_ms).collect();
        for stream in stalled {
            self.connection.reset(stream, ErrorCode::CANCEL);
            self.cancel(stream);
        }
    }

    /// Cancels all streams of a failed connection.
    pub(super) fn cancel_all(&mut self) {
        for index in 0..self.slots.len() {
            self.cancel(self.slots[index].stream);
        }
    }

    /// Cancels a stream that the peer reset or violated the protocol on.
    fn cancel(&mut self, stream: StreamKey) {
        let Some(slot) = self.slots.get(stream.index()).filter(|slot| slot.stream == stream) else { return };
        let method = match &slot.phase {
            Phase::Gathering(gathering) => Some(gathering.plan.method),
            Phase::Active(active) => active.method,
            Phase::Free | Phase::Discarding(_) => None,
        };
        self.forget(stream);
        if method.is_some() {
            self.ended(stream, method, Code::Cancelled);
        }
    }
}
