//! gRPC-Web (the protocol's page PROTOCOL-WEB.md): gRPC whose trailers are the body's last envelope, so that a browser
//! can read them; and its text form, all of it in base64.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use quire_http2::Head;

use super::{Codec, Ending, Framing, Protocol, Put, Terms, grpc};
use crate::compression::Encoding;
use crate::message;
use crate::metadata::Metadata;
use crate::status::Status;

/// Marks the envelope that holds the trailers.
const TRAILERS_FLAG: u8 = 0x80;

pub(super) struct Binary;

pub(super) struct Text;

fn trailers(outcome: Result<&Metadata, &Status>) -> Vec<u8> {
    let mut out = message::prefix(0, false).to_vec();
    let mut put = |name: &[u8], value: &[u8], _| {
        for part in [name, b": ", value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    };
    match outcome {
        Err(status) => grpc::put_status(status, &mut put),
        Ok(metadata) => {
            let mut status = Status::ok();
            *status.metadata_mut() = metadata.clone();
            grpc::put_status(&status, &mut put);
        }
    }
    message::seal(&mut out, 0, None);
    out[0] = TRAILERS_FLAG;
    out
}

impl Protocol for Binary {
    fn framing(&self) -> Framing {
        Framing::Envelopes
    }

    fn terms(&self, head: &Head) -> Result<Terms, Status> {
        grpc::terms(head)
    }

    fn put_head(&self, codec: Codec, encoding: Option<Encoding>, put: Put<'_>) {
        let content_type = match codec {
            Codec::Proto => &b"application/grpc-web+proto"[..],
            Codec::Json => b"application/grpc-web+json",
        };
        grpc::put_head(content_type, encoding, put);
    }

    fn end(&self, outcome: Result<&Metadata, &Status>) -> Ending {
        Ending::Body(trailers(outcome))
    }
}

impl Protocol for Text {
    fn framing(&self) -> Framing {
        Framing::Text
    }

    fn terms(&self, head: &Head) -> Result<Terms, Status> {
        grpc::terms(head)
    }

    fn put_head(&self, _: Codec, encoding: Option<Encoding>, put: Put<'_>) {
        grpc::put_head(b"application/grpc-web-text+proto", encoding, put);
    }

    fn end(&self, outcome: Result<&Metadata, &Status>) -> Ending {
        Ending::Body(BASE64_STANDARD.encode(trailers(outcome)).into_bytes())
    }
}
