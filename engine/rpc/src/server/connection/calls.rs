//! The calls of one connection: events in, calls begun.
//!
//! A handler is polled at once, inside the read that completed its request; it gets its own slot only if it waits.
//! Independent of the transport: bytes come in by `take_in` and leave through the connection's output.
//!
//! Implements: gRPC over HTTP/2, "Requests", the server's side.

use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use http::Extensions;
use quire_http2::{CompleteRequest, Connection, ConnectionError, Event, Head, StreamKey};
use tokio::time::Instant;

use super::time_slice::Pace;
use crate::body::{Counted, HttpService};
use crate::envelope::{Peer, Request};
use crate::message::codec::Payload;
use crate::message::framing::{self, Assembler, Framed, Framing, PREFIX_BYTES};
use crate::message::inbox::Inbox;
use crate::metadata::Metadata;
use crate::protocol::{Dialect, PLAIN};
use crate::server::call::plan::Plan;
use crate::server::call::request::{CallHead, CallPlan, Feed, Gathering, Intake};
use crate::server::call::running::Running;
use crate::server::call::service::Started;
use crate::server::call::{Active, Rejected, Shared};
use crate::server::memory::Lender;
use crate::server::observer::{Notes, Refusal};
use crate::server::reply::plain_http::{self, HttpRunning, Unserved};
use crate::server::reply::sink::Sink;
use crate::server::reply::{Reply, ReplyState, Templates};
use crate::status::Code;
use crate::wake::WakeSet;
use quire_net::{Caller, Client};

/// Payload of the PING sent after requests that ended behind their answer; one per read.
const WAKE_PING: [u8; 8] = *b"answered";

/// A stream's call, from its head to its end.
pub(super) struct Slot {
    pub(super) stream: StreamKey,
    pub(super) phase: Phase,
    pub(super) started_at: Instant,
    /// Details of the call, if the observer wants them.
    pub(super) notes: Option<Box<Notes>>,
}

#[derive(Default)]
pub(super) enum Phase {
    #[default]
    Free,
    Gathering(Gathering),
    Active(Active),
    /// Answered while the peer is still sending.
    Discarding(Rest),
}

/// Limits on request data after the answer.
pub(super) struct Rest {
    pub(super) left_bytes: usize,
    pub(super) expires_at: Instant,
}

impl Slot {
    /// Clears the slot, which is mostly empty.
    #[inline]
    pub(super) fn free(&mut self) {
        if !matches!(self.phase, Phase::Free) {
            self.phase = Phase::Free;
        }
    }
}

/// Equal answered calls that are not reported yet.
pub(super) struct Ended {
    /// `None` for a method that does not exist.
    pub(super) method: Option<usize>,
    pub(super) code: Code,
    pub(super) started_at: Instant,
    pub(super) calls: u32,
    /// Details, of a single call.
    pub(super) notes: Option<Box<Notes>>,
}

