//! State of one connection (RFC 9113 sections 3.4, 5 and 6): the loop over received frames, and its errors.

mod complete;
mod heads;
mod receive;
mod send;

use std::cmp::{max, min};
use std::collections::VecDeque;
use std::sync::Arc;

pub use self::complete::CompleteRequest;
use self::heads::{BlockCache, WaitingHeads};
use crate::config::{Budget, Config};
use crate::error::{ConnectionError, ErrorCode};
use crate::frame::{
    self, FRAME_BYTES_DEFAULT, FRAME_BYTES_MAX, HEAD_BYTES, PREFACE, Settings, WINDOW_DEFAULT, WINDOW_MAX, kind,
};
use crate::head::Head;
use crate::hpack::{Decoder, Encoder};
use crate::output::Output;
use crate::streams::{StreamKey, Streams};

/// Smallest useful DATA payload, the last frame's excepted: shorter frames cost more than they carry.
const USEFUL_BYTES: usize = 5;
/// A `WINDOW_UPDATE` that opens less of a window costs more than it brings.
const UPDATE_BYTES_MIN: u32 = 256;

/// Our end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Opens streams.
    Client,
    /// Answers streams.
    Server,
}

/// Something the peer did.
#[derive(Debug)]
pub enum Event<'a> {
    /// A request (server) or a final response (client) began.
    Headers {
        /// The stream.
        stream: StreamKey,
        /// The request's or response's head.
        head: Arc<Head>,
        /// True if no body and no trailers follow.
        end: bool,
    },
    /// Bytes of a body; [`Connection::release`] gives their window back.
    Data {
        /// The stream.
        stream: StreamKey,
        /// The bytes, borrowed from the input.
        data: &'a [u8],
        /// True if nothing follows.
        end: bool,
    },
    /// The peer ended its side with a trailer section.
    Trailers {
        /// The stream.
        stream: StreamKey,
        /// The trailer fields.
        head: Arc<Head>,
    },
    /// The stream was reset before its end; its slot is already free.
    Reset {
        /// The stream.
        stream: StreamKey,
        /// The error code.
        code: ErrorCode,
        /// True if we reset the stream for a protocol error; false if the peer did, or its GOAWAY excluded the stream.
        by_us: bool,
    },
    /// The peer accepts no new streams.
    GoAway {
        /// The error code.
        code: ErrorCode,
    },
    /// The answer to [`Connection::ping`].
    Pong([u8; 8]),
}

/// Progress of the graceful shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// The first GOAWAY is sent; we wait until the peer has seen it.
    Announced,
    /// The final GOAWAY with the last stream is sent.
    Draining,
    Failed(ConnectionError),
}

/// A header block that still lacks CONTINUATION frames.
#[derive(Debug)]
struct Assembly {
    stream: u32,
    end: bool,
    self_dependent: bool,
    continuations: u32,
    block: Vec<u8>,
}

/// An HTTP/2 connection, of either side.
#[derive(Debug)]
pub struct Connection {
    side: Side,
    config: Config,
    phase: Phase,
    now_ms: u64,
    output: Output,
    decoder: Decoder,
    encoder: Encoder,
    block_cache: BlockCache,
    streams: Streams,
    waiting: WaitingHeads,
    /// Stream of the last complete request while it has no slot yet.
    unplaced: Option<StreamKey>,
    /// Slots with something to send, in round-robin order.
    ready: VecDeque<u32>,
    /// Body bytes queued in all streams together.
    queued_total: usize,
    /// Of those, bytes that are lent.
    lent_total: usize,
    /// Further events of one frame, beyond the first.
    events: VecDeque<Event<'static>>,
    peer: Settings,
    preface_left: usize,
    peer_settings_seen: bool,
    our_settings_pending: bool,
    /// Start of the current wait for the peer: for the handshake or the rest of a header block.
    awaiting_since_ms: Option<u64>,
    assembly: Option<Assembly>,
    /// Highest identifier the peer opened (server), or next one of ours (client).
    last_peer_stream: u32,
    next_stream: u32,
    peer_goaway: Option<u32>,
    receive_window: i64,
    unannounced: u32,
    send_window: i64,
    resets: Budget,
    control_frames: Budget,
    /// Bytes of bodies sent so far.
    sent_bytes: u64,
    /// Bytes returned by `WINDOW_UPDATE`s: to the connection, and to its streams together.
    returned_bytes: [u64; 2],
    /// Our PINGs that are not acknowledged yet.
    pings_unanswered: u32,
}

