//! Limits of server and channel that the other files do not reach.

use std::time::Duration;

use crate::support::{PATIENCE, Running, call_head, frame, greeting, text};
use quire_rpc::client::Settings;
use quire_rpc::health::{HealthCheckRequest, HealthClient, HealthReporter};
use quire_rpc::prost::Message as _;
use quire_rpc::{Code, Limits, Request, Status, unfold};
use rpc_testing::proto::Message;
use rpc_testing::proto::echo_client::EchoClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn slow(client: &EchoClient, delay_ms: u32) -> tokio::task::JoinHandle<Result<(), Status>> {
    let client = client.clone();
    tokio::spawn(async move { client.late(Message { delay_ms, ..Message::default() }).await.map(|_| ()) })
}

#[tokio::test]
async fn every_connection_too_many_is_refused_aloud_however_few_places_refusals_have() {
    let server = Running::new(Limits { connections_max: 1.into(), refusals_max: 2, ..Limits::default() }).await;
    let first = TcpStream::connect(server.address).await.unwrap();
    let silent = TcpStream::connect(server.address).await.unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..30 {
        let client = server.client().await;
        calls.spawn(async move { client.call(text("too many")).await });
    }
    for answer in calls.join_all().await {
        let refused = answer.expect_err("the connection is one too many");
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        assert!(refused.message().contains("connections is 1"), "{refused}");
    }
    assert_eq!(server.counts.get("refused Connections"), 31);
    drop((first, silent));
}

#[tokio::test]
async fn a_connection_too_many_that_says_nothing_keeps_its_place_for_a_second_only() {
    let server = Running::new(Limits { connections_max: 0.into(), refusals_max: 1, ..Limits::default() }).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let slow_head = async {
        let mut slow = TcpStream::connect(server.address).await.unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n").await.unwrap();
        let mut answer = Vec::new();
        slow.read_to_end(&mut answer).await.unwrap();
    };
    let both_ended = async {
        assert_eq!(silent.read(&mut [0; 64]).await.unwrap(), 0);
        slow_head.await;
    };
    tokio::time::timeout(PATIENCE, both_ended).await.expect("both are closed");
}

#[tokio::test]
async fn http1_connection_too_many_is_told_to_come_back() {
    let server = Running::new(Limits { connections_max: 0.into(), ..Limits::default() }).await;
    let mut http1 = TcpStream::connect(server.address).await.unwrap();
    http1.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    http1.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.to_lowercase().contains("retry-after: 1"), "{answer}");
}

#[tokio::test]
async fn http1_head_over_the_limit_is_refused() {
    let server = Running::new(Limits { http1_head_bytes_max: 8 * 1024, ..Limits::default() }).await;
    let mut http1 = TcpStream::connect(server.address).await.unwrap();
    let head = format!("GET / HTTP/1.1\r\nhost: a\r\nlarge: {}\r\n\r\n", "x".repeat(20_000));
    let _ = http1.write_all(head.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = http1.read_to_end(&mut answer).await;
    assert!(answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
}

/// Reads frames until one is of this kind; returns its stream and payload.
async fn until_frame(stream: &mut TcpStream, kind: u8) -> (u8, Vec<u8>) {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        stream.read_exact(&mut payload).await.unwrap();
        if head[3] == kind {
            return (head[8], payload);
        }
    }
}

#[tokio::test]
async fn a_call_that_an_interceptor_refuses_is_answered_before_its_body() {
    let refuse = |_: &str, _: &mut Request<()>| Err(Status::unauthenticated("no credential"));
    let server = Running::with(Limits::default(), |builder| builder.interceptor(refuse)).await;
    let mut http2 = TcpStream::connect(server.address).await.unwrap();
    let begun = [greeting(), frame(1, 4, 1, &call_head("Call")), frame(0, 0, 1, &[0, 0, 255, 255, 255])].concat();
    http2.write_all(&begun).await.unwrap();
    let (_, answer) = until_frame(&mut http2, 1).await;
    assert!(answer.windows(13).any(|part| part == b"no credential"), "{answer:?}");
    http2.write_all(&frame(0, 0, 1, &[1; 16 * 1024])).await.unwrap();
    assert_eq!(until_frame(&mut http2, 3).await, (1, vec![0; 4]), "NO_ERROR, as no more is taken");
    let mut http1 = TcpStream::connect(server.address).await.unwrap();
    let head = "POST /testing.Echo/Call HTTP/1.1\r\nhost: a\r\ncontent-type: application/proto\r\n";
    http1.write_all(format!("{head}content-length: 4000000\r\n\r\n{}", "x".repeat(20_000)).as_bytes()).await.unwrap();
    let mut start = [0; 12];
    http1.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 401");
    let mut asking = TcpStream::connect(server.address).await.unwrap();
    asking
        .write_all(format!("{head}content-length: 4000000\r\nexpect: 100-continue\r\n\r\n").as_bytes())
        .await
        .unwrap();
    asking.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 401");
}

#[tokio::test]
async fn watches_of_health_have_few_places_of_their_own() {
    let (reporter, health) = HealthReporter::new();
    let limits = Limits { health_watches_max: 4.into(), ..Limits::default() };
    let server = Running::with(limits, |builder| builder.add_service(health)).await;
    let client = HealthClient::new(server.channel(Settings::default()).await);
    let watch = async || client.watch(HealthCheckRequest::default()).await;
    let held = [watch().await.unwrap(), watch().await.unwrap(), watch().await.unwrap()];
    let refused = watch().await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().starts_with("the server's limit limits.health_watches is 4"), "{refused}");
    assert_eq!(server.counts.get("refused HealthWatches"), 1);
    assert!(client.check(HealthCheckRequest::default()).await.is_ok(), "other calls have their places");
    reporter.shutdown();
    for watch in held {
        let mut statuses = watch.into_inner();
        while statuses.message().await.unwrap().is_some() {}
    }
    assert!(watch().await.is_ok(), "the places are free again");
}

