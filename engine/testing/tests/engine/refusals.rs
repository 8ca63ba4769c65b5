//! Requests answered before their end: the rest is received up to the limits, and reset beyond them.

use std::time::Duration;

use crate::support::Running;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use quire_rpc::Limits;
use quire_rpc::http2::{CachedBlock, Config, Connection, ErrorCode, Event, Head, Indexing, Side, StreamKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A client that respects the windows and reports the server's events.
struct Caller {
    socket: TcpStream,
    connection: Connection,
    unread: Vec<u8>,
}

type Put<'a> = &'a mut dyn FnMut(&[u8], &[u8], Indexing);

#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// A head; `end` if the stream ends with it, by itself or by trailers.
    Head {
        status: Option<u16>,
        grpc_status: String,
        end: bool,
    },
    Data {
        end: bool,
    },
    Trailers {
        grpc_status: String,
    },
    Reset {
        code: ErrorCode,
        by_us: bool,
    },
    Pong,
}

impl Caller {
    async fn of(server: &Running) -> Self {
        let socket = TcpStream::connect(server.address).await.unwrap();
        let connection = Connection::new(Side::Client, Config::default(), 0);
        Self { socket, connection, unread: Vec::new() }
    }

    fn begin(&mut self, path: &str, content_type: &str) -> StreamKey {
        let fields = |put: Put<'_>| {
            put(b":method", b"POST", Indexing::Literal);
            put(b":scheme", b"http", Indexing::Literal);
            put(b":path", path.as_bytes(), Indexing::Literal);
            put(b"content-type", content_type.as_bytes(), Indexing::Literal);
        };
        self.connection.open(&mut CachedBlock::default(), false, fields).unwrap()
    }

    fn send(&mut self, stream: StreamKey, bytes: usize, end: bool) {
        self.connection.send_bytes(stream, vec![b'x'; bytes].into(), end).unwrap();
    }

    /// Writes as far as the windows allow.
    async fn flush(&mut self) {
        self.connection.pump();
        while !self.connection.output().is_empty() {
            let mut slices = [std::io::IoSlice::new(&[]); 16];
            let filled = self.connection.output().slices(&mut slices);
            let count = self.socket.write_vectored(&slices[..filled]).await.unwrap();
            self.connection.output().advance(count);
            self.connection.pump();
        }
    }

    async fn read(&mut self) {
        let count = self.socket.read_buf(&mut self.unread).await.unwrap();
        assert!(count > 0, "the server hung up");
    }

    /// Next event in the bytes already read.
    fn next(&mut self) -> Option<Said> {
        let mut input = &self.unread[..];
        let mut said = None;
        while said.is_none() {
            let Some(event) = self.connection.receive(&mut input, 0).unwrap() else { break };
            said = told(event);
        }
        let taken = self.unread.len() - input.len();
        self.unread.drain(..taken);
        said
    }

    /// Next event of the server, while everything that may be sent is sent.
    async fn hear(&mut self) -> Said {
        loop {
            self.flush().await;
            if let Some(said) = self.next() {
                return said;
            }
            self.flush().await;
            self.read().await;
        }
    }

    /// Sends everything queued, and checks that the server reads it without an event.
    async fn is_quiet(&mut self) {
        loop {
            self.flush().await;
            assert_eq!(self.next(), None);
            self.flush().await;
            if self.connection.queued_bytes_total() == 0 {
                break;
            }
            self.read().await;
        }
        self.connection.ping(*b"  test  ");
        assert_eq!(self.hear().await, Said::Pong);
    }
}

fn told(event: Event<'_>) -> Option<Said> {
    let text = |head: &Head| String::from_utf8_lossy(head.get(b"grpc-status").unwrap_or_default()).into_owned();
    match event {
        Event::Headers { head, end, .. } => {
            Some(Said::Head { status: head.status_code(), grpc_status: text(&head), end })
        }
        Event::Data { end, .. } => Some(Said::Data { end }),
        Event::Trailers { head, .. } => Some(Said::Trailers { grpc_status: text(&head) }),
        Event::Reset { code, by_us, .. } => Some(Said::Reset { code, by_us }),
        Event::Pong(_) => Some(Said::Pong),
        Event::GoAway { .. } => None,
    }
}

fn refused(grpc_status: &str) -> Said {
    Said::Head { status: Some(200), grpc_status: grpc_status.to_owned(), end: true }
}