impl Connection {
    /// Creates a connection whose first bytes (preface or SETTINGS) are already in the output.
    pub fn new(side: Side, config: Config, now_ms: u64) -> Self {
        let config = sane(config);
        let mut connection = Self {
            side,
            phase: Phase::Open,
            now_ms,
            output: Output::default(),
            decoder: Decoder::new(config.decoder_table_bytes as usize),
            encoder: Encoder::new(config.encoder_table_bytes_max as usize),
            block_cache: BlockCache::default(),
            streams: Streams::new(),
            waiting: WaitingHeads::default(),
            unplaced: None,
            ready: VecDeque::new(),
            queued_total: 0,
            lent_total: 0,
            events: VecDeque::new(),
            peer: Settings::default(),
            preface_left: if side == Side::Server { PREFACE.len() } else { 0 },
            peer_settings_seen: false,
            our_settings_pending: true,
            awaiting_since_ms: Some(now_ms),
            assembly: None,
            last_peer_stream: 0,
            next_stream: 1,
            peer_goaway: None,
            receive_window: i64::from(max(config.connection_window_bytes, WINDOW_DEFAULT)),
            unannounced: 0,
            send_window: i64::from(WINDOW_DEFAULT),
            resets: Budget::new(config.resets),
            control_frames: Budget::new(config.control_frames),
            sent_bytes: 0,
            returned_bytes: [0; 2],
            pings_unanswered: 0,
            config,
        };
        connection.greet();
        connection
    }

    fn greet(&mut self) {
        let out = self.output.buffer();
        if self.side == Side::Client {
            out.extend_from_slice(PREFACE);
        }
        let settings = Settings {
            header_table_bytes: self.config.decoder_table_bytes,
            push: self.side == Side::Server,
            concurrent_streams_max: match self.side {
                Side::Server => self.config.concurrent_streams_max,
                Side::Client => u32::MAX,
            },
            stream_window_bytes: self.config.stream_window_bytes,
            frame_bytes_max: self.config.frame_bytes_max,
            header_list_bytes_max: self.config.header_list_bytes_max,
        };
        settings.write(out);
        let more = self.config.connection_window_bytes.saturating_sub(WINDOW_DEFAULT);
        if more > 0 {
            frame::put_window_update(out, 0, more);
        }
    }

