//! gRPC over HTTP/2: "Requests" and "Responses".

use quire_http2::{Head, Indexing};

use super::{Codec, Ending, Framing, Protocol, Put, Terms, accepts, encoding};
use crate::compression::{ACCEPTED, Encoding};
use crate::metadata::{Metadata, encode_bytes};
use crate::status::{Status, encode_message};
use crate::timeout;

/// gRPC.
pub(super) struct Grpc;

/// What gRPC-Web shares with gRPC.
pub(super) fn terms(head: &Head) -> Result<Terms, Status> {
    let timeout = match head.get(b"grpc-timeout") {
        None => None,
        Some(value) => Some(timeout::parse(value).ok_or_else(|| Status::internal("grpc-timeout is malformed"))?),
    };
    Ok(Terms {
        timeout,
        encoding: encoding(head, "grpc-encoding", ACCEPTED)?,
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

/// Puts what trailers say of a call's outcome.
pub(crate) fn put_status(status: &Status, put: Put<'_>) {
    let code = status.code() as u8;
    let digits = [b'0' + code / 10, b'0' + code % 10];
    put(b"grpc-status", if code < 10 { &digits[1..] } else { &digits }, Indexing::Insert);
    if !status.message().is_empty() {
        put(b"grpc-message", &encode_message(status.message()), Indexing::Literal);
    }
    if !status.details().is_empty() {
        put(b"grpc-status-details-bin", encode_bytes(status.details()).as_bytes(), Indexing::Literal);
    }
    put_metadata(status.metadata(), put);
}

/// Puts names and values as they are.
pub(crate) fn put_metadata(metadata: &Metadata, put: Put<'_>) {
    for field in metadata.wire() {
        put(field.name(), field.value(), Indexing::Literal);
    }
}

impl Protocol for Grpc {
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
