//! The same methods by gRPC-Web and Connect, in protobuf and JSON, over HTTP/1.1: cases outside connectconformance.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::{Running, text};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use quire_rpc::client::{Codec, HttpVersion, Protocol, Settings};
use quire_rpc::details::{BadRequest, DebugInfo, ErrorInfo, QuotaFailure, QuotaViolation, RetryInfo};
use quire_rpc::prost::Message as _;
use quire_rpc::server::Cors;
use quire_rpc::{Code, Details, Limits, Request, Status};
use rpc_testing::proto::echo_client::EchoClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An HTTP/1.0 response, which ends with the connection.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn has(&self, line: &str) -> bool {
        self.head.to_ascii_lowercase().lines().any(|known| known == line)
    }
}

async fn ask(address: SocketAddr, line: &str, fields: &[&str], body: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut request = format!("{line} HTTP/1.0\r\nhost: a\r\ncontent-length: {}\r\n", body.len());
    for field in fields {
        request.push_str(field);
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    stream.write_all(&[request.as_bytes(), body].concat()).await.unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head, body: bytes[end + 4..].to_vec() }
}

const CALL: &str = "POST /testing.Echo/Call";
const JSON: &str = "content-type: application/json";

#[tokio::test]
async fn any_method_takes_json_from_a_plain_post() {
    let server = Running::new(Limits::default()).await;
    for method in ["Call", "Same", "Late"] {
        let line = format!("POST /testing.Echo/{method}");
        let answer = ask(server.address, &line, &[JSON], br#"{"payload": "aGVsbG8=", "delayMs": 1, "count": 7}"#).await;
        assert_eq!((answer.status, answer.has(JSON)), (200, true), "{}", answer.head);
        assert_eq!(answer.text(), r#"{"payload":"aGVsbG8=","delayMs":1,"count":7}"#, "{method}");
    }
    assert_eq!(server.stopped().await.get("/testing.Echo/Same OK"), 1);
}

#[tokio::test]
async fn json_that_is_none_is_refused_with_a_reason() {
    let server = Running::new(Limits::default()).await;
    for (body, word) in [(&b"{"[..], "invalid_argument"), (br#"{"count": "x"}"#, "count"), (b"[]", "invalid_argument")]
    {
        let answer = ask(server.address, CALL, &[JSON], body).await;
        assert_eq!((answer.status, answer.has(JSON)), (400, true));
        assert!(answer.text().contains(word), "{}", answer.text());
    }
}

#[tokio::test]
async fn failure_in_connect_is_a_status_of_http_and_an_error_in_json() {
    let server = Running::new(Limits::default()).await;
    let answer = ask(server.address, CALL, &[JSON], br#"{"fail": 5}"#).await;
    assert_eq!(answer.status, 404);
    assert_eq!(answer.text(), r#"{"code":"not_found","message":"told to fail"}"#);
    let answer = ask(server.address, CALL, &[JSON, "connect-timeout-ms: soon"], b"{}").await;
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("connect-timeout-ms is `soon`"), "{}", answer.text());
}

#[tokio::test]
async fn method_asks_for_its_own_verb_and_content_type() {
    let server = Running::new(Limits::default()).await;
    let answer = ask(server.address, "GET /testing.Echo/Call", &[], b"").await;
    assert_eq!((answer.status, answer.has("allow: post")), (405, true));
    for content_type in
        ["content-type: text/plain", "content-type: application/connect+json", "content-type: application/grpc"]
    {
        let answer = ask(server.address, CALL, &[content_type], b"{}").await;
        assert_eq!(answer.status, 415, "{content_type}: {}", answer.text());
    }
}

/// A message `{payload: "hi"}` in an envelope.
const ENVELOPE: [u8; 9] = [0, 0, 0, 0, 4, 10, 2, b'h', b'i'];
const TRAILERS: &[u8] = b"\x80\x00\x00\x00\x10grpc-status: 0\r\n";

#[tokio::test]
async fn grpc_web_has_its_trailers_in_the_body() {
    let server = Running::new(Limits::default()).await;
    let answer = ask(server.address, CALL, &["content-type: application/grpc-web"], &ENVELOPE).await;
    assert_eq!(answer.status, 200);
    assert!(answer.has("content-type: application/grpc-web+proto"), "{}", answer.head);
    assert_eq!(answer.body, [&ENVELOPE, TRAILERS].concat());
}

#[tokio::test]
async fn grpc_web_in_text_takes_pieces_that_are_padded_each() {
    let server = Running::new(Limits::default()).await;
    let field = "content-type: application/grpc-web-text";
    let whole = BASE64_STANDARD.encode(ENVELOPE);
    let pieces = format!("{}{}", BASE64_STANDARD.encode(&ENVELOPE[..4]), BASE64_STANDARD.encode(&ENVELOPE[4..]));
    assert!(pieces.contains("=="), "padding inside");
    for body in [whole, pieces] {
        let answer = ask(server.address, CALL, &[field], body.as_bytes()).await;
        assert!(answer.has("content-type: application/grpc-web-text+proto"), "{}", answer.head);
        let expected = format!("{}{}", BASE64_STANDARD.encode(ENVELOPE), BASE64_STANDARD.encode(TRAILERS));
        assert_eq!(answer.text(), expected);
    }
    let answer = ask(server.address, CALL, &[field], b"!!!!").await;
    let end = BASE64_STANDARD.decode(answer.text()).unwrap();
    assert!(String::from_utf8_lossy(&end).contains("grpc-status: 3\r\n"), "{}", String::from_utf8_lossy(&end));
}

#[tokio::test]
async fn grpc_web_in_text_streams() {
    let server = Running::new(Limits::default()).await;
    let message = [0, 0, 0, 0, 6, 10, 2, b'h', b'i', 24, 3];
    let field = "content-type: application/grpc-web-text+proto";
    let body = BASE64_STANDARD.encode(message);
    let answer = ask(server.address, "POST /testing.Echo/Many", &[field], body.as_bytes()).await;
    let expected = format!("{}{}", BASE64_STANDARD.encode(message).repeat(3), BASE64_STANDARD.encode(TRAILERS));
    assert_eq!(answer.text(), expected);
}

#[tokio::test]
async fn pages_of_other_origins_may_call_only_if_the_server_says_so() {
    let preflight = ["origin: https://shop.example", "access-control-request-method: POST"];
    let options = "OPTIONS /testing.Echo/Call";
    let closed = Running::new(Limits::default()).await;
    let answer = ask(closed.address, options, &preflight, b"").await;
    assert_eq!((answer.status, answer.head.contains("access-control")), (403, false));
    let answer = ask(closed.address, CALL, &[JSON, preflight[0]], b"{}").await;
    assert_eq!((answer.status, answer.head.contains("access-control")), (200, false));

    let cors = Cors::origins(["https://shop.example"]);
    let open = Running::with(Limits::default(), |builder| builder.cors(cors)).await;
    let answer = ask(open.address, options, &preflight, b"").await;
    assert_eq!((answer.status, answer.has("access-control-allow-origin: https://shop.example")), (204, true));
    for body in [&b"{}"[..], br#"{"fail": 5}"#] {
        let answer = ask(open.address, CALL, &[JSON, preflight[0]], body).await;
        assert!(answer.has("access-control-allow-origin: https://shop.example"), "{}", answer.head);
    }
    let answer = ask(open.address, options, &["origin: https://else.example", preflight[1]], b"").await;
    assert_eq!((answer.status, answer.head.contains("access-control")), (403, false));
}

#[tokio::test]
async fn body_beyond_the_limit_is_refused_though_it_has_no_prefix() {
    let limits = Limits { message_bytes_max: 100, ..Limits::default() };
    let server = Running::new(limits).await;
    let answer = ask(server.address, CALL, &["content-type: application/proto"], &[0; 101]).await;
    assert_eq!(answer.status, 429);
    assert!(answer.text().contains("message_bytes is 100"), "{}", answer.text());
    assert_eq!(server.stopped().await.get("refused MessageBytes"), 1);
}

#[tokio::test]
async fn handler_that_panics_fails_its_call_alone() {
    let server = Running::new(Limits::default()).await;
    let answer = ask(server.address, CALL, &[JSON], br#"{"fail": 666}"#).await;
    assert_eq!(answer.status, 500);
    let answer = ask(server.address, CALL, &[JSON], br#"{"count": 1}"#).await;
    assert_eq!(answer.text(), r#"{"count":1}"#);
}

#[tokio::test]
async fn deadline_ends_a_call_over_http1() {
    let server = Running::new(Limits::default()).await;
    let fields = [JSON, "connect-timeout-ms: 20"];
    let answer = ask(server.address, "POST /testing.Echo/Late", &fields, br#"{"delayMs": 3600000}"#).await;
    assert_eq!(answer.status, 504);
    assert!(answer.text().contains("deadline_exceeded"), "{}", answer.text());
}

#[tokio::test]
async fn an_idle_connection_of_http1_ends_and_a_call_that_lasts_longer_does_not() {
    let idle = Duration::from_millis(100);
    let server = Running::new(Limits { connection_idle_max: Some(idle), ..Limits::default() }).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let body = r#"{"delayMs": 300}"#;
    let head =
        format!("POST /testing.Echo/Late HTTP/1.1\r\nhost: a\r\n{JSON}\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    assert!(bytes.starts_with(b"HTTP/1.1 200") && bytes.ends_with(body.replace(' ', "").as_bytes()));
}

fn detailed() -> Status {
    let pause = quire_rpc::prost_types::Duration { seconds: 1, nanos: 500_000_000 };
    let violation = QuotaViolation { subject: "reader".to_owned(), description: "ten calls a day".to_owned() };
    let info =
        ErrorInfo { reason: "OUT_OF_STOCK".to_owned(), domain: "shop.example".to_owned(), ..ErrorInfo::default() };
    Status::resource_exhausted("not today")
        .with_detail(&BadRequest::field("name", "it is empty"))
        .with_detail(&RetryInfo { retry_delay: Some(pause) })
        .with_detail(&QuotaFailure { violations: vec![violation] })
        .with_detail(&info)
}

#[tokio::test]
async fn details_of_google_rpc_are_the_same_in_every_protocol() {
    let refuse = |_: &str, _: &mut Request<()>| Err(detailed());
    let server = Running::with(Limits::default(), |builder| builder.interceptor(refuse)).await;
    for (protocol, http) in [
        (Protocol::Grpc, HttpVersion::Http2),
        (Protocol::GrpcWeb, HttpVersion::Http1),
        (Protocol::Connect, HttpVersion::Http1),
        (Protocol::Connect, HttpVersion::Http2),
    ] {
        let settings = Settings { protocol, http, codec: Codec::Json, ..Settings::default() };
        let client = EchoClient::new(server.channel(settings).await);
        let unary = client.call(text("x")).await.unwrap_err();
        let streamed = match client.many(text("x")).await {
            Ok(stream) => stream.into_inner().message().await.unwrap_err(),
            Err(status) => status,
        };
        for status in [unary, streamed] {
            assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "not today"), "{protocol:?}");
            assert_eq!(status.detail(), Some(BadRequest::field("name", "it is empty")), "{protocol:?}");
            assert_eq!(status.detail::<RetryInfo>().unwrap().retry_delay.unwrap().nanos, 500_000_000, "{protocol:?}");
            assert_eq!(status.detail::<QuotaFailure>().unwrap().violations[0].subject, "reader", "{protocol:?}");
            assert_eq!(status.detail::<ErrorInfo>().unwrap().reason, "OUT_OF_STOCK", "{protocol:?}");
            assert_eq!(status.detail::<DebugInfo>(), None, "{protocol:?}");
        }
    }
    let answer = ask(server.address, CALL, &[JSON], b"{}").await;
    // The bytes as protobuf's specification has them: field 1, a Duration of seconds and nanoseconds.
    let value = BASE64_STANDARD.encode(b"\x0a\x08\x08\x01\x10\x80\xca\xb5\xee\x01");
    let wanted = format!(r#"{{"type":"google.rpc.RetryInfo","value":"{}"}}"#, value.trim_end_matches('='));
    assert!(answer.text().contains(&wanted), "{} without {wanted}", answer.text());
}

#[test]
fn details_are_in_the_form_that_other_implementations_read() {
    let status = detailed();
    let details = Details::decode(status.details()).unwrap();
    assert_eq!((details.code, &*details.message), (Code::ResourceExhausted as i32, "not today"));
    let names: Vec<_> = details.details.iter().map(|detail| &*detail.type_url).collect();
    let google = ["BadRequest", "RetryInfo", "QuotaFailure", "ErrorInfo"];
    assert_eq!(names, google.map(|name| format!("type.googleapis.com/google.rpc.{name}")));
    assert_eq!(details.details[0].value, b"\x0a\x13\x0a\x04name\x12\x0bit is empty");
}
