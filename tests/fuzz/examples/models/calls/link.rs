//! A client's end of a connection, which checks every frame of the server (RFC 9113): windows, order, and answers.

use std::collections::{BTreeMap, VecDeque};

use fluke_hpack::Decoder;

use super::call::{Answer, Call, Fields};
use super::fields::Encoder;
use crate::pipe::Driven;
use crate::random::Random;
use crate::tally::Tally;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;
pub const WITH_PRIORITY: u8 = 0x20;
/// Default windows and frame size of either side, before SETTINGS change them.
const WINDOW: i64 = 65_535;
const FRAME: usize = 16_384;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Open,
    Answered,
    /// Reset by the client; the server may not have read that yet.
    Resetting,
    Reset,
}

/// The answer that the client expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    All,
    /// Its body, as far as it is known.
    Body,
    /// None: it waits for another call.
    Nothing,
}

pub struct Stream {
    pub call: Call,
    pub sent: usize,
    pub is_ended: bool,
    /// Windows for the client's sending, and for the server's.
    pub window: i64,
    pub granted: i64,
    pub state: State,
    pub due: Due,
    got: Answer,
}

impl Stream {
    /// True if the server would answer if it had a window.
    fn is_blocked(&self, granted: i64) -> bool {
        self.got.body.len() < self.call.answer.body.len() && (self.granted <= 0 || granted <= 0)
    }

    /// True if the server has all that it needs for more of the answer.
    fn is_due(&self, granted: i64) -> bool {
        let is_wanted = match self.due {
            Due::All => true,
            Due::Body => self.got.body.len() < self.call.answer.body.len(),
            Due::Nothing => false,
        };
        is_wanted && self.is_ended && self.state == State::Open && !self.is_blocked(granted)
    }

    pub fn is_live(&self) -> bool {
        self.state == State::Open || self.state == State::Answered && !self.is_ended
    }
}

