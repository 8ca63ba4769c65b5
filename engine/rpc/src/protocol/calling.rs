//! A protocol as a client speaks it: what a request's head says, and how an answer is read.
//!
//! Must not know which protocols there are, nor connections.
//!
//! Implements: no specification; the protocols' modules do.

use std::sync::Arc;
use std::time::Duration;

use quire_http2::{Head, Indexing};

use crate::compression::Encoding;
use crate::metadata::Metadata;
use crate::status::Status;

/// How messages are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// Protobuf's binary form.
    #[default]
    Proto,
    /// Protobuf's canonical JSON.
    Json,
}

/// Takes the fields of a head, one by one.
pub(crate) type Put<'a> = &'a mut dyn FnMut(&[u8], &[u8], Indexing);

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

/// What the head of a request says of its call.
#[derive(Clone, Copy)]
pub(crate) struct RequestTerms<'a> {
    pub(crate) codec: Codec,
    /// How the request's messages are compressed, those that are.
    pub(crate) encoding: Option<Encoding>,
    /// `identity` and the encodings that the answer may have, with commas between them.
    pub(crate) accepted: &'a str,
    pub(crate) timeout: Option<Duration>,
    /// The message stands in the query of a GET.
    pub(crate) is_get: bool,
}

/// What the head of an answer says of its body.
pub(crate) enum AnswerHead {
    /// Messages, those that are compressed in this way.
    Messages(Option<Encoding>),
    /// Why the call failed, compressed in this way if at all.
    Failure(Option<Encoding>),
    /// Nothing of use.
    Refused(Status),
}

/// A protocol, as a client speaks it.
pub(crate) trait ClientProtocol: Sync {
    fn framing(&self) -> Framing;

    /// Whether a body has no messages: its bytes are handed on as they come.
    fn is_chunked(&self) -> bool {
        false
    }

    /// The flag of the envelope that ends an answer; 0 if no envelope does.
    fn end_flag(&self) -> u8 {
        0
    }

    /// Puts the fields of a request's head that are the protocol's own.
    fn put_request(&self, terms: &RequestTerms<'_>, put: Put<'_>);

    /// Whether a head that nothing follows is the trailers of an answer without messages.
    fn is_trailers(&self, head: &Head) -> bool {
        head.get(b"grpc-status").is_some()
    }

    /// Reads the head of an answer.
    fn begin(&self, codec: Codec, head: &Head) -> AnswerHead;

    /// The names and values that stand before the messages.
    fn metadata(&self, head: &Arc<Head>) -> Metadata {
        Metadata::received(Arc::clone(head))
    }

    /// What a body tells that has a failure in it.
    fn failure(&self, head: &Arc<Head>, _body: &[u8]) -> Status {
        Status::from_http(head.status_code().unwrap_or(0))
    }

    /// How the call ended, as the envelope says that ends the answer.
    fn read_end(&self, _envelope: &[u8]) -> Result<Metadata, Status> {
        Err(Status::internal("an envelope ends the answer, which the protocol does not know"))
    }

    /// How the call ended, if no envelope said so. `has_body`: anything came after the head.
    fn end(&self, head: &Arc<Head>, trailers: Option<&Arc<Head>>, has_body: bool) -> Result<Metadata, Status>;
}

/// A protocol and a codec: all that distinguishes how one call is made from how another is.
#[derive(Clone, Copy)]
pub(crate) struct ClientDialect {
    pub(crate) protocol: &'static dyn ClientProtocol,
    pub(crate) codec: Codec,
    /// gRPC with protobuf, whose requests' heads are copied from blocks encoded before.
    pub(crate) is_plain: bool,
}

impl ClientDialect {
    #[inline]
    pub(crate) fn framing(self) -> Framing {
        if self.is_plain { Framing::Envelopes } else { self.protocol.framing() }
    }
}

/// Refuses an answer whose content type is not the expected one. `family`: how the content types of the protocol begin.
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

/// How an answer is compressed, as a field says.
pub(super) fn answer_encoding(head: &Head, field: &[u8]) -> Result<Option<Encoding>, Status> {
    head.get(field).map_or(Ok(None), Encoding::parse).map_err(|()| {
        let name = head.get(field).unwrap_or_default().escape_ascii();
        Status::internal(format!("the answer is compressed with {name}, which this client did not offer"))
    })
}
