//! Attempts that the server has not processed are made again without the caller's knowledge, and a response that has begun
//! commits its call (gRPC's A6), under paused time.

use std::future::{pending, ready};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quire_rpc::client::{Channel, Connector, Settings};
use quire_rpc::{Code, Reach, Server};
use rpc_testing::EchoService;
use rpc_testing::proto::Message;
use rpc_testing::proto::echo_client::EchoClient;
use rpc_testing::proto::echo_server::EchoServer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::Instant;

use crate::support::{Counts, frame, text};

const RETRY: &str = r#"{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":4,"initialBackoff":".1s",
    "maxBackoff":"1s","backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}}]}"#;

const HEDGING: &str = r#"{"methodConfig":[{"name":[{}],"hedgingPolicy":{"maxAttempts":4,"hedgingDelay":".5s",
    "nonFatalStatusCodes":["UNAVAILABLE"]}}]}"#;

/// A client whose connections, from the first, are served by `serve`.
fn client<F: Future<Output = ()> + Send + 'static>(
    service_config: &str,
    pipe_bytes: usize,
    serve: impl Fn(usize, DuplexStream) -> F + Send + Sync + 'static,
) -> EchoClient {
    let connections = AtomicUsize::new(0);
    let settings = Settings { service_config: service_config.parse().unwrap(), ..Settings::default() };
    let builder = Channel::builder("http://pipe").unwrap().settings(settings).connector(move || {
        let (ours, theirs) = tokio::io::duplex(pipe_bytes);
        tokio::spawn(serve(connections.fetch_add(1, Ordering::Relaxed), theirs));
        ready(Ok(ours))
    });
    EchoClient::new(builder.connect_lazy().unwrap())
}

/// Kind and stream of the next frame; `None` at the end.
pub(crate) async fn next_frame(pipe: &mut (impl AsyncRead + Unpin)) -> Option<(u8, u32)> {
    let mut head = [0; 9];
    pipe.read_exact(&mut head).await.ok()?;
    let [a, b, c, kind, _, stream @ ..] = head;
    pipe.read_exact(&mut vec![0; u32::from_be_bytes([0, a, b, c]) as usize]).await.ok()?;
    Some((kind, u32::from_be_bytes(stream)))
}

/// Answers each frame, by its kind and stream.
async fn answer(mut pipe: DuplexStream, answer: impl Fn(u8, u32) -> Vec<u8>) {
    pipe.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    pipe.read_exact(&mut [0; 24]).await.unwrap();
    while let Some((kind, stream)) = next_frame(&mut pipe).await {
        if pipe.write_all(&answer(kind, stream)).await.is_err() {
            return;
        }
    }
}

/// `REFUSED_STREAM`.
pub(crate) fn refusal(stream: u32) -> Vec<u8> {
    frame(3, 0, stream, &7_u32.to_be_bytes())
}

pub(crate) fn head(stream: u32) -> Vec<u8> {
    frame(1, 4, stream, &[&[0x88, 0x5f, 16][..], b"application/grpc"].concat())
}

pub(crate) fn rest(stream: u32) -> Vec<u8> {
    let trailers = [&[0x00, 11][..], b"grpc-status", &[1], b"0"].concat();
    [frame(0, 0, stream, &[0; 5]), frame(1, 5, stream, &trailers)].concat()
}