/// State shared by consecutive requests with the same head.
struct SameHead {
    head: Arc<Head>,
    /// The call, if it may begin as soon as its message is complete.
    direct: Option<CallPlan>,
}

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
    pub(super) is_wake_ping_due: bool,
    /// Excess connection: every call is refused, then it is drained.
    pub(super) refusing: bool,
    pub(super) pace: Pace,
    pub(super) caller: Caller,
    /// The user agent that operators see.
    user_agent: Box<[u8]>,
    /// Calls that wait for something.
    pub(super) active: usize,
    buffered: Buffered,
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
            user_agent: Box::default(),
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
            is_wake_ping_due: false,
            refusing,
            pace: Pace::default(),
            buffered: Buffered::default(),
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
        let mut same: Option<SameHead> = None;
        loop {
            let last = same.as_ref().map(|same| &same.head);
            if let Some(CompleteRequest { stream, head, body }) = self.connection.receive_complete(input, now_ms, last)
            {
                if let Some(head) = head {
                    same = Some(self.same_head(head));
                }
                if let Some(same) = &same {
                    self.complete(stream, same, body);
                }
            } else if let Some(event) = self.connection.receive(input, now_ms)? {
                self.event(event);
            } else {
                break;
            }
            if self.pace.is_slice_over() && !input.is_empty() {
                self.pace.is_interrupted = true;
                break;
            }
        }
        if std::mem::take(&mut self.is_wake_ping_due) {
            self.connection.ping(WAKE_PING);
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
            self.slots.push(Slot { stream, phase: Phase::Free, started_at: self.now, notes: None });
        }
        let slot = &mut self.slots[index];
        slot.stream = stream;
        slot.started_at = self.now;
        slot.free();
    }

    /// Begins the details of the stream's call, if the observer wants them.
    #[inline]
    fn note(&mut self, stream: StreamKey, head: &Arc<Head>) {
        if self.shared.may_note() {
            // Behind layers a call begins its own details; a request for another host is none.
            let plan = if head.is_oversized() || self.shared.layered.is_some() { None } else { self.plan(head) };
            let is_call = match plan {
                Some(plan @ (Plan::Call(..) | Plan::Fail(..))) => plan.is_grpc() || !self.shared.hosts.refuse(head),
                _ => false,
            };
            self.slots[stream.index()].notes = self.shared.notes(head, is_call, self.now);
        }
    }

    /// The span of the stream's call, for its handler.
    #[inline]
    fn extensions(&self, stream: StreamKey) -> Extensions {
        self.slots[stream.index()].notes.as_ref().map(|notes| notes.extensions()).unwrap_or_default()
    }

    /// Adds bytes of the request.
    #[inline]
    fn note_received(&mut self, stream: StreamKey, bytes: usize) {
        if let Some(notes) = &mut self.slots[stream.index()].notes {
            notes.bytes_in += bytes as u64;
        }
    }

    /// Body bytes given to the connection, if the call has details; for [`note_sent`](Self::note_sent).
    #[inline]
    pub(super) fn sent_so_far(&self, stream: StreamKey) -> Option<u64> {
        self.slots[stream.index()].notes.as_ref().map(|_| self.connection.body_bytes())
    }

    /// The same before the call's handler is polled or dropped.
    #[inline]
    pub(super) fn polling(&self, stream: StreamKey) -> Option<u64> {
        let before = self.sent_so_far(stream)?;
        self.shared.observer.polling();
        Some(before)
    }

    /// Adds what the call has sent since `before`.
    #[inline]
    pub(super) fn note_sent(&mut self, stream: StreamKey, before: Option<u64>) {
        if let Some(before) = before
            && let Some(notes) = &mut self.slots[stream.index()].notes
        {
            notes.bytes_out += self.connection.body_bytes().saturating_sub(before);
        }
    }

    /// The same since [`polling`](Self::polling), and what the handler has waited for.
    #[inline]
    pub(super) fn polled(&mut self, stream: StreamKey, before: Option<u64>) {
        self.note_sent(stream, before);
        if before.is_some()
            && let Some(notes) = &mut self.slots[stream.index()].notes
        {
            notes.waited += self.shared.observer.polled();
        }
    }

    /// Plan for a request with this head.
    #[inline]
    pub(super) fn plan<'a>(&mut self, head: &'a Head) -> Option<&'a Plan> {
        head.memo(|| {
            if let Some(listed) = &self.peer.connection {
                listed.note_user_agent(head.get(b"user-agent").unwrap_or_default(), &mut self.user_agent);
            }
            Plan::read(head, &self.shared.routes)
        })
    }

    #[inline]
    pub(super) fn begin(&mut self, stream: StreamKey, head: &Arc<Head>, end: bool) {
        self.take_slot(stream);
        self.note(stream, head);
        if head.is_oversized() {
            self.pace.check_soon();
            let status = self.shared.refusal(Refusal::HeaderBytes);
            return self.refuse(stream, head, PLAIN, None, &status);
        }
        let refusing = self.refusing && !self.shared.is_always_answered(head.path());
        match self.plan(head) {
            Some(plan) if !plan.is_grpc() && self.shared.hosts.refuse(head) => {
                self.refuse_http(stream, Unserved::Misdirected);
            }
            Some(Plan::Call(plan, _)) if refusing => {
                let status = self.shared.limits.refusal(Refusal::Connections);
                self.refuse(stream, head, plan.dialect, Some(plan.method), &status);
            }
            Some(Plan::Call(CallPlan { dialect, .. }, _) | Plan::Fail(dialect, _)) if self.shared.layered.is_some() => {
                self.begin_layered(stream, *dialect, head, end);
            }
            Some(Plan::Call(plan, message)) => self.begin_call(stream, *plan, message.as_ref(), head, end),
            Some(Plan::Fail(dialect, status)) => self.refuse(stream, head, *dialect, None, status),
            Some(Plan::Unserved(why)) => self.refuse_http(stream, *why),
            Some(Plan::Preflight) => {
                let shared = Arc::clone(&self.shared);
                self.reply_with(stream, &mut ReplyState::bare(PLAIN)).preflight(head, &shared.cors);
                self.finish(stream, None, Code::Ok);
            }
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

    fn begin_call(
        &mut self,
        stream: StreamKey,
        plan: CallPlan,
        message: Option<&Framed<Bytes>>,
        head: &Arc<Head>,
        end: bool,
    ) {
        if let Some(limit) = self.memory_limit(head) {
            return self.refuse_over(limit, stream, plan.dialect, head, Some(plan.method));
        }
        if let Some(message) = message {
            return self.start(stream, &plan, head, None, Intake::Message(&message.owned()), Feed::None);
        }
        if self.shared.routes.table[plan.method].is_streaming_in {
            let inbox = self.inbox(stream, end);
            let feed = Feed::Messages(Arc::clone(&inbox), Assembler::of(plan.dialect.framing()));
            return self.start(stream, &plan, head, None, Intake::Stream(&inbox), feed);
        }
        let call = CallHead::new(&plan, head, &self.peer, self.slots[stream.index()].started_at);
        // Before the body, so that none is buffered for a rejected caller.
        let request = match self.shared.intercept(&call, self.extensions(stream)) {
            Ok(request) => request,
            Err(rejected) => return self.reject(stream, &plan, head, &rejected),
        };
        let expires_at = self.shared.request_deadline(Some(&plan), self.now);
        let gathering = Gathering::new(plan, Arc::clone(head), request, expires_at);
        self.slots[stream.index()].phase = Phase::Gathering(gathering);
        if end {
            return self.gather(stream, &[], true);
        }
        // Now, not when data comes: a caller may send nothing after its head.
        self.note_deadline(Some(expires_at));
    }

    /// Inbox of the stream's body, which may have ended.
    fn inbox(&self, stream: StreamKey, end: bool) -> Arc<Inbox> {
        let inbox = Inbox::new(self.wakers[stream.index()].clone(), self.shared.limits.unread_bytes_max);
        if end {
            inbox.end(Ok(Metadata::new()));
        }
        inbox
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
        self.pace.check_soon();
        let inbox = self.inbox(stream, end);
        let Some(mut request) = plain_http::request(head, Arc::clone(&inbox), &self.peer) else {
            return self.refuse_http(stream, Unserved::Malformed);
        };
        if let Some(counted) = counted {
            request.extensions_mut().insert(counted);
        }
        let mut active = Active {
            method: None,
            running: Box::new(HttpRunning::new(service.call(request), Arc::clone(&self.shared.limits))),
            reply: ReplyState::bare(PLAIN),
            feed: Feed::Chunks(inbox),
            unreleased: 0,
            deadline: None,
            quiet: None,
            ending: None,
            shares: None,
        };
        if self.poll_active(stream, &mut active).is_ready() {
            self.retire(None, active.running);
            return self.finish(stream, None, active.reply.code);
        }
        active.shares = Some(self.shared.take_shares(&mut self.caller, None));
        self.keep(stream, active);
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
        let limit = self.shared.memory_limit(head.path(), held)?;
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
        self.refuse(stream, head, dialect, method, &status);
    }

    fn refuse_http(&mut self, stream: StreamKey, why: Unserved) {
        plain_http::refuse(&mut self.reply_with(stream, &mut ReplyState::bare(PLAIN)), why);
        self.finish(stream, None, Code::Ok);
    }

    #[inline]
    pub(super) fn data(&mut self, stream: StreamKey, data: &[u8], end: bool) {
        if self.slots.get(stream.index()).is_none_or(|slot| slot.stream != stream) {
            return;
        }
        self.note_received(stream, data.len());
        let slot = &mut self.slots[stream.index()];
        match &mut slot.phase {
            Phase::Gathering(_) => {
                self.gather(stream, data, end);
                if !end {
                    self.connection.release(stream, data.len());
                }
            }
            Phase::Active(active) => {
                let pushed = active.feed.push(data, end, self.shared.limits.message_bytes_max);
                active.note_messages(pushed.has_message, self.now);
                active.unreleased += data.len();
                if pushed.must_poll {
                    self.wakes.mark(stream.index());
                }
                self.release(stream);
            }
            Phase::Discarding(_) => self.discard(stream, data.len(), end),
            Phase::Free => {}
        }
    }

    /// Takes data of a request that its handler needs whole, within the connection's limits.
    #[inline]
    fn gather(&mut self, stream: StreamKey, data: &[u8], end: bool) {
        let Phase::Gathering(gathering) = &mut self.slots[stream.index()].phase else { return };
        let held_before = gathering.held_bytes();
        let gathered = self.shared.gather(gathering, data, end);
        self.gathered_bytes = self.gathered_bytes - held_before + gathering.held_bytes();
        let status = match gathered {
            Ok(Some(message)) => return self.start_gathered(stream, &message),
            Ok(None) => match self.shared.gathered_limit(gathering.head.path(), self.gathered_bytes) {
                Some(limit) => self.shared.refusal(limit),
                None => return,
            },
            Err(status) => status,
        };
        let (dialect, head) = (gathering.plan.dialect, Arc::clone(&gathering.head));
        let method = self.forget(stream);
        self.refuse(stream, &head, dialect, method, &status);
    }

    fn start_gathered(&mut self, stream: StreamKey, message: &Framed<Payload<'_>>) {
        let Phase::Gathering(gathering) = std::mem::take(&mut self.slots[stream.index()].phase) else { return };
        self.gathered_bytes -= gathering.held_bytes();
        let Gathering { plan, head, request, .. } = gathering;
        self.start(stream, &plan, &head, request, Intake::Message(message), Feed::None);
    }

    /// Handles a complete request; its handler runs at once unless a limit or an interceptor prevents it.
    #[inline]
    fn complete(&mut self, stream: StreamKey, same: &SameHead, body: &[u8]) {
        if let Some(plan) = &same.direct
            && let Some(message) = self.complete_message(plan, body)
        {
            self.take_slot(stream);
            self.note(stream, &same.head);
            self.note_received(stream, body.len());
            self.start(stream, plan, &same.head, None, Intake::Message(&message), Feed::None);
        } else {
            self.begin(stream, &same.head, false);
            self.data(stream, body, true);
        }
    }

    /// The message in a complete body, if a call is admitted.
    #[inline]
    fn complete_message<'a>(&self, plan: &CallPlan, body: &'a [u8]) -> Option<Framed<Payload<'a>>> {
        let limits = &self.shared.limits;
        if self.connection.queued_bytes_total() > limits.unsent_bytes_max || limits.memory.is_pressed() {
            return None;
        }
        let framed = if plan.dialect.framing() == Framing::Envelopes {
            let (prefix, message) = body.split_first_chunk::<PREFIX_BYTES>()?;
            if *prefix != framing::prefix(message.len(), false) {
                return None;
            }
            Framed { compressed: false, bytes: Payload::Borrowed(message) }
        } else {
            plan.unframed(Payload::Borrowed(body))
        };
        (framed.bytes.as_slice().len() <= limits.message_bytes_max).then_some(framed)
    }

    /// State for complete requests with this head.
    fn same_head(&mut self, head: Arc<Head>) -> SameHead {
        let plan = self.plan(&head);
        let shared = &*self.shared;
        let direct = match plan {
            Some(Plan::Call(plan, None)) => {
                let is_guarded = self.refusing || shared.layered.is_some() || head.is_oversized();
                let is_misdirected = !plan.dialect.needs_trailers() && shared.hosts.refuse(&head);
                let is_gathered = !shared.routes.table[plan.method].is_streaming_in;
                let is_plain = is_gathered && plan.dialect.framing() != Framing::Text;
                (is_plain && !is_guarded && !is_misdirected).then_some(*plan)
            }
            _ => None,
        };
        SameHead { head, direct }
    }

    /// Begins a call whose message, or message stream, is available. `request` has passed the interceptors.
    #[inline]
    fn start(
        &mut self,
        stream: StreamKey,
        plan: &CallPlan,
        head: &Arc<Head>,
        request: Option<Box<Request<()>>>,
        intake: Intake<'_>,
        feed: Feed,
    ) {
        // An intercepted request has them.
        let extensions = if request.is_none() { self.extensions(stream) } else { Extensions::new() };
        let slot = &mut self.slots[stream.index()];
        slot.free();
        let call = CallHead::new(plan, head, &self.peer, slot.started_at);
        let mut cx = Context::from_waker(&self.wakers[stream.index()]);
        let mut admitted =
            match self.shared.admit(&call, request, extensions, self.now, Some(&mut self.caller), &mut cx) {
                Ok(admitted) => admitted,
                Err(rejected) => return self.reject(stream, plan, head, &rejected),
            };
        let before = self.polling(stream);
        if before.is_some()
            && let Some(notes) = &mut self.slots[stream.index()].notes
        {
            notes.set_client(self.caller.client());
            notes.start();
        }
        if matches!(intake, Intake::Message(message) if message.compressed) {
            // Its cost is unknown.
            self.pace.check_soon();
        }
        let mut state = self.shared.reply_state(&call, &mut admitted);
        let spare = self.spares[plan.method].pop();
        let mut reply = Reply {
            sink: Sink::Http2(&mut self.connection, stream, &self.lender),
            templates: &mut self.templates,
            state: &mut state,
            output_bytes_max: self.shared.limits.output_bytes_max,
        };
        let started = self.shared.start(&call, &mut admitted, intake, spare, &mut cx, &mut reply);
        let (method, deadline) = (Some(plan.method), call.deadline);
        self.polled(stream, before);
        match started {
            Started::Running(running) => {
                self.note_blocked(stream);
                let shares = Some(self.shared.take_shares(&mut self.caller, method));
                let (reply, unreleased, ending) = (state, 0, admitted.ending);
                let quiet = self.shared.quiet(plan, self.now);
                let active = Active { method, running, reply, feed, unreleased, deadline, quiet, ending, shares };
                self.keep(stream, active);
            }
            Started::Done(spare) => {
                if let Some(spare) = spare {
                    self.retire(method, spare);
                }
                self.finish(stream, method, state.code);
            }
        }
    }

    #[cold]
    fn reject(&mut self, stream: StreamKey, plan: &CallPlan, head: &Head, rejected: &Rejected) {
        if rejected.is_by_interceptor {
            // It has no name; the one of the call before is not its own.
            self.caller.set(None);
        }
        self.refuse(stream, head, plan.dialect, Some(plan.method), &rejected.status);
        if rejected.is_by_interceptor {
            self.discard_little(stream);
        }
    }

    /// Bytes held now, without what is shared, for the account of memory. `moved` counts all that the connection has
    /// read and written.
    pub(super) fn held_bytes(&mut self, moved: u64) -> usize {
        let connection = &mut self.connection;
        let queued = connection.queued_bytes_total() - connection.lent_bytes_total() + connection.output().len();
        queued + self.gathered_bytes + self.buffered.count(&self.slots, moved, !self.blocked.is_empty())
    }
}

/// Bytes a connection moves between two counts of its buffers.
const MOVED_BYTES: u64 = 256 * 1024;

/// Last count of the bytes that a connection's streams buffer, in either direction; feeds the memory account.
#[derive(Default)]
struct Buffered {
    bytes: usize,
    moved_before: u64,
}

impl Buffered {
    /// Bytes held by the calls in `slots`. Recounted when the connection has moved enough bytes since, while any are
    /// held, or when one is blocked.
    fn count(&mut self, slots: &[Slot], moved: u64, is_blocked: bool) -> usize {
        let is_due = moved.saturating_sub(self.moved_before) >= MOVED_BYTES;
        if is_due || self.bytes > 0 || is_blocked {
            let streams = slots.iter().map(|slot| match &slot.phase {
                Phase::Active(active) => active.held_bytes(),
                Phase::Free | Phase::Gathering(_) | Phase::Discarding(_) => 0,
            });
            *self = Self { bytes: streams.sum(), moved_before: moved };
        }
        self.bytes
    }
}
