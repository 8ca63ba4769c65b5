//! Protection against web pages: the origins whose pages may call, with their CORS headers, and the accepted hosts.
//!
//! The hosts protect against DNS rebinding: otherwise a page whose own name resolves to this server could read all that
//! the browser's machine can.
//!
//! Implements: the Fetch standard, "CORS protocol", without credentials; RFC 9110 section 7.4 (rejecting misdirected
//! requests); RFC 9112 section 3.2 (Host).

use std::sync::Arc;

use quire_http2::{Field, Head, Indexing};

use super::reply::plain_http::Unserved;
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
    pub(crate) fn allowed<'a>(&self, head: &'a Head) -> Option<&'a Field> {
        if self.origins.is_empty() { None } else { self.find(head) }
    }

    fn find<'a>(&self, head: &'a Head) -> Option<&'a Field> {
        let field = head.fields().iter().find(|field| field.name() == b"origin")?;
        let is_allowed = self.origins.iter().any(|origin| origin == "*" || origin.as_bytes() == field.value());
        is_allowed.then_some(field)
    }
}

/// True for a preflight request.
pub(crate) fn is_preflight(head: &Head) -> bool {
    head.method() == b"OPTIONS" && head.get(b"access-control-request-method").is_some()
}

/// Writes the headers that let a page read the answer.
pub(crate) fn put_allowed(origin: &Field, put: Put<'_>) {
    put(b"access-control-allow-origin", origin.value(), Indexing::Insert);
    put(b"access-control-expose-headers", b"*", Indexing::Insert);
    put(b"vary", b"origin", Indexing::Insert);
}

/// Writes the headers that permit the preflighted request.
pub(crate) fn put_preflight(origin: &Field, head: &Head, put: Put<'_>) {
    put_allowed(origin, put);
    put(b"access-control-allow-methods", b"GET, POST", Indexing::Insert);
    let names = head.get(b"access-control-request-headers").unwrap_or(b"content-type");
    put(b"access-control-allow-headers", names, Indexing::Literal);
    put(b"access-control-max-age", MAX_AGE, Indexing::Insert);
}

/// True if the server has this name or address, given without port.
type IsOurs = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Accepted hosts; all, if there is no check.
#[derive(Clone, Default)]
pub(crate) struct Hosts(Option<IsOurs>);

impl Hosts {
    pub(crate) fn new(is_ours: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_ours)))
    }

    fn is_ours(&self, authority: &[u8]) -> bool {
        let Some(is_ours) = &self.0 else { return true };
        std::str::from_utf8(authority).is_ok_and(|authority| is_ours(host(authority)))
    }

    /// True if an HTTP/2 request names another host. A request without one is not from a browser.
    pub(crate) fn refuse(&self, head: &Head) -> bool {
        let named = [head.authority(), head.get(b"host").unwrap_or_default()];
        self.0.is_some() && !named.into_iter().all(|named| named.is_empty() || self.is_ours(named))
    }

    /// Error for an HTTP/1.1 request with no host, two, or another one.
    #[cfg(feature = "http1")]
    pub(crate) fn check<B>(&self, request: &http::Request<B>) -> Result<(), Unserved> {
        let mut named = request.headers().get_all(http::header::HOST).iter();
        let (first, second) = (named.next(), named.next());
        if second.is_some() || (first.is_none() && request.version() == http::Version::HTTP_11) {
            return Err(Unserved::Host);
        }
        let absolute = request.uri().authority().map(|authority| authority.as_str().as_bytes());
        let named = [first.map(http::HeaderValue::as_bytes), absolute];
        let is_ours = named.into_iter().flatten().all(|named| self.is_ours(named));
        if is_ours { Ok(()) } else { Err(Unserved::Misdirected) }
    }
}

/// The authority without its port.
fn host(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::host;

    #[test]
    fn a_port_is_no_part_of_a_host() {
        for (authority, wanted) in
            [("a", "a"), ("a:80", "a"), ("[::1]", "[::1]"), ("[::1]:80", "[::1]"), ("a:", "a"), ("", "")]
        {
            assert_eq!(host(authority), wanted);
        }
    }
}
