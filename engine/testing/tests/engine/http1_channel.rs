//! A channel over HTTP/1.1: its number of connections, their end, and calls that exceed them.

use std::io::{Read, Write};
use std::time::Duration;

use crate::support::{NEVER, Running, refusing, text};
use quire_rpc::client::{Channel, HttpVersion, Protocol, Settings};
use quire_rpc::{Code, Limits, Reach, Request};
use rpc_testing::proto::Message;
use rpc_testing::proto::echo_client::EchoClient;
use tokio::sync::mpsc;

fn settings() -> Settings {
    Settings { protocol: Protocol::Connect, http: HttpVersion::Http1, ..Settings::default() }
}

#[tokio::test]
async fn calls_in_turn_share_a_connection_and_calls_at_once_have_no_more_than_the_bound() {
    let server = Running::new(Limits::default()).await;
    let client = EchoClient::new(server.channel(Settings { http1_connections_max: 3, ..settings() }).await);
    for _ in 0..10 {
        client.call(text("in turn")).await.unwrap();
    }
    assert_eq!(server.counts.get("opened"), 1);
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.late(Message { delay_ms: 1, ..text("at once") }).await })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().get_ref().payload, b"at once");
    }
    assert_eq!(server.counts.get("opened"), 3);
}

#[tokio::test]
async fn calls_beyond_the_queue_are_refused_untouched() {
    let server = Running::new(Limits::default()).await;
    let settings = Settings { http1_connections_max: 1, waiting_calls_max: 1, ..settings() };
    let client = EchoClient::new(server.channel(settings).await);
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let client = client.clone();
        calls.spawn(async move { client.late(NEVER).await });
    }
    let status = calls.join_next().await.unwrap().unwrap().unwrap_err();
    assert_eq!((status.code(), status.reach()), (Code::ResourceExhausted, Reach::Untouched));
}

#[tokio::test]
async fn a_call_that_is_dropped_is_cancelled_at_the_server_and_the_next_has_another_connection() {
    let server = Running::new(Limits::default()).await;
    let client = EchoClient::new(server.channel(Settings { http1_connections_max: 1, ..settings() }).await);
    let mut late = Request::new(NEVER);
    late.set_timeout(Duration::from_millis(50));
    assert_eq!(client.late(late).await.unwrap_err().code(), Code::DeadlineExceeded);
    client.call(text("next")).await.unwrap();
    assert_eq!(server.counts.get("opened"), 2);
    let mut many = client.many(Message { count: u32::MAX, ..text("more than is read") }).await.unwrap().into_inner();
    many.message().await.unwrap().unwrap();
    drop(many);
    server.counts.until(|counts| counts.get("/testing.Echo/Many CANCELLED") == 1).await;
    client.call(text("next")).await.unwrap();
}

/// Answers one call on each connection, closes it, and reports that.
fn one_call_a_connection(listener: &std::net::TcpListener, closed: &mpsc::Sender<()>) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/proto\r\ncontent-length: 0\r\n\r\n").unwrap();
        drop(stream);
        if closed.blocking_send(()).is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_not_used_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, mut closed) = mpsc::channel(1);
    std::thread::spawn(move || one_call_a_connection(&listener, &sender));
    let builder = Channel::builder(&format!("http://{address}")).unwrap().settings(settings());
    let client = EchoClient::new(builder.connect_lazy().unwrap());
    for _ in 0..3 {
        assert_eq!(client.call(Message::default()).await.unwrap().into_inner(), Message::default());
        closed.recv().await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_fails_calls_untouched_and_those_that_wait_find_it_later() {
    let (socket, address) = refusing();
    let settings = Settings { reconnect_first: Duration::from_millis(10), ..settings() };
    let channel = Channel::builder(&format!("http://{address}")).unwrap().settings(settings).connect_lazy().unwrap();
    assert!(channel.ready().await.is_err());
    let client = EchoClient::new(channel);
    let status = client.call(text("no one")).await.unwrap_err();
    assert_eq!((status.code(), status.reach()), (Code::Unavailable, Reach::Untouched));
    let mut patient = Request::new(text("patient"));
    patient.set_wait_for_ready(true);
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.call(patient).await }
    });
    let _server = Running::on(socket.listen(8).unwrap(), Limits::default(), |builder| builder);
    assert_eq!(waiting.await.unwrap().unwrap().get_ref().payload, b"patient");
}

#[tokio::test]
async fn a_channel_that_closes_lets_its_calls_finish() {
    let server = Running::new(Limits::default()).await;
    let channel = server.channel(settings()).await;
    let client = EchoClient::new(channel.clone());
    let call = crate::support::begin(&client, {
        let client = client.clone();
        async move { client.late(Message { delay_ms: 50, ..text("last") }).await }
    })
    .await;
    channel.close().await;
    assert_eq!(call.await.unwrap().unwrap().get_ref().payload, b"last");
    assert_eq!(client.call(text("too late")).await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn grpc_over_http1_is_refused_with_what_to_choose() {
    let settings = Settings { http: HttpVersion::Http1, ..Settings::default() };
    let error = Channel::builder("http://127.0.0.1:1").unwrap().settings(settings).connect_lazy().unwrap_err();
    assert_eq!(error.to_string(), "gRPC needs HTTP/2; over HTTP/1.1, set the protocol to GrpcWeb or Connect");
}
