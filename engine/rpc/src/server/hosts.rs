//! Host allowlist against DNS rebinding: otherwise a page whose own name resolves to this server could read all that
//! the browser's machine can.
//!
//! Implements: RFC 9110 section 7.4 (rejecting misdirected requests), RFC 9112 section 3.2 (Host).

use std::sync::Arc;

use quire_http2::Head;

use super::http_calls::Unserved;

/// True if the server has this name or address, given without port.
type IsOurs = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Accepted hosts; all, if there is no check.
#[derive(Clone, Default)]
pub(super) struct Hosts(Option<IsOurs>);

impl Hosts {
    pub(super) fn new(is_ours: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_ours)))
    }

    fn is_ours(&self, authority: &[u8]) -> bool {
        let Some(is_ours) = &self.0 else { return true };
        std::str::from_utf8(authority).is_ok_and(|authority| is_ours(host(authority)))
    }

    /// True if an HTTP/2 request names another host. A request without one is not from a browser.
    pub(super) fn refuse(&self, head: &Head) -> bool {
        let named = [head.authority(), head.get(b"host").unwrap_or_default()];
        self.0.is_some() && !named.into_iter().all(|named| named.is_empty() || self.is_ours(named))
    }

    /// Error for an HTTP/1.1 request with no host, two, or another one.
    #[cfg(feature = "http1")]
    pub(super) fn check<B>(&self, request: &http::Request<B>) -> Result<(), Unserved> {
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
