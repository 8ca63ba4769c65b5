//! Multiplexes calls onto the streams of one HTTP/2 connection: sends requests, batching ready messages as room allows,
//! passes received frames to the readers of their responses, and cancels calls whose caller is gone.
//!
//! Implements: RFC 9113 sections 6.4 (resets, for cancelling) and 8.1 (requests and responses); gRPC over HTTP/2,
//! "Length-Prefixed-Message".

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use quire_http2::{CachedBlock, Config, Connection, ConnectionError, ErrorCode, Event, Head, Side, StreamKey};
use tokio::time::Instant;

use crate::client::call::attempt::{Attempt, Body, Failure, Outgoing, RequestHead, Unprocessed, untouched};
use crate::client::call::path::CacheSlot;
use crate::client::call::response::ResponseReader;
use crate::client::channel::subchannel::{Command, WaitingCalls};
use crate::client::channel::target::Target;
use crate::client::settings::Settings;
use crate::message::compression;
use crate::message::framing::Framing;
use crate::message::inbox::Inbox;
use crate::status::Status;
use crate::wake::WakeSet;

/// Concurrent calls until the server's limit is known; the minimum that RFC 9113 section 6.5.2 recommends.
const STREAMS_UNASKED: usize = 100;

/// Largest message that is copied between the frames; longer ones are sent without a copy.
const COPIED_BYTES_MAX: usize = 8 * 1024;

/// Messages a stream may send in one poll before other calls get their turn.
const MESSAGES_PER_POLL_MAX: usize = 64;

/// Size up to which ready messages share one DATA frame.
const BATCH_BYTES_MAX: usize = 8 * 1024;

/// Number of the watch of the server's health.
pub(super) const WATCH: u64 = u64::MAX;

struct ActiveCall {
    number: u64,
    stream: StreamKey,
    response: ResponseReader,
    deadline: Option<Instant>,
    outgoing: Option<Box<dyn Outgoing>>,
    /// The request's message until the response begins, for another attempt.
    sent: Option<Body>,
    /// Position of the request in the connection's output.
    begins_at: u64,
    unreleased: usize,
}

/// Cached header blocks of one cache slot: the slot's generation, the timeout, and blocks without and with compression,
/// each for an envelope and for a bare message as the body.
#[derive(Default)]
struct CachedHeads {
    generation: u64,
    timeout: Option<Duration>,
    blocks: [CachedBlock; 4],
}

/// Cached blocks of a slot; reset if its generation or the call's timeout has changed.
#[inline]
fn blocks<'a>(
    heads: &'a mut Vec<CachedHeads>,
    slot: &CacheSlot,
    timeout: Option<Duration>,
) -> &'a mut [CachedBlock; 4] {
    if heads.len() <= slot.index {
        heads.resize_with(slot.index + 1, CachedHeads::default);
    }
    let known = &mut heads[slot.index];
    if (known.generation, known.timeout) != (slot.generation, timeout) {
        *known = CachedHeads { generation: slot.generation, timeout, ..CachedHeads::default() };
    }
    &mut known.blocks
}

pub(super) struct Multiplexer {
    pub(super) connection: Connection,
    target: Arc<Target>,
    /// Encodings accepted in responses.
    accepted: String,
    settings: Arc<Settings>,
    slots: Vec<Option<ActiveCall>>,
    pub(super) wakes: Arc<WakeSet>,
    wakers: Vec<Waker>,
    /// Stream of the watch of the server's health. It is no call: neither our limit of calls nor idle time counts it.
    watch: Option<StreamKey>,
    /// Cached header blocks, indexed by slot.
    heads: Vec<CachedHeads>,
    /// Calls beyond the limit of concurrent streams.
    waiting: WaitingCalls,
    /// Streams that wait for room to send more.
    blocked: Vec<StreamKey>,
    scratch: Vec<u8>,
    epoch: Instant,
    pub(super) now: Instant,
    /// Time of the current read, once a call has needed it.
    read_at: Option<std::time::Instant>,
    pub(super) pong_seen: bool,
    /// Number of calls that the last read ended.
    pub(super) ended: usize,
    /// Bytes that the socket has taken.
    pub(super) written: u64,
    /// True once commands go to another connection: the callers' receivers show then which calls to cancel.
    is_retired: bool,
}

