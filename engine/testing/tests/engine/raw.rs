//! Needs of tools: messages as bytes, paths known at run time, times and bytes on the wire.

use std::future::Ready;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{Running, text};
use bytes::Bytes;
use quire_rpc::client::{Channel, HttpFailure, HttpRequest, Path, Protocol, Settings};
use quire_rpc::prost::Message as _;
use quire_rpc::server::{Answer, Call, Method};
use quire_rpc::{Code, Encoded, Encoding, Ignored, Limits, Request, Status, unfold};
use rpc_testing::proto::Message;

#[tokio::test]
async fn each_of_many_paths_made_at_run_time_is_asked_for_as_itself() {
    let server = Running::new(Limits::default()).await;
    let channel = server.channel(Settings::default()).await;
    let wire = channel.wire_message(&text("hello").encode_to_vec());
    let kept = Path::named("/testing.Echo/Call");
    for number in 0..100 {
        let path = Path::named(format!("/testing.Echo/None{number}"));
        for _ in 0..2 {
            let status = channel.unary_raw(&path, Request::new(wire.clone())).await.reply.unwrap_err();
            assert!(status.message().ends_with(&format!("/testing.Echo/None{number}")), "{status}");
        }
        assert!(channel.unary_raw(&kept, Request::new(wire.clone())).await.reply.is_ok());
    }
}

#[tokio::test]
async fn encoded_message_is_sent_any_number_of_times_and_its_answer_is_timed() {
    let server = Running::new(Limits::default()).await;
    let channel = server.channel(Settings::default()).await;
    let path = Path::named("/testing.Echo/Call");
    for payload in [1, 100_000] {
        let message = text(&"x".repeat(payload)).encode_to_vec();
        let wire = channel.wire_message(&message);
        for _ in 0..3 {
            let began = Instant::now();
            let answer = channel.unary_raw(&path, Request::new(wire.clone())).await;
            let head_at = answer.head_at.unwrap();
            assert!(began <= head_at && head_at <= Instant::now());
            assert_eq!(answer.reply.unwrap().message().unwrap(), message);
        }
    }
}

#[tokio::test]
async fn refusal_is_timed_too_and_failure_without_an_answer_is_not() {
    let server = Running::new(Limits::default()).await;
    let channel = server.channel(Settings::default()).await;
    let failing = channel.wire_message(&Message { fail: 5, ..Message::default() }.encode_to_vec());
    let answer = channel.unary_raw(Path::named("/testing.Echo/Call"), Request::new(failing)).await;
    assert_eq!(answer.reply.unwrap_err().code(), Code::NotFound);
    assert!(answer.head_at.is_some());
    // A server would answer at the deadline too, perhaps before this side notices.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let channel = Channel::builder(&address).unwrap().connect_lazy().unwrap();
    let mut request = Request::new(channel.wire_message(&text("unheard").encode_to_vec()));
    request.set_timeout(Duration::from_millis(5));
    let answer = channel.unary_raw(Path::named("/testing.Echo/Call"), request).await;
    assert_eq!(answer.reply.unwrap_err().code(), Code::DeadlineExceeded);
    assert!(answer.head_at.is_none());
}

#[tokio::test]
async fn wire_message_is_compressed_as_the_channel_says() {
    let server = Running::with(Limits::default(), |builder| builder.compress(Encoding::Zstd, 0)).await;
    let message = text(&"x".repeat(100_000)).encode_to_vec();
    for encoding in [Encoding::Gzip, Encoding::Zstd] {
        let channel = server.channel(Settings { compression: Some((encoding, 0)), ..Settings::default() }).await;
        let wire = channel.wire_message(&message);
        let answer = channel.unary_raw(Path::named("/testing.Echo/Call"), Request::new(wire)).await;
        assert_eq!(answer.reply.unwrap().message().unwrap(), message);
        let traffic = channel.traffic();
        assert!(traffic.sent_bytes < 10_000 && traffic.received_bytes < 10_000, "{traffic:?}");
    }
}

#[tokio::test]
async fn streams_carry_encoded_messages_and_may_leave_answers_unread() {
    let server = Running::new(Limits::default()).await;
    let channel = server.channel(Settings::default()).await;
    let path = Path::named("/testing.Echo/Each");
    let messages: Arc<[Bytes]> = ["", "a", "bc"].map(|payload| text(payload).encode_to_vec().into()).into();
    let stream = |messages: Arc<[Bytes]>| {
        unfold((messages, 0), |(messages, next): (Arc<[Bytes]>, usize)| async move {
            Some((Encoded::from(messages.get(next)?.clone()), (messages, next + 1)))
        })
    };
    let replies = channel.bidi_streaming::<_, Encoded>(&path, Request::new(stream(Arc::clone(&messages)))).await;
    let mut replies = replies.unwrap().into_inner();
    for message in &*messages {
        assert_eq!(replies.message().await.unwrap().unwrap().into_bytes(), message);
    }
    assert!(replies.message().await.unwrap().is_none());
    let replies = channel.bidi_streaming::<_, Ignored>(&path, Request::new(stream(messages))).await;
    let mut replies = replies.unwrap().into_inner();
    for _ in 0..3 {
        assert_eq!(replies.message().await.unwrap(), Some(Ignored));
    }
    assert!(replies.message().await.unwrap().is_none());
}

