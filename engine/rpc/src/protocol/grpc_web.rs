//! gRPC-Web (the protocol's page PROTOCOL-WEB.md): gRPC whose trailers are the body's last envelope, so that browsers
//! can read them; and its text form, all in base64.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use quire_http2::{Field, Head, Indexing};

use super::client::{AnswerHead, ClientProtocol, Codec, Put, RequestTerms};
use super::grpc;
use super::server::{Ending, Protocol, Terms};
use crate::message::compression::Encoding;
use crate::message::framing::{self, Framing};
use crate::metadata::Metadata;
use crate::status::Status;

/// Flag of the envelope with the trailers.
const TRAILERS_FLAG: u8 = 0x80;

/// End of nearly every response.
const PLAIN_SUCCESS: &[u8] = b"\x80\x00\x00\x00\x10grpc-status: 0\r\n";

pub(super) struct Binary;

pub(super) struct Text;

fn trailers(outcome: Result<&Metadata, &Status>) -> Vec<u8> {
    let mut out = framing::prefix(0, false).to_vec();
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
    framing::seal(&mut out, 0, None);
    out[0] = TRAILERS_FLAG;
    out
}

impl Protocol for Binary {
    fn name(&self) -> &'static str {
        "gRPC-Web"
    }

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
        match outcome {
            Ok(metadata) if metadata.is_empty() => Ending::Body(PLAIN_SUCCESS.into()),
            _ => Ending::Body(trailers(outcome).into()),
        }
    }
}

impl Protocol for Text {
    fn name(&self) -> &'static str {
        "gRPC-Web in text"
    }

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
        Ending::Body(BASE64_STANDARD.encode(trailers(outcome)).into_bytes().into())
    }
}

/// Parses the trailers in an envelope.
fn read_envelope(envelope: &[u8]) -> Result<Metadata, Status> {
    let mut fields = Vec::new();
    for line in envelope.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()) {
        let colon = line.iter().position(|byte| *byte == b':');
        let colon = colon.ok_or_else(|| Status::internal("a line of the answer's trailers has no colon"))?;
        let (name, value) = (line[..colon].to_ascii_lowercase(), line[colon + 1..].trim_ascii());
        fields.push(Field::new(&name, value));
    }
    let trailers = Head::trailers(fields);
    let trailers = trailers.map_err(|error| Status::internal(format!("the answer's trailers: {error}")))?;
    grpc::read_trailers(&Arc::new(trailers))
}

impl ClientProtocol for Binary {
    fn framing(&self) -> Framing {
        Framing::Envelopes
    }

    fn end_flag(&self) -> u8 {
        TRAILERS_FLAG
    }

    fn put_request(&self, terms: &RequestTerms<'_>, put: Put<'_>) {
        let content_type = match terms.codec {
            Codec::Proto => &b"application/grpc-web+proto"[..],
            Codec::Json => b"application/grpc-web+json",
        };
        grpc::put_request(content_type, terms, put);
        put(b"x-grpc-web", b"1", Indexing::Insert);
    }

    fn begin(&self, codec: Codec, head: &Head) -> AnswerHead {
        grpc::begin("application/grpc-web", codec, head)
    }

    fn read_end(&self, envelope: &[u8]) -> Result<Metadata, Status> {
        read_envelope(envelope)
    }

    fn end(&self, head: &Arc<Head>, _: Option<&Arc<Head>>, has_body: bool) -> Result<Metadata, Status> {
        if has_body {
            return Err(Status::internal("the answer ends without trailers"));
        }
        // The response is trailers-only.
        grpc::read_trailers(head)
    }
}
