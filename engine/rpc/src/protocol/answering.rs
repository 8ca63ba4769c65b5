//! A protocol as a server speaks it: what the head of a request says, and what stands around an answer.
//!
//! Must not know which protocols there are, nor connections.
//!
//! Implements: no specification; the protocols' modules do.

use std::borrow::Cow;
use std::time::Duration;

use quire_http2::Head;

use super::calling::{Codec, Framing, Put};
use crate::compression::{Accepted, Encoding};
use crate::metadata::Metadata;
use crate::status::Status;

/// What the head of a request says of its call, in any protocol.
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
    Body(Cow<'static, [u8]>),
    /// As an answer of this status and body, in place of any other.
    Instead { http_status: u16, body: Vec<u8> },
    /// With the body, which is whole.
    Nothing,
}

/// A protocol, as a server speaks it.
pub(crate) trait Protocol: Sync {
    /// What tells it from the others.
    fn name(&self) -> &'static str;
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

impl Dialect {
    pub(super) const fn new(protocol: &'static dyn Protocol, codec: Codec) -> Self {
        Self { protocol, codec, is_plain: false }
    }

    pub(crate) fn framing(self) -> Framing {
        if self.is_plain { Framing::Envelopes } else { self.protocol.framing() }
    }

    /// Whether answers end in trailers, which only HTTP/2 brings to every client.
    #[inline]
    pub(crate) fn needs_trailers(self) -> bool {
        self.is_plain || matches!(self.protocol.end(Ok(&Metadata::new())), Ending::Trailers)
    }

    pub(crate) fn terms(self, head: &Head) -> Result<Terms, Status> {
        self.protocol.terms(head)
    }
}

impl PartialEq for Dialect {
    fn eq(&self, other: &Self) -> bool {
        self.protocol.name() == other.protocol.name() && self.codec == other.codec
    }
}

impl std::fmt::Debug for Dialect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dialect({}, {:?})", self.protocol.name(), self.codec)
    }
}

/// The encoding that a field names, if it names one.
pub(super) fn encoding(head: &Head, field: &str, accepted: &str) -> Result<Option<Encoding>, Status> {
    let Some(name) = head.get(field.as_bytes()) else { return Ok(None) };
    Encoding::parse(name).map_err(|()| {
        let name = name.escape_ascii();
        Status::unimplemented(format!("{field} {name} is not spoken here; send one of {accepted}"))
    })
}

/// The encodings that a field accepts.
pub(super) fn accepts(head: &Head, field: &str) -> Accepted {
    Accepted::read(head.get(field.as_bytes()).unwrap_or_default())
}
