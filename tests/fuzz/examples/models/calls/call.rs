//! Calls as a client writes them, and their answers by the protocols' specifications.

use std::collections::VecDeque;

use super::message::Message as Encoded;
use crate::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Grpc,
    GrpcWeb,
    Connect,
    ConnectStream,
}

pub type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// Fields of head and trailers, concatenated, and the body between them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub fields: Fields,
    pub body: Vec<u8>,
    /// Positions in the body, in order, of bytes that no model can know, such as a time.
    pub unknown: VecDeque<usize>,
}

impl Answer {
    /// Appends a gRPC message.
    pub fn go_on(&mut self, message: &Encoded) {
        let start = self.body.len() + 5;
        self.unknown.extend(message.unknown_places().iter().map(|place| start + place));
        self.body.extend(envelope(0, message.as_bytes()));
    }

    /// Copies unknown bytes from the received body.
    pub fn take_unknown(&mut self, got: &[u8]) {
        while let Some(place) = self.unknown.pop_front_if(|place| *place < got.len()) {
            self.body[place] = got[place];
        }
    }
}

#[derive(Debug)]
pub struct Call {
    pub head: Fields,
    pub body: Vec<u8>,
    pub answer: Answer,
    pub kind: String,
}

#[derive(Clone, Debug)]
struct Message {
    payload: Vec<u8>,
    count: u8,
    fail: u8,
}

impl Message {
    /// Protobuf: fields in order, without defaults.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.payload.is_empty() {
            out.push(1 << 3 | 2);
            let mut length = self.payload.len();
            while length >= 0x80 {
                out.push(length as u8 | 0x80);
                length >>= 7;
            }
            out.push(length as u8);
            out.extend(&self.payload);
        }
        for (field, value) in [(3, self.count), (4, self.fail)] {
            // Both are below 128.
            if value != 0 {
                out.extend([field << 3, value]);
            }
        }
        out
    }
}