/// Makes a call with a window of 0 for every stream.
async fn hold_back(stream: &mut TcpStream, method: &str, body: &[u8]) {
    let settings = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    stream.write_all(&[&quire_rpc::http2::PREFACE[..], &settings].concat()).await.unwrap();
    stream.write_all(&[frame(1, 4, 1, &call_head(method)), frame(0, 1, 1, body)].concat()).await.unwrap();
}

#[tokio::test]
async fn stream_that_takes_nothing_of_its_answer_is_reset_and_its_connection_goes_on() {
    let limits = Limits { stream_stall_timeout: Duration::from_millis(100), ..Limits::default() };
    let server = Running::new(limits).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    hold_back(&mut stream, "Call", &[0, 0, 0, 0, 2, 24, 7]).await;
    assert_eq!(until_frame(&mut stream, 3).await, (1, vec![0, 0, 0, 8]), "stream 1 is cancelled");
    stream.write_all(&frame(6, 0, 0, b"are you?")).await.unwrap();
    until_frame(&mut stream, 6).await;
}

#[tokio::test]
async fn calls_end_with_the_connection_that_failed() {
    let server = Running::new(Limits::default()).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // An endless reply that only the window holds back.
    let endless = Message { count: u32::MAX, ..Message::default() }.encode_to_vec();
    let message = [&[0, 0, 0, 0, u8::try_from(endless.len()).unwrap()][..], &endless].concat();
    hold_back(&mut stream, "Many", &message).await;
    stream.write_all(&frame(8, 0, 0, &[0; 4])).await.unwrap();
    server.counts.until(|counts| counts.get("/testing.Echo/Many CANCELLED") == 1).await;
}

#[tokio::test]
async fn answer_that_no_one_reads_over_http1_ends_its_connection() {
    let server = Running::new(Limits { write_timeout: Duration::from_millis(100), ..Limits::default() }).await;
    let mut http1 = TcpStream::connect(server.address).await.unwrap();
    let body = vec![b'x'; 3_000_000];
    let head = "POST /testing.Echo/Same HTTP/1.1\r\nhost: a\r\ncontent-type: application/proto\r\ncontent-length: 3000005\r\n\r\n";
    let message = [&[10, 0xc0, 0x8d, 0xb7, 0x01][..], &body].concat();
    // Replies of twelve megabytes exceed the system's buffers.
    let _ = http1.write_all(&[head.as_bytes(), &message].concat().repeat(4)).await;
    server.counts.until(|counts| counts.get("closed") == 1).await;
    assert_eq!(server.counts.get("closed: HTTP/1.1: error writing a body to connection: the peer does not read"), 1);
}

