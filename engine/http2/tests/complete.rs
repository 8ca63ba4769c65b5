//! Complete requests are received and answered with the same result as frame by frame.

mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use quire_http2::{CachedBlock, Config, ErrorCode, Indexing, Rate};
use support::*;

/// POST http / with an :authority, which changes no table.
const POST: &[u8] = &[0x83, 0x86, 0x84, 0x01, 1, b'h'];
/// The same with `content-length: 3`.
const POST_OF_3: &[u8] = &[0x83, 0x86, 0x84, 0x01, 1, b'h', 0x0f, 13, 1, b'3'];
const PADDED: u8 = 8;

/// A server that has cached both heads.
fn server(config: Config) -> Peer {
    let mut peer = Peer::server(config);
    for (id, head) in [(1, POST), (3, POST), (5, POST_OF_3), (7, POST_OF_3)] {
        peer.feed(&[frame(HEADERS, END_HEADERS, id, head), frame(DATA, END_STREAM, id, b"abc")].concat()).unwrap();
        let stream = peer.connection.stream_keys().next().unwrap();
        peer.connection.reset(stream, ErrorCode::NO_ERROR);
    }
    peer.sent();
    peer
}

type Put<'a> = &'a mut dyn FnMut(&[u8], &[u8], Indexing);

fn head(put: Put<'_>) {
    put(b":status", b"200", Indexing::Insert);
    put(b"content-type", b"application/grpc", Indexing::Insert);
}

fn trailers(put: Put<'_>) {
    put(b"grpc-status", b"0", Indexing::Insert);
}

/// Frames under test: HEADERS mostly on a new stream, the others on a recent one, counted back.
#[derive(Clone, Debug)]
enum Step {
    Head { is_new: bool, is_long: bool, flags: u8 },
    Data { back: u32, length: usize, flags: u8 },
    Other { back: u32, kind: u8 },
    Cut,
}

fn step() -> impl Strategy<Value = Step> {
    let back = || prop_oneof![3 => Just(0), 3 => Just(1), 1 => Just(2)];
    prop_oneof![
        8 => (prop::bool::weighted(0.98), any::<bool>(), prop_oneof![8 => Just(END_HEADERS), 1 => Just(END_HEADERS | END_STREAM)])
            .prop_map(|(is_new, is_long, flags)| Step::Head { is_new, is_long, flags }),
        8 => (back(), prop_oneof![2 => Just(3), 1 => 0..9_usize], prop_oneof![6 => Just(END_STREAM), 2 => Just(0), 1 => Just(END_STREAM | PADDED)])
            .prop_map(|(back, length, flags)| Step::Data { back, length, flags }),
        1 => (back(), prop_oneof![Just(RST_STREAM), Just(WINDOW_UPDATE), Just(PING), Just(SETTINGS), Just(PRIORITY)])
            .prop_map(|(back, kind)| Step::Other { back, kind }),
        2 => Just(Step::Cut),
    ]
}

impl Step {
    /// The frame's bytes; `next` is the next new stream.
    fn bytes(&self, next: &mut u32) -> Vec<u8> {
        let latest = |back: u32| (*next - 2 * (back + 1)).max(9);
        match *self {
            Self::Head { is_new, is_long, flags } => {
                let id = if is_new { *next } else { latest(0) };
                *next = (*next).max(id + 2);
                frame(HEADERS, flags, id, if is_long { POST_OF_3 } else { POST })
            }
            Self::Data { back, length, flags } => frame(DATA, flags, latest(back), &vec![2; length]),
            Self::Other { back, kind } => match kind {
                RST_STREAM => frame(kind, 0, latest(back), &[0, 0, 0, 8]),
                WINDOW_UPDATE => frame(kind, 0, latest(back), &[0, 0, 0, 1]),
                PRIORITY => frame(kind, 0, latest(back), &[0; 5]),
                PING => frame(kind, 0, 0, &[0; 8]),
                _ => setting(4, 70_000 + back),
            },
            Self::Cut => Vec::new(),
        }
    }
}

