//! Every limit of `Config` reached, and the state afterwards.

mod support;

use quire_http2::{Config, Connection, ErrorCode, PREFACE, Rate, Side};
use support::*;

const SMALL: Rate = Rate { burst_max: 10, per_second_max: 1 };

#[test]
fn rapid_reset_ends_the_connection() {
    let mut server = Peer::server(Config { resets: SMALL, ..Config::default() });
    let attack: Vec<u8> = (0..11)
        .flat_map(|i| [frame(HEADERS, 5, i * 2 + 1, GET), frame(RST_STREAM, 0, i * 2 + 1, &[0, 0, 0, 8])].concat())
        .collect();
    assert_eq!(server.fails_with(&attack), ErrorCode::ENHANCE_YOUR_CALM);
    assert!(server.connection.live_streams() <= 1, "only the stream whose reset was one too many");
}

#[test]
fn resets_after_finished_calls_are_forgiven() {
    let mut server = Peer::server(Config { resets: SMALL, ..Config::default() });
    for i in 0..100 {
        let cancelled = server.open(i * 4 + 1);
        let answered = server.open(i * 4 + 3);
        server.feed(&frame(DATA, END_STREAM, answered.id(), b"")).unwrap();
        server
            .connection
            .send_head(answered, true, |put| put(b":status", b"200", quire_http2::Indexing::Literal))
            .unwrap();
        server.feed(&frame(RST_STREAM, 0, cancelled.id(), &[0, 0, 0, 8])).unwrap();
    }
}

#[test]
fn resets_behind_whole_answers_are_no_abuse() {
    let mut server = Peer::server(Config { resets: SMALL, ..Config::default() });
    for i in 0..100 {
        let answered = server.open(i * 2 + 1);
        server
            .connection
            .send_head(answered, true, |put| put(b":status", b"404", quire_http2::Indexing::Literal))
            .unwrap();
        let seen = server.feed(&frame(RST_STREAM, 0, answered.id(), &[0, 0, 0, 8])).unwrap();
        assert_eq!(seen, [Seen::Reset(answered, ErrorCode::CANCEL, false)]);
    }
}

