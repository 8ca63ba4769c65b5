//! A channel behaves the same in every protocol and codec: messages, metadata, failures, deadlines and limits.

use std::time::Duration;

use crate::support::{Running, text};
use quire_rpc::client::{Codec, HttpVersion, Protocol, Settings};
use quire_rpc::{Code, Encoding, Limits, Request, Status, unfold};
use rpc_testing::proto::Message;
use rpc_testing::proto::echo_client::EchoClient;

/// Every protocol and codec of a channel.
fn all() -> Vec<Settings> {
    let mut all = Vec::new();
    for (protocol, http) in [
        (Protocol::Grpc, HttpVersion::Http2),
        (Protocol::GrpcWeb, HttpVersion::Http2),
        (Protocol::GrpcWeb, HttpVersion::Http1),
        (Protocol::Connect, HttpVersion::Http2),
        (Protocol::Connect, HttpVersion::Http1),
    ] {
        for codec in [Codec::Proto, Codec::Json] {
            let encodings = [Encoding::Gzip, Encoding::Zstd, Encoding::Brotli, Encoding::Deflate, Encoding::Snappy];
            for compression in [None].into_iter().chain(encodings.map(|encoding| Some((encoding, 10)))) {
                all.push(Settings { protocol, http, codec, compression, ..Settings::default() });
            }
        }
    }
    all
}

async fn for_each_protocol<F: Future<Output = ()>>(limits: Limits, check: impl Fn(EchoClient, String) -> F) {
    let server = Running::with(limits, |builder| builder.compress(Encoding::Gzip, 10)).await;
    for settings in all() {
        let spoken =
            format!("{:?} {:?} {:?} {:?}", settings.protocol, settings.http, settings.codec, settings.compression);
        check(EchoClient::new(server.channel(settings).await), spoken).await;
    }
}

#[tokio::test]
async fn messages_of_every_shape_come_through_with_metadata() {
    for_each_protocol(Limits::default(), |client, spoken| async move {
        let long = "long enough to be compressed ".repeat(1000);
        let mut request = Request::new(text(&long));
        request.metadata_mut().append("echo-a", "1").unwrap();
        let answer = client.call(request).await.unwrap();
        assert_eq!(answer.get_ref(), &text(&long), "{spoken}");
        for metadata in [answer.metadata(), answer.trailers()] {
            assert_eq!(metadata.get("echo-a"), Some("1"), "{spoken}");
        }
        assert_eq!(client.call(Message::default()).await.unwrap().into_inner(), Message::default(), "{spoken}");

        let mut many = client.many(Message { count: 3, ..text(&long) }).await.unwrap().into_inner();
        for _ in 0..3 {
            assert_eq!(many.message().await.unwrap().unwrap().payload, long.as_bytes(), "{spoken}");
        }
        assert!(many.message().await.unwrap().is_none(), "{spoken}");

        let parts = || unfold(0, |count| async move { (count < 3).then(|| (text("part"), count + 1)) });
        assert_eq!(client.join(parts()).await.unwrap().get_ref().payload, b"partpartpart", "{spoken}");
        let mut each = client.each(parts()).await.unwrap().into_inner();
        for _ in 0..3 {
            assert_eq!(each.message().await.unwrap().unwrap(), text("part"), "{spoken}");
        }
        assert!(each.message().await.unwrap().is_none(), "{spoken}");
    })
    .await;
}

#[tokio::test]
async fn failures_deadlines_and_limits_are_told_alike() {
    let limits = Limits { message_bytes_max: 100_000, ..Limits::default() };
    for_each_protocol(limits, |client, spoken| async move {
        let fail = Message { fail: Code::FailedPrecondition as u32, count: 1, ..Message::default() };
        let unary = client.call(fail.clone()).await.unwrap_err();
        let streamed = match client.many(fail.clone()).await {
            Ok(stream) => stream.into_inner().message().await.unwrap_err(),
            // The response was trailers-only.
            Err(status) => status,
        };
        let joined = client.join(unfold(Some(fail), |fail| async move { Some((fail?, None)) })).await.unwrap_err();
        for status in [unary, streamed, joined] {
            assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "told to fail"), "{spoken}");
        }
        let mut late = Request::new(Message { delay_ms: 3_600_000, ..Message::default() });
        late.set_timeout(Duration::from_millis(20));
        assert_eq!(client.late(late).await.unwrap_err().code(), Code::DeadlineExceeded, "{spoken}");
        let noise: Vec<u8> = (0..200_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
        let large = Message { payload: noise, ..Message::default() };
        assert_eq!(client.call(large).await.unwrap_err().code(), Code::ResourceExhausted, "{spoken}");
    })
    .await;
}

#[tokio::test]
async fn interceptors_of_both_sides_see_every_call_in_every_protocol() {
    let check = |method: &str, request: &mut Request<()>| match request.metadata().get("key") {
        Some("right") => Ok(()),
        Some("panic") => panic!("told to panic"),
        _ => Err(Status::permission_denied(format!("{method} needs the key"))),
    };
    let server = Running::with(Limits::default(), |builder| builder.interceptor(check)).await;
    for settings in all() {
        let channel = server.channel(settings.clone()).await;
        let bare = EchoClient::new(channel.clone());
        let refused = bare.call(text("hello")).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::PermissionDenied, "/testing.Echo/Call needs the key"));
        let with = |key: &'static str| {
            EchoClient::new(channel.intercepted(move |_: &str, request: &mut Request<()>| {
                request.metadata_mut().insert("key", key).map_err(|error| Status::internal(error.to_string()))
            }))
        };
        assert_eq!(with("panic").call(text("hello")).await.unwrap_err().code(), Code::Internal, "{settings:?}");
        assert_eq!(with("right").call(text("hello")).await.unwrap().get_ref().payload, b"hello");
        let mut stream = with("right").many(Message { count: 2, ..text("hello") }).await.unwrap().into_inner();
        while let Some(message) = stream.message().await.unwrap() {
            assert_eq!(message.payload, b"hello");
        }
    }
}

#[tokio::test]
async fn a_call_has_other_compression_codec_and_limits_than_its_channel_if_it_says_so() {
    let server = Running::new(Limits::default()).await;
    let settings = Settings { message_bytes_max: 1000, compression: Some((Encoding::Zstd, 0)), ..Settings::default() };
    for protocol in [Protocol::Grpc, Protocol::GrpcWeb, Protocol::Connect] {
        let channel = server.channel(Settings { protocol, ..settings.clone() }).await;
        let client = EchoClient::new(channel.clone());
        let long = text(&"x".repeat(100_000));
        for turn in 0..2 {
            let status = client.call(long.clone()).await.unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted, "{protocol:?} {turn}");
            let sent = channel.traffic().sent_bytes;
            let mut request = Request::new(long.clone());
            request.set_message_bytes_max(200_000);
            request.set_compression(None);
            assert_eq!(client.call(request).await.unwrap().get_ref(), &long, "{protocol:?} {turn}");
            assert!(channel.traffic().sent_bytes - sent > 100_000, "not compressed");
            for codec in [Codec::Json, Codec::Proto] {
                let mut request = Request::new(Message { count: 3, ..long.clone() });
                request.set_message_bytes_max(200_000);
                request.set_codec(codec);
                request.set_compression(Some((Encoding::Gzip, 10)));
                let mut many = client.many(request).await.unwrap().into_inner();
                for _ in 0..3 {
                    assert_eq!(many.message().await.unwrap().unwrap().payload, long.payload, "{protocol:?} {codec:?}");
                }
            }
        }
    }
}
