//! Violations of RFC 9113 or RFC 7541, each with the error that these specify.

use super::call::{Answer, Call};
use super::link::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, Link, PADDED, PING, PRIORITY, RST_STREAM,
    SETTINGS, State, WINDOW_UPDATE, WITH_PRIORITY, frame,
};
use super::{STREAMS_MAX, head};
use crate::random::Random;
use crate::tally::Tally;

const PROTOCOL: u32 = 1;
const FLOW_CONTROL: u32 = 3;
const STREAM_CLOSED: u32 = 5;
const FRAME_SIZE: u32 = 6;
const REFUSED: u32 = 7;
const COMPRESSION: u32 = 9;

/// A request's pseudo-header fields: POST, http, and a path.
const PSEUDO: &[u8] = b"\x83\x86\x04\x12/testing.Echo/Join";

fn setting(id: u16, value: u32) -> Vec<u8> {
    [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

fn literal(name: &str, value: &str) -> Vec<u8> {
    [&[0, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
}

/// `open` is a stream whose request has begun, `new` one that has not.
fn of_connection(open: u32, new: u32) -> Vec<(&'static str, u32, Vec<u8>)> {
    let wide = vec![0; 16_385];
    vec![
        ("DATA on stream 0", PROTOCOL, frame(DATA, 0, 0, b"x")),
        ("DATA on an idle stream", PROTOCOL, frame(DATA, 0, new, b"x")),
        ("DATA with more padding than bytes", PROTOCOL, frame(DATA, PADDED, open, &[2, 0])),
        ("HEADERS on stream 0", PROTOCOL, frame(HEADERS, END_HEADERS, 0, PSEUDO)),
        ("HEADERS on an even stream", PROTOCOL, frame(HEADERS, END_HEADERS, new + 1, PSEUDO)),
        ("HEADERS with more padding than bytes", PROTOCOL, frame(HEADERS, END_HEADERS | PADDED, new, &[9, 0x83])),
        ("CONTINUATION alone", PROTOCOL, frame(CONTINUATION, END_HEADERS, open, &[])),
        ("PING inside a header block", PROTOCOL, [frame(HEADERS, 0, new, PSEUDO), frame(PING, 0, 0, &[0; 8])].concat()),
        (
            "CONTINUATION of another stream",
            PROTOCOL,
            [frame(HEADERS, 0, new, PSEUDO), frame(CONTINUATION, END_HEADERS, open, &[])].concat(),
        ),
        ("index 0", COMPRESSION, frame(HEADERS, END_HEADERS, new, &[0x80])),
        ("an index behind the table", COMPRESSION, frame(HEADERS, END_HEADERS, new, &[0xff, 0xff, 0x7f])),
        ("a table larger than allowed", COMPRESSION, frame(HEADERS, END_HEADERS, new, &[0x3f, 0xe2, 0x1f])),
        ("a block that ends in a field", COMPRESSION, frame(HEADERS, END_HEADERS, new, &[0, 5, b'a'])),
        ("PING of 7 bytes", FRAME_SIZE, frame(PING, 0, 0, &[0; 7])),
        ("PING on a stream", PROTOCOL, frame(PING, 0, open, &[0; 8])),
        ("SETTINGS of 5 bytes", FRAME_SIZE, frame(SETTINGS, 0, 0, &[0; 5])),
        ("an acknowledgement with a payload", FRAME_SIZE, frame(SETTINGS, ACK, 0, &[0; 6])),
        ("SETTINGS on a stream", PROTOCOL, frame(SETTINGS, 0, open, &[])),
        ("ENABLE_PUSH of 2", PROTOCOL, frame(SETTINGS, 0, 0, &setting(2, 2))),
        ("a first window of 2^31", FLOW_CONTROL, frame(SETTINGS, 0, 0, &setting(4, 1 << 31))),
        ("frames of 16,383 bytes", PROTOCOL, frame(SETTINGS, 0, 0, &setting(5, 16_383))),
        ("frames of 2^24 bytes", PROTOCOL, frame(SETTINGS, 0, 0, &setting(5, 1 << 24))),
        ("WINDOW_UPDATE of 3 bytes", FRAME_SIZE, frame(WINDOW_UPDATE, 0, 0, &[0; 3])),
        ("WINDOW_UPDATE by 0", PROTOCOL, frame(WINDOW_UPDATE, 0, 0, &[0; 4])),
        ("WINDOW_UPDATE on an idle stream", PROTOCOL, frame(WINDOW_UPDATE, 0, new, &[0, 0, 0, 1])),
        (
            "the connection's window beyond 2^31",
            FLOW_CONTROL,
            frame(WINDOW_UPDATE, 0, 0, &[0x7f, 255, 255, 255]).repeat(2),
        ),
        ("RST_STREAM on stream 0", PROTOCOL, frame(RST_STREAM, 0, 0, &[0; 4])),
        ("RST_STREAM on an idle stream", PROTOCOL, frame(RST_STREAM, 0, new, &[0; 4])),
        ("RST_STREAM of 3 bytes", FRAME_SIZE, frame(RST_STREAM, 0, open, &[0; 3])),
        ("PRIORITY on stream 0", PROTOCOL, frame(PRIORITY, 0, 0, &[0; 5])),
        ("GOAWAY on a stream", PROTOCOL, frame(GOAWAY, 0, open, &[0; 8])),
        ("PUSH_PROMISE", PROTOCOL, frame(5, END_HEADERS, open, &[0, 0, 0, 2])),
        ("SETTINGS larger than a frame may be", FRAME_SIZE, frame(SETTINGS, 0, 0, &wide)),
        ("HEADERS larger than a frame may be", FRAME_SIZE, frame(HEADERS, END_HEADERS, new, &wide)),
    ]
}

/// Faults on `open` come first, `ON_OPEN` in number; the others begin the stream `new`.
const ON_OPEN: usize = 6;

fn of_stream(open: u32, new: u32) -> Vec<(&'static str, u32, Vec<u8>)> {
    let malformed = |block: Vec<u8>| frame(HEADERS, END_HEADERS, new, &block);
    let depends_on_itself = [&new.to_be_bytes()[..], &[1], PSEUDO].concat();
    let length = [PSEUDO, &literal("content-type", "application/grpc"), &literal("content-length", "3")].concat();
    let other_length = [frame(HEADERS, END_HEADERS, new, &length), frame(DATA, END_STREAM, new, b"xx")].concat();
    let longer = [frame(HEADERS, END_HEADERS, new, &length), frame(DATA, 0, new, b"xxxx")].concat();
    vec![
        ("WINDOW_UPDATE of a stream by 0", PROTOCOL, frame(WINDOW_UPDATE, 0, open, &[0; 4])),
        (
            "a stream's window beyond 2^31",
            FLOW_CONTROL,
            frame(WINDOW_UPDATE, 0, open, &[0x7f, 255, 255, 255]).repeat(2),
        ),
        ("PRIORITY of 4 bytes", FRAME_SIZE, frame(PRIORITY, 0, open, &[0; 4])),
        ("PRIORITY on itself", PROTOCOL, frame(PRIORITY, 0, open, &[&open.to_be_bytes()[..], &[0]].concat())),
        ("trailers that do not end the stream", PROTOCOL, frame(HEADERS, END_HEADERS, open, &literal("a", "b"))),
        ("a pseudo-header field in trailers", PROTOCOL, frame(HEADERS, END_HEADERS | END_STREAM, open, &[0x83])),
        ("no :path", PROTOCOL, malformed(vec![0x83, 0x86])),
        ("no :method", PROTOCOL, malformed(vec![0x86, 0x84])),
        (":method twice", PROTOCOL, malformed([&[0x83], PSEUDO].concat())),
        (":status in a request", PROTOCOL, malformed([PSEUDO, &[0x88]].concat())),
        (":path behind a field", PROTOCOL, malformed([&[0x83, 0x86], &literal("a", "b")[..], &[0x84]].concat())),
        ("an unknown pseudo-header field", PROTOCOL, malformed([PSEUDO, &literal(":a", "b")].concat())),
        ("a name in capitals", PROTOCOL, malformed([PSEUDO, &literal("A", "b")].concat())),
        ("connection: close", PROTOCOL, malformed([PSEUDO, &literal("connection", "close")].concat())),
        ("te: gzip", PROTOCOL, malformed([PSEUDO, &literal("te", "gzip")].concat())),
        ("a value with a line's end", PROTOCOL, malformed([PSEUDO, &literal("a", "b\nc")].concat())),
        (
            "HEADERS that depend on themselves",
            PROTOCOL,
            frame(HEADERS, END_HEADERS | WITH_PRIORITY, new, &depends_on_itself),
        ),
        ("a body shorter than its content-length", PROTOCOL, other_length),
        ("a body longer than its content-length", PROTOCOL, longer),
    ]
}

/// A begun request that gets no answer until it continues.
fn waiting() -> Call {
    let field = |name: &str, value: &str| (name.into(), value.into());
    let head = vec![
        field(":method", "POST"),
        field(":scheme", "http"),
        field(":path", "/testing.Echo/Join"),
        field("content-type", "application/grpc"),
    ];
    let (body, answer) = (Vec::new(), Answer::default());
    Call { head, body, answer, kind: "nothing".to_owned() }
}

/// Breaks one rule; returns whether that has ended the connection.
pub fn fault(link: &mut Link<'_>, random: &mut Random, tally: &mut Tally) -> bool {
    let live = link.streams.values().filter(|stream| stream.is_live()).count();
    if live >= STREAMS_MAX {
        let new = link.open(waiting());
        head(link, random, new, false);
        link.flush(random, tally);
        return reset(link, new, REFUSED, "one stream too many", tally);
    }
    if live + 2 > STREAMS_MAX {
        return false;
    }
    let open = link.open(waiting());
    head(link, random, open, false);
    link.flush(random, tally);
    let (of_connection, of_stream) = (of_connection(open, link.next), of_stream(open, link.next));
    let which = random.below(of_connection.len() + of_stream.len() + 2);
    if let Some((name, code, bytes)) = of_connection.get(which) {
        link.batch.extend(bytes);
        link.flush(random, tally);
        return gone(link, *code, name, random, tally);
    }
    let which = which - of_connection.len();
    if let Some((name, code, bytes)) = of_stream.get(which) {
        let id = if which < ON_OPEN { open } else { link.open(waiting()) };
        link.batch.extend(bytes);
        link.flush(random, tally);
        reset(link, id, *code, name, tally);
        if id != open {
            leave(link, open);
        }
        return false;
    }
    leave(link, open);
    link.flush(random, tally);
    // The client acts as if it had not ended the stream.
    link.streams.get_mut(&open).unwrap().state = State::Open;
    link.put(DATA, END_STREAM, open, b"");
    link.flush(random, tally);
    reset(link, open, STREAM_CLOSED, "DATA behind a reset", tally)
}

fn leave(link: &mut Link<'_>, id: u32) {
    link.put(RST_STREAM, 0, id, &[0, 0, 0, 8]);
    link.streams.get_mut(&id).unwrap().state = State::Resetting;
}

fn reset(link: &mut Link<'_>, id: u32, code: u32, name: &str, tally: &mut Tally) -> bool {
    assert_eq!(link.goaway, None, "{name} ends the connection");
    let resets = std::mem::take(&mut link.resets);
    assert_eq!(resets.into_iter().collect::<Vec<_>>(), [(id, code)], "{name}");
    tally.add("RST_STREAM", 1);
    false
}

fn gone(link: &mut Link<'_>, code: u32, name: &str, random: &mut Random, tally: &mut Tally) -> bool {
    let (last, said) = link.goaway.unwrap_or_else(|| panic!("{name} does not end the connection"));
    assert_eq!((said, last < link.next + 2), (code, true), "{name}: a code, and the last stream {last}");
    assert!(link.resets.is_empty(), "{name}");
    link.server.end();
    link.flush(random, tally);
    assert!(link.server.is_over, "{name}: the server stays");
    tally.add("GOAWAY", 1);
    true
}