pub struct Link<'a> {
    pub server: Driven<'a>,
    pub batch: Vec<u8>,
    pub streams: BTreeMap<u32, Stream>,
    pub next: u32,
    pub encoder: Encoder,
    decoder: Decoder<'static>,
    unparsed: Vec<u8>,
    block: Option<(u32, bool, Vec<u8>)>,
    pub window: i64,
    pub granted: i64,
    /// Initial stream windows set by each side.
    initial: i64,
    pub initial_granted: i64,
    pub frame_max: usize,
    pub pings: VecDeque<[u8; 8]>,
    /// Header table size of each SETTINGS that is not acknowledged yet.
    pub unacknowledged: VecDeque<Option<usize>>,
    is_greeted: bool,
    pub resets: BTreeMap<u32, u32>,
    /// Last stream and code of a GOAWAY.
    pub goaway: Option<(u32, u32)>,
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    [&(payload.len() as u32).to_be_bytes()[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

impl<'a> Link<'a> {
    pub fn new(server: Driven<'a>) -> Self {
        Self {
            server,
            batch: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            streams: BTreeMap::new(),
            next: 1,
            encoder: Encoder::new(),
            decoder: Decoder::new(),
            unparsed: Vec::new(),
            block: None,
            window: WINDOW,
            granted: WINDOW,
            initial: WINDOW,
            initial_granted: WINDOW,
            frame_max: FRAME,
            pings: VecDeque::new(),
            unacknowledged: VecDeque::new(),
            is_greeted: false,
            resets: BTreeMap::new(),
            goaway: None,
        }
    }

    pub fn put(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.batch.extend(frame(kind, flags, stream, payload));
    }

    /// Sends the batch in pieces, and checks what the server does.
    pub fn flush(&mut self, random: &mut Random, tally: &mut Tally) {
        let batch = std::mem::take(&mut self.batch);
        let cuts = if random.one_in(3) { 1 + random.below(5) } else { 0 };
        let mut places: Vec<usize> = (0..cuts).map(|_| random.below(batch.len() + 1)).collect();
        places.extend([0, batch.len()]);
        places.sort_unstable();
        for piece in places.windows(2) {
            self.server.send(&batch[piece[0]..piece[1]]);
            self.receive(tally);
        }
        while self.is_any_due() && self.server.wait() {
            self.receive(tally);
        }
        // Frames that the client sends in reaction.
        if !self.batch.is_empty() {
            return self.flush(random, tally);
        }
        for stream in self.streams.values_mut().filter(|stream| stream.state == State::Resetting) {
            stream.state = State::Reset;
        }
        if self.goaway.is_none() {
            assert!(self.pings.is_empty(), "a PING was not answered");
            assert!(self.unacknowledged.is_empty(), "SETTINGS were not acknowledged");
            for (id, stream) in &self.streams {
                let is_due = stream.is_due(self.granted);
                assert!(!is_due, "stream {id} is not answered: {:?}, so far {:?}", stream.call, stream.got);
            }
        }
    }

    fn receive(&mut self, tally: &mut Tally) {
        let output = self.server.settle();
        self.unparsed.extend(output);
        self.parse(tally);
    }

    fn is_any_due(&self) -> bool {
        self.streams.values().any(|stream| stream.is_due(self.granted))
    }

    fn parse(&mut self, tally: &mut Tally) {
        let bytes = std::mem::take(&mut self.unparsed);
        let mut rest = &bytes[..];
        while let Some((head, after)) = rest.split_first_chunk::<9>() {
            let length = word(&[0, head[0], head[1], head[2]]) as usize;
            assert!(length <= self.frame_max, "a frame of {length} bytes");
            let Some((payload, after)) = after.split_at_checked(length) else { break };
            rest = after;
            assert!(self.goaway.is_none(), "a frame behind a GOAWAY");
            self.received(head[3], head[4], word(&head[5..]), payload, tally);
        }
        self.unparsed = rest.to_vec();
    }

    fn received(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8], tally: &mut Tally) {
        assert!(self.is_greeted || kind == SETTINGS, "the first frame is not SETTINGS");
        assert!(self.block.is_none() || kind == CONTINUATION, "a frame inside a header block");
        match kind {
            DATA => {
                assert_eq!(flags & PADDED, 0, "the server pads");
                self.granted -= payload.len() as i64;
                let stream = self.streams.get_mut(&id).expect("DATA on an idle stream");
                stream.granted -= payload.len() as i64;
                let is_within = payload.is_empty() || self.granted >= 0 && stream.granted >= 0;
                assert!(is_within, "DATA beyond a window on stream {id}");
                assert!(matches!(stream.state, State::Open | State::Resetting), "DATA on a closed stream {id}");
                assert!(!stream.got.fields.is_empty(), "DATA before the head");
                stream.got.body.extend(payload);
                stream.call.answer.take_unknown(&stream.got.body);
                let is_prefix = stream.call.answer.body.starts_with(&stream.got.body);
                assert!(is_prefix, "stream {id}: {:?} is not how it goes on: {:?}", stream.got, stream.call);
                self.ended(id, flags & END_STREAM != 0, tally);
            }
            HEADERS => {
                assert_eq!(flags & (PADDED | WITH_PRIORITY), 0);
                self.block = Some((id, flags & END_STREAM != 0, Vec::new()));
                self.block_part(id, flags, payload, tally);
            }
            CONTINUATION => self.block_part(id, flags, payload, tally),
            RST_STREAM => {
                assert_eq!(payload.len(), 4);
                let stream = self.streams.get_mut(&id).expect("RST_STREAM on an idle stream");
                assert_ne!(stream.state, State::Reset, "RST_STREAM twice");
                stream.state = State::Reset;
                self.resets.insert(id, word(payload));
            }
            SETTINGS => self.settings(flags, id, payload, tally),
            PING => {
                assert_eq!((id, payload.len()), (0, 8));
                if flags & ACK == 0 {
                    return self.put(PING, ACK, 0, payload);
                }
                assert_eq!(self.pings.pop_front().as_ref().map(|ping| &ping[..]), Some(payload), "a PING's answer");
                tally.add("PING", 1);
            }
            GOAWAY => {
                assert_eq!(id, 0);
                self.goaway = Some((word(payload), word(&payload[4..])));
            }
            WINDOW_UPDATE => {
                let increment = i64::from(word(payload));
                assert!(increment > 0 && payload.len() == 4);
                let window = if id == 0 { &mut self.window } else { &mut self.streams.get_mut(&id).unwrap().window };
                *window += increment;
                assert!(*window < 1 << 31, "a window overflows");
            }
            _ => panic!("a frame of kind {kind}"),
        }
    }

    fn settings(&mut self, flags: u8, id: u32, payload: &[u8], tally: &mut Tally) {
        assert_eq!(id, 0);
        if flags & ACK != 0 {
            assert!(payload.is_empty());
            if let Some(table) = self.unacknowledged.pop_front().expect("SETTINGS that no one sent are acknowledged") {
                self.decoder.set_max_allowed_table_size(table);
            }
            return tally.add("SETTINGS", 1);
        }
        assert!(!std::mem::replace(&mut self.is_greeted, true), "SETTINGS twice");
        for entry in payload.chunks(6) {
            if entry[..2] == [0, 4] {
                self.initial = word(&entry[2..]).into();
            }
        }
        self.put(SETTINGS, ACK, 0, &[]);
    }

    fn block_part(&mut self, id: u32, flags: u8, payload: &[u8], tally: &mut Tally) {
        let (stream, _, block) = self.block.as_mut().expect("CONTINUATION without HEADERS");
        assert_eq!(*stream, id);
        block.extend(payload);
        if flags & END_HEADERS == 0 {
            return;
        }
        let (_, end, block) = self.block.take().unwrap();
        let fields: Fields = self.decoder.decode(&block).expect("a header block");
        let stream = self.streams.get_mut(&id).expect("HEADERS on an idle stream");
        assert!(matches!(stream.state, State::Open | State::Resetting), "HEADERS on a closed stream {id}");
        let is_first = stream.got.fields.is_empty();
        assert!(is_first || end, "trailers that do not end the stream");
        assert_eq!(is_first, fields.first().is_some_and(|field| field.0 == b":status"), "{fields:?}");
        stream.got.fields.extend(fields);
        self.ended(id, end, tally);
    }

    fn ended(&mut self, id: u32, end: bool, tally: &mut Tally) {
        let stream = self.streams.get_mut(&id).unwrap();
        if end && stream.state == State::Open {
            assert_eq!(stream.got, stream.call.answer, "stream {id}, {:?}", stream.call);
            stream.state = State::Answered;
            tally.add(stream.call.kind.clone(), 1);
        }
    }

    pub fn open(&mut self, call: Call) -> u32 {
        let id = self.next;
        self.next += 2;
        let (window, granted, got) = (self.initial, self.initial_granted, Answer::default());
        let stream = Stream { call, sent: 0, is_ended: false, window, granted, state: State::Open, due: Due::All, got };
        self.streams.insert(id, stream);
        id
    }
}
