//! The protocols in which a call may come: what a request's head says of it, and what stands around an answer.
//!
//! A handler cannot tell them apart. Must not know handlers, connections or sockets.
//!
//! Implements: no specification; its modules do.

mod connect;
mod grpc;
mod grpc_web;

use std::time::Duration;

use quire_http2::{Head, Indexing};

use crate::compression::Encoding;
use crate::envelope::Accepted;
use crate::metadata::Metadata;
use crate::status::Status;

pub(crate) use connect::Get;
pub(crate) use grpc::{put_metadata, put_status};

/// Takes the fields of a head, one by one.
pub(crate) type Put<'a> = &'a mut dyn FnMut(&[u8], &[u8], Indexing);

/// How messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    Proto,
    Json,
}

/// What stands around messages in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Five bytes before each: flags and length.
    Envelopes,
    /// The same, and all of it in base64.
    Text,
    /// Nothing: the body is the message.
    Whole,
}

/// What the head of a request says of its call, whatever the words.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) timeout: Option<Duration>,
    /// How the request's messages are compressed, those that are.
    pub(crate) encoding: Option<Encoding>,
    pub(crate) accepted: Accepted,
}

/// How an answer ends.
pub(crate) enum Ending {
    /// With HTTP trailers.
    Trailers,
    /// With these bytes of the body.
    Body(Vec<u8>),
    /// As an answer of this status and body, in place of any other.
    Instead { http_status: u16, body: Vec<u8> },
    /// With the body, which is whole.
    Nothing,
}

/// A protocol, as a server speaks it.
pub(crate) trait Protocol: Sync {
    fn framing(&self) -> Framing;
    /// Reads the head of a request.
    fn terms(&self, head: &Head) -> Result<Terms, Status>;
    /// Puts the fields of an answer's head, metadata apart. `encoding`: how its messages are compressed.
    fn put_head(&self, codec: Codec, encoding: Option<Encoding>, put: Put<'_>);
    /// What comes after the last message.
    fn end(&self, outcome: Result<&Metadata, &Status>) -> Ending;
}

/// A protocol and a codec: all that distinguishes how one call is answered from how another is.
#[derive(Clone, Copy)]
pub(crate) struct Dialect {
    pub(crate) protocol: &'static dyn Protocol,
    pub(crate) codec: Codec,
    /// gRPC with protobuf, whose answers are copied from blocks encoded before.
    pub(crate) is_plain: bool,
}

/// gRPC with protobuf.
pub(crate) const PLAIN: Dialect = Dialect { protocol: &grpc::Grpc, codec: Codec::Proto, is_plain: true };

impl Dialect {
    const fn new(protocol: &'static dyn Protocol, codec: Codec) -> Self {
        Self { protocol, codec, is_plain: false }
    }

    /// Connect's answer to a GET.
    pub(crate) const fn get(codec: Codec) -> Self {
        Self::new(&connect::Unary, codec)
    }

    pub(crate) fn framing(self) -> Framing {
        if self.is_plain { Framing::Envelopes } else { self.protocol.framing() }
    }

    /// Whether answers end in trailers, which only HTTP/2 brings to every client.
    pub(crate) fn needs_trailers(self) -> bool {
        matches!(self.protocol.end(Ok(&Metadata::new())), Ending::Trailers)
    }

    pub(crate) fn terms(self, head: &Head) -> Result<Terms, Status> {
        self.protocol.terms(head)
    }
}

impl std::fmt::Debug for Dialect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dialect({:?}, {:?})", self.framing(), self.codec)
    }
}

/// What a content type says of a POST.
pub(crate) enum Recognised {
    /// A call of any kind of method.
    Call(Dialect),
    /// A call of a method with one message each way, if the path is such a method's; else any other HTTP.
    Unary(Dialect),
    /// A call of a method that streams.
    Stream(Dialect),
    /// gRPC with a codec that is not spoken here.
    UnknownCodec,
    Other,
}

/// Tells the protocol of a POST by its content type.
pub(crate) fn recognise(content_type: &[u8]) -> Recognised {
    if content_type == b"application/grpc" {
        return Recognised::Call(PLAIN);
    }
    let kind = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let kind = kind.to_ascii_lowercase();
    let Some(name) = kind.strip_prefix(b"application/") else { return Recognised::Other };
    match name {
        b"grpc" | b"grpc+proto" => Recognised::Call(PLAIN),
        b"grpc+json" => Recognised::Call(Dialect::new(&grpc::Grpc, Codec::Json)),
        b"grpc-web" | b"grpc-web+proto" => Recognised::Call(Dialect::new(&grpc_web::Binary, Codec::Proto)),
        b"grpc-web+json" => Recognised::Call(Dialect::new(&grpc_web::Binary, Codec::Json)),
        b"grpc-web-text" | b"grpc-web-text+proto" => Recognised::Call(Dialect::new(&grpc_web::Text, Codec::Proto)),
        b"connect+proto" => Recognised::Stream(Dialect::new(&connect::Streamed, Codec::Proto)),
        b"connect+json" => Recognised::Stream(Dialect::new(&connect::Streamed, Codec::Json)),
        b"proto" => Recognised::Unary(Dialect::new(&connect::Unary, Codec::Proto)),
        b"json" => Recognised::Unary(Dialect::new(&connect::Unary, Codec::Json)),
        _ if name.starts_with(b"grpc+") || name.starts_with(b"grpc-web") => Recognised::UnknownCodec,
        _ => Recognised::Other,
    }
}

/// The encoding that a field names, if it names one.
fn encoding(head: &Head, field: &str, accepted: &str) -> Result<Option<Encoding>, Status> {
    let Some(name) = head.get(field.as_bytes()) else { return Ok(None) };
    Encoding::parse(name).map_err(|()| {
        let name = name.escape_ascii();
        Status::unimplemented(format!("{field} {name} is not spoken here; send one of {accepted}"))
    })
}

/// The encodings that a field accepts.
fn accepts(head: &Head, field: &str) -> Accepted {
    let names = head.get(field.as_bytes()).unwrap_or_default();
    Accepted { gzip: Encoding::Gzip.is_in(names), zstd: Encoding::Zstd.is_in(names) }
}
