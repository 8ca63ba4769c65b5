//! A small retrieval on a warm connection allocates nothing, a small update little beyond its value, and a large value
//! is sent without a copy.
//!
//! A counting allocator needs `unsafe`, which our crates do not use, so it comes from another crate. It counts all
//! threads, so this process has only one: the test harness's thread sometimes allocates.

use std::{alloc::System, future::pending, path::Path};

use bytes::Bytes;
use kv::{
    Clock, KeyValue, Settings, Value,
    grpc::{
        PairsService,
        wire::{RetrieveRequest, UpdateRequest, key_value_service_server::KeyValueServiceServer},
    },
};
use quire_rpc::Server;
use quire_rpc::prost::Message;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    runtime::Builder,
};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const LARGE_BYTES: usize = 1 << 20;

/// For an update with a value of 100 bytes: the copy of the value.
const UPDATE_ALLOCATIONS_MAX: usize = 1;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A head that enters the HPACK table the first time and is four indexes afterwards.
fn head(first: bool, method: &str) -> Vec<u8> {
    if !first {
        return vec![0x83, 0x86, 0xbf, 0xbe];
    }
    let path = format!("/io.grpc.KeyValueService/{method}");
    let content_type = [&[0x5f, 16][..], b"application/grpc"].concat();
    [&[0x83, 0x86, 0x44, u8::try_from(path.len()).unwrap()][..], path.as_bytes(), &content_type].concat()
}

/// A call of the connection's one method.
fn request(number: u32, method: &str, message: &impl Message) -> Vec<u8> {
    let id = number * 2 + 1;
    let message = message.encode_to_vec();
    let body = [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), &message].concat();
    [frame(1, 4, id, &head(number == 0, method)), frame(0, 1, id, &body)].concat()
}

fn retrieve(number: u32, key: &'static [u8; 16]) -> Vec<u8> {
    request(number, "Retrieve", &RetrieveRequest { key: Bytes::from_static(key), want_details: false })
}

fn update(number: u32, key: &'static [u8; 16]) -> Vec<u8> {
    let value = vec![b'v'; 100].into();
    request(number, "Update", &UpdateRequest { key: Bytes::from_static(key), value, ..UpdateRequest::default() })
}

/// A connection to a store that holds a small value and a large one.
async fn connect() -> DuplexStream {
    let kv = KeyValue::open(Path::new("unused"), Settings::default(), Clock::Wall).unwrap();
    kv.create(b"sixteen bytes 01", Value::copied(&[7; 100]), None).await.unwrap();
    kv.create(b"sixteen bytes 02", Value::copied(&vec![7; LARGE_BYTES]), None).await.unwrap();
    let server = Server::builder().add_service(KeyValueServiceServer::new(PairsService::new(kv))).build();
    let (mut io, theirs) = tokio::io::duplex(64 * 1024);
    tokio::spawn(async move { server.serve_connection(theirs, quire_rpc::Peer::default(), pending()).await });
    // Settings with a window of 16 MiB per stream, and as much for the connection.
    let settings = frame(4, 0, 0, &[0, 4, 1, 0, 0, 0]);
    let window = frame(8, 0, 0, &(1u32 << 30).to_be_bytes());
    io.write_all(&[&quire_rpc::http2::PREFACE[..], &settings, &window].concat()).await.unwrap();
    io
}

/// Reads frames up to the trailers, which end their stream.
async fn answer(io: &mut DuplexStream) {
    let mut buffer = [0; 4096];
    loop {
        let mut head = [0; 9];
        io.read_exact(&mut head).await.unwrap();
        let mut left = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        while left > 0 {
            let part = left.min(buffer.len());
            left -= io.read_exact(&mut buffer[..part]).await.unwrap();
        }
        if head[3] == 1 && head[4] & 1 == 1 {
            return;
        }
    }
}

/// Makes the calls in sequence.
async fn calls(io: &mut DuplexStream, requests: &[Vec<u8>]) {
    for request in requests {
        io.write_all(request).await.unwrap();
        answer(io).await;
    }
}

async fn count(io: &mut DuplexStream, requests: &[Vec<u8>]) -> Stats {
    let region = Region::new(ALLOCATOR);
    calls(io, requests).await;
    region.change()
}

fn main() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(small_calls_allocate_next_to_nothing_and_a_large_answer_copies_nothing());
}

async fn small_calls_allocate_next_to_nothing_and_a_large_answer_copies_nothing() {
    // Triggers the one-time allocation of the thread's list of yielded tasks.
    tokio::task::yield_now().await;
    let mut io = connect().await;
    let small: Vec<_> = (0..600).map(|number| retrieve(number, b"sixteen bytes 01")).collect();
    calls(&mut io, &small[..100]).await;
    let change = count(&mut io, &small[100..]).await;
    assert_eq!(change.allocations + change.reallocations, 0, "{change:?}");
    let large: Vec<_> = (600..620).map(|number| retrieve(number, b"sixteen bytes 02")).collect();
    calls(&mut io, &large[..10]).await;
    let change = count(&mut io, &large[10..]).await;
    assert!(change.bytes_allocated < LARGE_BYTES / 2, "ten large answers: {change:?}");

    let mut io = connect().await;
    let updates: Vec<_> = (0..600).map(|number| update(number, b"sixteen bytes 01")).collect();
    calls(&mut io, &updates[..100]).await;
    let change = count(&mut io, &updates[100..]).await;
    let each = (change.allocations + change.reallocations).div_ceil(500);
    eprintln!("an update: {each} allocations, {} bytes", change.bytes_allocated / 500);
    assert!(each <= UPDATE_ALLOCATIONS_MAX, "{each} an update: {change:?}");
    let (kept, freed) = (change.bytes_allocated, change.bytes_deallocated);
    assert!(kept.abs_diff(freed) < 10_000, "an update keeps as much as it frees: {change:?}");
}
