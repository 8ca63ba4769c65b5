//! Deadlines that the server sets, under paused time.

use std::sync::Arc;
use std::time::Duration;

use quire_rpc::client::{HttpVersion, Protocol, Settings};
use quire_rpc::server::{Builder, Deadlines, Observer};
use quire_rpc::{Code, Peer, Request, Server, Status};
use rpc_testing::EchoService;
use rpc_testing::proto::Message;
use rpc_testing::proto::echo_client::EchoClient;
use rpc_testing::proto::echo_server::EchoServer;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, sleep};

use crate::support::{Counts, NEVER, call_head, frame, greeting, in_memory, open, text};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn builder(deadlines: Deadlines) -> Builder {
    Server::builder().add_service(EchoServer::new(EchoService)).deadlines(deadlines)
}

/// A client of each transport.
fn clients(deadlines: Deadlines) -> [EchoClient; 2] {
    let http1 = Settings { protocol: Protocol::Connect, http: HttpVersion::Http1, ..Settings::default() };
    [Settings::default(), http1].map(|settings| EchoClient::new(in_memory(builder(deadlines), settings)))
}

/// A call that never ends by itself: its failure, and the seconds until then.
async fn failed(client: &EchoClient, timeout: Option<Duration>) -> (Status, u64) {
    let began = Instant::now();
    let mut request = Request::new(NEVER);
    if let Some(timeout) = timeout {
        request.set_timeout(timeout);
    }
    let status = client.late(request).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    (status, began.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn a_method_has_its_least_most_and_usual_timeout() {
    let deadlines =
        Deadlines { least: Some(seconds(2)), most: Some(seconds(60)), usual: Some(seconds(5)), ..Deadlines::default() };
    for client in clients(deadlines) {
        assert_eq!(failed(&client, None).await.1, 5);
        assert_eq!(failed(&client, Some(seconds(3))).await.1, 3);
        assert_eq!(failed(&client, Some(seconds(1_000))).await.1, 60);
        assert_eq!(failed(&client, Some(seconds(1))).await.1, 0);
    }
    let [client, _] = clients(deadlines);
    let (status, _) = failed(&client, Some(seconds(1))).await;
    assert!(status.message().contains("2s at least"), "{status}");
    for client in clients(Deadlines { usual: None, ..deadlines }) {
        assert_eq!(failed(&client, None).await.1, 60);
    }
}

#[tokio::test(start_paused = true)]
async fn a_method_has_the_deadlines_that_were_set_last() {
    let is_late = |path: &str| path == "/testing.Echo/Late";
    let usual = |usual| Deadlines { usual, ..Deadlines::default() };
    let server = builder(usual(Some(seconds(5)))).deadlines_for(is_late, usual(Some(seconds(7))));
    let client = EchoClient::new(in_memory(server, Settings::default()));
    assert_eq!(failed(&client, None).await.1, 7);
    let (_sender, mut echoes) = open(&client).await;
    let began = Instant::now();
    assert_eq!(echoes.message().await.unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!(began.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_stream_lives_as_long_as_messages_come_and_ends_when_they_cease() {
    let deadlines = Deadlines { between_messages: Some(seconds(10)), ..Deadlines::default() };
    let client = EchoClient::new(in_memory(builder(deadlines), Settings::default()));
    let (sender, mut echoes) = open(&client).await;
    for _ in 0..5 {
        sleep(Duration::from_secs(9)).await;
        sender.send(text("still here")).await.unwrap();
        assert_eq!(echoes.message().await.unwrap(), Some(text("still here")));
    }
    let began = Instant::now();
    let status = echoes.message().await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert!(status.message().contains("no message for 10s"), "{status}");
    assert_eq!(began.elapsed().as_secs(), 10);
    // It is for streams alone.
    let slow = Message { delay_ms: 60_000, ..text("slow") };
    client.late(slow.clone()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_byte_by_byte_does_not_keep_its_stream() {
    let counts = Arc::new(Counts::default());
    let deadlines = Deadlines { between_messages: Some(seconds(10)), ..Deadlines::default() };
    let server = builder(deadlines).observer(Arc::clone(&counts) as Arc<dyn Observer>).build();
    let (mut client, ours) = tokio::io::duplex(64 * 1024);
    tokio::spawn(async move { server.serve_connection(ours, Peer::default(), std::future::pending()).await });
    let began = Instant::now();
    let head = [greeting(), frame(1, 4, 1, &call_head("Each")), frame(0, 0, 1, &[0, 0, 0, 0, 100])].concat();
    client.write_all(&head).await.unwrap();
    let dribble = async {
        loop {
            sleep(Duration::from_secs(1)).await;
            client.write_all(&frame(0, 0, 1, b"x")).await.unwrap();
        }
    };
    tokio::select! {
        () = dribble => {}
        () = counts.until(|counts| counts.get("/testing.Echo/Each DEADLINE_EXCEEDED") == 1) => {}
    }
    assert_eq!(began.elapsed().as_secs(), 10);
}