    /// Takes frames off `input` until one yields an event; `None` when no complete frame is left.
    ///
    /// After an error the output holds the GOAWAY; every later call returns the same error.
    #[inline]
    pub fn receive<'a>(&mut self, input: &mut &'a [u8], now_ms: u64) -> Result<Option<Event<'a>>, ConnectionError> {
        if let Phase::Failed(error) = self.phase {
            return Err(error);
        }
        self.now_ms = now_ms;
        self.place();
        if let Some(event) = self.begin_waiting().or_else(|| self.events.pop_front()) {
            return Ok(Some(event));
        }
        let result = self.frames(input);
        if let Err(error) = result {
            self.fail(error);
        }
        result
    }

    fn frames<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, ConnectionError> {
        if self.preface_left > 0 && !self.preface(input)? {
            return Ok(None);
        }
        loop {
            let Some((head, rest)) = input.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
            let head = frame::Head::parse(head);
            if head.length > self.config.frame_bytes_max {
                return Err(ConnectionError::size("a frame longer than our SETTINGS_MAX_FRAME_SIZE"));
            }
            let Some((payload, rest)) = rest.split_at_checked(head.length as usize) else { return Ok(None) };
            *input = rest;
            if let Some(event) = self.frame(head, payload)? {
                return Ok(Some(event));
            }
        }
    }

    fn preface(&mut self, input: &mut &[u8]) -> Result<bool, ConnectionError> {
        let count = min(self.preface_left, input.len());
        let (bytes, rest) = input.split_at(count);
        let expected = &PREFACE[PREFACE.len() - self.preface_left..];
        if bytes != &expected[..count] {
            return Err(ConnectionError::protocol("not the HTTP/2 preface"));
        }
        *input = rest;
        self.preface_left -= count;
        Ok(self.preface_left == 0)
    }

    #[inline]
    fn frame<'a>(&mut self, head: frame::Head, payload: &'a [u8]) -> Result<Option<Event<'a>>, ConnectionError> {
        if self.assembly.is_some() && head.kind != kind::CONTINUATION {
            return Err(ConnectionError::protocol("another frame inside a header block"));
        }
        if !self.peer_settings_seen && head.kind != kind::SETTINGS {
            return Err(ConnectionError::protocol("the first frame is not SETTINGS"));
        }
        match head.kind {
            kind::DATA => self.data(head, payload),
            kind::HEADERS => self.headers(head, payload),
            kind::CONTINUATION => self.continuation(head, payload),
            kind::PRIORITY => self.priority(head, payload),
            kind::RST_STREAM => self.reset_received(head, payload),
            kind::SETTINGS => self.settings(head, payload).map(|()| None),
            kind::PUSH_PROMISE => Err(ConnectionError::protocol("PUSH_PROMISE though push is off")),
            kind::PING => self.ping_received(head, payload),
            kind::GOAWAY => self.goaway_received(head, payload),
            kind::WINDOW_UPDATE => self.window_update(head, payload),
            _ => self.charge_control().map(|()| None),
        }
    }

    /// Fails the connection with an error of the caller's, as a protocol error does. All streams end with it, so no
    /// frame follows the GOAWAY.
    pub fn fail(&mut self, error: ConnectionError) {
        if !matches!(self.phase, Phase::Failed(_)) {
            frame::put_goaway(self.output.buffer(), self.last_peer_stream, error.code, error.reason);
            self.phase = Phase::Failed(error);
            self.streams = Streams::new();
            self.waiting.clear();
            self.unplaced = None;
            self.ready.clear();
            self.queued_total = 0;
            self.lent_total = 0;
        }
    }

    /// Fails the connection if the peer has exceeded a time limit; call it periodically.
    pub fn tick(&mut self, now_ms: u64) -> Result<(), ConnectionError> {
        self.now_ms = now_ms;
        let waited_ms = self.awaiting_since_ms.map_or(0, |since| now_ms.saturating_sub(since));
        if waited_ms > self.config.handshake_ms_max {
            let error = ConnectionError::protocol("the handshake or a header block took too long");
            self.fail(error);
            return Err(error);
        }
        Ok(())
    }

    /// True if [`Connection::tick`] may still fail the connection.
    pub fn is_awaiting_peer(&self) -> bool {
        self.awaiting_since_ms.is_some()
    }

    fn update_awaiting(&mut self) {
        let waits = self.preface_left > 0 || !self.peer_settings_seen || self.assembly.is_some();
        self.awaiting_since_ms = if waits { self.awaiting_since_ms.or(Some(self.now_ms)) } else { None };
    }

    fn charge_control(&mut self) -> Result<(), ConnectionError> {
        if self.control_frames.spend(self.now_ms) {
            return Ok(());
        }
        Err(ConnectionError::calm("too many frames that carry nothing"))
    }

    /// A body of this length, or a part of one, goes to the output.
    #[inline]
    fn count_sent(&mut self, length: usize) {
        self.sent_bytes += length as u64;
        if length >= USEFUL_BYTES {
            self.control_frames.earn(2);
        }
    }

    /// A `WINDOW_UPDATE` that gives back what the peer has consumed is free, unless it gives back little. `level` is 0 for
    /// the connection's window and 1 for those of streams.
    fn charge_update(&mut self, level: usize, increment: u32) -> Result<(), ConnectionError> {
        let unreturned = self.sent_bytes - self.returned_bytes[level];
        if increment < UPDATE_BYTES_MIN || u64::from(increment) > unreturned {
            return self.charge_control();
        }
        self.returned_bytes[level] += u64::from(increment);
        Ok(())
    }

    fn charge_reset(&mut self) -> Result<(), ConnectionError> {
        if self.resets.spend(self.now_ms) {
            return Ok(());
        }
        Err(ConnectionError::calm("too many streams end in a reset"))
    }

    /// Resets a stream because of a stream error of the peer's.
    fn stream_fault(&mut self, id: u32, code: ErrorCode) -> Result<Option<Event<'static>>, ConnectionError> {
        self.charge_reset()?;
        frame::put_reset(self.output.buffer(), id, code);
        let Some(stream) = self.streams.find(id) else {
            self.streams.remember_closed(id, true);
            return Ok(None);
        };
        self.remove_stream(stream, true);
        Ok(Some(Event::Reset { stream, code, by_us: true }))
    }

    fn remove_stream(&mut self, stream: StreamKey, reset_by_us: bool) {
        if let Some(slot) = self.streams.get(stream) {
            self.queued_total -= slot.queued_bytes;
            self.lent_total -= slot.lent_bytes;
        }
        self.streams.remove(stream, reset_by_us);
    }

    /// True if neither side has opened the stream.
    fn is_idle(&self, id: u32) -> bool {
        match (self.side, id % 2 == 1) {
            (Side::Server, true) => id > self.last_peer_stream,
            (Side::Client, true) => id >= self.next_stream,
            (_, false) => true,
        }
    }

    /// Bytes to write.
    #[inline]
    pub fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    /// Number of open streams, including those whose last bytes wait for a window.
    pub fn live_streams(&self) -> usize {
        self.streams.live() + self.waiting.len() + usize::from(self.unplaced.is_some())
    }

    /// Keys of the open streams.
    pub fn stream_keys(&self) -> impl Iterator<Item = StreamKey> {
        self.streams.keys().chain(self.unplaced)
    }

    /// The error that ended the connection.
    pub fn failure(&self) -> Option<ConnectionError> {
        match self.phase {
            Phase::Failed(error) => Some(error),
            _ => None,
        }
    }
}

/// A length in flow-control units.
fn window_units(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Clamps settings to the ranges that the protocol allows.
fn sane(mut config: Config) -> Config {
    config.frame_bytes_max = config.frame_bytes_max.clamp(FRAME_BYTES_DEFAULT, FRAME_BYTES_MAX);
    config.stream_window_bytes = config.stream_window_bytes.min(WINDOW_MAX);
    config.connection_window_bytes = config.connection_window_bytes.clamp(WINDOW_DEFAULT, WINDOW_MAX);
    config
}