#[tokio::test]
async fn the_connection_that_hoards_is_cut_and_no_one_else_is_refused() {
    let memory = quire_rpc::server::Memory::new(48 * 1024, usize::MAX);
    let server = Running::new(Limits { memory, ..Limits::default() }).await;
    let client = server.client().await;
    let mut hoarder = TcpStream::connect(server.address).await.unwrap();
    let unfinished = [&[0, 0, 2, 0, 0][..], &[1; 16_000]].concat();
    let settings = frame(4, 0, 0, &[]);
    hoarder.write_all(&[&quire_rpc::http2::PREFACE[..], &settings].concat()).await.unwrap();
    for stream in (1..9).step_by(2) {
        let call = [frame(1, 4, stream, &call_head("Call")), frame(0, 0, stream, &unfinished)];
        hoarder.write_all(&call.concat()).await.unwrap();
    }
    while server.counts.get("closed") == 0 {
        client.call(text("hello")).await.unwrap();
    }
    assert_eq!(server.counts.get("refused BufferBytes"), 0);
    client.call(text("hello")).await.unwrap();
}

#[tokio::test]
async fn stream_over_http1_is_charged_for_what_is_held_and_not_for_what_was_read() {
    let memory = quire_rpc::server::Memory::new(64 * 1024, usize::MAX);
    let server = Running::new(Limits { memory, ..Limits::default() }).await;
    let neighbour = server.client().await;
    let mut http1 = TcpStream::connect(server.address).await.unwrap();
    let head = "POST /testing.Echo/Join HTTP/1.1\r\nhost: a\r\ncontent-type: application/connect+proto\r\n\
                connection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    http1.write_all(head.as_bytes()).await.unwrap();
    let empty_messages = [0; 5 * 2_000];
    let chunk = [&b"2710\r\n"[..], &empty_messages, b"\r\n"].concat();
    for _ in 0..40 {
        http1.write_all(&chunk).await.unwrap();
        neighbour.call(text("hello")).await.unwrap();
    }
    http1.write_all(b"0\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    http1.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("{}"), "{answer}");
}

#[tokio::test]
async fn unfinished_heads_over_http1_are_charged_until_their_request_is_answered() {
    let memory = quire_rpc::server::Memory::new(1 << 30, usize::MAX);
    let server = Running::new(Limits { memory: memory.clone(), ..Limits::default() }).await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        let mut client = TcpStream::connect(server.address).await.unwrap();
        client.write_all(format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}", "x".repeat(60_000)).as_bytes()).await.unwrap();
        clients.push(client);
    }
    while memory.buffers() < 8 * 60_000 {
        tokio::task::yield_now().await;
    }
    for client in &mut clients {
        client.write_all(b"\r\n\r\n").await.unwrap();
        client.read_exact(&mut [0; 12]).await.unwrap();
    }
    while memory.buffers() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn paths_that_are_always_answered_are_refused_only_to_the_connection_that_lets_answers_lie() {
    let memory = quire_rpc::server::Memory::new(64 * 1024, 1 << 40);
    let limits = Limits { memory: memory.clone(), unread_bytes_max: 1000, ..Limits::default() };
    let server = Running::with(limits, |builder| builder.always_answer("/testing.Echo/Same")).await;
    let client = server.client().await;
    memory.set_measured(1 << 40);
    assert_eq!(client.call(text("refused")).await.unwrap_err().code(), Code::ResourceExhausted);
    client.same(text("answered")).await.unwrap();
    let mut greedy = TcpStream::connect(server.address).await.unwrap();
    let message = [&[0, 0, 0, 0x01, 0xf7, 10, 0xf4, 0x03][..], &[b'x'; 500]].concat();
    greedy.write_all(&[&quire_rpc::http2::PREFACE[..], &frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])].concat()).await.unwrap();
    for stream in (1..21).step_by(2) {
        greedy
            .write_all(&[frame(1, 4, stream, &call_head("Same")), frame(0, 1, stream, &message)].concat())
            .await
            .unwrap();
    }
    server.counts.until(|counts| counts.get("refused Memory") == 9).await;
    client.same(text("answered")).await.unwrap();
}

#[tokio::test]
async fn idle_connection_is_drained() {
    let limits = Limits { connection_idle_max: Some(Duration::from_millis(100)), ..Limits::default() };
    let server = Running::new(limits).await;
    let client = server.client().await;
    slow(&client, 300).await.unwrap().unwrap();
    server.counts.until(|counts| counts.get("closed") == 1).await;
    assert_eq!(server.server.connections(), 0);
    client.call(text("again")).await.unwrap();
}