impl Multiplexer {
    pub(super) fn new(target: Arc<Target>, settings: Arc<Settings>) -> Self {
        let now = Instant::now();
        let config: Config = settings.http2.clone();
        Self {
            connection: Connection::new(Side::Client, config, 0),
            target,
            accepted: compression::accepted(&settings.accepts),
            slots: Vec::new(),
            wakes: WakeSet::new(settings.calls_per_connection_max.saturating_add(1)),
            wakers: Vec::new(),
            watch: None,
            heads: Vec::new(),
            waiting: WaitingCalls::new(&settings),
            blocked: Vec::new(),
            scratch: Vec::new(),
            epoch: now,
            now,
            read_at: None,
            pong_seen: false,
            ended: 0,
            written: 0,
            is_retired: false,
            settings,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.live_calls() == 0 && self.waiting.calls.is_empty()
    }

    fn live_calls(&self) -> usize {
        self.connection.live_streams() - usize::from(self.has_watch())
    }

    pub(super) fn has_watch(&self) -> bool {
        self.watch.is_some_and(|stream| self.connection.is_live(stream))
    }

    /// True if no call has begun.
    pub(super) fn is_unused(&self) -> bool {
        self.slots.len() <= usize::from(self.watch.is_some())
    }

    /// Begins the watch of the server's health.
    pub(super) fn watch(&mut self, attempt: Attempt) {
        if self.connection.can_open().is_ok() {
            self.start(attempt);
        } else {
            self.waiting.calls.push_front(attempt);
        }
    }

    pub(super) fn drain(&mut self) {
        if self.waiting.calls.is_empty() {
            self.connection.drain();
        }
    }

    /// Finishes the calls in flight without further commands.
    pub(super) fn retire(&mut self) {
        self.is_retired = true;
        self.slots.iter().flatten().for_each(|active| self.wakes.mark(active.stream.index()));
    }

    pub(super) fn command(&mut self, command: Command) {
        match command {
            Command::Connect => {}
            // A call is some hundreds of bytes, so it bypasses the queue where possible.
            Command::Start(attempt) if self.waiting.calls.is_empty() && self.has_room_for_call() => self.start(attempt),
            Command::Start(attempt) => {
                self.waiting.push(attempt);
                self.start_waiting();
            }
            Command::Cancel(number) => {
                self.waiting.cancel(number);
                let found = self.slots.iter().flatten().find(|active| active.number == number);
                if let Some(stream) = found.map(|active| active.stream) {
                    self.slots[stream.index()] = None;
                    self.connection.reset(stream, ErrorCode::CANCEL);
                    self.start_waiting();
                }
            }
        }
    }

    /// Starts as many waiting calls as the server's limit and ours allow.
    fn start_waiting(&mut self) {
        while !self.waiting.calls.is_empty() && self.has_room_for_call() {
            let Some(attempt) = self.waiting.calls.pop_front() else { return };
            self.start(attempt);
        }
    }

    fn has_room_for_call(&self) -> bool {
        let most = if self.connection.is_awaiting_peer() { STREAMS_UNASKED } else { usize::MAX };
        let most = most.min(self.settings.calls_per_connection_max);
        self.live_calls() < most && self.connection.can_open().is_ok()
    }

    /// Returns calls that have not begun, for another connection.
    pub(super) fn take_waiting(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.waiting.calls).into_iter().map(Command::Start).collect()
    }

