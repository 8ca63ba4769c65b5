//! gRPC over HTTP/2: "Requests" and "Responses".

use std::sync::Arc;

use quire_http2::{Head, Indexing};

use super::client::{AnswerHead, ClientProtocol, Codec, Put, RequestTerms, answer_encoding, check_content_type};
use super::server::{Ending, Protocol, Terms, accepts, encoding};
use crate::message::compression::{ACCEPTED, Encoding};
use crate::message::framing::Framing;
use crate::metadata::{Metadata, decode_bytes, encode_bytes};
use crate::status::{Code, Reach, Status, decode_message, encode_message};
use crate::timeout;

/// gRPC.
pub(super) struct Grpc;

/// Parses a request's head; shared with gRPC-Web.
pub(super) fn terms(head: &Head) -> Result<Terms, Status> {
    let timeout = match head.get(b"grpc-timeout") {
        None => None,
        Some(value) => Some(timeout::parse(value).ok_or_else(|| Status::internal("grpc-timeout is malformed"))?),
    };
    Ok(Terms {
        timeout,
        encoding: encoding(head, "grpc-encoding", &ACCEPTED)?,
        accepted: accepts(head, "grpc-accept-encoding"),
    })
}

pub(super) fn put_head(content_type: &[u8], encoding: Option<Encoding>, put: Put<'_>) {
    put(b":status", b"200", Indexing::Insert);
    put(b"content-type", content_type, Indexing::Insert);
    if let Some(encoding) = encoding {
        put(b"grpc-encoding", encoding.name().as_bytes(), Indexing::Insert);
    }
}

/// Puts the trailers for a call's outcome.
pub(crate) fn put_status(status: &Status, put: Put<'_>) {
    let code = status.code() as u8;
    let digits = [b'0' + code / 10, b'0' + code % 10];
    put(b"grpc-status", if code < 10 { &digits[1..] } else { &digits }, Indexing::Insert);
    if !status.message().is_empty() {
        put(b"grpc-message", encode_message(status.message()).as_bytes(), Indexing::Literal);
    }
    if !status.details().is_empty() {
        put(b"grpc-status-details-bin", encode_bytes(status.details()).as_bytes(), Indexing::Literal);
    }
    put_metadata(status.metadata(), put);
}

/// Puts metadata in wire form.
pub(crate) fn put_metadata(metadata: &Metadata, put: Put<'_>) {
    for field in metadata.wire() {
        put(field.name(), field.value(), Indexing::Literal);
    }
}

impl Protocol for Grpc {
    fn name(&self) -> &'static str {
        "gRPC"
    }

    fn framing(&self) -> Framing {
        Framing::Envelopes
    }

    fn terms(&self, head: &Head) -> Result<Terms, Status> {
        terms(head)
    }

    fn put_head(&self, codec: Codec, encoding: Option<Encoding>, put: Put<'_>) {
        let content_type = match codec {
            Codec::Proto => &b"application/grpc"[..],
            Codec::Json => b"application/grpc+json",
        };
        put_head(content_type, encoding, put);
    }

    fn end(&self, _: Result<&Metadata, &Status>) -> Ending {
        Ending::Trailers
    }
}

/// Puts the fields of a request; shared with gRPC-Web.
pub(super) fn put_request(content_type: &[u8], terms: &RequestTerms<'_>, put: Put<'_>) {
    put(b"content-type", content_type, Indexing::Insert);
    put(b"grpc-accept-encoding", terms.accepted.as_bytes(), Indexing::Insert);
    if let Some(encoding) = terms.encoding {
        put(b"grpc-encoding", encoding.name().as_bytes(), Indexing::Insert);
    }
    if let Some(timeout) = terms.timeout {
        put(b"grpc-timeout", timeout::format(timeout).as_bytes(), Indexing::Literal);
    }
}

/// Parses the head of a response; `family` is the content type without a codec.
pub(super) fn begin(family: &str, codec: Codec, head: &Head) -> AnswerHead {
    let http_status = head.status_code().unwrap_or(0);
    if http_status != 200 {
        return AnswerHead::Refused(Status::from_http(http_status));
    }
    let (proto, json) = (format!("{family}+proto"), format!("{family}+json"));
    let checked = match codec {
        Codec::Proto => check_content_type(head, family, &[family, &proto]),
        Codec::Json => check_content_type(head, family, &[&json]),
    };
    match checked.and_then(|()| answer_encoding(head, b"grpc-encoding")) {
        Ok(encoding) => AnswerHead::Messages(encoding),
        Err(status) => AnswerHead::Refused(status),
    }
}

/// Outcome of a call from its trailers.
#[inline]
pub(super) fn read_trailers(trailers: &Arc<Head>) -> Result<Metadata, Status> {
    let code = match trailers.get(b"grpc-status") {
        Some(b"0") => return Ok(Metadata::received(Arc::clone(trailers))),
        Some(number) => std::str::from_utf8(number).ok().and_then(|text| text.parse().ok()).unwrap_or(2),
        None => {
            let http_status = trailers.status_code().filter(|code| *code != 200);
            return Err(http_status.map_or_else(|| Status::unknown("the answer has no grpc-status"), Status::from_http));
        }
    };
    let message = trailers.get(b"grpc-message").map(decode_message).unwrap_or_default();
    let details = trailers.get(b"grpc-status-details-bin").and_then(decode_bytes).unwrap_or_default();
    let mut status = Status::with_details(Code::from_number(code), message, details.into()).with_reach(Reach::Answered);
    *status.metadata_mut() = Metadata::received(Arc::clone(trailers));
    Err(status)
}

impl ClientProtocol for Grpc {
    fn framing(&self) -> Framing {
        Framing::Envelopes
    }

    fn put_request(&self, terms: &RequestTerms<'_>, put: Put<'_>) {
        put(b"te", b"trailers", Indexing::Insert);
        let content_type = match terms.codec {
            Codec::Proto => &b"application/grpc"[..],
            Codec::Json => b"application/grpc+json",
        };
        put_request(content_type, terms, put);
    }

    fn begin(&self, codec: Codec, head: &Head) -> AnswerHead {
        begin("application/grpc", codec, head)
    }

    fn end(&self, head: &Arc<Head>, trailers: Option<&Arc<Head>>, has_body: bool) -> Result<Metadata, Status> {
        match trailers {
            Some(trailers) => read_trailers(trailers),
            None if has_body => Err(Status::internal("the answer ends without trailers")),
            // The response is trailers-only.
            None => read_trailers(head),
        }
    }
}