#[test]
fn resets_we_are_made_to_send_count_as_well() {
    let mut server = Peer::server(Config { resets: SMALL, ..Config::default() });
    let attack: Vec<u8> = (0..11).flat_map(|i| frame(HEADERS, 5, i * 2 + 1, &[0x82, 0x86])).collect();
    assert_eq!(server.fails_with(&attack), ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn frames_that_carry_nothing_are_rationed() {
    let floods: [(&str, Vec<u8>); 9] = [
        ("PING", frame(PING, 0, 0, &[0; 8])),
        ("the answer to no PING", frame(PING, ACK, 0, &[0; 8])),
        ("SETTINGS", frame(SETTINGS, 0, 0, &[])),
        ("SETTINGS acknowledgement", frame(SETTINGS, ACK, 0, &[])),
        ("empty DATA", frame(DATA, 0, 1, &[])),
        ("DATA of four bytes", frame(DATA, 0, 1, &[0; 4])),
        ("PRIORITY", frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1])),
        ("WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("an unknown type", frame(0x60, 0, 0, &[])),
    ];
    for (name, bytes) in floods {
        let mut server = Peer::server(Config { control_frames: SMALL, ..Config::default() });
        server.open(1);
        let flood: Vec<u8> = bytes.iter().copied().cycle().take(bytes.len() * 20).collect();
        assert_eq!(server.fails_with(&flood), ErrorCode::ENHANCE_YOUR_CALM, "{name}");
    }
}

#[test]
fn small_window_updates_are_free_as_far_as_they_give_back_what_was_sent() {
    const BODY: usize = 8 << 20;
    let updates = |times: usize| {
        let update = |stream| frame(WINDOW_UPDATE, 0, stream, &1024_u32.to_be_bytes());
        [update(0), update(1)].concat().repeat(times)
    };
    // A window of the protocol's default size, and one that is wider than the burst of small updates.
    for width in [0, 4 << 20] {
        let mut server = Peer::server(Config { control_frames: SMALL, ..Config::default() });
        let grown = [setting(4, 65_535 + width), frame(WINDOW_UPDATE, 0, 0, &(width.max(1)).to_be_bytes())].concat();
        server.feed(&grown).unwrap();
        let stream = server.open(1);
        server.connection.send_bytes(stream, vec![0; BODY].into(), true).unwrap();
        let mut received = 0;
        while received < BODY {
            let sent = server.sent().into_iter().filter(|frame| frame.kind == DATA);
            let news: usize = sent.map(|frame| frame.payload.len()).sum();
            received += news;
            server.feed(&updates(news.div_ceil(1024))).expect("all was given back only once");
        }
        assert_eq!(server.fails_with(&updates(20)), ErrorCode::ENHANCE_YOUR_CALM, "nothing is left to give back");
    }
}

#[test]
fn heads_for_a_stream_that_was_reset_are_rationed() {
    let mut server = Peer::server(Config { control_frames: SMALL, ..Config::default() });
    let stream = server.open(1);
    server.connection.reset(stream, ErrorCode::CANCEL);
    let flood = frame(HEADERS, 4, 1, &[0x82, 0x86]).repeat(20);
    assert_eq!(server.fails_with(&flood), ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn pings_at_a_sensible_pace_are_answered_for_ever() {
    let mut server = Peer::server(Config { control_frames: SMALL, ..Config::default() });
    for _ in 0..100 {
        server.now_ms += 1000;
        server.feed(&frame(PING, 0, 0, &[7; 8])).unwrap();
        assert_eq!(server.sent(), [Frame { kind: PING, flags: ACK, stream: 0, payload: vec![7; 8] }]);
    }
}

#[test]
fn continuation_flood_ends_the_connection() {
    let config = Config { continuation_frames_max: 3, ..Config::default() };
    let mut server = Peer::server(config);
    let mut attack = frame(HEADERS, 0, 1, GET);
    for _ in 0..4 {
        attack.extend(frame(CONTINUATION, 0, 1, &[]));
    }
    assert_eq!(server.fails_with(&attack), ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn header_block_has_a_size_limit_over_all_its_frames() {
    let mut server = Peer::server(Config { header_block_bytes_max: 1000, ..Config::default() });
    let attack = [frame(HEADERS, 0, 1, &[0x82; 600]), frame(CONTINUATION, 0, 1, &[0x82; 600])].concat();
    assert_eq!(server.fails_with(&attack), ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn header_bomb_is_cut_at_the_list_limit() {
    let mut server = Peer::server(Config { header_list_bytes_max: 8192, ..Config::default() });
    let mut block = GET.to_vec();
    block.extend([0x40, 1, b'a', 0x7f, 0x81, 0x1d]);
    block.extend([b'x'; 3840]);
    block.extend([0xbe; 10_000]);
    let mut input = &frame(HEADERS, 5, 1, &block)[..];
    match server.connection.receive(&mut input, 0).unwrap() {
        Some(quire_http2::Event::Headers { head, .. }) => {
            assert!(head.is_oversized());
            assert!(head.fields().len() < 4);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn more_streams_than_allowed_are_refused_and_the_rest_go_on() {
    let mut server = Peer::server(Config { concurrent_streams_max: 2, ..Config::default() });
    server.open(1);
    server.open(3);
    assert_eq!(server.feed(&frame(HEADERS, 5, 5, GET)).unwrap(), []);
    let refused = Frame { kind: RST_STREAM, flags: 0, stream: 5, payload: vec![0, 0, 0, 7] };
    assert_eq!(server.sent(), [refused]);
    server.feed(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])).unwrap();
    server.open(7);
}

#[test]
fn slow_preface_and_slow_header_block_time_out() {
    let mut connection = Connection::new(Side::Server, Config::default(), 0);
    assert!(connection.receive(&mut &PREFACE[..10], 0).unwrap().is_none());
    assert!(connection.tick(10_000).is_ok());
    assert!(connection.tick(10_001).is_err());

    let mut server = Peer::server(Config::default());
    assert!(!server.connection.is_awaiting_peer());
    server.now_ms = 5_000;
    server.feed(&frame(HEADERS, 0, 1, GET)).unwrap();
    assert!(server.connection.tick(15_000).is_ok());
    assert!(server.connection.tick(15_001).is_err());
}

#[test]
fn output_stops_at_its_target_when_the_peer_does_not_read() {
    let mut server = Peer::server(Config { output_bytes_target: 50_000, ..Config::default() });
    let grown = [setting(4, 0x7fff_ffff), frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0])].concat();
    server.feed(&grown).unwrap();
    let stream = server.open(1);
    server.sent();
    server.connection.send_bytes(stream, vec![0; 10_000_000].into(), true).unwrap();
    assert!(server.connection.output().len() < 50_000 + 17_000);
    let total: usize = server.sent().iter().map(|frame| frame.payload.len()).sum();
    assert_eq!(total, 10_000_000);
}