    fn start(&mut self, attempt: Attempt) {
        if attempt.reply_to.is_abandoned() {
            return;
        }
        let timeout = match attempt.timeout(self.now) {
            Ok(timeout) => timeout,
            Err(status) => return attempt.reply_to.fail(status),
        };
        let head = RequestHead::new(&attempt, &self.target, &self.accepted, timeout);
        let is_unframed = attempt.dialect.framing() == Framing::Complete;
        let variant = usize::from(head.terms.encoding.is_some()) + 2 * usize::from(is_unframed);
        let mut uncached = CachedBlock::default();
        let cache = match head.cache_slot() {
            Some(slot) => &mut blocks(&mut self.heads, slot, head.terms.timeout)[variant],
            None => &mut uncached,
        };
        let (is_bodiless, body_start) = (attempt.is_bodiless(), attempt.body_start());
        let begins_at = self.written.saturating_add(self.connection.output().len() as u64);
        let Ok(stream) = self.connection.open(cache, is_bodiless, |put| head.put(put)) else {
            return attempt.reply_to.fail(untouched(Status::unavailable("the connection takes no more calls")));
        };
        let Attempt { number, dialect, deadline, message_bytes_max, body, reply_to, .. } = attempt;
        if number == WATCH {
            self.watch = Some(stream);
        }
        self.make_room(stream);
        let (outgoing, sent) = match body {
            Body::Messages(outgoing) => (Some(outgoing).filter(|_| !is_bodiless), None),
            whole if is_bodiless => (None, Some(whole)),
            whole => (None, Some(self.send_only(stream, body_start, whole))),
        };
        if outgoing.is_some() {
            self.wakes.mark(stream.index());
        }
        let inbox = || Inbox::new(self.wakers[stream.index()].clone(), self.settings.unread_bytes_max);
        let response = ResponseReader::new(dialect, reply_to, message_bytes_max, inbox);
        let call = ActiveCall { number, stream, response, deadline, outgoing, sent, begins_at, unreleased: 0 };
        self.slots[stream.index()] = Some(call);
    }

    /// Sends the single message of a request, and returns it.
    fn send_only(&mut self, stream: StreamKey, start: usize, body: Body) -> Body {
        let framed = match body {
            Body::Message(framed) if framed.len() > COPIED_BYTES_MAX => Bytes::from(framed),
            Body::Shared(framed) if framed.len() > COPIED_BYTES_MAX => framed,
            small => {
                let _ = self.connection.send_slice(stream, &small.framed()[start..], true);
                return small;
            }
        };
        let _ = self.connection.send_bytes(stream, framed.slice(start..), true);
        Body::Shared(framed)
    }

    fn make_room(&mut self, stream: StreamKey) {
        while self.slots.len() <= stream.index() {
            self.wakers.push(self.wakes.waker(self.slots.len()));
            self.slots.push(None);
        }
    }

    pub(super) fn take_in(&mut self, input: &mut &[u8]) -> Result<(), ConnectionError> {
        let elapsed = self.now.duration_since(self.epoch).as_millis();
        let now_ms = u64::try_from(elapsed).unwrap_or(u64::MAX);
        self.read_at = None;
        self.ended = 0;
        while let Some(event) = self.connection.receive(input, now_ms)? {
            match event {
                Event::Headers { stream, head, end } => self.head(stream, &head, end),
                Event::Data { stream, data, end } => self.data(stream, data, end),
                Event::Trailers { stream, head } => self.finish(stream, Some(&head)),
                // Reset by the server, or beyond the last stream of its GOAWAY.
                Event::Reset { stream, code: code @ ErrorCode::REFUSED_STREAM, by_us: false } => {
                    self.give_back(stream, Status::from_reset(code), true);
                }
                Event::Reset { stream, code, .. } => {
                    let status = self.deadline_kept(stream, code).unwrap_or_else(|| Status::from_reset(code));
                    self.fail(stream, status);
                }
                Event::Pong(_) => self.pong_seen = true,
                Event::GoAway { .. } => {}
            }
        }
        self.start_waiting();
        Ok(())
    }

    fn active(&mut self, stream: StreamKey) -> Option<&mut ActiveCall> {
        self.slots.get_mut(stream.index())?.as_mut().filter(|active| active.stream == stream)
    }

