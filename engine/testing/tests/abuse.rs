//! Misbehaving peers: each is stopped, the others are not affected, and memory stays under a stated bound.
//!
//! The flood limits themselves are tested to the frame in `http2/tests/abuse.rs`; here whole servers are attacked.

mod support;

use std::time::Duration;

use quire_rpc::{Code, Limits};
use support::{Running, call_head, frame, greeting, resident_bytes, text};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Limit of what an attack may add to this process, client side included.
const GROWTH_BYTES_MAX: usize = 48 * 1024 * 1024;

async fn connect(server: &Running) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&greeting()).await.unwrap();
    stream
}

/// Writes until the server closes the connection; returns the server's bytes.
async fn attack(server: &Running, bytes: &[u8], rounds: usize) -> Vec<u8> {
    let (mut reader, mut writer) = connect(server).await.into_split();
    let bytes = bytes.to_vec();
    let writing = tokio::spawn(async move {
        for _ in 0..rounds {
            if writer.write_all(&bytes).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    });
    let mut said = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(Ok(1..)) = tokio::time::timeout(Duration::from_secs(5), reader.read(&mut buffer)).await.map(|read| {
        if let Ok(count) = read {
            said.extend_from_slice(&buffer[..count]);
            said.drain(..said.len().saturating_sub(256));
        }
        read
    }) {}
    writing.abort();
    said
}

/// True if the last frame is a GOAWAY with this code.
fn went_away_with(said: &[u8], code: u8) -> bool {
    said.windows(17).any(|window| window[3] == 7 && window[13..17] == [0, 0, 0, code])
}

const CALM: u8 = 0xb;

#[tokio::test]
async fn floods_are_told_to_calm_down_and_others_notice_nothing() {
    let server = Running::new(Limits::default()).await;
    let client = server.client().await;
    let mut reset = Vec::new();
    for id in 0..2000u32 {
        reset.extend(frame(1, 4, id * 2 + 1, &call_head("Late")));
        reset.extend(frame(3, 0, id * 2 + 1, &[0, 0, 0, 8]));
    }
    let floods = [
        ("rapid reset", reset, 1),
        ("PING", frame(6, 0, 0, &[0; 8]).repeat(100), 1000),
        ("SETTINGS", frame(4, 0, 0, &[]).repeat(100), 1000),
        ("CONTINUATION", [frame(1, 0, 1, &[0x83]), frame(9, 0, 1, &[]).repeat(1000)].concat(), 1),
        ("empty DATA", [frame(1, 4, 1, &call_head("Join")), frame(0, 0, 1, &[]).repeat(10_000)].concat(), 1),
    ];
    let before = resident_bytes();
    for (name, bytes, rounds) in floods {
        let said = attack(&server, &bytes, rounds).await;
        assert!(went_away_with(&said, CALM), "{name}: {said:?}");
        client.call(text("x")).await.unwrap();
    }
    let growth = resident_bytes().saturating_sub(before);
    assert!(growth < GROWTH_BYTES_MAX, "grew by {growth}");
}

#[tokio::test]
async fn reader_that_never_reads_costs_its_output_limit_and_is_cut_off() {
    let mut limits = Limits { write_timeout: Duration::from_millis(500), ..Limits::default() };
    limits.output_bytes_max = 256 * 1024;
    let server = Running::new(limits).await;
    let client = server.client().await;
    let before = resident_bytes();
    let mut stream = connect(&server).await;
    let mut bytes = frame(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    bytes.extend(frame(8, 0, 0, &[0x7f, 0, 0, 0]));
    for id in 0..200u32 {
        bytes.extend(frame(1, 4, id * 2 + 1, &call_head("Many")));
        let endless = [&[0, 0, 0, 0, 13][..], &[0x0a, 5], b"xxxxx", &[0x18, 0xff, 0xff, 0xff, 0xff, 0x0f]].concat();
        bytes.extend(frame(0, 1, id * 2 + 1, &endless));
    }
    stream.write_all(&bytes).await.unwrap();
    for _ in 0..50 {
        client.call(text("x")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let growth = resident_bytes().saturating_sub(before);
    assert!(growth < GROWTH_BYTES_MAX, "grew by {growth}");
    assert_eq!(server.counts.get("closed: the peer does not read"), 1);
}

#[tokio::test]
async fn slow_starters_are_hung_up_on() {
    let mut limits = Limits { handshake_timeout: Duration::from_millis(200), ..Limits::default() };
    limits.http2.handshake_ms_max = 200;
    limits.request_timeout = Duration::from_millis(300);
    let server = Running::new(limits).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let mut half_preface = TcpStream::connect(server.address).await.unwrap();
    half_preface.write_all(b"PRI * HT").await.unwrap();
    let mut half_head = connect(&server).await;
    half_head.write_all(&frame(1, 0, 1, &[0x83])).await.unwrap();
    let mut half_body = connect(&server).await;
    half_body.write_all(&frame(1, 4, 1, &call_head("Call"))).await.unwrap();
    half_body.write_all(&frame(0, 0, 1, &[0, 0, 0, 0, 9, 1])).await.unwrap();
    let mut ends = Vec::new();
    for stream in [&mut silent, &mut half_preface, &mut half_head] {
        let ended = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut ends)).await;
        ended.expect("hung up on in time").unwrap();
    }
    server.counts.until(|counts| counts.get("/testing.Echo/Call DEADLINE_EXCEEDED") == 1).await;
}

#[tokio::test]
async fn churn_in_the_header_table_costs_no_memory_and_no_call() {
    const CALLS: u32 = 5000;
    let server = Running::new(Limits::default()).await;
    let client = server.client().await;
    let (mut reader, mut writer) = connect(&server).await.into_split();
    let before = resident_bytes();
    let reading = tokio::spawn(async move { while reader.read(&mut [0; 4096]).await.is_ok_and(|count| count > 0) {} });
    for number in 0..CALLS {
        // A new indexed literal of nearly the table's size each time evicts all other entries.
        let value = format!("{number:03000}");
        let head = [&call_head("Call")[..], &[0x40, 1, b'x', 0x7f, 0xb9, 0x16], value.as_bytes()].concat();
        writer.write_all(&frame(1, 5, number * 2 + 1, &head)).await.unwrap();
    }
    // Each lacks its message and so is refused individually.
    server.counts.until(|counts| counts.get("/testing.Echo/Call UNIMPLEMENTED") == u64::from(CALLS)).await;
    client.call(text("x")).await.unwrap();
    let growth = resident_bytes().saturating_sub(before);
    assert!(growth < GROWTH_BYTES_MAX, "grew by {growth}");
    reading.abort();
}

#[tokio::test]
async fn a_message_cut_short_fails_its_call_and_no_other() {
    let server = Running::new(Limits::default()).await;
    let mut stream = connect(&server).await;
    stream.write_all(&frame(1, 4, 1, &call_head("Call"))).await.unwrap();
    stream.write_all(&frame(0, 1, 1, &[0, 0, 0, 0, 9, 1])).await.unwrap();
    server.counts.until(|counts| counts.get("/testing.Echo/Call INTERNAL") == 1).await;
    stream.write_all(&frame(1, 4, 3, &call_head("Call"))).await.unwrap();
    stream.write_all(&frame(0, 1, 3, &[0, 0, 0, 0, 0])).await.unwrap();
    server.counts.until(|counts| counts.get("/testing.Echo/Call OK") == 1).await;
}

#[tokio::test]
async fn streams_left_half_open_keep_to_their_number_and_their_time() {
    let mut limits = Limits { request_timeout: Duration::from_millis(300), ..Limits::default() };
    limits.http2.concurrent_streams_max = 50;
    let server = Running::new(limits).await;
    let client = server.client().await;
    let (mut reader, mut writer) = connect(&server).await.into_split();
    let reading = tokio::spawn(async move { while reader.read(&mut [0; 4096]).await.is_ok_and(|count| count > 0) {} });
    for number in 0..200 {
        writer.write_all(&frame(1, 4, number * 2 + 1, &call_head("Call"))).await.unwrap();
    }
    client.call(text("x")).await.unwrap();
    server.counts.until(|counts| counts.get("/testing.Echo/Call DEADLINE_EXCEEDED") == 50).await;
    reading.abort();
}

#[tokio::test]
async fn half_received_messages_share_a_limit() {
    let mut limits = Limits { gathered_bytes_max: 100_000, ..Limits::default() };
    limits.http2.stream_window_bytes = 1_000_000;
    let server = Running::new(limits).await;
    let mut stream = connect(&server).await;
    for id in 0..20u32 {
        stream.write_all(&frame(1, 4, id * 2 + 1, &call_head("Call"))).await.unwrap();
        let begun = [&[0, 0, 0, 0xff, 0xff][..], &[0; 10_000]].concat();
        stream.write_all(&frame(0, 0, id * 2 + 1, &begun)).await.unwrap();
    }
    server.counts.until(|counts| counts.get("refused GatheredBytes") >= 10).await;
}

#[tokio::test]
async fn answers_that_are_never_allowed_out_are_bounded() {
    let server = Running::new(Limits { unsent_bytes_max: 1_000_000, ..Limits::default() }).await;
    let mut stream = connect(&server).await;
    stream.write_all(&frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])).await.unwrap();
    let large = [&[0, 0, 0, 0x3a, 0x9b][..], &[0x0a, 0x98, 0x75], &[7; 15_000]].concat();
    assert_eq!(large.len(), 5 + 0x3a9b);
    for id in 0..200u32 {
        stream.write_all(&frame(1, 4, id * 2 + 1, &call_head("Call"))).await.unwrap();
        stream.write_all(&frame(0, 1, id * 2 + 1, &large)).await.unwrap();
    }
    server.counts.until(|counts| counts.get("refused UnsentBytes") >= 100).await;
}

