//! A unary call that answers at once allocates nothing on a warm connection, also if others are traced.
//!
//! A counting allocator needs `unsafe`, which our code must not have, so the counter comes from a crate. It counts all
//! threads, so this process holds one test: other tests' harness keeps a thread that allocates now and then.

use std::alloc::System;
use std::future::pending;
use std::sync::Arc;

use quire_rpc::server::{Answer, Call, Later, NoObserver, Observer};
use quire_rpc::{Encoded, Request, Response, Server, Status, Streaming};
use rpc_testing::proto::Message;
use rpc_testing::proto::echo_server::{Echo, EchoServer};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::Builder;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Replies with numbers, so that the messages themselves need no memory.
struct Numbers;

impl Echo for Numbers {
    async fn call(&self, request: Request<Message>) -> Result<Response<Message>, Status> {
        Ok(Response::new(Message { count: request.get_ref().count + 1, ..Message::default() }))
    }

    fn same(&self, call: Call<'_, Message>) -> Answer<impl Later + use<>> {
        match call.message() {
            Ok(message) if message.count == 7 => call.send(message),
            _ => Answer::Later(pending::<Result<Response<Encoded>, Status>>()),
        }
    }

    async fn late(&self, request: Request<Message>) -> Result<Response<Message>, Status> {
        tokio::task::yield_now().await;
        self.call(request).await
    }

    type ManyStream = Streaming<Message>;

    async fn many(&self, _: Request<Message>) -> Result<Response<Self::ManyStream>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn join(&self, _: Request<Streaming<Message>>) -> Result<Response<Message>, Status> {
        Err(Status::unimplemented(""))
    }

    type EachStream = Streaming<Message>;

    async fn each(&self, _: Request<Streaming<Message>>) -> Result<Response<Self::EachStream>, Status> {
        Err(Status::unimplemented(""))
    }
}

/// Traces calls, but none of these.
struct Tracer;

impl Observer for Tracer {
    fn wants_traces(&self) -> bool {
        true
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A request head that is inserted into the table the first time and is four indexes afterwards.
fn head(path: &str, first: bool) -> Vec<u8> {
    if !first {
        return vec![0x83, 0x86, 0xbf, 0xbe];
    }
    let content_type = [&[0x5f, 16][..], b"application/grpc"].concat();
    [&[0x83, 0x86, 0x44, u8::try_from(path.len()).unwrap()][..], path.as_bytes(), &content_type].concat()
}

/// Makes the calls one after another.
async fn calls(io: &mut DuplexStream, requests: &[Vec<u8>]) {
    let mut buffer = [0; 4096];
    for request in requests {
        io.write_all(request).await.unwrap();
        let mut seen = 0;
        // Head, message and trailers on a warm connection are 11, 16 and 10 bytes.
        while seen < 30 {
            seen += io.read(&mut buffer).await.unwrap();
        }
    }
}

fn requests(path: &str, ids: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    ids.map(|n| {
        let id = n * 2 + 1;
        let body = [0, 0, 0, 0, 2, 0x18, 7];
        [frame(1, 4, id, &head(path, n == 0)), frame(0, 1, id, &body)].concat()
    })
    .collect()
}

async fn check(path: &str, observer: Arc<dyn Observer>) {
    let server = Server::builder().add_service(EchoServer::new(Numbers)).observer(observer).build();
    let (mut io, theirs) = tokio::io::duplex(64 * 1024);
    tokio::spawn(async move { server.serve_connection(theirs, quire_rpc::Peer::default(), pending()).await });
    io.write_all(&[&quire_rpc::http2::PREFACE[..], &frame(4, 0, 0, &[])].concat()).await.unwrap();
    let mut greeting = [0; 1024];
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    let _ = io.read(&mut greeting).await.unwrap();
    // A thread allocates its list of yielded tasks once.
    tokio::task::yield_now().await;
    let (warm, counted) = (requests(path, 0..100), requests(path, 100..1100));
    calls(&mut io, &warm).await;
    let region = Region::new(ALLOCATOR);
    calls(&mut io, &counted).await;
    let change = region.change();
    assert_eq!(change.allocations + change.reallocations, 0, "{path}: {change:?}");
}

fn main() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    for path in ["/testing.Echo/Call", "/testing.Echo/Same", "/testing.Echo/Late"] {
        runtime.block_on(check(path, Arc::new(NoObserver)));
        runtime.block_on(check(path, Arc::new(Tracer)));
    }
}
