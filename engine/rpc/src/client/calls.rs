//! The calls of one client connection: takes commands, sends requests, and dispatches received frames.
//!
//! Implements: RFC 9113 section 8.1 (requests).

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use quire_http2::{CachedBlock, Config, Connection, ConnectionError, ErrorCode, Event, Side, StreamKey};
use tokio::time::Instant;

use super::answer::Answer;
use super::command::{Body, Command, Outgoing, Start};
use super::path::Place;
use super::request::RequestHead;
use super::settings::Settings;
use super::target::Target;
use crate::compression;
use crate::inbox::Inbox;
use crate::message::Framing;
use crate::status::Status;
use crate::wake::WakeSet;

/// Concurrent calls until the server's limit is known; the minimum that RFC 9113 section 6.5.2 recommends.
const STREAMS_UNASKED: usize = 100;

/// Largest message that is copied between the frames; longer ones are sent without a copy.
const COPIED_BYTES_MAX: usize = 8 * 1024;

pub(super) struct Active {
    number: u64,
    pub(super) stream: StreamKey,
    pub(super) answer: Answer,
    deadline: Option<Instant>,
    pub(super) outgoing: Option<Box<dyn Outgoing>>,
    pub(super) unreleased: usize,
}

/// Cached header blocks of one cache slot: the slot's generation, the timeout, and blocks without and with compression,
/// each for an envelope and for a bare message as the body.
#[derive(Default)]
struct Heads {
    generation: u64,
    timeout: Option<Duration>,
    blocks: [CachedBlock; 4],
}

/// Cached blocks of a slot; reset if its generation or the call's timeout has changed.
#[inline]
fn blocks<'a>(heads: &'a mut Vec<Heads>, place: &Place, timeout: Option<Duration>) -> &'a mut [CachedBlock; 4] {
    if heads.len() <= place.index {
        heads.resize_with(place.index + 1, Heads::default);
    }
    let known = &mut heads[place.index];
    if (known.generation, known.timeout) != (place.generation, timeout) {
        *known = Heads { generation: place.generation, timeout, ..Heads::default() };
    }
    &mut known.blocks
}

pub(super) struct Calls {
    pub(super) connection: Connection,
    target: Arc<Target>,
    /// Encodings accepted in responses.
    accepted: String,
    pub(super) settings: Arc<Settings>,
    pub(super) slots: Vec<Option<Active>>,
    pub(super) wakes: Arc<WakeSet>,
    pub(super) wakers: Vec<Waker>,
    /// Cached header blocks, indexed by slot.
    heads: Vec<Heads>,
    /// Calls beyond the limit of concurrent streams.
    waiting: VecDeque<Start>,
    /// Streams that wait for room to send more.
    pub(super) blocked: Vec<StreamKey>,
    pub(super) scratch: Vec<u8>,
    epoch: Instant,
    pub(super) now: Instant,
    /// Time of the current read, if a call asks for it.
    pub(super) read_at: Option<std::time::Instant>,
    pub(super) pong_seen: bool,
    /// Number of calls that the last read ended.
    pub(super) ended: usize,
}

