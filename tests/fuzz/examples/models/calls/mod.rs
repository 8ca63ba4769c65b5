//! Calls over live HTTP/2 connections: an input is one connection with its history, mostly legal, of several concurrent
//! calls. Each answer is checked to the byte, and so is the reaction to each violation.

pub mod call;
mod faults;
mod fields;
pub mod link;
pub mod message;
mod service;
pub mod unary;

use std::future::pending;

use quire_rpc::http2::{Config, Rate};
use quire_rpc::{Limits, Peer, Server};

use self::call::Call;
use self::link::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Link, PADDED, PING, PRIORITY, RST_STREAM, SETTINGS, State,
    WINDOW_UPDATE, WITH_PRIORITY,
};
use self::service::{Service, proto::echo_server::EchoServer};
use crate::Judge;
use crate::pipe::{Driven, Pipe};
use crate::random::Random;
use crate::tally::Tally;

const STREAMS_MAX: usize = 8;
const STEPS_MAX: usize = 60;
const FRAME_MAX: usize = 16_384;

fn server(stream_window_bytes: u32) -> Server {
    let any = Rate { burst_max: u32::MAX, per_second_max: 0 };
    let http2 = Config {
        concurrent_streams_max: STREAMS_MAX as u32,
        stream_window_bytes,
        connection_window_bytes: 70_000,
        resets: any,
        control_frames: any,
        ..Config::default()
    };
    let limits = Limits { http2, ..Limits::default() };
    Server::builder().add_service(EchoServer::new(Service)).limits(limits).build()
}

pub fn judge() -> Judge {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let servers = [600, 5000, 65_535, 300_000].map(server);
    Box::new(move |random, tally| {
        let _inside = runtime.enter();
        let pipe = Pipe::default();
        pipe.0.lock().unwrap().bytes_max = random.pick(&[100, 1000, 1_000_000, 1_000_000]);
        let server = &servers[random.below(servers.len())];
        let serving = server.serve_connection(pipe.clone(), Peer::default(), pending());
        history(Link::new(Driven::new(pipe, serving)), random, tally);
    })
}

fn history(mut link: Link<'_>, random: &mut Random, tally: &mut Tally) {
    settings(&mut link, random);
    link.flush(random, tally);
    for _ in 0..random.below(STEPS_MAX) {
        step(&mut link, random, tally);
        if random.one_in(3) {
            link.flush(random, tally);
        }
    }
    link.flush(random, tally);
    if random.one_in(2) && faults::fault(&mut link, random, tally) {
        return;
    }
    // Everything that is open is finished.
    for _ in 0..10_000 {
        let open = |link: &Link<'_>, state| -> Vec<u32> {
            link.streams.iter().filter(|(_, stream)| stream.state == state).map(|(id, _)| *id).collect()
        };
        if open(&link, State::Open).is_empty() {
            link.server.end();
            link.flush(random, tally);
            assert!(link.server.is_over, "the server stays");
            assert!(link.resets.is_empty() && link.goaway.is_none(), "{:?} {:?}", link.resets, link.goaway);
            return;
        }
        for id in open(&link, State::Answered).into_iter().chain(open(&link, State::Open)) {
            data(&mut link, random, id);
            if link.streams[&id].granted < 200_000 {
                grant(&mut link, id, 200_000);
            }
        }
        if link.granted < 200_000 {
            grant(&mut link, 0, 200_000);
        }
        link.flush(random, tally);
    }
    panic!("a stream does not end");
}

fn step(link: &mut Link<'_>, random: &mut Random, tally: &mut Tally) {
    let ids: Vec<u32> = link.streams.iter().filter(|(_, stream)| stream.is_live()).map(|(id, _)| *id).collect();
    let some = if ids.is_empty() { None } else { Some(random.pick(&ids)) };
    match (random.below(16), some) {
        (0..=3, _) if ids.len() < STREAMS_MAX => {
            let call = Call::random(random);
            let is_ended = call.body.is_empty() && random.one_in(2);
            let id = link.open(call);
            head(link, random, id, is_ended);
        }
        (4..=9, Some(id)) => data(link, random, id),
        (10, _) => {
            let payload = random.number().to_be_bytes();
            link.pings.push_back(payload);
            link.put(PING, 0, 0, &payload);
        }
        (11, _) => {
            link.flush(random, tally);
            settings(link, random);
        }
        (12, Some(id)) => grant(link, id, 1 + random.below(50_000) as u32),
        (13, _) => grant(link, 0, 1 + random.below(100_000) as u32),
        (14, Some(id)) if random.one_in(3) => {
            link.put(RST_STREAM, 0, id, &(random.below(20) as u32).to_be_bytes());
            link.streams.get_mut(&id).unwrap().state = State::Resetting;
        }
        (15, Some(id)) if random.one_in(2) => link.put(PRIORITY, 0, id, &[0, 0, 0, 0, 7]),
        // An unknown frame type.
        (15, _) => {
            let payload = random.bytes(50);
            link.put(0xbe, random.number() as u8, random.below(9) as u32, &payload);
        }
        _ => {}
    }
}

