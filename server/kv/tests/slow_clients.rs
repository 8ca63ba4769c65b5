//! A client that does not read, or is gone, holds no memory beyond its limit; others are still answered.

use std::{alloc::System, future::pending, path::Path, time::Duration};

use bytes::Bytes;
use kv::{
    Clock, KeyValue, Limits, Settings, Value,
    grpc::{
        PairsService, RangeService,
        wire::{
            RetrieveRequest, WatchRequest, key_range_service_server::KeyRangeServiceServer,
            key_value_service_server::KeyValueServiceServer,
        },
    },
};
use quire_rpc::Server;
use quire_rpc::prost::Message;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const LARGE_BYTES: usize = 1 << 20;
/// Limit of the events queued for one watcher.
const WATCH_BYTES: usize = 4 << 20;
/// A connection's other memory: its buffers, and a frame around each queued answer.
const CONNECTION_BYTES: usize = 2 << 20;
const TIMEOUT: Duration = Duration::from_mins(1);

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A complete call with a literal head, so that calls need no table.
fn call(number: u32, path: &str, message: &impl Message) -> Vec<u8> {
    let head = [
        &[0x83, 0x86, 0x04, u8::try_from(path.len()).unwrap()][..],
        path.as_bytes(),
        &[0x0f, 0x10, 16],
        b"application/grpc",
    ];
    let message = message.encode_to_vec();
    let body = [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), &message].concat();
    let id = number * 2 + 1;
    [frame(1, 4, id, &head.concat()), frame(0, 1, id, &body)].concat()
}

fn open() -> (KeyValue, Server) {
    let limits = Limits { watch_bytes: WATCH_BYTES, ..Limits::default() };
    let kv = KeyValue::open(Path::new("unused"), Settings { limits, ..Settings::default() }, Clock::Wall).unwrap();
    let server = Server::builder()
        .add_service(KeyValueServiceServer::new(PairsService::new(kv.clone())))
        .add_service(KeyRangeServiceServer::new(RangeService::new(kv.clone())))
        .build();
    (kv, server)
}

/// A client that never enlarges the first windows.
async fn connect(server: &Server) -> DuplexStream {
    let (mut io, theirs) = tokio::io::duplex(64 * 1024);
    let server = server.clone();
    tokio::spawn(async move { server.serve_connection(theirs, quire_rpc::Peer::default(), pending()).await });
    io.write_all(&[&quire_rpc::http2::PREFACE[..], &frame(4, 0, 0, &[])].concat()).await.unwrap();
    io
}

/// Lets other tasks run until a state is reached.
async fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let wait = async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(tokio::time::timeout(TIMEOUT, wait).await.is_ok(), "not reached: {what}");
}

/// Growth of the allocated bytes.
fn grown(region: &Region<'_, System>) -> usize {
    let change = region.change();
    change.bytes_allocated.saturating_sub(change.bytes_deallocated)
}

// One test, because another thread's allocations would be counted too.
#[tokio::test(flavor = "current_thread")]
async fn clients_that_do_not_read_or_are_gone_hold_no_memory_beyond_their_limits() {
    let (kv, server) = open();
    kv.create(b"large", Value::copied(&vec![7; LARGE_BYTES]), None).await.unwrap();

    // Two hundred answers of a mebibyte for a client that reads none: they share the one value in the map, and those
    // beyond the limit are refused.
    let region = Region::new(ALLOCATOR);
    let mut slow = connect(&server).await;
    let retrieve = RetrieveRequest { key: Bytes::from_static(b"large"), want_details: false };
    for number in 0..200 {
        slow.write_all(&call(number, "/io.grpc.KeyValueService/Retrieve", &retrieve)).await.unwrap();
    }
    // The last request is handled before the ping after it is answered.
    slow.write_all(&frame(6, 0, 0, b"at last!")).await.unwrap();
    let mut seen = Vec::new();
    while !seen.windows(8).any(|window| window == b"at last!") {
        let mut buffer = [0; 4096];
        let count = slow.read(&mut buffer).await.unwrap();
        assert!(count > 0, "closed");
        seen.extend_from_slice(&buffer[..count]);
    }
    let seen_bytes = seen.capacity();
    assert!(seen.len() > 65_000, "the first window was filled: {}", seen.len());
    assert!(grown(&region) < CONNECTION_BYTES + seen_bytes, "{} bytes for a slow reader", grown(&region));
    drop(slow);

    // A watcher that does not read is cut off at its limit and its queue freed; another one receives everything.
    let region = Region::new(ALLOCATOR);
    let mut deaf = connect(&server).await;
    deaf.write_all(&call(0, "/io.grpc.KeyRangeService/Watch", &WatchRequest::default())).await.unwrap();
    until("a watcher", || kv.levels().watchers == 1).await;
    let mut most = 0;
    for number in 0..200u8 {
        kv.update(b"large", Value::copied(&vec![number; LARGE_BYTES]), None, None).await.unwrap();
        tokio::task::yield_now().await;
        most = most.max(grown(&region));
    }
    until("the watcher is cut off", || kv.levels().watchers == 0).await;
    assert!(most > WATCH_BYTES / 2, "{most} bytes waited");
    assert!(most < WATCH_BYTES + 3 * LARGE_BYTES + CONNECTION_BYTES, "{most} bytes for a deaf watcher");
    until("its events are freed", || grown(&region) < 2 * LARGE_BYTES + CONNECTION_BYTES).await;

    // One that vanishes frees its permit.
    let mut gone = connect(&server).await;
    gone.write_all(&call(0, "/io.grpc.KeyRangeService/Watch", &WatchRequest::default())).await.unwrap();
    until("a watcher", || kv.levels().watchers == 1).await;
    drop(gone);
    until("its place is free", || kv.levels().watchers == 0).await;
    assert_eq!(kv.retrieve(b"large").await.unwrap().value.bytes().len(), LARGE_BYTES);
}