    /// The server enforces the deadline too: if it cancels the stream first, the call has still timed out.
    fn deadline_kept(&mut self, stream: StreamKey, code: ErrorCode) -> Option<Status> {
        let deadline = self.active(stream)?.deadline?;
        let is_kept = code == ErrorCode::CANCEL && Instant::now() >= deadline;
        is_kept.then(|| Status::deadline_exceeded("time is up; the server cancelled the call"))
    }

    fn take(&mut self, stream: StreamKey) -> Option<ActiveCall> {
        self.active(stream)?;
        self.slots.get_mut(stream.index())?.take()
    }

    #[inline]
    fn head(&mut self, stream: StreamKey, head: &Arc<Head>, end: bool) {
        self.time_head(stream);
        let Some(active) = self.active(stream) else { return };
        active.sent = None;
        if end && active.response.is_trailers(head) {
            return self.finish(stream, Some(head));
        }
        match active.response.head(head) {
            Ok(()) if end => self.finish(stream, None),
            Ok(()) => {}
            Err(status) => self.give_up(stream, status),
        }
    }

    /// Records when a head was read. All heads of one read share one reading of the clock.
    #[inline]
    fn time_head(&mut self, stream: StreamKey) {
        let slot = self.slots.get_mut(stream.index()).and_then(Option::as_mut);
        if let Some(active) = slot.filter(|active| active.response.is_timed && active.stream == stream) {
            active.response.head_at = Some(*self.read_at.get_or_insert_with(std::time::Instant::now));
        }
    }

    #[inline]
    fn data(&mut self, stream: StreamKey, data: &[u8], end: bool) {
        let length = data.len();
        let Some(active) = self.active(stream) else { return self.connection.release(stream, length) };
        active.unreleased += length;
        match active.response.data(data) {
            Err(status) => return self.give_up(stream, status),
            Ok(true) => self.wakes.mark(stream.index()),
            Ok(false) => {}
        }
        if end {
            return self.finish(stream, None);
        }
        self.release(stream);
    }

    fn release(&mut self, stream: StreamKey) {
        let Some(active) = self.active(stream) else { return };
        if !active.response.is_stalled() {
            let bytes = std::mem::take(&mut active.unreleased);
            self.connection.release(stream, bytes);
        }
    }

    /// Completes a response.
    #[inline]
    fn finish(&mut self, stream: StreamKey, trailers: Option<&Arc<Head>>) {
        let Some(active) = self.take(stream) else { return };
        if !self.connection.is_receive_closed(stream) || self.connection.is_live(stream) {
            // The server answered before the whole request was sent; the rest is not needed.
            self.connection.reset(stream, ErrorCode::CANCEL);
        }
        self.ended += 1;
        active.response.end(trailers);
    }

    fn fail(&mut self, stream: StreamKey, status: Status) {
        let Some(active) = self.take(stream) else { return };
        active.response.fail(status);
    }

    /// Fails a call that the server has not processed.
    fn give_back(&mut self, stream: StreamKey, status: Status, was_sent: bool) {
        let Some(active) = self.take(stream) else { return };
        let unprocessed = active.sent.map(|body| Unprocessed { body, was_sent });
        active.response.fail(Failure { unprocessed, ..untouched(status).into() });
    }

    /// Fails the call and cancels its stream.
    fn give_up(&mut self, stream: StreamKey, status: Status) {
        self.fail(stream, status);
        self.connection.reset(stream, ErrorCode::CANCEL);
    }

    pub(super) fn fail_all(&mut self, status: &Status) {
        for index in 0..self.slots.len() {
            let Some(ActiveCall { stream, begins_at, .. }) = self.slots[index] else { continue };
            if begins_at >= self.written {
                self.give_back(stream, status.clone(), false);
            } else {
                self.fail(stream, status.clone());
            }
        }
    }

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
        let mut cx = Context::from_waker(&self.wakers[index]);
        if active.response.is_abandoned() || self.is_retired && active.response.poll_abandoned(&mut cx) {
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