const GRPC: &str = "application/grpc";
/// The prefix of a message that is too large.
const MESSAGE: &[u8] = b"\0xxxx";
const NO_ERROR: Said = Said::Reset { code: ErrorCode::NO_ERROR, by_us: false };

#[tokio::test]
async fn refused_call_is_taken_to_its_end_and_the_stream_is_not_reset() {
    let server = Running::new(Limits { message_bytes_max: 1000, ..Limits::default() }).await;
    let mut caller = Caller::of(&server).await;
    for (path, status) in
        [("/testing.Echo/Nothing", "12"), ("/nowhere", "12"), ("/testing.Echo/Call", "8"), ("/testing.Echo/Join", "8")]
    {
        let stream = caller.begin(path, GRPC);
        // Ten windows' worth of a message of 0x78787878 bytes.
        caller.connection.send_bytes(stream, MESSAGE.into(), false).unwrap();
        caller.send(stream, 2_500_000, false);
        assert_eq!(caller.hear().await, refused(status), "{path}");
        caller.is_quiet().await;
        caller.send(stream, 1, true);
        caller.is_quiet().await;
        assert!(!caller.connection.is_live(stream), "{path}");
    }
}

#[tokio::test]
async fn refused_http_request_is_taken_to_its_end_too() {
    let server = Running::new(Limits::default()).await;
    let mut caller = Caller::of(&server).await;
    let stream = caller.begin("/testing.Echo/Call", "application/grpc+thrift");
    caller.send(stream, 2_500_000, false);
    assert_eq!(caller.hear().await, Said::Head { status: Some(415), grpc_status: String::new(), end: false });
    assert_eq!(caller.hear().await, Said::Data { end: true });
    caller.is_quiet().await;
    caller.send(stream, 1, true);
    caller.is_quiet().await;
    assert!(!caller.connection.is_live(stream));
}

#[tokio::test]
async fn window_smaller_than_a_frame_does_not_hold_a_refused_call_up() {
    let mut limits = Limits { message_bytes_max: 100, ..Limits::default() };
    limits.http2.stream_window_bytes = 1000;
    let server = Running::new(limits).await;
    let mut caller = Caller::of(&server).await;
    caller.is_quiet().await;
    // The first frame fills the window and is refused.
    let stream = caller.begin("/testing.Echo/Call", GRPC);
    caller.connection.send_bytes(stream, [MESSAGE, &vec![0; 100_000]].concat().into(), true).unwrap();
    assert_eq!(caller.hear().await, refused("8"));
    caller.is_quiet().await;
    assert!(!caller.connection.is_live(stream));
}

#[tokio::test]
async fn beyond_the_bytes_the_stream_is_reset() {
    let server = Running::new(Limits { discarded_bytes_max: 100_000, ..Limits::default() }).await;
    let mut caller = Caller::of(&server).await;
    let within = caller.begin("/nowhere", GRPC);
    caller.flush().await;
    assert_eq!(caller.hear().await, refused("12"));
    caller.send(within, 100_000, false);
    caller.is_quiet().await;
    caller.send(within, 1, false);
    assert_eq!(caller.hear().await, NO_ERROR);
    let other = caller.begin("/nowhere", GRPC);
    caller.send(other, 1, true);
    assert_eq!(caller.hear().await, refused("12"), "the connection goes on");
}

#[tokio::test]
async fn beyond_the_time_the_stream_is_reset() {
    let server = Running::new(Limits { discard_timeout: Duration::from_millis(50), ..Limits::default() }).await;
    let mut caller = Caller::of(&server).await;
    caller.begin("/nowhere", GRPC);
    assert_eq!(caller.hear().await, refused("12"));
    assert_eq!(caller.hear().await, NO_ERROR);
}

#[tokio::test]
async fn answer_that_waits_for_windows_is_not_cut_by_the_reset_behind_it() {
    let limits = Limits { discarded_bytes_max: 10, discard_timeout: Duration::from_millis(50), ..Limits::default() };
    let server = Running::new(limits).await;
    let mut caller = Caller::of(&server).await;
    // No window at all for the refusal's text.
    caller.flush().await;
    caller.socket.write_all(&crate::support::frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])).await.unwrap();
    let stream = caller.begin("/testing.Echo/Call", "application/grpc+thrift");
    caller.send(stream, 1000, false);
    assert_eq!(caller.hear().await, Said::Head { status: Some(415), grpc_status: String::new(), end: false });
    caller.is_quiet().await;
    // This one is cancelled later, and its response needs no window.
    caller.begin("/nowhere", GRPC);
    assert_eq!(caller.hear().await, refused("12"));
    assert_eq!(caller.hear().await, NO_ERROR);
    caller.socket.write_all(&crate::support::frame(8, 0, 1, &[0, 0, 4, 0])).await.unwrap();
    assert_eq!(caller.hear().await, Said::Data { end: true });
    assert_eq!(caller.hear().await, NO_ERROR);
}

