//! The head of a plain HTTP request, as HTTP/2 has it.
//!
//! Must not know who sends it.
//!
//! Implements: RFC 9113 sections 8.2.2 (connection-specific fields) and 8.3.1 (request pseudo-header fields).

use std::sync::Arc;

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING, UPGRADE};
use http::uri::Authority;
use quire_http2::{Field, Indexing};

use super::path::Place;
use crate::protocol::Put;

/// Fields that belong to a connection of HTTP/1.1.
const FORBIDDEN: [HeaderName; 5] = [
    CONNECTION,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// The head of a request.
#[derive(Clone, Debug)]
pub(super) struct HttpHead {
    fields: Vec<Field>,
    /// Set if the head is sent again and again: each connection keeps it encoded.
    pub(super) place: Option<Arc<Place>>,
    pub(super) is_bodiless: bool,
}

impl HttpHead {
    /// A head with the length of a body that is there whole.
    pub(super) fn new(parts: &http::request::Parts, body_bytes: usize) -> Self {
        let is_bodiless = body_bytes == 0;
        let length = (!is_bodiless && !parts.headers.contains_key(CONTENT_LENGTH)).then(|| body_bytes.to_string());
        Self::of(parts, is_bodiless, length.map(|length| Field::new(b"content-length", length.as_bytes())))
    }

    /// A head before a body whose length is not known, unless one of the fields says it.
    #[cfg(feature = "tower")]
    pub(super) fn streamed(parts: &http::request::Parts, is_bodiless: bool) -> Self {
        Self::of(parts, is_bodiless, None)
    }

    fn of(parts: &http::request::Parts, is_bodiless: bool, length: Option<Field>) -> Self {
        let (uri, headers) = (&parts.uri, &parts.headers);
        let pseudo = [
            (":method", Some(parts.method.as_str())),
            (":scheme", uri.scheme_str()),
            (":path", Some(uri.path_and_query().map_or("/", |path| path.as_str()))),
            (":authority", uri.authority().map(Authority::as_str)),
        ];
        let pseudo = pseudo.iter().filter_map(|(name, value)| Some(Field::new(name.as_bytes(), (*value)?.as_bytes())));
        let regular = headers.iter().filter(|(name, _)| !FORBIDDEN.contains(name));
        let regular = regular.map(|(name, value)| Field::new(name.as_str().as_bytes(), value.as_bytes()));
        Self { fields: pseudo.chain(regular).chain(length).collect(), place: None, is_bodiless }
    }

    pub(super) fn put(&self, put: Put<'_>) {
        for field in &self.fields {
            let (name, value) = (field.name(), field.value());
            let indexing = match name {
                b"authorization" | b"cookie" => Indexing::Never,
                b":method" | b":scheme" | b":authority" => Indexing::Insert,
                // Of requests that differ, these are what differs.
                _ if self.place.is_none() => Indexing::Literal,
                _ => Indexing::Insert,
            };
            put(name, value, indexing);
        }
    }
}
