//! Heads of plain HTTP requests in HTTP/2 form.
//!
//! Implements: RFC 9113 sections 8.2.2 (connection-specific fields) and 8.3.1 (request pseudo-header fields).

use std::sync::Arc;

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING, UPGRADE};
use http::uri::Authority;
use quire_http2::{Field, Indexing};

use super::path::Place;
use crate::protocol::Put;

/// Connection-specific fields of HTTP/1.1.
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
    /// Cache slot of a repeated head: each connection keeps it encoded.
    pub(super) place: Option<Arc<Place>>,
    pub(super) is_bodiless: bool,
}

impl HttpHead {
    /// Head of a request whose body has a known length.
    pub(super) fn new(parts: &http::request::Parts, body_bytes: usize) -> Self {
        let is_bodiless = body_bytes == 0;
        let length = (!is_bodiless && !parts.headers.contains_key(CONTENT_LENGTH)).then(|| body_bytes.to_string());
        Self::of(parts, is_bodiless, length.map(|length| Field::new(b"content-length", length.as_bytes())))
    }

    /// Head of a request whose body length is unknown, unless a field gives it.
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
                // These fields differ between requests that are not repeated.
                _ if self.place.is_none() => Indexing::Literal,
                _ => Indexing::Insert,
            };
            put(name, value, indexing);
        }
    }
}