/// Events of each stream, and the server's output.
fn outcome(peer: &mut Peer, steps: &[Step], is_whole: bool) -> impl PartialEq + std::fmt::Debug {
    let mut streams: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let mut sent = Vec::new();
    let (mut failure, mut next) = (None, 9);
    for part in steps.split(|step| matches!(step, Step::Cut)) {
        let bytes = part.iter().flat_map(|step| step.bytes(&mut next)).collect::<Vec<u8>>();
        match if is_whole { peer.feed_complete(&bytes) } else { peer.feed(&bytes) } {
            Ok(seen) => {
                for seen in seen {
                    let (id, what) = match seen {
                        Seen::Headers(stream, path, end) => (stream.id(), format!("{path} {end}")),
                        Seen::Data(stream, data, end) => (stream.id(), format!("{data:?} {end}")),
                        Seen::Trailers(stream) => (stream.id(), "trailers".to_owned()),
                        Seen::Reset(stream, code, by_us) => (stream.id(), format!("{code} {by_us}")),
                        other => (0, format!("{other:?}")),
                    };
                    streams.entry(id).or_default().push(what);
                }
            }
            Err(error) => {
                // Events before the frame that failed were lost with the error.
                streams.clear();
                failure = Some(error.to_string());
            }
        }
        sent.extend(peer.sent().into_iter().map(|frame| (frame.stream, frame.kind, frame.payload)));
        if failure.is_some() {
            break;
        }
    }
    sent.sort();
    (streams, sent, failure, peer.connection.live_streams())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn whole_requests_are_what_their_frames_are(steps in proptest::collection::vec(step(), 1..40), few in any::<bool>()) {
        let config = || Config { concurrent_streams_max: if few { 2 } else { 100 }, stream_window_bytes: 6, ..Config::default() };
        let (mut one, mut other) = (server(config()), server(config()));
        prop_assert_eq!(outcome(&mut one, &steps, true), outcome(&mut other, &steps, false));
    }
}

const BODY: [u8; 1_000] = [7; 1_000];

fn whole(ids: impl Iterator<Item = u32> + Clone) -> Vec<u8> {
    let heads = ids.clone().map(|id| frame(HEADERS, END_HEADERS, id, POST));
    heads.chain(ids.map(|id| frame(DATA, END_STREAM, id, &BODY))).flatten().collect()
}

#[test]
fn answer_in_one_piece_is_the_answer_piece_by_piece() {
    // So narrow that the bodies exhaust it.
    let config = || Config { connection_window_bytes: 65_535, ..Config::default() };
    let (mut one, mut other) = (server(config()), server(config()));
    let (mut blocks, mut others) = <([CachedBlock; 2], [CachedBlock; 2])>::default();
    let mut in_one_piece = 0;
    for round in 0..4 {
        let ids = (9 + 20 * round..).step_by(2).take(10);
        let mut input = &whole(ids.clone())[..];
        for id in ids {
            let request = one.connection.receive_complete(&mut input, 0, None).expect("it came whole");
            let (stream, path) = (request.stream, request.head.map(|head| head.path().to_vec()));
            assert_eq!((stream.id(), path.as_deref(), request.body), (id, Some(&b"/"[..]), &BODY[..]));
            assert!(one.connection.is_live(stream) && one.connection.is_receive_closed(stream));
            let is_answered = one.connection.answer(stream, &blocks[0], b"pong", Some(&blocks[1]));
            in_one_piece += u32::from(is_answered);
            if !is_answered {
                one.connection.send_head_cached(stream, &mut blocks[0], false, head).unwrap();
                one.connection.send_slice(stream, b"pong", false).unwrap();
                one.connection.send_head_cached(stream, &mut blocks[1], true, trailers).unwrap();
            }
            assert!(!one.connection.is_live(stream));
            assert!(!one.connection.answer(stream, &blocks[0], b"pong", Some(&blocks[1])), "it has its answer");
        }
        assert!(one.connection.receive(&mut input, 0).unwrap().is_none());
        for seen in other.feed(&whole((9 + 20 * round..).step_by(2).take(10))).unwrap() {
            if let Seen::Data(stream, ..) = seen {
                other.connection.send_head_cached(stream, &mut others[0], false, head).unwrap();
                other.connection.send_slice(stream, b"pong", false).unwrap();
                other.connection.send_head_cached(stream, &mut others[1], true, trailers).unwrap();
            }
        }
        let in_order = |mut frames: Vec<Frame>| {
            frames.sort_by_key(|frame| frame.stream);
            frames
        };
        assert_eq!(in_order(one.sent()), in_order(other.sent()));
        assert_eq!(one.connection.live_streams(), 0);
    }
    assert_eq!(in_one_piece, 38, "all but the first, which fills the table, and the second, whose blocks refer to it");
}