#[tokio::test]
async fn end_of_a_request_behind_its_answer_is_followed_by_a_ping() {
    let server = Running::new(Limits::default()).await;
    let mut caller = Caller::of(&server).await;
    let stream = caller.begin("/nowhere", GRPC);
    assert_eq!(caller.hear().await, refused("12"));
    caller.send(stream, 10, true);
    caller.flush().await;
    // Only a PING or its acknowledgement is read here.
    let mut head = [0; 17];
    loop {
        caller.socket.read_exact(&mut head[..9]).await.unwrap();
        let length = usize::from(head[2]);
        caller.socket.read_exact(&mut head[9..9 + length]).await.unwrap();
        if head[3] == 6 && head[4] == 0 {
            return assert_eq!(&head[9..], b"answered");
        }
    }
}

const TEXT: &str = "application/grpc-web-text";

/// Head of a response whose outcome is in its body.
const ANSWERED: Said = Said::Head { status: Some(200), grpc_status: String::new(), end: false };

#[tokio::test]
async fn envelope_in_text_that_claims_too_much_is_refused_and_the_connection_goes_on() {
    let limits = Limits { message_bytes_max: 100, gathered_bytes_max: 100, ..Limits::default() };
    let server = Running::new(limits).await;
    let mut caller = Caller::of(&server).await;
    for end in [true, false] {
        let stream = caller.begin("/testing.Echo/Call", TEXT);
        let text = BASE64_STANDARD.encode([&[0, 0, 0, 1, 0][..], &[1; 40]].concat());
        caller.connection.send_bytes(stream, text.into(), end).unwrap();
        assert_eq!((caller.hear().await, caller.hear().await), (ANSWERED, Said::Data { end: true }));
    }
    let stream = caller.begin("/testing.Echo/Call", TEXT);
    let text = BASE64_STANDARD.encode([&[0, 0, 0, 0, 62, 10, 60][..], &[1; 60]].concat());
    let (first, second) = text.split_at(20);
    caller.connection.send_slice(stream, first.as_bytes(), false).unwrap();
    caller.connection.send_slice(stream, second.as_bytes(), true).unwrap();
    assert_eq!((caller.hear().await, caller.hear().await), (ANSWERED, Said::Data { end: false }), "head, message");
    assert_eq!(caller.hear().await, Said::Data { end: true });
    drop(caller);
    let counts = server.stopped().await;
    assert_eq!(counts.get("/testing.Echo/Call RESOURCE_EXHAUSTED"), 2);
    assert_eq!(counts.get("/testing.Echo/Call OK"), 1);
}

#[tokio::test]
async fn second_message_of_a_call_that_takes_one_is_refused_in_text_too() {
    let server = Running::new(Limits::default()).await;
    let mut caller = Caller::of(&server).await;
    for end in [true, false] {
        let stream = caller.begin("/testing.Echo/Call", TEXT);
        let text = BASE64_STANDARD.encode([0, 0, 0, 0, 2, 24, 1].repeat(2));
        caller.connection.send_bytes(stream, text.into(), end).unwrap();
        assert_eq!((caller.hear().await, caller.hear().await), (ANSWERED, Said::Data { end: true }));
    }
    drop(caller);
    assert_eq!(server.stopped().await.get("/testing.Echo/Call UNIMPLEMENTED"), 2);
}

#[tokio::test]
async fn body_that_is_a_message_has_the_limit_of_one_in_a_single_frame_too() {
    let server = Running::new(Limits { message_bytes_max: 100, ..Limits::default() }).await;
    let mut caller = Caller::of(&server).await;
    let stream = caller.begin("/testing.Echo/Call", "application/proto");
    caller.send(stream, 101, true);
    assert_eq!(caller.hear().await, Said::Head { status: Some(429), grpc_status: String::new(), end: false });
}
