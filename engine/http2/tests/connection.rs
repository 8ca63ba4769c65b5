//! The rules of RFC 9113, kept by our server and our client.

mod support;

use bytes::Bytes;
use proptest::prelude::*;
use quire_http2::{CachedBlock, Config, Connection, ErrorCode, Indexing, Side, StreamError};
use support::*;

fn pair(config: &Config) -> (Peer, Peer) {
    let mut client = Peer { connection: Connection::new(Side::Client, config.clone(), 0), now_ms: 0 };
    let mut server = Peer { connection: Connection::new(Side::Server, config.clone(), 0), now_ms: 0 };
    exchange(&mut client, &mut server);
    (client, server)
}

type Put<'a> = &'a mut dyn FnMut(&[u8], &[u8], Indexing);

fn request(put: Put<'_>) {
    put(b":method", b"POST", Indexing::Insert);
    put(b":scheme", b"http", Indexing::Insert);
    put(b":path", b"/a/b", Indexing::Insert);
}

fn response(put: Put<'_>) {
    put(b":status", b"200", Indexing::Insert);
    put(b"content-type", b"application/grpc", Indexing::Insert);
}

fn status_ok(put: Put<'_>) {
    put(b"grpc-status", b"0", Indexing::Insert);
}

#[test]
fn call_goes_there_and_back_and_frees_its_slots() {
    let (mut client, mut server) = pair(&Config::default());
    let (mut ask, mut answer, mut ok) = <(CachedBlock, CachedBlock, CachedBlock)>::default();
    for round in 0..5 {
        let stream = client.connection.open(&mut ask, false, request).unwrap();
        client.connection.send_slice(stream, b"ping", true).unwrap();
        let (_, at_server) = exchange(&mut client, &mut server);
        let [Seen::Headers(asked, path, false), Seen::Data(_, body, true)] = &at_server[..] else {
            panic!("{at_server:?}")
        };
        assert_eq!((path.as_str(), &body[..], asked.index()), ("/a/b", &b"ping"[..], 0));
        server.connection.send_head_cached(*asked, &mut answer, false, response).unwrap();
        server.connection.send_slice(*asked, b"pong", false).unwrap();
        server.connection.send_head_cached(*asked, &mut ok, true, status_ok).unwrap();
        let bytes = server.sent_bytes();
        if round >= 2 {
            assert_eq!(bytes.len(), 9 + 2 + 9 + 4 + 9 + 1, "head and trailers are indexes only");
        }
        let at_client = client.feed(&bytes).unwrap();
        assert_eq!(at_client[0], Seen::Headers(stream, "200".into(), false));
        assert_eq!(at_client[1], Seen::Data(stream, b"pong".to_vec(), false));
        assert_eq!(at_client[2], Seen::Trailers(stream));
        assert_eq!((client.connection.live_streams(), server.connection.live_streams()), (0, 0));
    }
}

