//! Our channel's connections to our server: their number, their end, and the calls that move to the next one.

use std::task::Poll;
use std::time::Duration;

use crate::support::{NEVER, Running, begin, frame, open, refusing, text};
use quire_rpc::client::{Channel, HttpVersion, Protocol, Settings};
use quire_rpc::{Code, Limits, Reach, Request};
use rpc_testing::proto::Message;
use rpc_testing::proto::echo_client::EchoClient;
use tokio::io::AsyncWriteExt as _;

#[tokio::test]
async fn too_many_calls_are_refused_and_later_ones_served() {
    let server = Running::new(Limits { calls_max: 2.into(), ..Limits::default() }).await;
    let client = server.client().await;
    let held = [open(&client).await, open(&client).await];
    assert_eq!(client.call(text("x")).await.unwrap_err().code(), Code::ResourceExhausted);
    for (sender, mut echoes) in held {
        drop(sender);
        assert!(echoes.message().await.unwrap().is_none());
    }
    client.call(text("x")).await.unwrap();
    assert_eq!(server.stopped().await.get("refused Calls"), 1);
}

#[tokio::test]
async fn one_connection_too_many_is_told_so() {
    let server = Running::new(Limits { connections_max: 1.into(), ..Limits::default() }).await;
    let first = server.client().await;
    first.call(text("x")).await.unwrap();
    let second = server.client().await;
    assert_eq!(second.call(text("x")).await.unwrap_err().code(), Code::ResourceExhausted);
    first.call(text("x")).await.unwrap();
}

#[tokio::test]
async fn drain_finishes_calls_and_the_channel_moves_to_the_next_server() {
    let mut server = Running::new(Limits::default()).await;
    let address = server.address;
    let client = server.client().await;
    let (sender, mut echoes) = open(&client).await;
    server.stop();
    let listener = loop {
        match tokio::net::TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse),
        }
        tokio::task::yield_now().await;
    };
    let next = Running::on(listener, Limits::default(), |builder| builder);
    // The server's GOAWAY precedes this echo.
    sender.send(text("under way")).await.unwrap();
    assert_eq!(echoes.message().await.unwrap().unwrap().payload, b"under way");
    let mut request = Request::new(text("new"));
    request.set_wait_for_ready(true);
    client.call(request).await.unwrap();
    sender.send(text("done")).await.unwrap();
    assert_eq!(echoes.message().await.unwrap().unwrap().payload, b"done");
    drop(sender);
    assert!(echoes.message().await.unwrap().is_none());
    server.stopped().await;
    assert_eq!(next.counts.get("/testing.Echo/Call OK"), 1);
}

