//! A message in order allocates nothing, by its own call or by a lean frame, once connections are warm.
//!
//! A counting allocator needs `unsafe`, which our code must not have, so the counter comes from a crate. It counts all
//! threads, so this process holds one test: other tests' harness keeps a thread that records each test it has begun,
//! with four allocations at a time of the scheduler's choice.

use std::alloc::System;
use std::future::pending;
use std::time::Duration;

use quire_rpc::Server;
use rpcgame::driver::{Input, Options, Pair, Transport, play};
use rpcgame::grpc::messages::Try;
use rpcgame::grpc::wire::rpc_game_server::RpcGameServer;
use rpcgame::grpc::wire::rpc_game_stream_server::RpcGameStreamServer;
use rpcgame::grpc::{GameService, StreamService};
use rpcgame::lean::{self, Connection, Hello, Keep, Session, SessionLimits, TableLimits, VERSION};
use rpcgame::{GameLimits, Games};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpListener;
use tokio::runtime::Builder;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A request head that is inserted into the table the first time and is four indexes afterwards.
fn head(is_first: bool) -> Vec<u8> {
    if !is_first {
        return vec![0x83, 0x86, 0xbf, 0xbe];
    }
    let path = "/RPCGame/Try";
    let content_type = [&[0x5f, 16][..], b"application/grpc"].concat();
    [&[0x83, 0x86, 0x44, u8::try_from(path.len()).unwrap()][..], path.as_bytes(), &content_type].concat()
}

fn requests(serials: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    let request = |serial: u32| {
        let id = serial * 2 - 1;
        let mut body = vec![0; 5];
        Try { serial: serial.into(), name: &[b'n'; 345], count: u64::MAX }.write(&mut body);
        body[4] = u8::try_from((body.len() - 5) & 0xff).unwrap();
        body[3] = u8::try_from((body.len() - 5) >> 8).unwrap();
        [frame(1, 4, id, &head(serial == 1)), frame(0, 1, id, &body)].concat()
    };
    serials.map(request).collect()
}

/// Makes the calls one after another.
async fn calls(io: &mut DuplexStream, requests: &[Vec<u8>]) {
    let mut buffer = [0; 4096];
    for request in requests {
        io.write_all(request).await.unwrap();
        let mut seen = 0;
        // Head and trailers on a warm connection are 11 and 10 bytes, and a message 16 or more.
        while seen < 37 {
            seen += io.read(&mut buffer).await.unwrap();
        }
    }
}

fn main() {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(a_message_in_order_allocates_nothing());
}

async fn a_message_in_order_allocates_nothing() {
    // A thread allocates its list of yielded tasks once.
    tokio::task::yield_now().await;
    let service = GameService::new(Games::new(GameLimits::default()));
    let server = Server::builder().add_service(RpcGameServer::new(service)).build();
    let (mut io, theirs) = tokio::io::duplex(64 * 1024);
    tokio::spawn(async move { server.serve_connection(theirs, quire_rpc::Peer::default(), pending()).await });
    io.write_all(&[&quire_rpc::http2::PREFACE[..], &frame(4, 0, 0, &[])].concat()).await.unwrap();
    let settings = io.read(&mut [0; 1024]).await.unwrap();
    assert!(settings > 0);
    let (warm, counted) = (requests(1..100), requests(100..1100));
    calls(&mut io, &warm).await;
    let region = Region::new(ALLOCATOR);
    calls(&mut io, &counted).await;
    let change = region.change();
    assert_eq!(change.allocations + change.reallocations, 0, "a call: {change:?}");
    lean();
    lean_ends_hold_nothing();
    whole_games().await;
}