#[test]
fn frames_on_idle_streams_end_the_connection() {
    for bytes in [
        frame(DATA, 0, 1, b"x"),
        frame(RST_STREAM, 0, 1, &[0; 4]),
        frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
        frame(CONTINUATION, END_HEADERS, 1, GET),
        frame(HEADERS, 5, 2, GET),
    ] {
        assert_eq!(Peer::server(Config::default()).fails_with(&bytes), ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn sizes_are_checked() {
    for bytes in [
        frame(PING, 0, 0, &[0; 7]),
        frame(SETTINGS, 0, 0, &[0; 5]),
        frame(SETTINGS, ACK, 0, &[0; 6]),
        frame(WINDOW_UPDATE, 0, 0, &[0; 3]),
        frame(RST_STREAM, 0, 1, &[0; 3]),
        frame(GOAWAY, 0, 0, &[0; 7]),
        frame(DATA, 0, 1, &vec![0; 16_385]),
    ] {
        let mut server = Peer::server(Config::default());
        server.open(1);
        assert_eq!(server.fails_with(&bytes), ErrorCode::FRAME_SIZE_ERROR);
    }
}

#[test]
fn a_header_block_is_not_interrupted() {
    let bytes = [frame(HEADERS, 0, 1, GET), frame(PING, 0, 0, &[0; 8])].concat();
    assert_eq!(Peer::server(Config::default()).fails_with(&bytes), ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn continuation_completes_a_head() {
    let mut server = Peer::server(Config::default());
    let bytes = [
        frame(HEADERS, END_STREAM, 1, &GET[..1]),
        frame(CONTINUATION, 0, 1, &GET[1..4]),
        frame(CONTINUATION, END_HEADERS, 1, &GET[4..]),
    ]
    .concat();
    assert!(matches!(&server.feed(&bytes).unwrap()[..], [Seen::Headers(_, path, true)] if path == "/"));
}

#[test]
fn padding_and_priority_are_stripped_and_counted() {
    let config = Config { stream_window_bytes: 100, ..Config::default() };
    let mut server = Peer::server(config);
    let head = [&[2, 0, 0, 0, 0, 9][..], GET, &[0, 0]].concat();
    let seen = server.feed(&frame(HEADERS, 0x2c, 1, &head)).unwrap();
    assert!(matches!(&seen[..], [Seen::Headers(_, path, false)] if path == "/"));
    let padded = [&[49][..], b"body", &[0; 49]].concat();
    let seen = server.feed(&frame(DATA, 8, 1, &padded)).unwrap();
    assert!(matches!(&seen[..], [Seen::Data(_, body, false)] if body == b"body"));
    let update = Frame { kind: WINDOW_UPDATE, flags: 0, stream: 1, payload: vec![0, 0, 0, 50] };
    assert_eq!(server.sent(), [update], "the padding's window comes back by itself");
}

#[test]
fn stream_window_is_enforced_and_given_back_in_halves() {
    let mut server = Peer::server(Config { stream_window_bytes: 1000, ..Config::default() });
    let stream = server.open(1);
    server.feed(&frame(DATA, 0, 1, &[0; 1000])).unwrap();
    server.connection.release(stream, 499);
    assert_eq!(server.sent(), []);
    server.connection.release(stream, 1);
    assert_eq!(server.sent()[0].payload, 500u32.to_be_bytes());
    server.feed(&frame(DATA, 0, 1, &[0; 500])).unwrap();
    let seen = server.feed(&frame(DATA, 0, 1, &[0; 1])).unwrap();
    assert_eq!(seen, [Seen::Reset(stream, ErrorCode::FLOW_CONTROL_ERROR, true)]);
}

#[test]
fn windows_that_overflow_are_errors_of_the_right_scope() {
    let update = |stream| frame(WINDOW_UPDATE, 0, stream, &0x7fff_ffffu32.to_be_bytes());
    assert_eq!(Peer::server(Config::default()).fails_with(&update(0)), ErrorCode::FLOW_CONTROL_ERROR);
    let mut server = Peer::server(Config::default());
    let stream = server.open(1);
    let seen = server.feed(&update(1)).unwrap();
    assert_eq!(seen, [Seen::Reset(stream, ErrorCode::FLOW_CONTROL_ERROR, true)]);
    let mut server = Peer::server(Config::default());
    server.open(1);
    server.feed(&frame(WINDOW_UPDATE, 0, 1, &1u32.to_be_bytes())).unwrap();
    assert_eq!(server.fails_with(&setting(4, 0x7fff_ffff)), ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn settings_can_make_a_window_negative_and_positive_again() {
    let mut server = Peer::server(Config::default());
    let stream = server.open(1);
    server.connection.send_bytes(stream, Bytes::from(vec![0; 60_000]), false).unwrap();
    server.sent();
    server.feed(&setting(4, 10_000)).unwrap();
    server.connection.send_bytes(stream, Bytes::from_static(b"later"), true).unwrap();
    assert!(server.sent().iter().all(|frame| frame.kind != DATA), "the window is -50,000");
    server.feed(&frame(WINDOW_UPDATE, 0, 1, &50_000u32.to_be_bytes())).unwrap();
    assert_eq!(server.sent(), [], "now it is 0");
    server.feed(&setting(4, 10_002)).unwrap();
    let sent = server.sent();
    assert_eq!(sent.last().unwrap().payload, b"la");
    server.feed(&setting(4, 20_000)).unwrap();
    let last = server.sent().pop().unwrap();
    assert_eq!((last.payload.as_slice(), last.flags), (&b"ter"[..], END_STREAM));
}

#[test]
fn an_end_without_bytes_waits_for_no_window() {
    let mut server = Peer::server(Config::default());
    server.feed(&setting(4, 1 << 20)).unwrap();
    let [large, empty, later] = [1, 3, 5].map(|id| server.open(id));
    server.connection.send_bytes(large, Bytes::from(vec![0; 70_000]), false).unwrap();
    server.sent();
    assert_eq!(server.connection.queued_bytes(large), 70_000 - 65_535, "the connection's window is used up");
    server.connection.send_slice(empty, b"", true).unwrap();
    server.connection.send_bytes(later, Bytes::new(), true).unwrap();
    let sent: Vec<_> = server.sent().iter().map(|frame| (frame.kind, frame.flags, frame.stream)).collect();
    assert_eq!(sent, [(DATA, END_STREAM, 3), (DATA, END_STREAM, 5)]);
}

#[test]
fn trailers_wait_for_the_body_before_them() {
    let mut server = Peer::server(Config::default());
    let stream = server.open(1);
    server.feed(&frame(DATA, END_STREAM, 1, b"")).unwrap();
    server.connection.send_bytes(stream, Bytes::from(vec![0; 70_000]), false).unwrap();
    server.connection.send_head(stream, true, status_ok).unwrap();
    assert!(server.sent().iter().all(|frame| frame.kind == DATA));
    assert_eq!(server.connection.queued_bytes_total(), 70_000 - 65_535);
    server.feed(&frame(WINDOW_UPDATE, 0, 0, &70_000u32.to_be_bytes())).unwrap();
    server.feed(&frame(WINDOW_UPDATE, 0, 1, &70_000u32.to_be_bytes())).unwrap();
    let sent = server.sent();
    assert_eq!((sent.last().unwrap().kind, sent.last().unwrap().flags), (HEADERS, END_STREAM | END_HEADERS));
    assert_eq!((server.connection.live_streams(), server.connection.queued_bytes_total()), (0, 0));
}

#[test]
fn no_frame_follows_the_goaway_of_a_failed_connection() {
    let mut server = Peer::server(Config::default());
    let [waiting, quick] = [1, 3].map(|id| server.open(id));
    server.connection.send_bytes(waiting, Bytes::from(vec![0; 70_000]), true).unwrap();
    server.sent();
    server.feed(&frame(WINDOW_UPDATE, 0, 0, &[0; 4])).unwrap_err();
    assert_eq!(server.connection.send_slice(quick, b"late", true), Err(StreamError::Closed));
    server.connection.reset(waiting, ErrorCode::CANCEL);
    server.connection.ping([1; 8]);
    server.connection.drain();
    server.connection.pump();
    let kinds: Vec<u8> = server.sent().iter().map(|frame| frame.kind).collect();
    assert_eq!(kinds, [GOAWAY]);
    assert_eq!((server.connection.live_streams(), server.connection.queued_bytes_total()), (0, 0));
}

#[test]
fn window_that_comes_after_the_end_sends_nothing() {
    let mut server = Peer::server(Config::default());
    let stream = server.open(1);
    server.connection.send_bytes(stream, Bytes::from(vec![0; 20_000]), true).unwrap();
    assert!(!server.connection.is_sending(stream));
    server.sent();
    server.feed(&frame(WINDOW_UPDATE, 0, 1, &20_000u32.to_be_bytes())).unwrap();
    assert_eq!(server.sent(), []);
}

#[test]
fn large_bodies_share_the_connection_by_turns() {
    let mut server = Peer::server(Config { output_bytes_target: 1, ..Config::default() });
    server.feed(&setting(4, 1 << 20)).unwrap();
    server.feed(&frame(WINDOW_UPDATE, 0, 0, &(1u32 << 20).to_be_bytes())).unwrap();
    let streams = [server.open(1), server.open(3)];
    server.sent();
    for stream in streams {
        server.connection.send_bytes(stream, Bytes::from(vec![0; 100_000]), true).unwrap();
    }
    let order: Vec<u32> = server.sent().iter().map(|frame| frame.stream).collect();
    assert_eq!(order[1..7], [3, 1, 3, 1, 3, 1].map(|id| if order[1] == 3 { id } else { 4 - id }));
}

#[test]
fn large_head_is_cut_into_continuations() {
    let (mut client, mut server) =
        pair(&Config { header_list_bytes_max: 60_000, header_block_bytes_max: 60_000, ..Config::default() });
    let value = vec![b'v'; 40_000];
    let fields = |put: Put<'_>| {
        request(put);
        put(b"large", &value, Indexing::Literal);
    };
    client.connection.open(&mut CachedBlock::default(), true, fields).unwrap();
    let (_, seen) = exchange(&mut client, &mut server);
    assert!(matches!(&seen[..], [Seen::Headers(_, path, true)] if path == "/a/b"));
}

#[test]
fn malformed_requests_are_reset_and_the_connection_lives() {
    let mut server = Peer::server(Config::default());
    for (id, block) in [(1, &[0x82, 0x86][..]), (3, &[0x82, 0x86, 0x84, 0x82]), (5, &[0x82, 0x86, 0x84, 0x88])] {
        assert_eq!(server.feed(&frame(HEADERS, 5, id, block)).unwrap(), []);
        assert_eq!(server.sent()[0].payload, ErrorCode::PROTOCOL_ERROR.0.to_be_bytes());
    }
    server.open(7);
}

#[test]
fn content_length_must_match_the_body() {
    let head = [GET, &[0x0f, 0x0d, 1, b'3']].concat();
    for (first, last) in [(&b"abcd"[..], &b""[..]), (b"ab", b"")] {
        let mut server = Peer::server(Config::default());
        let mut input = frame(HEADERS, END_HEADERS, 1, &head);
        input.extend(frame(DATA, 0, 1, first));
        input.extend(frame(DATA, END_STREAM, 1, last));
        let seen = server.feed(&input).unwrap();
        assert!(seen.iter().any(|seen| matches!(seen, Seen::Reset(_, ErrorCode::PROTOCOL_ERROR, true))));
    }
}

#[test]
fn request_is_checked_to_its_end_behind_its_answer() {
    let answered = |head: &[u8]| {
        let mut server = Peer::server(Config::default());
        server.feed(&frame(HEADERS, END_HEADERS, 1, head)).unwrap();
        let stream = server.connection.stream_keys().next().unwrap();
        server.connection.send_head(stream, true, response).unwrap();
        server.sent();
        (server, stream)
    };
    let three_bytes = [GET, &[0x0f, 0x0d, 1, b'3']].concat();
    let broken: [(&str, &[u8], Vec<u8>, ErrorCode); 5] = [
        ("too few bytes", &three_bytes, frame(DATA, END_STREAM, 1, b"ab"), ErrorCode::PROTOCOL_ERROR),
        ("too many bytes", &three_bytes, frame(DATA, 0, 1, b"abcd"), ErrorCode::PROTOCOL_ERROR),
        ("a second head", GET, frame(HEADERS, END_HEADERS, 1, GET), ErrorCode::PROTOCOL_ERROR),
        ("a path in trailers", GET, frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x84]), ErrorCode::PROTOCOL_ERROR),
        ("a window by 0", GET, frame(WINDOW_UPDATE, 0, 1, &[0; 4]), ErrorCode::PROTOCOL_ERROR),
    ];
    for (what, head, bytes, code) in broken {
        let (mut server, stream) = answered(head);
        assert_eq!(server.feed(&bytes).unwrap().last(), Some(&Seen::Reset(stream, code, true)), "{what}");
        assert_eq!(server.connection.live_streams(), 0, "{what}");
    }
    let (mut server, stream) = answered(&three_bytes);
    assert_eq!(server.feed(&frame(DATA, END_STREAM, 1, b"abc")).unwrap(), [Seen::Data(stream, b"abc".to_vec(), true)]);
    assert_eq!(server.connection.live_streams(), 0);
    server.feed(&frame(DATA, 0, 1, b"more")).unwrap();
    assert_eq!(server.sent()[0].payload, ErrorCode::STREAM_CLOSED.0.to_be_bytes());
}

#[test]
fn closed_streams_answer_as_the_rfc_says() {
    let mut server = Peer::server(Config::default());
    let stream = server.open(1);
    server.feed(&frame(DATA, END_STREAM, 1, b"")).unwrap();
    let seen = server.feed(&frame(DATA, 0, 1, b"x")).unwrap();
    assert_eq!(seen, [Seen::Reset(stream, ErrorCode::STREAM_CLOSED, true)]);
    server.sent();
    server.feed(&frame(DATA, 0, 1, b"x")).unwrap();
    assert_eq!(server.sent(), [], "what was under way is ignored");
    server.open(3);
    server.feed(&frame(RST_STREAM, 0, 3, &[0, 0, 0, 8])).unwrap();
    assert_eq!(server.fails_with(&frame(HEADERS, 5, 3, GET)), ErrorCode::STREAM_CLOSED);
}

#[test]
fn drain_serves_what_was_begun_and_nothing_after() {
    let (mut client, mut server) = pair(&Config::default());
    let stream = client.connection.open(&mut CachedBlock::default(), true, request).unwrap();
    let (_, seen) = exchange(&mut client, &mut server);
    let Seen::Headers(asked, ..) = seen[0] else { panic!("{seen:?}") };
    server.connection.drain();
    let (at_client, _) = exchange(&mut client, &mut server);
    assert!(at_client.contains(&Seen::GoAway(ErrorCode::NO_ERROR)));
    assert_eq!(client.connection.can_open(), Err(StreamError::GoingAway));
    assert!(!server.connection.is_drained());
    server.connection.send_head(asked, true, response).unwrap();
    let (at_client, _) = exchange(&mut client, &mut server);
    assert_eq!(at_client, [Seen::Headers(stream, "200".into(), true)]);
    assert!(server.connection.is_drained() && client.connection.is_drained());
}

#[test]
fn streams_a_goaway_leaves_out_are_safe_to_retry() {
    let (mut client, _) = pair(&Config::default());
    let stream = client.connection.open(&mut CachedBlock::default(), false, request).unwrap();
    let seen = client.feed(&frame(GOAWAY, 0, 0, &[0; 8])).unwrap();
    assert!(seen.contains(&Seen::Reset(stream, ErrorCode::REFUSED_STREAM, false)));
}

#[test]
fn client_keeps_to_the_servers_stream_limit() {
    let (mut client, mut server) = pair(&Config { concurrent_streams_max: 1, ..Config::default() });
    client.connection.open(&mut CachedBlock::default(), false, request).unwrap();
    assert_eq!(client.connection.can_open(), Err(StreamError::TooManyStreams));
    exchange(&mut client, &mut server);
    assert_eq!(server.connection.live_streams(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A legal conversation yields the same events however it is cut into reads.
    #[test]
    fn cuts_of_the_input_do_not_matter(cut in 1usize..40, body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = frame(HEADERS, END_HEADERS, 1, GET);
        bytes.extend(frame(PING, 0, 0, &[1; 8]));
        bytes.extend(frame(DATA, END_STREAM, 1, &body));
        bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, 3, GET));
        let whole = Peer::server(Config::default()).feed(&bytes).unwrap();
        let mut server = Peer::server(Config::default());
        let (mut held, mut pieces) = (Vec::new(), Vec::new());
        for chunk in bytes.chunks(cut) {
            held.extend_from_slice(chunk);
            let mut input = &held[..];
            while let Some(event) = server.connection.receive(&mut input, 0).unwrap() {
                pieces.push(format!("{event:?}"));
            }
            held = input.to_vec();
        }
        prop_assert_eq!(pieces.len(), whole.len());
    }

    /// No input causes a panic, and the output always consists of complete frames.
    #[test]
    fn random_frames_never_panic(
        parts in proptest::collection::vec((0u8..12, any::<u8>(), 0u32..8, proptest::collection::vec(any::<u8>(), 0..40)), 0..60)
    ) {
        let mut server = Peer::server(Config::default());
        for (kind, flags, stream, payload) in parts {
            if server.feed(&frame(kind, flags, stream, &payload)).is_err() {
                break;
            }
        }
        server.sent();
    }
}