#[test]
fn answer_that_does_not_fit_is_left_to_be_sent_piece_by_piece() {
    let mut peer = server(Config::default());
    let mut blocks = <[CachedBlock; 2]>::default();
    for id in [9, 11] {
        let stream = peer.feed(&whole([id].into_iter())).unwrap().pop();
        let Some(Seen::Data(stream, ..)) = stream else { panic!("a request") };
        peer.connection.send_head_cached(stream, &mut blocks[0], false, head).unwrap();
        peer.connection.send_head_cached(stream, &mut blocks[1], true, trailers).unwrap();
    }
    peer.feed(&setting(4, 3)).unwrap();
    for (id, body, fits) in [(13, &b"pong"[..], false), (15, b"ton", true), (17, b"", true)] {
        let bytes = whole([id].into_iter());
        let request = peer.connection.receive_complete(&mut &bytes[..], 0, None).expect("it came whole");
        let stream = request.stream;
        assert_eq!(peer.connection.answer(stream, &blocks[0], body, Some(&blocks[1])), fits, "{id}");
        assert_eq!(peer.connection.is_live(stream), !fits);
        if !fits {
            peer.connection.reset(stream, ErrorCode::CANCEL);
        }
    }
    let bytes = whole([19].into_iter());
    let request = peer.connection.receive_complete(&mut &bytes[..], 0, None).expect("it came whole");
    let stream = request.stream;
    assert!(peer.connection.receive(&mut &[][..], 0).unwrap().is_none());
    assert!(!peer.connection.answer(stream, &blocks[0], b"ton", None), "something else was done first");
    assert_eq!(peer.connection.stream_keys().collect::<Vec<_>>(), [stream]);
}

#[test]
fn stream_keeps_its_place_when_another_ends_before_anything_is_done_about_it() {
    let mut peer = server(Config { output_bytes_target: 20, ..Config::default() });
    let Some(Seen::Data(slow, ..)) = peer.feed(&whole([9].into_iter())).unwrap().pop() else { panic!("a request") };
    peer.connection.send_head(slow, false, head).unwrap();
    peer.connection.send_bytes(slow, bytes::Bytes::from_static(&BODY), true).unwrap();
    assert!(peer.connection.is_sending(slow), "it waits for the output to be written");
    let bytes = whole([11].into_iter());
    let stream = peer.connection.receive_complete(&mut &bytes[..], 0, None).expect("it came whole").stream;
    peer.sent();
    assert!(!peer.connection.is_live(slow) && peer.connection.is_live(stream));
    peer.connection.send_head(stream, true, head).unwrap();
    assert_eq!(peer.connection.live_streams(), 0);
}

#[test]
fn memory_of_the_output_goes_round_while_nothing_waits() {
    let mut peer = server(Config::default());
    let mut shared = Vec::with_capacity(1_000);
    let output = peer.connection.output();
    output.give_back();
    output.borrow(&mut shared);
    assert_eq!(shared.capacity(), 0);
    peer.connection.ping([7; 8]);
    assert!(peer.connection.output().give_back().is_none(), "something waits");
    peer.sent();
    assert!(peer.connection.output().give_back().is_some_and(|buffer| buffer.is_empty() && buffer.capacity() >= 1_000));
}

#[test]
fn whole_requests_earn_what_floods_spend() {
    let control_frames = Rate { burst_max: 6, per_second_max: 0 };
    let resets = Rate { burst_max: 1, per_second_max: 0 };
    let mut peer = server(Config { control_frames, resets, ..Config::default() });
    let mut blocks = <[CachedBlock; 2]>::default();
    for id in (9..90).step_by(4) {
        let bytes = whole([id].into_iter());
        let stream = peer.connection.receive_complete(&mut &bytes[..], 0, None).expect("it came whole").stream;
        // Six useless frames, as many as one request earns.
        peer.feed(&frame(PING, 0, 0, &[0; 8]).repeat(6)).unwrap();
        peer.feed(&frame(RST_STREAM, 0, stream.id(), &[0, 0, 0, 8])).unwrap();
        let bytes = whole([id + 2].into_iter());
        let stream = peer.connection.receive_complete(&mut &bytes[..], 0, None).expect("it came whole").stream;
        if !peer.connection.answer(stream, &blocks[0], b"pong", Some(&blocks[1])) {
            peer.connection.send_head_cached(stream, &mut blocks[0], false, head).unwrap();
            peer.connection.send_head_cached(stream, &mut blocks[1], true, trailers).unwrap();
        }
    }
    assert!(peer.connection.failure().is_none());
}