/// Both ends of many connections, the last frame of each truncated or garbage: their memory is freed with them.
fn lean_ends_hold_nothing() {
    let table = TableLimits { names_max: 16, bytes_max: 1000 };
    let hello = Hello { version_min: VERSION, version_max: VERSION, window_messages: 256, table };
    let names: Vec<Vec<u8>> = (0..100_usize).map(|length| vec![b'n'; length * 3]).collect();
    let region = Region::new(ALLOCATOR);
    let mut most = 0;
    for number in 0..1000_usize {
        let (mut client, mut server) = (Connection::new(hello, Keep::Newest), Session::new(SessionLimits::default()));
        for _ in 0..10 {
            let messages = names.iter().enumerate().map(|(key, name)| (key, &name[..], 7));
            client.send(messages).unwrap();
            server.receive(&mut client.output()).unwrap();
            client.advance(client.output().len());
            client.receive(&mut server.output(), |_| {}).unwrap();
            server.advance(server.output().len());
        }
        let garbage = vec![u8::try_from(number % 256).unwrap(); number];
        let _ = (server.receive(&mut &garbage[..]), client.receive(&mut &garbage[..], |_| {}));
        drop(garbage);
        let change = region.change();
        most = most.max(change.bytes_allocated - change.bytes_deallocated);
    }
    let change = region.change();
    assert_eq!(change.bytes_allocated, change.bytes_deallocated, "{change:?}");
    assert!(most < 256 * 1024, "two ends hold {most} bytes");
}

/// Messages of a whole game.
const MESSAGES: u64 = 100_000;

/// Both ends over sockets, including connecting and the end, as the driver plays: a limit of allocations per message.
async fn whole_games() {
    let games = Games::new(GameLimits::default());
    let server = Server::builder()
        .add_service(RpcGameServer::new(GameService::new(games.clone())))
        .add_service(RpcGameStreamServer::new(StreamService::new(games.clone())));
    let lean_server = lean::Server::new(games, lean::Limits::default(), Duration::ZERO);
    let (listener, lean_listener) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (address, lean_address) = (listener.local_addr().unwrap(), lean_listener.local_addr().unwrap());
    tokio::spawn(server.serve(listener, pending()));
    tokio::spawn(async move { lean_server.serve(lean_listener, Vec::new(), pending()).await });
    let pairs = (0..120).map(|length| Pair { name: vec![b'n'; length * 6].into(), count: 7 }).collect();
    let input = Input::new(pairs).unwrap();
    for (transport, address, window, a_message_max) in [
        (Transport::Windowed, address, 1024, 6.0),
        (Transport::Stream, address, 65_536, 0.5),
        (Transport::Lean, lean_address, 65_536, 0.01),
    ] {
        let (window, timeout) = (Some(window), Some(Duration::from_mins(2)));
        let options = Options {
            address: address.to_string(),
            transport,
            messages: MESSAGES,
            window,
            timeout,
            token: None,
            tls: None,
        };
        assert!(play(&input, &options, |_| {}).await.unwrap().matches(), "all is warm");
        let region = Region::new(ALLOCATOR);
        assert!(play(&input, &options, |_| {}).await.unwrap().matches());
        let change = region.change();
        #[expect(clippy::cast_precision_loss, reason = "counts of a short game")]
        let a_message = (change.allocations + change.reallocations) as f64 / MESSAGES as f64;
        eprintln!("{transport:?}: {a_message:.4} allocations a message at both ends");
        assert!(a_message <= a_message_max, "{transport:?}: {a_message} a message: {change:?}");
    }
}

fn lean() {
    let table = TableLimits { names_max: 64, bytes_max: 64 << 10 };
    let hello = Hello { version_min: VERSION, version_max: VERSION, window_messages: 1000, table };
    let mut client = Connection::new(hello, Keep::First);
    let mut server = Session::new(SessionLimits::default());
    let names: Vec<Vec<u8>> = (0..64_usize).map(|length| vec![b'n'; length * 10]).collect();
    let mut round = || {
        let messages = names.iter().enumerate().cycle().map(|(key, name)| (key, &name[..], 7));
        let sent = client.send(messages.take(1000)).unwrap();
        server.receive(&mut client.output()).unwrap();
        client.advance(client.output().len());
        client.receive(&mut server.output(), |_| {}).unwrap();
        server.advance(server.output().len());
        sent
    };
    assert!((0..20).map(|_| round()).sum::<u64>() > 0, "all is warm");
    let region = Region::new(ALLOCATOR);
    let sent: u64 = (0..20).map(|_| round()).sum();
    let change = region.change();
    assert!(sent >= 20_000);
    assert_eq!(change.allocations + change.reallocations, 0, "lean: {change:?}");
}