#[tokio::test]
async fn traffic_is_what_both_sockets_carried() {
    let server = Running::new(Limits::default()).await;
    let channel = server.channel(Settings { connections: 2, ..Settings::default() }).await;
    let before = channel.traffic();
    assert!(before.sent_bytes >= 2 * 24, "the prefaces: {before:?}");
    let wire = channel.wire_message(&text(&"x".repeat(10_000)).encode_to_vec());
    for _ in 0..10 {
        let answer = channel.unary_raw(Path::named("/testing.Echo/Call"), Request::new(wire.clone())).await;
        answer.reply.unwrap();
    }
    let after = channel.traffic();
    for (before, after) in [(before.sent_bytes, after.sent_bytes), (before.received_bytes, after.received_bytes)] {
        assert!((100_000..103_000).contains(&(after - before)), "{before} {after}");
    }
}

#[tokio::test]
async fn abandoned_answer_makes_room_for_a_call_that_waits() {
    let mut limits = Limits::default();
    limits.http2.concurrent_streams_max = 1;
    let server = Running::new(limits).await;
    let channel = server.channel(Settings::default()).await;
    let endless = unfold((), |()| std::future::pending::<Option<(Encoded, ())>>());
    let call = channel.bidi_streaming::<_, Ignored>(Path::named("/testing.Echo/Each"), Request::new(endless)).await;
    // The next call is handed over before the connection notices that the first one's response was dropped.
    let mut next =
        std::pin::pin!(channel.unary_raw(Path::named("/testing.Echo/Call"), Request::new(channel.wire_message(&[]))));
    std::future::poll_fn(|cx| {
        assert!(next.as_mut().poll(cx).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    drop(call.unwrap());
    let answer = tokio::time::timeout(Duration::from_secs(20), next).await.expect("the first call makes room");
    answer.reply.unwrap();
}

#[tokio::test]
async fn plain_request_ends_with_the_status_of_its_answer_or_says_why_there_is_none() {
    let mut server = Running::new(Limits::default()).await;
    let channel = server.channel(Settings::default()).await;
    let request = |method: &str, codec: &str, body: &'static [u8]| {
        let request = http::Request::builder().method(method).uri("http://here/testing.Echo/Nothing");
        let request = request.header("content-type", format!("application/{codec}")).header("connection", "close");
        HttpRequest::new(request.body(Bytes::from_static(body)).unwrap())
    };
    // A call of an unknown method is answered trailers-only, with a gRPC status.
    for (request, expected) in [
        (request("POST", "grpc", b"\0\0\0\0\0").repeated(), 200),
        (request("POST", "grpc", b""), 200),
        (request("POST", "grpc+xml", b"<a/>"), 415),
        (request("GET", "json", b""), 200),
    ] {
        for _ in 0..3 {
            let answer = channel.http(&request).await;
            assert_eq!((answer.status, answer.head_at.is_some()), (Ok(expected), true), "{request:?}");
        }
    }
    server.stop();
    server.stopped().await;
    let nowhere = Channel::builder("http://127.0.0.1:1").unwrap().connect_lazy().unwrap();
    assert_eq!(nowhere.http(&request("GET", "json", b"")).await.status, Err(HttpFailure::Unreachable));
}

#[tokio::test]
async fn an_answer_that_is_compressed_already_goes_only_where_that_is_accepted() {
    const PACKED: &[u8] = &[
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 1, 5, 0, 0xfa, 0xff, b'h', b'e', b'l', b'l', b'o', 0x86, 0xa6, 0x10,
        0x36, 5, 0, 0, 0,
    ];
    let method = Method::bytes("packed", Arc::new(()), |_: &Arc<()>, call: Call<'_, Encoded>| -> Answer<Ready<_>> {
        call.send(Encoded::compressed(Encoding::Gzip, Bytes::from_static(PACKED)))
    });
    let server = Running::with(Limits::default(), |builder| builder.fallback(method)).await;
    for (protocol, expected) in [(Protocol::Grpc, Ok(&b"hello"[..])), (Protocol::GrpcWeb, Err(Code::Internal))] {
        let channel = server.channel(Settings { protocol, ..Settings::default() }).await;
        let wire = channel.wire_message(&[]);
        let answer = channel.unary_raw(Path::named("/a.B/C"), Request::new(wire)).await;
        let message = answer.reply.and_then(|reply| reply.message());
        assert_eq!(message.as_deref().map_err(Status::code), expected);
    }
}