#[tokio::test]
async fn drain_gives_up_on_calls_that_never_end() {
    let limits = Limits { drain_timeout: Duration::from_millis(200), ..Limits::default() };
    let server = Running::new(limits).await;
    let client = server.client().await;
    let slow = client.clone();
    let slow = begin(&client, async move { slow.late(NEVER).await }).await;
    server.stopped().await;
    assert_eq!(slow.await.unwrap().unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn connections_end_at_their_age_without_a_failed_call() {
    let limits = Limits { connection_age_max: Some(Duration::from_millis(50)), ..Limits::default() };
    let server = Running::new(limits).await;
    let client = server.client().await;
    let calls = async {
        loop {
            let mut request = Request::new(text("x"));
            request.set_wait_for_ready(true);
            client.call(request).await.unwrap();
        }
    };
    tokio::select! {
        () = calls => {}
        () = server.counts.until(|counts| counts.get("opened") > 2) => {}
    }
}

/// For example a process that waits for its user, and neither reads nor answers.
#[tokio::test]
async fn drain_does_not_wait_for_a_peer_that_has_no_calls_and_does_not_read() {
    let server = Running::new(Limits::default()).await;
    let mut silent = tokio::net::TcpStream::connect(server.address).await.unwrap();
    silent.write_all(&crate::support::greeting()).await.unwrap();
    server.counts.until(|counts| counts.get("opened") == 1).await;
    let counts = server.stopped().await;
    assert_eq!(counts.get("closed: drained"), 1);
}

#[test]
fn a_call_after_the_server_has_gone_unnoticed_is_not_sent_to_it() {
    let servers = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = servers.block_on(Running::new(Limits::default()));
    // A runtime that is paused between calls, like that of a program waiting for its user.
    let clients = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = clients.block_on(server.client());
    clients.block_on(client.call(text("x"))).unwrap();
    // Without GOAWAY, like a killed process.
    drop((server, servers));
    // Longer than the idle time after which a connection is checked.
    std::thread::sleep(Duration::from_millis(150));
    let status = clients.block_on(client.call(text("late"))).unwrap_err();
    assert_eq!((status.code(), status.reach()), (Code::Unavailable, Reach::Untouched), "{status}");
}

#[tokio::test]
async fn dead_peer_is_found_by_keepalive() {
    let limits = Limits {
        keepalive_interval: Some(Duration::from_millis(50)),
        keepalive_timeout: Duration::from_millis(50),
        ..Limits::default()
    };
    let server = Running::new(limits).await;
    let live = server.client().await;
    let mut dead = tokio::net::TcpStream::connect(server.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut dead, &crate::support::greeting()).await.unwrap();
    server.counts.until(|counts| counts.get("closed: no answer to a keepalive ping") == 1).await;
    live.call(text("x")).await.unwrap();
    assert_eq!(server.counts.get("opened"), 2);
}

#[tokio::test]
async fn unreachable_server_fails_calls_unless_they_wait() {
    let (socket, address) = refusing();
    let channel = Channel::builder(&format!("http://{address}")).unwrap().connect_lazy().unwrap();
    let client = EchoClient::new(channel);
    assert_eq!(client.call(text("x")).await.unwrap_err().code(), Code::Unavailable);
    let waiting = client.clone();
    let waiting = tokio::spawn(async move {
        let mut request = Request::new(text("patient"));
        request.set_wait_for_ready(true);
        waiting.call(request).await
    });
    // The first of these is queued behind the waiting call.
    for _ in 0..2 {
        assert_eq!(client.call(text("x")).await.unwrap_err().code(), Code::Unavailable);
    }
    assert!(!waiting.is_finished());
    let _server = Running::on(socket.listen(8).unwrap(), Limits::default(), |builder| builder);
    assert_eq!(waiting.await.unwrap().unwrap().get_ref().payload, b"patient");
}

#[tokio::test]
async fn a_connection_is_tried_again_once_the_pause_after_a_failure_is_over() {
    for http in [HttpVersion::Http1, HttpVersion::Http2] {
        let (socket, address) = refusing();
        let settings = Settings { protocol: Protocol::Connect, http, ..Settings::default() };
        let pause_max = settings.reconnect_first;
        let builder = Channel::builder(&format!("http://{address}")).unwrap().settings(settings);
        let channel = builder.connect_lazy().unwrap();
        channel.ready().await.unwrap_err();
        let _server = Running::on(socket.listen(8).unwrap(), Limits::default(), |builder| builder);
        tokio::time::pause();
        // Timers end at a whole millisecond.
        tokio::time::advance(pause_max + Duration::from_millis(1)).await;
        tokio::time::resume();
        // On the test's single thread, these turns let the channel notice that the pause is over.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        channel.ready().await.unwrap();
    }
}

#[tokio::test]
async fn a_connection_that_failed_once_is_made_again_beside_another() {
    let (socket, address) = refusing();
    let settings = Settings { connections: 2, reconnect_first: Duration::from_millis(1), ..Settings::default() };
    let builder = Channel::builder(&format!("http://{address}")).unwrap().settings(settings);
    let client = EchoClient::new(builder.connect_lazy().unwrap());
    for _ in 0..2 {
        assert_eq!(client.call(text("too early")).await.unwrap_err().code(), Code::Unavailable);
    }
    let server = Running::on(socket.listen(8).unwrap(), Limits::default(), |builder| builder);
    let calls = async {
        loop {
            // Calls during the pause fail.
            let _ = client.call(text("by one, then by both")).await;
        }
    };
    tokio::select! {
        () = calls => {}
        () = server.counts.until(|counts| counts.get("opened") == 2) => {}
    }
}

#[tokio::test]
async fn calls_fail_at_once_when_the_server_breaks_a_rule_and_reads_no_more() {
    const WIDE: [u8; 4] = 0x7fff_0000_u32.to_be_bytes();
    let path = std::env::temp_dir().join(format!("quire-rpc-broken-{}.sock", std::process::id()));
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let server = async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        // Windows that the request does not fill, so that unwritten bytes wait for the socket alone.
        let windows = [frame(4, 0, 0, &[&[0, 4], &WIDE[..]].concat()), frame(8, 0, 0, &WIDE)].concat();
        stream.write_all(&windows).await.unwrap();
        // On the test's single thread, these turns let the client write all that the socket takes.
        for _ in 0..100 {
            stream.readable().await.unwrap();
            tokio::task::yield_now().await;
        }
        let no_increment = frame(8, 0, 0, &[0; 4]);
        stream.write_all(&no_increment).await.unwrap();
        stream
    };
    let channel = Channel::builder(&format!("unix:{}", path.display())).unwrap().connect_lazy().unwrap();
    let client = EchoClient::new(channel);
    let large = Message { payload: vec![7; 16 << 20], ..Message::default() };
    let call = tokio::time::timeout(Duration::from_secs(30), client.call(large));
    let (call, _still_open) = tokio::join!(call, server);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(call.expect("fails before its time").unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn closed_channel_lets_calls_finish_and_takes_no_more() {
    let server = Running::new(Limits::default()).await;
    let channel = server.channel(Settings { connections: 3, ..Settings::default() }).await;
    let client = EchoClient::new(channel.clone());
    let (sender, mut echoes) = open(&client).await;
    let mut closing = std::pin::pin!(channel.close());
    assert!(std::future::poll_fn(|cx| Poll::Ready(closing.as_mut().poll(cx))).await.is_pending());
    sender.send(text("last")).await.unwrap();
    assert_eq!(echoes.message().await.unwrap().unwrap().payload, b"last");
    drop(sender);
    assert!(echoes.message().await.unwrap().is_none());
    closing.await;
    assert_eq!(client.call(text("x")).await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn dropped_channel_closes_its_connections() {
    let server = Running::new(Limits::default()).await;
    let client = server.client().await;
    client.call(text("x")).await.unwrap();
    drop(client);
    server.counts.until(|counts| counts.get("closed") == 1).await;
}

#[tokio::test]
async fn client_keeps_to_the_servers_stream_limit() {
    let mut limits = Limits::default();
    limits.http2.concurrent_streams_max = 3;
    let server = Running::new(limits).await;
    let client = server.client().await;
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.late(Message { delay_ms: 5, ..Message::default() }).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn http1_and_plain_http2_reach_the_http_service() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = Running::new(Limits::default()).await;
    let mut http1 = tokio::net::TcpStream::connect(server.address).await.unwrap();
    http1
        .write_all(b"POST /one HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbody")
        .await
        .unwrap();
    let mut answer = String::new();
    http1.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("hello /one\nbody"), "{answer}");

    let mut http2 = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let head = [0x82, 0x86, 0x84, 0x01, 1, b'h'];
    http2.write_all(&[crate::support::greeting(), frame(1, 5, 1, &head)].concat()).await.unwrap();
    let mut seen = Vec::new();
    while !seen.windows(8).any(|window| window == b"hello /\n") {
        assert_ne!(http2.read_buf(&mut seen).await.unwrap(), 0);
    }
}