#[tokio::test]
async fn headers_over_the_limit_are_refused_with_a_status() {
    let mut settings = quire_rpc::client::Settings::default();
    settings.http2.header_list_bytes_max = 1_000_000;
    let server = Running::new(Limits::default()).await;
    let client = rpc_testing::proto::echo_client::EchoClient::new(server.channel(settings).await);
    let mut request = quire_rpc::Request::new(text("x"));
    request.metadata_mut().append("large", &"x".repeat(20_000)).unwrap();
    assert_eq!(client.call(request).await.unwrap_err().code(), Code::ResourceExhausted);
    client.call(text("x")).await.unwrap();
}

#[tokio::test]
async fn idle_connections_hold_little() {
    // Half of a process's usual limit; both ends are in this one.
    const CONNECTIONS: usize = 400;
    let server = Running::new(Limits::default()).await;
    let client = server.client().await;
    let before = resident_bytes();
    let mut idle = Vec::new();
    for _ in 0..CONNECTIONS {
        idle.push(connect(&server).await);
    }
    client.call(text("x")).await.unwrap();
    let each = resident_bytes().saturating_sub(before) / CONNECTIONS;
    assert!(each < 16 * 1024, "{each} bytes a connection");
    assert_eq!(server.server.connections(), CONNECTIONS + 1);
}
