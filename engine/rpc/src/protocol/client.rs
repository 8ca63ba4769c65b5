//! Client side of the protocols: request heads, and parsing of responses.

use std::sync::Arc;
use std::time::Duration;

use quire_http2::{Head, Indexing};

use crate::message::compression::Encoding;
use crate::message::framing::Framing;
use crate::metadata::Metadata;
use crate::status::Status;

/// Encoding of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// Protobuf's binary form.
    #[default]
    Proto,
    /// Protobuf's canonical JSON.
    Json,
}

/// Callback that takes the fields of a head, one by one.
pub(crate) type Put<'a> = &'a mut dyn FnMut(&[u8], &[u8], Indexing);

/// Terms of a call in its request head.
#[derive(Clone, Copy)]
pub(crate) struct RequestTerms<'a> {
    pub(crate) codec: Codec,
    /// Encoding of the request's compressed messages.
    pub(crate) encoding: Option<Encoding>,
    /// Accepted encodings of the response, with `identity`, separated by commas.
    pub(crate) accepted: &'a str,
    pub(crate) timeout: Option<Duration>,
    /// True if the message is in the query of a GET.
    pub(crate) is_get: bool,
}

/// Kind of body that a response's head announces.
pub(crate) enum AnswerHead {
    /// Messages, with the encoding of compressed ones.
    Messages(Option<Encoding>),
    /// A failure, with its encoding if compressed.
    Failure(Option<Encoding>),
    /// Not a valid response.
    Refused(Status),
}

/// Client side of a protocol.
pub(crate) trait ClientProtocol: Sync {
    fn framing(&self) -> Framing;

    /// True if bodies are unframed: bytes are passed on as they arrive.
    fn is_chunked(&self) -> bool {
        false
    }

    /// Flag of the envelope that ends a response; 0 if there is none.
    fn end_flag(&self) -> u8 {
        0
    }

    /// Puts the protocol's own fields of a request's head.
    fn put_request(&self, terms: &RequestTerms<'_>, put: Put<'_>);

    /// True for the head of a trailers-only response.
    fn is_trailers(&self, head: &Head) -> bool {
        head.get(b"grpc-status").is_some()
    }

    /// Parses the head of a response.
    fn begin(&self, codec: Codec, head: &Head) -> AnswerHead;

    /// Leading metadata.
    fn metadata(&self, head: &Arc<Head>) -> Metadata {
        Metadata::received(Arc::clone(head))
    }

    /// Status from a failure's body.
    fn failure(&self, head: &Arc<Head>, _body: &[u8]) -> Status {
        Status::from_http(head.status_code().unwrap_or(0))
    }

    /// Outcome of the call from the envelope that ends the response.
    fn read_end(&self, _envelope: &[u8]) -> Result<Metadata, Status> {
        Err(Status::internal("an envelope ends the answer, which the protocol does not know"))
    }

    /// Outcome of the call without such an envelope. `has_body`: bytes followed the head.
    fn end(&self, head: &Arc<Head>, trailers: Option<&Arc<Head>>, has_body: bool) -> Result<Metadata, Status>;
}

/// A protocol and a codec: everything in which calls differ.
#[derive(Clone, Copy)]
pub(crate) struct ClientDialect {
    pub(crate) protocol: &'static dyn ClientProtocol,
    pub(crate) codec: Codec,
    /// gRPC with protobuf, whose request heads are copied from cached header blocks.
    pub(crate) is_plain: bool,
}

impl ClientDialect {
    #[inline]
    pub(crate) fn framing(self) -> Framing {
        if self.is_plain { Framing::Envelopes } else { self.protocol.framing() }
    }
}

/// Rejects a response with an unexpected content type. `family`: prefix of the protocol's content types.
pub(super) fn check_content_type(head: &Head, family: &str, expected: &[&str]) -> Result<(), Status> {
    let content_type = head.get(b"content-type").unwrap_or_default();
    let kind = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if expected.iter().any(|expected| kind.eq_ignore_ascii_case(expected.as_bytes())) {
        return Ok(());
    }
    let (shown, wanted) = (content_type.escape_ascii(), expected[0]);
    let message = format!("the answer's content-type is {shown}, not {wanted}");
    let is_of_family = kind.get(..family.len()).is_some_and(|start| start.eq_ignore_ascii_case(family.as_bytes()));
    Err(if is_of_family { Status::internal(message) } else { Status::unknown(message) })
}

/// Encoding of a response, from a field.
pub(super) fn answer_encoding(head: &Head, field: &[u8]) -> Result<Option<Encoding>, Status> {
    head.get(field).map_or(Ok(None), Encoding::parse).map_err(|()| {
        let name = head.get(field).unwrap_or_default().escape_ascii();
        Status::internal(format!("the answer is compressed with {name}, which this client did not offer"))
    })
}
