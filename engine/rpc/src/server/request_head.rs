//! Conversion of an `http` crate request head to this HTTP/2's.
//!
//! Implements: RFC 9113 section 8.2.2 (fields of a connection) and 8.3.1 (request pseudo-header fields).

use quire_http2::{Field, Head};

/// The request's head in HTTP/2 form; `None` if it cannot be a call's.
pub(super) fn of<B>(request: &http::Request<B>) -> Option<Head> {
    let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let host = || request.headers().get(http::header::HOST).map_or(&b""[..], http::HeaderValue::as_bytes);
    let authority = request.uri().authority().map_or_else(host, |authority| authority.as_str().as_bytes());
    let mut fields = vec![
        Field::new(b":method", request.method().as_str().as_bytes()),
        Field::new(b":scheme", request.uri().scheme_str().unwrap_or("http").as_bytes()),
        Field::new(b":authority", authority),
        Field::new(b":path", path.as_bytes()),
    ];
    for (name, value) in request.headers() {
        let belongs_to_connection = matches!(
            name.as_str(),
            "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade" | "te"
        );
        if !belongs_to_connection {
            fields.push(Field::new(name.as_str().as_bytes(), value.as_bytes()));
        }
    }
    Head::request(fields).ok()
}
