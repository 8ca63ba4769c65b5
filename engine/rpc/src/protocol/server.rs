//! Server side of the protocols: parsing of request heads, and framing of responses.

use std::borrow::Cow;
use std::time::Duration;

use quire_http2::Head;

use super::client::{Codec, Put};
use crate::message::compression::{Accepted, Encoding};
use crate::message::framing::Framing;
use crate::metadata::Metadata;
use crate::status::Status;

/// Terms of a call in its request head, in any protocol.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) timeout: Option<Duration>,
    /// Encoding of the request's compressed messages.
    pub(crate) encoding: Option<Encoding>,
    pub(crate) accepted: Accepted,
}

/// End of a response.
pub(crate) enum Ending {
    /// HTTP trailers.
    Trailers,
    /// Final bytes of the body.
    Body(Cow<'static, [u8]>),
    /// A response of this status and body that replaces any other.
    Instead { http_status: u16, body: Vec<u8> },
    /// The end of the body; nothing is added.
    Nothing,
}

/// Server side of a protocol.
pub(crate) trait Protocol: Sync {
    /// Name of the protocol.
    fn name(&self) -> &'static str;
    fn framing(&self) -> Framing;
    /// Parses the head of a request.
    fn terms(&self, head: &Head) -> Result<Terms, Status>;
    /// Puts the fields of a response's head, except metadata. `encoding`: compression of its messages.
    fn put_head(&self, codec: Codec, encoding: Option<Encoding>, put: Put<'_>);
    /// End of the response, after the last message.
    fn end(&self, outcome: Result<&Metadata, &Status>) -> Ending;
}

/// A protocol and a codec: everything in which the handling of calls differs.
#[derive(Clone, Copy)]
pub(crate) struct Dialect {
    pub(crate) protocol: &'static dyn Protocol,
    pub(crate) codec: Codec,
    /// gRPC with protobuf, whose responses are copied from cached header blocks.
    pub(crate) is_plain: bool,
}

impl Dialect {
    pub(super) const fn new(protocol: &'static dyn Protocol, codec: Codec) -> Self {
        Self { protocol, codec, is_plain: false }
    }

    pub(crate) fn framing(self) -> Framing {
        if self.is_plain { Framing::Envelopes } else { self.protocol.framing() }
    }

    /// True if responses end in trailers, which only HTTP/2 delivers to every client.
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

/// Encoding named by a field, if present.
pub(super) fn encoding(head: &Head, field: &str, accepted: &str) -> Result<Option<Encoding>, Status> {
    let Some(name) = head.get(field.as_bytes()) else { return Ok(None) };
    Encoding::parse(name).map_err(|()| {
        let name = name.escape_ascii();
        Status::unimplemented(format!("{field} {name} is not spoken here; send one of {accepted}"))
    })
}

/// Encodings accepted by a field.
pub(super) fn accepts(head: &Head, field: &str) -> Accepted {
    Accepted::read(head.get(field.as_bytes()).unwrap_or_default())
}
