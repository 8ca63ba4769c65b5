//! A server connection and the raw frames to feed it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;

use quire_http2::{
    CompleteRequest, Config, Connection, ConnectionError, ErrorCode, Event, HEAD_BYTES, Head, PREFACE, Side, StreamKey,
};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// GET http / with an :authority: four indexed or literal fields.
pub(crate) const GET: &[u8] = &[0x82, 0x86, 0x84, 0x01, 1, b'h'];

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

pub(crate) fn setting(id: u16, value: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

pub(crate) fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut all = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        all.push(Frame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload: rest[..length].to_vec(),
        });
        bytes = &rest[length..];
    }
    assert!(bytes.is_empty(), "the output holds whole frames");
    all
}

/// An event, owned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Headers(StreamKey, String, bool),
    Data(StreamKey, Vec<u8>, bool),
    Trailers(StreamKey),
    Reset(StreamKey, ErrorCode, bool),
    GoAway(ErrorCode),
    Pong,
}

impl Seen {
    fn of(event: Event<'_>) -> Self {
        match event {
            Event::Headers { stream, head, end } => {
                let text = head
                    .status_code()
                    .map_or_else(|| String::from_utf8_lossy(head.path()).into_owned(), |code| code.to_string());
                Self::Headers(stream, text, end)
            }
            Event::Data { stream, data, end } => Self::Data(stream, data.to_vec(), end),
            Event::Trailers { stream, .. } => Self::Trailers(stream),
            Event::Reset { stream, code, by_us } => Self::Reset(stream, code, by_us),
            Event::GoAway { code } => Self::GoAway(code),
            Event::Pong(_) => Self::Pong,
        }
    }
}

pub(crate) struct Peer {
    pub(crate) connection: Connection,
    pub(crate) now_ms: u64,
}

impl Peer {
    /// A server that has received preface and SETTINGS; its own SETTINGS are taken from the output.
    pub(crate) fn server(config: Config) -> Self {
        let mut peer = Self { connection: Connection::new(Side::Server, config, 0), now_ms: 0 };
        peer.feed(PREFACE).unwrap();
        peer.feed(&frame(SETTINGS, 0, 0, &[])).unwrap();
        peer.feed(&frame(SETTINGS, ACK, 0, &[])).unwrap();
        peer.sent();
        peer
    }

    /// Takes complete requests as such, and other frames as [`Peer::feed`] does.
    pub(crate) fn feed_complete(&mut self, mut input: &[u8]) -> Result<Vec<Seen>, ConnectionError> {
        let mut seen = Vec::new();
        let mut last: Option<Arc<Head>> = None;
        loop {
            if let Some(CompleteRequest { stream, head, body }) =
                self.connection.receive_complete(&mut input, self.now_ms, last.as_ref())
            {
                last = head.or(last);
                let path = last.as_ref().map_or(&b""[..], |head| head.path());
                seen.push(Seen::Headers(stream, String::from_utf8_lossy(path).into_owned(), false));
                seen.push(Seen::Data(stream, body.to_vec(), true));
                continue;
            }
            // One event only, so that the next request may be taken as complete again.
            let Some(event) = self.connection.receive(&mut input, self.now_ms)? else { return Ok(seen) };
            seen.push(Seen::of(event));
        }
    }

    pub(crate) fn feed(&mut self, mut input: &[u8]) -> Result<Vec<Seen>, ConnectionError> {
        let mut seen = Vec::new();
        while let Some(event) = self.connection.receive(&mut input, self.now_ms)? {
            seen.push(Seen::of(event));
        }
        Ok(seen)
    }

    /// Opens a request and leaves its side open.
    pub(crate) fn open(&mut self, id: u32) -> StreamKey {
        match self.feed(&frame(HEADERS, END_HEADERS, id, GET)).unwrap().pop() {
            Some(Seen::Headers(stream, ..)) => stream,
            other => panic!("expected a request, got {other:?}"),
        }
    }

    /// Drains the output and returns it.
    pub(crate) fn sent_bytes(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            self.connection.pump();
            let output = self.connection.output();
            let mut slices = [std::io::IoSlice::new(&[]); 8];
            let filled = output.slices(&mut slices);
            if filled == 0 {
                return all;
            }
            let count: usize = slices[..filled].iter().map(|slice| slice.len()).sum();
            slices[..filled].iter().for_each(|slice| all.extend_from_slice(slice));
            output.advance(count);
        }
    }

    pub(crate) fn sent(&mut self) -> Vec<Frame> {
        frames(&self.sent_bytes())
    }

    /// The error that feeding `input` causes; the GOAWAY must carry the same code.
    pub(crate) fn fails_with(&mut self, input: &[u8]) -> ErrorCode {
        let error = self.feed(input).expect_err("the connection fails");
        let goaway = self.sent().into_iter().find(|frame| frame.kind == GOAWAY).expect("a GOAWAY");
        assert_eq!(goaway.payload[4..8], error.code.0.to_be_bytes());
        assert_eq!(self.feed(&[]).unwrap_err(), error, "the failure stays");
        error.code
    }
}

/// Carries bytes between two connections until neither has output.
pub(crate) fn exchange(a: &mut Peer, b: &mut Peer) -> (Vec<Seen>, Vec<Seen>) {
    let (mut at_a, mut at_b) = (Vec::new(), Vec::new());
    loop {
        let (from_a, from_b) = (a.sent_bytes(), b.sent_bytes());
        if from_a.is_empty() && from_b.is_empty() {
            return (at_a, at_b);
        }
        at_b.extend(b.feed(&from_a).unwrap());
        at_a.extend(a.feed(&from_b).unwrap());
    }
}