#[tokio::test]
async fn unread_messages_hold_the_stream_and_nothing_else() {
    let mut limits = Limits { unread_bytes_max: 1000, ..Limits::default() };
    limits.http2.stream_window_bytes = 1000;
    let server = Running::new(limits).await;
    let client = server.client().await;
    // `Each` replies to what it reads; as the replies are not read, it soon stops reading.
    let endless = unfold((), |()| async { Some((text(&"x".repeat(500)), ())) });
    let mut settings = Settings::default();
    settings.http2.stream_window_bytes = 1000;
    let narrow = EchoClient::new(server.channel(Settings { unread_bytes_max: 1000, ..settings }).await);
    let mut echoes = narrow.each(endless).await.unwrap().into_inner();
    tokio::time::sleep(Duration::from_millis(100)).await;
    for _ in 0..20 {
        narrow.call(text("others")).await.unwrap();
        client.call(text("others")).await.unwrap();
    }
    for _ in 0..200 {
        assert_eq!(echoes.message().await.unwrap().unwrap().payload.len(), 500);
    }
}

#[tokio::test]
async fn calls_beyond_a_connections_share_wait_and_beyond_the_queue_fail() {
    let server = Running::new(Limits::default()).await;
    let settings = Settings { calls_per_connection_max: 1, waiting_calls_max: 3, ..Settings::default() };
    let client = EchoClient::new(server.channel(settings).await);
    let calls: Vec<_> = (0..20).map(|_| slow(&client, 20)).collect();
    let mut refused = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(()) => {}
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted);
                refused += 1;
            }
        }
    }
    assert!((1..=17).contains(&refused), "{refused} refused");
}

#[tokio::test]
async fn channel_finds_a_dead_server_by_keepalive() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let dead = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(&frame(4, 0, 0, &[])).await.unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
    });
    let settings = Settings {
        keepalive_interval: Some(Duration::from_millis(50)),
        keepalive_timeout: Duration::from_millis(50),
        ..Settings::default()
    };
    let builder = quire_rpc::client::Channel::builder(&format!("http://{address}")).unwrap().settings(settings);
    let client = EchoClient::new(builder.connect().await.unwrap());
    let call = tokio::time::timeout(Duration::from_secs(5), client.call(text("x"))).await.expect("fails in time");
    assert_eq!(call.unwrap_err().code(), Code::Unavailable);
    dead.abort();
}

#[test]
fn connections_are_shared_out_to_worker_runtimes() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (send, receive) = std::sync::mpsc::channel();
    for _ in 0..2 {
        let send = send.clone();
        std::thread::spawn(move || {
            let runtime = runtime();
            send.send(runtime.handle().clone()).unwrap();
            runtime.block_on(std::future::pending::<()>());
        });
    }
    let workers: Vec<_> = receive.iter().take(2).collect();
    runtime().block_on(async {
        let server = Running::with(Limits::default(), |builder| builder.workers(workers)).await;
        let client = EchoClient::new(server.channel(Settings { connections: 4, ..Settings::default() }).await);
        for _ in 0..20 {
            client.call(text("x")).await.unwrap();
        }
        assert_eq!(server.counts.get("opened"), 4);
        assert_eq!(server.stopped().await.get("/testing.Echo/Call OK"), 20);
    });
}

/// DATA frames in the response to a call of `Many` for ten messages, and their total length.
async fn frames_of_ten_messages(limits: Limits) -> (usize, Vec<u8>) {
    let server = Running::new(limits).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = frame(0, 1, 1, &[0, 0, 0, 0, 6, 10, 2, b'h', b'i', 24, 10]);
    let call = [greeting(), frame(4, 1, 0, &[]), frame(1, 4, 1, &call_head("Many")), request].concat();
    stream.write_all(&call).await.unwrap();
    let (mut frames, mut messages) = (0, Vec::new());
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await.unwrap();
        match (head[3], head[4] & 1) {
            (0, _) => {
                frames += 1;
                messages.extend_from_slice(&payload);
            }
            (1, 1) => return (frames, messages),
            _ => {}
        }
    }
}

#[tokio::test]
async fn messages_that_are_ready_together_share_a_frame_unless_each_shall_have_its_own() {
    let ten = [0, 0, 0, 0, 6, 10, 2, b'h', b'i', 24, 10].repeat(10);
    assert_eq!(frames_of_ten_messages(Limits::default()).await, (1, ten.clone()));
    let limits = Limits { is_message_per_frame: true, ..Limits::default() };
    assert_eq!(frames_of_ten_messages(limits).await, (10, ten));
}
