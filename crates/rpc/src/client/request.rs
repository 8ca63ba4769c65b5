//! What a call's request says in its head.
//!
//! Must not know connections.
//!
//! Implements: RFC 9113 section 8.3.1 (request pseudo-header fields).

use std::time::Duration;

use quire_http2::Indexing;

use super::command::Start;
use super::target::Target;
use crate::compression::Encoding;
use crate::message::PREFIX_BYTES;
use crate::metadata::Metadata;
use crate::protocol::{ClientProtocol, Framing, Put, RequestTerms};

const USER_AGENT: &[u8] = concat!("quire-grpc/", env!("CARGO_PKG_VERSION")).as_bytes();

/// A request's head.
pub(super) struct RequestHead<'a> {
    pub(super) path: &'a str,
    pub(super) target: &'a Target,
    pub(super) terms: RequestTerms<'a>,
    pub(super) protocol: &'a dyn ClientProtocol,
    pub(super) metadata: &'a Metadata,
}

impl<'a> RequestHead<'a> {
    pub(super) fn new(start: &'a Start, target: &'a Target, accepted: &'a str, timeout: Option<Duration>) -> Self {
        let terms = RequestTerms {
            codec: start.dialect.codec,
            encoding: encoding(start),
            accepted,
            timeout,
            is_get: start.get_target.is_some(),
        };
        let path = start.get_target.as_deref().unwrap_or(start.path.text);
        Self { path, target, terms, protocol: start.dialect.protocol, metadata: &start.metadata }
    }

    /// Whether every request to this path with this compression has the same head.
    pub(super) fn is_usual(&self) -> bool {
        self.metadata.is_empty() && self.terms.timeout.is_none() && !self.terms.is_get
    }

    pub(super) fn put(&self, put: Put<'_>) {
        put(b":method", if self.terms.is_get { b"GET" } else { b"POST" }, Indexing::Insert);
        put(b":scheme", if self.target.is_https { b"https" } else { b"http" }, Indexing::Insert);
        let once = if self.terms.is_get { Indexing::Literal } else { Indexing::Insert };
        put(b":path", self.path.as_bytes(), once);
        put(b":authority", self.target.authority.as_bytes(), Indexing::Insert);
        put(b"user-agent", USER_AGENT, Indexing::Insert);
        self.protocol.put_request(&self.terms, put);
        for field in self.metadata.wire() {
            let is_secret = matches!(field.name(), b"authorization" | b"cookie");
            put(field.name(), field.value(), if is_secret { Indexing::Never } else { Indexing::Literal });
        }
    }
}

/// How the request's messages are compressed. If the body is one message, it is what was done to that message.
fn encoding(start: &Start) -> Option<Encoding> {
    start.compression.filter(|_| start.dialect.framing() != Framing::Whole || start.body.is_compressed())
}

/// Where the bytes to send begin in a message that stands behind its prefix.
pub(super) fn body_start(framing: Framing) -> usize {
    if framing == Framing::Whole { PREFIX_BYTES } else { 0 }
}