/// Answers a call by its stream, once its message has come.
fn unless_refused(is_refused: impl Fn(u32) -> bool) -> impl Fn(u8, u32) -> Vec<u8> {
    move |kind, stream| match kind {
        0 if is_refused(stream) => refusal(stream),
        0 => [head(stream), rest(stream)].concat(),
        _ => Vec::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_made_once_more_at_once_and_without_a_policy() {
    let client = client("{}", 4096, |_, pipe| answer(pipe, unless_refused(|stream| stream % 4 == 1)));
    let start = Instant::now();
    client.call(text("x")).await.unwrap();
    let mut stream = client.many(Message { count: 1, ..text("x") }).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_second_refusal_of_a_call_is_the_policys() {
    for (service_config, attempts) in [("{}", 2), (RETRY, 5)] {
        let seen = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&seen);
        let client = client(service_config, 4096, move |_, pipe| {
            let count = Arc::clone(&count);
            answer(pipe, unless_refused(move |_| count.fetch_add(1, Ordering::Relaxed) < 99))
        });
        let status = client.call(text("x")).await.unwrap_err();
        assert_eq!((status.code(), status.reach()), (Code::Unavailable, Reach::Untouched), "{status}");
        assert_eq!(seen.load(Ordering::Relaxed), attempts);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_beyond_the_last_stream_of_goaway_moves_to_the_next_connection() {
    let client = client("{}", 4096, |number, pipe| {
        let goaway = move |kind, stream| match (number, kind) {
            (0, 0) => frame(7, 0, 0, &[0; 8]),
            _ => unless_refused(|_| false)(kind, stream),
        };
        answer(pipe, goaway)
    });
    client.call(text("x")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_left_is_made_again_until_it_leaves() {
    let counts = Arc::new(Counts::default());
    let server = Server::builder().add_service(EchoServer::new(EchoService)).observer(Arc::<Counts>::clone(&counts));
    let server = server.build();
    let connections = AtomicUsize::new(0);
    let builder = Channel::builder("http://pipe").unwrap().connector(move || {
        let (server, number) = (server.clone(), connections.fetch_add(1, Ordering::Relaxed));
        async move {
            if number > 3 {
                return server.connect().await;
            }
            // Less than the preface, so that no request leaves.
            let (ours, mut theirs) = tokio::io::duplex(16);
            tokio::spawn(async move {
                theirs.write_all(&frame(4, 0, 0, &[])).await.unwrap();
                theirs.read_exact(&mut [0]).await.unwrap();
                theirs.shutdown().await.unwrap();
                pending::<()>().await;
            });
            Ok(ours)
        }
    });
    let client = EchoClient::new(builder.connect_lazy().unwrap());
    client.call(text("x")).await.unwrap();
    assert_eq!(counts.get("/testing.Echo/Call OK"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_have_left_is_not_made_again() {
    let client = client("{}", 4096, |number, pipe| async move {
        assert_eq!(number, 0);
        let mut pipe = pipe;
        pipe.write_all(&frame(4, 0, 0, &[])).await.unwrap();
        pipe.read_exact(&mut [0; 100]).await.unwrap();
    });
    let status = client.call(text(&"x".repeat(6000))).await.unwrap_err();
    assert_eq!((status.code(), status.reach()), (Code::Unavailable, Reach::Unanswered), "{status}");
}

#[tokio::test(start_paused = true)]
async fn a_response_that_has_begun_ends_the_other_hedges() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    let client = client(HEDGING, 4096, move |_, pipe| {
        let record = Arc::clone(&record);
        async move {
            let (mut read, mut write) = tokio::io::split(pipe);
            write.write_all(&frame(4, 0, 0, &[])).await.unwrap();
            read.read_exact(&mut [0; 24]).await.unwrap();
            let mut write = Some(write);
            while let Some((kind, stream)) = next_frame(&mut read).await {
                record.lock().unwrap().push((kind, stream));
                // The second attempt's message.
                if (kind, stream) == (0, 3) {
                    let mut write = write.take().unwrap();
                    tokio::spawn(async move {
                        write.write_all(&head(stream)).await.unwrap();
                        tokio::time::sleep(Duration::from_secs(5)).await;
                        write.write_all(&rest(stream)).await.unwrap();
                        pending::<()>().await;
                    });
                }
            }
        }
    });
    let start = Instant::now();
    client.call(text("x")).await.unwrap();
    assert_eq!(start.elapsed().as_millis() / 10, 550);
    let seen = seen.lock().unwrap().clone();
    assert!(seen.contains(&(3, 1)), "the first attempt is cancelled: {seen:?}");
    assert!(!seen.contains(&(1, 5)), "no further attempt is sent: {seen:?}");
}
