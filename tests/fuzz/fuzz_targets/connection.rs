//! Random legal commands on a client and a server connected to each other: neither reports an error, every stream ends,
//! and everything sent arrives unchanged.
#![no_main]

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use quire_http2::{
    CachedBlock, CompleteRequest, Config, Connection, ErrorCode, Event, Indexing, Rate, Side, StreamKey,
};

/// Bodies of many windows would only repeat the same round trips.
const WINDOWS_MAX: usize = 4;
/// Longer histories find no more and are fewer.
const STEPS_MAX: usize = 100;

static BODY: [u8; 255 * 255] = [1; 255 * 255];

struct End {
    connection: Connection,
    held: Vec<u8>,
    open: Vec<StreamKey>,
    received: HashMap<u32, usize>,
    sent: HashMap<u32, usize>,
    /// For responses.
    head: CachedBlock,
    /// Largest amount that one command sends.
    bytes_max: usize,
}

impl End {
    fn new(side: Side, config: &Config) -> Self {
        let connection = Connection::new(side, config.clone(), 0);
        let bytes_max = config.stream_window_bytes as usize * WINDOWS_MAX;
        let (received, sent) = (HashMap::new(), HashMap::new());
        let (held, open, head) = (Vec::new(), Vec::new(), CachedBlock::default());
        Self { connection, held, open, received, sent, head, bytes_max }
    }

    fn output(&mut self, most: usize) -> Vec<u8> {
        self.connection.pump();
        let output = self.connection.output();
        let mut slices = [std::io::IoSlice::new(&[]); 4];
        let filled = output.slices(&mut slices);
        let mut bytes = Vec::new();
        for slice in &slices[..filled] {
            bytes.extend_from_slice(&slice[..slice.len().min(most - bytes.len())]);
        }
        output.advance(bytes.len());
        bytes
    }

    fn input(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        let held = std::mem::take(&mut self.held);
        let mut input = &held[..];
        while let Some(CompleteRequest { stream, body, .. }) = self.connection.receive_complete(&mut input, 0, None) {
            *self.received.entry(stream.id()).or_default() += body.len();
            if body.len() % 2 == 1 && self.connection.answer(stream, &self.head, b"x", None) {
                continue;
            }
            self.open.push(stream);
        }
        while let Some(event) = self.connection.receive(&mut input, 0).expect("neither side breaks a rule") {
            match event {
                Event::Headers { stream, .. } if !self.open.contains(&stream) => self.open.push(stream),
                Event::Data { stream, data, .. } => {
                    *self.received.entry(stream.id()).or_default() += data.len();
                    self.connection.release(stream, data.len());
                }
                Event::Reset { stream, by_us, .. } => {
                    assert!(!by_us, "the other side broke a stream's rule");
                    self.open.retain(|other| *other != stream);
                }
                _ => {}
            }
        }
        self.held = input.to_vec();
    }
}

type Put<'a> = &'a mut dyn FnMut(&[u8], &[u8], Indexing);

fn request(put: Put<'_>) {
    put(b":method", b"POST", Indexing::Insert);
    put(b":scheme", b"http", Indexing::Insert);
    put(b":path", b"/a/b", Indexing::Insert);
}

fn command(end: &mut End, is_client: bool, what: u8, value: u8) {
    let stream = end.open.get(usize::from(value) % end.open.len().max(1)).copied();
    let connection = &mut end.connection;
    match (what % 8, stream) {
        (0 | 1, _) if is_client => {
            if let Ok(stream) = connection.open(&mut CachedBlock::default(), false, request) {
                end.open.push(stream);
            }
        }
        (2, Some(stream)) if !is_client => {
            if let Entry::Vacant(unsent) = end.sent.entry(stream.id()) {
                let _ = connection.send_head_cached(stream, &mut end.head, false, |put| {
                    put(b":status", b"200", Indexing::Insert);
                    put(b"x", &[b'a' + value % 26], if value & 1 == 0 { Indexing::Insert } else { Indexing::Never });
                });
                unsent.insert(0);
            }
        }
        (3 | 4, Some(stream)) if is_client || end.sent.contains_key(&stream.id()) => {
            let length = (usize::from(value) * usize::from(value)).min(end.bytes_max);
            let last = what & 0x80 != 0;
            let ok = if what & 0x40 != 0 {
                connection.send_bytes(stream, Bytes::from_static(&BODY[..length]), last)
            } else {
                connection.send_slice(stream, &BODY[..length], last)
            };
            if ok.is_ok() {
                *end.sent.entry(stream.id()).or_default() += length;
            }
        }
        (5, Some(stream)) if is_client || end.sent.contains_key(&stream.id()) => {
            let _ = connection.send_head(stream, true, |put| put(b"t", b"1", Indexing::Insert));
        }
        (6, Some(stream)) if value > 200 => {
            connection.reset(stream, ErrorCode::CANCEL);
            end.open.retain(|other| *other != stream);
        }
        (7, _) => connection.ping([value; 8]),
        _ => {}
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&[window, frame, streams], data)) = data.split_first_chunk::<3>() else { return };
    let generous = Rate { burst_max: u32::MAX, per_second_max: 0 };
    let config = Config {
        stream_window_bytes: u32::from(window) * 64 + 1,
        frame_bytes_max: 16_384 + u32::from(frame),
        concurrent_streams_max: u32::from(streams % 40) + 1,
        resets: generous,
        control_frames: generous,
        ..Config::default()
    };
    let (mut client, mut server) = (End::new(Side::Client, &config), End::new(Side::Server, &config));
    for step in data.chunks_exact(3).take(STEPS_MAX) {
        match step[0] % 4 {
            0 => command(&mut client, true, step[1], step[2]),
            1 => command(&mut server, false, step[1], step[2]),
            2 => server.input(&client.output(usize::from(step[1]) * usize::from(step[2]) + 1)),
            _ => client.input(&server.output(usize::from(step[1]) * usize::from(step[2]) + 1)),
        }
    }
    loop {
        let (from_client, from_server) = (client.output(usize::MAX), server.output(usize::MAX));
        if from_client.is_empty() && from_server.is_empty() {
            break;
        }
        server.input(&from_client);
        client.input(&from_server);
    }
    for (from, to) in [(&client, &server), (&server, &client)] {
        for stream in from.open.iter().filter(|stream| to.open.iter().any(|other| other.id() == stream.id())) {
            let sent = from.sent.get(&stream.id()).copied().unwrap_or(0);
            assert_eq!(to.received.get(&stream.id()).copied().unwrap_or(0), sent, "stream {}", stream.id());
        }
    }
});
