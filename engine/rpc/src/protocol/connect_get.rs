//! Connect's unary calls by GET, with the message in the query.
//!
//! Implements: connectrpc.com/docs/protocol, "Unary-Get-Request".

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::GeneralPurpose;
use bytes::Bytes;
use percent_encoding::percent_decode;
use quire_http2::Head;

use super::client::Codec;
use super::connect::{BASE64, UNPADDED, accepted, check_version, timeout};
use super::server::{Terms, accepts};
use crate::message::compression::Encoding;
use crate::status::Status;

const BASE64_URL: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, UNPADDED);

/// Path and query of a call with this message.
pub(crate) fn target(path: &str, codec: Codec, compression: Option<Encoding>, message: &[u8]) -> String {
    let codec = match codec {
        Codec::Proto => "proto",
        Codec::Json => "json",
    };
    let compression = compression.map(|encoding| format!("&compression={}", encoding.name())).unwrap_or_default();
    let message = BASE64_URL.encode(message);
    format!("{path}?connect=v1&base64=1{compression}&encoding={codec}&message={message}")
}

/// A call parsed from a GET's query.
#[derive(Debug)]
pub(crate) struct Get {
    pub(crate) codec: Codec,
    pub(crate) terms: Terms,
    /// The message, decoded from the query.
    pub(crate) message: Result<Bytes, Status>,
}

impl Get {
    /// Parses a query; `None` if it is not a call.
    pub(crate) fn read(head: &Head, query: &[u8]) -> Option<Self> {
        let (mut codec, mut message, mut compression, mut version) = (None, None, None, None);
        let mut in_base64 = false;
        for pair in query.split(|byte| *byte == b'&') {
            // Other parameters may have any form.
            let Some(at) = pair.iter().position(|byte| *byte == b'=') else { continue };
            let (name, value) = (&pair[..at], &pair[at + 1..]);
            match name {
                b"encoding" => codec = Some(value),
                b"message" => message = Some(value),
                b"compression" => compression = Some(unescape(value)),
                b"connect" => version = Some(unescape(value)),
                b"base64" => in_base64 = value == b"1",
                _ => {}
            }
        }
        let codec = match codec? {
            b"proto" => Codec::Proto,
            b"json" => Codec::Json,
            _ => return None,
        };
        let read = || {
            check_version(version.as_deref(), "v1")?;
            let encoding = match &compression {
                None => None,
                Some(name) => Encoding::parse(name).map_err(|()| {
                    let name = name.escape_ascii();
                    Status::unimplemented(format!("compression {name} is not spoken here; send one of {}", accepted()))
                })?,
            };
            let terms = Terms { timeout: timeout(head)?, encoding, accepted: accepts(head, "accept-encoding") };
            let Some(message) = message else {
                return Err(Status::invalid_argument("the query has no message: send message=…"));
            };
            let message = unescape(message);
            let message = if in_base64 {
                let decoded = BASE64_URL.decode(&message).or_else(|_| BASE64.decode(&message));
                decoded
                    .map_err(|_| Status::invalid_argument("the query's message is not in base64, as base64=1 says"))?
            } else {
                message
            };
            Ok((terms, Bytes::from(message)))
        };
        let (terms, message) = match read() {
            Ok((terms, message)) => (terms, Ok(message)),
            Err(status) => (Terms::default(), Err(status)),
        };
        Some(Self { codec, terms, message })
    }
}

/// Decodes a form's value: `+` is a blank, and invalid escapes are kept.
fn unescape(text: &[u8]) -> Vec<u8> {
    let blank = |byte: &u8| if *byte == b'+' { b' ' } else { *byte };
    percent_decode(&text.iter().map(blank).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use quire_http2::Field;

    use super::*;

    #[test]
    fn parts_of_a_query_that_are_not_the_protocols_are_skipped() {
        let fields = [(":method", "GET"), (":scheme", "http"), (":path", "/a"), (":authority", "b")];
        let head =
            Head::request(fields.map(|(name, value)| Field::new(name.as_bytes(), value.as_bytes())).to_vec()).unwrap();
        for query in ["message=%7b%7d&encoding=json", "cached&message={}&&encoding=json&v=2"] {
            let get = Get::read(&head, query.as_bytes()).unwrap();
            assert_eq!((get.codec, &get.message.unwrap()[..]), (Codec::Json, &b"{}"[..]), "{query}");
        }
        assert!(Get::read(&head, b"message={}").is_none());
    }
}
