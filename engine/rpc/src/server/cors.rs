//! Allowlist of web page origins, and its CORS headers.
//!
//! Implements: the Fetch standard, "CORS protocol", without credentials.

use quire_http2::{Field, Head, Indexing};

use crate::protocol::Put;

/// Seconds for which a browser caches a preflight answer; Chromium's maximum.
const MAX_AGE: &[u8] = b"7200";

/// The origins whose pages may call the server; none by default.
#[derive(Clone, Debug, Default)]
pub struct Cors {
    origins: Vec<String>,
}

impl Cors {
    /// Allows pages of these origins, as `https://shop.example`; `*` is any.
    pub fn origins(origins: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { origins: origins.into_iter().map(Into::into).collect() }
    }

    /// The request's origin, if allowed.
    #[inline]
    pub(super) fn allowed<'a>(&self, head: &'a Head) -> Option<&'a Field> {
        if self.origins.is_empty() { None } else { self.find(head) }
    }

    fn find<'a>(&self, head: &'a Head) -> Option<&'a Field> {
        let field = head.fields().iter().find(|field| field.name() == b"origin")?;
        let is_allowed = self.origins.iter().any(|origin| origin == "*" || origin.as_bytes() == field.value());
        is_allowed.then_some(field)
    }
}

/// True for a preflight request.
pub(super) fn is_preflight(head: &Head) -> bool {
    head.method() == b"OPTIONS" && head.get(b"access-control-request-method").is_some()
}

/// Writes the headers that let a page read the answer.
pub(super) fn put_allowed(origin: &Field, put: Put<'_>) {
    put(b"access-control-allow-origin", origin.value(), Indexing::Insert);
    put(b"access-control-expose-headers", b"*", Indexing::Insert);
    put(b"vary", b"origin", Indexing::Insert);
}

/// Writes the headers that permit the preflighted request.
pub(super) fn put_preflight(origin: &Field, head: &Head, put: Put<'_>) {
    put_allowed(origin, put);
    put(b"access-control-allow-methods", b"GET, POST", Indexing::Insert);
    let names = head.get(b"access-control-request-headers").unwrap_or(b"content-type");
    put(b"access-control-allow-headers", names, Indexing::Literal);
    put(b"access-control-max-age", MAX_AGE, Indexing::Insert);
}
