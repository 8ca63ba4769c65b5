//! gRPC calls with one request, for the models of services.

use super::call::{Answer, Call, envelope, field, gzip};
use super::link::Link;
use super::message::Message;
use super::{data, grant, head};
use crate::random::Random;
use crate::tally::Tally;

/// More than the bytes of concurrent requests.
const ROOM: u32 = 30_000;

/// Status of a refused call: gRPC's number and the message.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub code: u8,
    pub why: String,
}

impl Refusal {
    pub fn new(code: u8, why: impl Into<String>) -> Self {
        Self { code, why: why.into() }
    }

    /// The message in its header field: percent-encoded where not printable ASCII.
    fn encoded(&self) -> String {
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'%';
        let shown = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
        self.why.bytes().map(shown).collect()
    }
}

/// A call, with its reply or its refusal.
pub fn call(random: &mut Random, path: &str, request: &Message, reply: &Result<Message, Refusal>) -> Call {
    match reply {
        Ok(reply) => stream(random, path, request, std::slice::from_ref(reply), None),
        Err(refusal) => stream(random, path, request, &[], Some(refusal)),
    }
}

/// A call that any number of messages answer.
pub fn stream(
    random: &mut Random,
    path: &str,
    request: &Message,
    replies: &[Message],
    refusal: Option<&Refusal>,
) -> Call {
    let is_gzip = random.one_in(3);
    let mut head = vec![
        field(":method", "POST"),
        field(":scheme", "http"),
        field(":path", path),
        field("content-type", "application/grpc"),
        field("te", "trailers"),
    ];
    let request = request.as_bytes();
    let mut body = envelope(0, request);
    if is_gzip {
        head.push(field("grpc-encoding", "gzip"));
        body = envelope(1, &gzip(request));
    }
    let code = refusal.map_or(0, |refusal| refusal.code).to_string();
    let mut fields =
        vec![field(":status", "200"), field("content-type", "application/grpc"), field("grpc-status", &code)];
    if let Some(refusal) = refusal.filter(|refusal| !refusal.why.is_empty()) {
        fields.push(field("grpc-message", &refusal.encoded()));
    }
    let mut answer = Answer { fields, ..Answer::default() };
    replies.iter().for_each(|reply| answer.go_on(reply));
    let outcome = if refusal.is_none() { "answer".to_owned() } else { format!("refusal {code}") };
    Call { head, body, answer, kind: format!("gRPC {path} {outcome}") }
}

/// Sends a complete call with the next flush. The windows have room for the request.
pub fn begin(link: &mut Link<'_>, random: &mut Random, call: Call) -> u32 {
    let id = link.open(call);
    head(link, random, id, false);
    grant(link, id, ROOM);
    grant(link, 0, ROOM);
    while !link.streams[&id].is_ended {
        data(link, random, id);
    }
    id
}

/// Grants the server a window of at least this many bytes on a stream, or on the connection (stream 0).
pub fn let_in(link: &mut Link<'_>, id: u32, bytes: u32) {
    let granted = link.streams.get(&id).map_or(link.granted, |stream| stream.granted);
    if granted < bytes.into() {
        grant(link, id, bytes);
    }
}

/// Closes the connection; all its calls were answered.
pub fn hang_up(mut link: Link<'_>, random: &mut Random, tally: &mut Tally) {
    link.server.end();
    link.flush(random, tally);
    assert!(link.resets.is_empty() && link.goaway.is_none(), "{:?} {:?}", link.resets, link.goaway);
    assert!(link.server.is_over, "the server stays");
}
