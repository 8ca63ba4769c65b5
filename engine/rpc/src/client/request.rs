//! The head of a call's request.
//!
//! Implements: RFC 9113 section 8.3.1 (request pseudo-header fields).

use std::time::Duration;

use quire_http2::Indexing;

use super::command::{Form, Start};
use super::path::{Path, Place};
use super::target::Target;
use crate::compression::Encoding;
use crate::message::Framing;
use crate::metadata::Metadata;
use crate::protocol::{ClientProtocol, Put, RequestTerms};
use crate::timeout;

const USER_AGENT: &[u8] = concat!("quire-grpc/", env!("CARGO_PKG_VERSION")).as_bytes();

/// A request's head.
pub(super) struct RequestHead<'a> {
    form: &'a Form,
    path: &'a Path,
    target: &'a Target,
    pub(super) terms: RequestTerms<'a>,
    protocol: &'a dyn ClientProtocol,
    metadata: &'a Metadata,
}

impl<'a> RequestHead<'a> {
    pub(super) fn new(start: &'a Start, target: &'a Target, accepted: &'a str, timeout: Option<Duration>) -> Self {
        let terms = RequestTerms {
            codec: start.dialect.codec,
            encoding: encoding(start),
            accepted,
            timeout: timeout.map(timeout::told),
            is_get: start.is_get(),
        };
        let (form, path, protocol) = (&start.form, &*start.path, start.dialect.protocol);
        Self { form, path, target, terms, protocol, metadata: &start.metadata }
    }

    /// Cache slot for this request's header block, or `None` if it cannot be cached.
    pub(super) fn place(&self) -> Option<&'a Place> {
        match self.form {
            Form::Post if self.metadata.is_empty() => Some(self.path.place()),
            Form::Post | Form::OwnPost | Form::Get(_) => None,
            Form::Http(head) => head.place.as_deref(),
        }
    }

    pub(super) fn put(&self, put: Put<'_>) {
        let (method, path, once): (&[u8], _, _) = match self.form {
            Form::Post | Form::OwnPost => (b"POST", &*self.path.text, Indexing::Insert),
            Form::Get(target) => (b"GET", target.as_str(), Indexing::Literal),
            Form::Http(head) => return head.put(put),
        };
        put(b":method", method, Indexing::Insert);
        put(b":scheme", if self.target.is_https { b"https" } else { b"http" }, Indexing::Insert);
        put(b":path", path.as_bytes(), once);
        put(b":authority", self.target.authority.as_bytes(), Indexing::Insert);
        put(b"user-agent", USER_AGENT, Indexing::Insert);
        self.protocol.put_request(&self.terms, put);
        for field in self.metadata.wire() {
            let is_secret = matches!(field.name(), b"authorization" | b"cookie");
            put(field.name(), field.value(), if is_secret { Indexing::Never } else { Indexing::Literal });
        }
    }
}

/// Compression of the request's messages. For a body of one message, whether that message was compressed.
fn encoding(start: &Start) -> Option<Encoding> {
    start.compression.filter(|_| start.dialect.framing() != Framing::Whole || start.body.is_compressed())
}
