//! Which web pages may call from a browser.
//!
//! Must not know calls.
//!
//! Implements: the Fetch standard, "CORS protocol", without credentials.

use quire_http2::{Field, Head, Indexing};

use crate::protocol::Put;

/// How long a browser keeps the answer to a preflight, in seconds; Chromium's bound.
const MAX_AGE: &[u8] = b"7200";

/// The origins whose pages may call the server; none by default.
#[derive(Clone, Debug, Default)]
pub struct Cors {
    origins: Vec<String>,
}

impl Cors {
    /// Pages of these origins, as `https://shop.example`; `*` stands for any.
    pub fn origins(origins: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { origins: origins.into_iter().map(Into::into).collect() }
    }

    /// The request's origin, if its pages may call.
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

/// Whether the request asks if another may be sent.
pub(super) fn is_preflight(head: &Head) -> bool {
    head.method() == b"OPTIONS" && head.get(b"access-control-request-method").is_some()
}

/// Puts what lets a page read an answer.
pub(super) fn put_allowed(origin: &Field, put: Put<'_>) {
    put(b"access-control-allow-origin", origin.value(), Indexing::Insert);
    put(b"access-control-expose-headers", b"*", Indexing::Insert);
    put(b"vary", b"origin", Indexing::Insert);
}

/// Puts what lets a browser send the request that it asks for.
pub(super) fn put_preflight(origin: &Field, head: &Head, put: Put<'_>) {
    put_allowed(origin, put);
    put(b"access-control-allow-methods", b"GET, POST", Indexing::Insert);
    let names = head.get(b"access-control-request-headers").unwrap_or(b"content-type");
    put(b"access-control-allow-headers", names, Indexing::Literal);
    put(b"access-control-max-age", MAX_AGE, Indexing::Insert);
}