impl Calls {
    pub(super) fn new(target: Arc<Target>, settings: Arc<Settings>) -> Self {
        let now = Instant::now();
        let config: Config = settings.http2.clone();
        Self {
            connection: Connection::new(Side::Client, config, 0),
            target,
            accepted: compression::accepted(&settings.accepts),
            slots: Vec::new(),
            wakes: WakeSet::new(settings.calls_per_connection_max),
            wakers: Vec::new(),
            heads: Vec::new(),
            waiting: VecDeque::new(),
            blocked: Vec::new(),
            scratch: Vec::new(),
            epoch: now,
            now,
            read_at: None,
            pong_seen: false,
            ended: 0,
            settings,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.connection.live_streams() == 0 && self.waiting.is_empty()
    }

    pub(super) fn drain(&mut self) {
        if self.waiting.is_empty() {
            self.connection.drain();
        }
    }

    pub(super) fn command(&mut self, command: Command) {
        match command {
            Command::Connect => {}
            Command::Start(start) if self.waiting.len() >= self.settings.waiting_calls_max => {
                start.reply_to.fail(Status::resource_exhausted("too many calls wait for their turn"), true);
            }
            // A call is some hundreds of bytes, so it bypasses the queue where possible.
            Command::Start(start) if self.waiting.is_empty() && self.has_room_for_call() => self.start(start),
            Command::Start(start) => {
                self.waiting.push_back(start);
                self.start_waiting();
            }
            Command::Cancel(number) => {
                self.waiting.retain(|start| start.number != number);
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
    pub(super) fn start_waiting(&mut self) {
        while !self.waiting.is_empty() && self.has_room_for_call() {
            let Some(start) = self.waiting.pop_front() else { return };
            self.start(start);
        }
    }

    fn has_room_for_call(&self) -> bool {
        let most = if self.connection.is_awaiting_peer() { STREAMS_UNASKED } else { usize::MAX };
        let most = most.min(self.settings.calls_per_connection_max);
        self.connection.live_streams() < most && self.connection.can_open().is_ok()
    }

    /// Returns calls that have not begun, for another connection.
    pub(super) fn take_waiting(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.waiting).into_iter().map(Command::Start).collect()
    }

    fn start(&mut self, start: Start) {
        let timeout = match start.deadline.map(|deadline| deadline.checked_duration_since(self.now)) {
            Some(None) => {
                return start.reply_to.fail(Status::deadline_exceeded("time was up before the call began"), true);
            }
            Some(left) => left,
            None => None,
        };
        let head = RequestHead::new(&start, &self.target, &self.accepted, timeout);
        let is_whole = start.dialect.framing() == Framing::Whole;
        let variant = usize::from(head.terms.encoding.is_some()) + 2 * usize::from(is_whole);
        let mut uncached = CachedBlock::default();
        let cache = match head.place() {
            Some(place) => &mut blocks(&mut self.heads, place, head.terms.timeout)[variant],
            None => &mut uncached,
        };
        let (is_bodiless, body_start) = (start.is_bodiless(), start.body_start());
        let Ok(stream) = self.connection.open(cache, is_bodiless, |put| head.put(put)) else {
            return start.reply_to.fail(Status::unavailable("the connection takes no more calls"), true);
        };
        let Start { number, dialect, deadline, message_bytes_max, is_timed, is_unread, body, reply_to, .. } = start;
        self.make_room(stream);
        let outgoing = match body {
            _ if is_bodiless => None,
            Body::Message(framed) => {
                self.send_only(stream, body_start, framed);
                None
            }
            Body::Shared(framed) => {
                self.send_only(stream, body_start, framed);
                None
            }
            Body::Messages(outgoing) => Some(outgoing),
        };
        if outgoing.is_some() {
            self.wakes.mark(stream.index());
        }
        let inbox = || Inbox::new(self.wakers[stream.index()].clone(), self.settings.unread_bytes_max);
        let answer = Answer::new(dialect, reply_to, message_bytes_max, (is_timed, is_unread), inbox);
        self.slots[stream.index()] = Some(Active { number, stream, answer, deadline, outgoing, unreleased: 0 });
    }

    /// Sends the single message of a request.
    fn send_only(&mut self, stream: StreamKey, start: usize, framed: impl AsRef<[u8]> + Into<Bytes>) {
        let _ = if framed.as_ref().len() <= COPIED_BYTES_MAX {
            self.connection.send_slice(stream, &framed.as_ref()[start..], true)
        } else {
            self.connection.send_bytes(stream, framed.into().slice(start..), true)
        };
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
                Event::Reset { stream, code, by_us } => {
                    let untouched = code == ErrorCode::REFUSED_STREAM && !by_us;
                    let status = self.deadline_kept(stream, code).unwrap_or_else(|| Status::from_reset(code));
                    self.fail(stream, status, untouched);
                }
                Event::Pong(_) => self.pong_seen = true,
                Event::GoAway { .. } => {}
            }
        }
        self.start_waiting();
        Ok(())
    }

    pub(super) fn active(&mut self, stream: StreamKey) -> Option<&mut Active> {
        self.slots.get_mut(stream.index())?.as_mut().filter(|active| active.stream == stream)
    }

    /// The server enforces the deadline too: if it cancels the stream first, the call has still timed out.
    fn deadline_kept(&mut self, stream: StreamKey, code: ErrorCode) -> Option<Status> {
        let deadline = self.active(stream)?.deadline?;
        let is_kept = code == ErrorCode::CANCEL && Instant::now() >= deadline;
        is_kept.then(|| Status::deadline_exceeded("time is up; the server cancelled the call"))
    }
}