pub fn envelope(flag: u8, bytes: &[u8]) -> Vec<u8> {
    [&[flag][..], &(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

/// RFC 1952 with stored blocks.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let length = bytes.len() as u16;
    out.push(1);
    out.extend(length.to_le_bytes());
    out.extend((!length).to_le_bytes());
    out.extend(bytes);
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    out.extend((!crc).to_le_bytes());
    out.extend((bytes.len() as u32).to_le_bytes());
    out
}

/// gRPC's number, Connect's name and its HTTP status.
const FAILURES: [(u8, &str, &str); 9] = [
    (3, "invalid_argument", "400"),
    (5, "not_found", "404"),
    (6, "already_exists", "409"),
    (7, "permission_denied", "403"),
    (8, "resource_exhausted", "429"),
    (9, "failed_precondition", "400"),
    (13, "internal", "500"),
    (14, "unavailable", "503"),
    (16, "unauthenticated", "401"),
];

pub fn field(name: &str, value: &str) -> (Vec<u8>, Vec<u8>) {
    (name.into(), value.into())
}

impl Call {
    pub fn random(random: &mut Random) -> Self {
        use Protocol::{Connect, ConnectStream, Grpc, GrpcWeb};
        let protocol = random.pick(&[Grpc, Grpc, GrpcWeb, Connect, ConnectStream]);
        let method = match protocol {
            Connect => "Call",
            ConnectStream => random.pick(&["Many", "Join", "Each"]),
            Grpc | GrpcWeb => random.pick(&["Call", "Many", "Join", "Each"]),
        };
        let count = if matches!(method, "Join" | "Each") { random.below(6) } else { 1 };
        let messages: Vec<Message> = (0..count).map(|_| message(random, method)).collect();
        let is_gzip = random.one_in(4);
        let mut body = Vec::new();
        for message in &messages {
            let bytes = message.encode();
            let packed = is_gzip && (protocol == Connect || random.one_in(2));
            let bytes = if packed { gzip(&bytes) } else { bytes };
            body.extend(if protocol == Connect { bytes } else { envelope(packed.into(), &bytes) });
        }
        let answer = answer(protocol, method, &messages);
        let head = head(random, protocol, method, is_gzip);
        let outcome = messages.iter().find(|message| message.fail != 0).map_or(0, |message| message.fail);
        let outcome = if outcome == 0 { "answer" } else { "failure" };
        Self { head, body, answer, kind: format!("{protocol:?} {method} {outcome}") }
    }
}

fn message(random: &mut Random, method: &str) -> Message {
    let bytes_max = if random.one_in(10) { 30_000 } else { 300 };
    let fail = if random.one_in(8) { random.pick(&FAILURES).0 } else { 0 };
    Message { payload: random.bytes(bytes_max), count: if method == "Many" { random.below(8) as u8 } else { 0 }, fail }
}

fn content_type(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Grpc => "application/grpc",
        Protocol::GrpcWeb => "application/grpc-web+proto",
        Protocol::Connect => "application/proto",
        Protocol::ConnectStream => "application/connect+proto",
    }
}

fn head(random: &mut Random, protocol: Protocol, method: &str, is_gzip: bool) -> Fields {
    let mut head = vec![
        field(":method", "POST"),
        field(":scheme", "http"),
        field(":path", &format!("/testing.Echo/{method}")),
        field("content-type", content_type(protocol)),
    ];
    let (encoding, timeout, hour) = match protocol {
        Protocol::Grpc | Protocol::GrpcWeb => ("grpc-encoding", "grpc-timeout", "1H"),
        Protocol::Connect => ("content-encoding", "connect-timeout-ms", "3600000"),
        Protocol::ConnectStream => ("connect-content-encoding", "connect-timeout-ms", "3600000"),
    };
    if random.one_in(2) {
        head.insert(3, field(":authority", "www.example.com"));
    }
    if protocol == Protocol::Grpc {
        head.push(field("te", "trailers"));
    }
    if is_gzip {
        head.push(field(encoding, "gzip"));
    }
    if random.one_in(4) {
        head.push(field(timeout, hour));
    }
    if random.one_in(4) {
        head.push(field("custom-key", "custom-value"));
    }
    if random.one_in(4) {
        head.push(field(&format!("x-{}", random.below(30)), &"v".repeat(random.below(200))));
    }
    head
}

/// The method's replies, and the failure after them.
fn replies(method: &str, messages: &[Message]) -> (Vec<Message>, Option<u8>) {
    let failed = messages.iter().position(|message| message.fail != 0);
    let fail = failed.map(|place| messages[place].fail);
    let good = &messages[..failed.unwrap_or(messages.len())];
    let replies = match (method, fail) {
        ("Each", _) => good.to_vec(),
        (_, Some(_)) => Vec::new(),
        ("Call", None) => good.to_vec(),
        ("Many", None) => (0..good[0].count).rev().map(|count| Message { count, ..good[0].clone() }).collect(),
        _ => {
            let payload = good.iter().flat_map(|message| message.payload.clone()).collect();
            vec![Message { payload, count: good.len() as u8, fail: 0 }]
        }
    };
    (replies, fail)
}

fn answer(protocol: Protocol, method: &str, messages: &[Message]) -> Answer {
    let (replies, fail) = replies(method, messages);
    let failure = fail.map(|fail| FAILURES.into_iter().find(|failure| failure.0 == fail).unwrap());
    let error = |name| format!(r#"{{"code":"{name}","message":"told to fail"}}"#);
    let mut fields = vec![field(":status", "200"), field("content-type", content_type(protocol))];
    let mut body: Vec<u8> = replies.iter().flat_map(|reply| envelope(0, &reply.encode())).collect();
    match (protocol, failure) {
        (Protocol::Grpc, None) => fields.push(field("grpc-status", "0")),
        (Protocol::Grpc, Some((code, ..))) => {
            fields.extend([field("grpc-status", &code.to_string()), field("grpc-message", "told to fail")]);
        }
        (Protocol::GrpcWeb, None) => body.extend(envelope(0x80, b"grpc-status: 0\r\n")),
        (Protocol::GrpcWeb, Some((code, ..))) => {
            let end = format!("grpc-status: {code}\r\ngrpc-message: told to fail\r\n");
            body.extend(envelope(0x80, end.as_bytes()));
        }
        (Protocol::Connect, None) => body = replies[0].encode(),
        (Protocol::Connect, Some((_, name, status))) => {
            fields = vec![field(":status", status), field("content-type", "application/json")];
            body = error(name).into_bytes();
        }
        (Protocol::ConnectStream, None) => body.extend(envelope(2, b"{}")),
        (Protocol::ConnectStream, Some((_, name, _))) => {
            body.extend(envelope(2, format!(r#"{{"error":{}}}"#, error(name)).as_bytes()));
        }
    }
    Answer { fields, body, unknown: VecDeque::new() }
}