pub fn grant(link: &mut Link<'_>, id: u32, bytes: u32) {
    let window = if id == 0 { &mut link.granted } else { &mut link.streams.get_mut(&id).unwrap().granted };
    *window += i64::from(bytes);
    link.put(WINDOW_UPDATE, 0, id, &bytes.to_be_bytes());
}

/// SETTINGS with any of table size, window and frame size. All earlier ones must have been read.
pub fn settings(link: &mut Link<'_>, random: &mut Random) {
    let mut payload = Vec::new();
    let mut put = |id: u16, value: u32| payload.extend([&id.to_be_bytes()[..], &value.to_be_bytes()].concat());
    let mut table = None;
    if random.one_in(3) {
        let bytes = random.pick(&[0, 100, 1000, 4096, 10_000]);
        table = Some(bytes as usize);
        put(1, bytes);
    }
    if random.one_in(2) {
        let bytes = random.pick(&[0, 1, 100, 5000, 65_535, 1_000_000]);
        let shift = i64::from(bytes) - link.initial_granted;
        link.streams.values_mut().for_each(|stream| stream.granted += shift);
        link.initial_granted += shift;
        put(4, bytes);
    }
    if random.one_in(3) {
        link.frame_max = FRAME_MAX + random.below(10_000);
        put(5, link.frame_max as u32);
    }
    if random.one_in(4) {
        put(0xbad, random.number() as u32);
    }
    link.unacknowledged.push_back(table);
    link.put(SETTINGS, 0, 0, &payload);
}

/// The request's head, padded and split into frames.
pub fn head(link: &mut Link<'_>, random: &mut Random, id: u32, is_ended: bool) {
    let fields = link.streams[&id].call.head.clone();
    let block = link.encoder.block(random, &fields);
    link.streams.get_mut(&id).unwrap().is_ended = is_ended;
    let end = if is_ended { END_STREAM } else { 0 };
    put_block(link, random, id, end, &block);
}

fn put_block(link: &mut Link<'_>, random: &mut Random, id: u32, mut flags: u8, block: &[u8]) {
    let pieces = if random.one_in(4) { 1 + random.below(4) } else { 1 };
    let mut parts: Vec<&[u8]> = block.chunks(block.len().div_ceil(pieces).max(1)).collect();
    let (first, rest) = (parts.remove(0), parts);
    let mut payload = Vec::new();
    let padding = if random.one_in(6) { Some(random.below(256)) } else { None };
    if let Some(padding) = padding {
        flags |= PADDED;
        payload.push(padding as u8);
    }
    if random.one_in(6) {
        flags |= WITH_PRIORITY;
        payload.extend([0x80, 0, 0, 0, 200]);
    }
    payload.extend(first);
    payload.resize(payload.len() + padding.unwrap_or(0), 0);
    let flag = |is_last: bool| if is_last { END_HEADERS } else { 0 };
    link.put(HEADERS, flags | flag(rest.is_empty()), id, &payload);
    for (place, part) in rest.iter().enumerate() {
        link.put(CONTINUATION, flag(place + 1 == rest.len()), id, part);
    }
}

/// Part of the request's body, as the windows allow, and its end in one of three ways.
pub fn data(link: &mut Link<'_>, random: &mut Random, id: u32) {
    let stream = &link.streams[&id];
    if stream.is_ended || !stream.is_live() {
        return;
    }
    let left = stream.call.body.len() - stream.sent;
    let room = stream.window.min(link.window).clamp(0, FRAME_MAX as i64) as usize;
    if left == 0 && random.one_in(2) {
        link.streams.get_mut(&id).unwrap().is_ended = true;
        let trailers = vec![(b"custom-key".to_vec(), b"custom-value".to_vec())];
        let block = link.encoder.block(random, &trailers);
        return put_block(link, random, id, END_STREAM, &block);
    }
    let padding = if random.one_in(5) { Some(random.below(256)).filter(|padding| padding + 1 < room) } else { None };
    let room = room - padding.map_or(0, |padding| padding + 1);
    let size = left.min(room);
    let size = if random.one_in(2) { size } else { random.below(size + 1) };
    let is_ended = size == left && random.one_in(2);
    let stream = link.streams.get_mut(&id).unwrap();
    let mut payload: Vec<u8> = padding.map(|padding| padding as u8).into_iter().collect();
    payload.extend(&stream.call.body[stream.sent..stream.sent + size]);
    payload.resize(payload.len() + padding.unwrap_or(0), 0);
    stream.sent += size;
    stream.is_ended = is_ended;
    stream.window -= payload.len() as i64;
    link.window -= payload.len() as i64;
    let flags = if is_ended { END_STREAM } else { 0 } | if padding.is_some() { PADDED } else { 0 };
    link.put(DATA, flags, id, &payload);
}
