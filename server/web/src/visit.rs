//! One request of a browser: its fields, and the form of its answer.

use std::{convert::Infallible, sync::Arc};

use askama::Template;
use axum::{
    body::Body,
    extract::{FromRequestParts, Request},
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use flate2::Compression;
use hosting::{Client, access::Admitted};
use quire_rpc::Peer;

use crate::{
    assets::{accepts_gzip, packed},
    keys::{COOKIE, Purchases},
    locale::Locale,
    request::{cookie, encoded, field, is_same_origin},
};

/// Name of the cookie with the token.
const TOKEN_COOKIE: &str = "quire-token";

/// Smaller pages are not worth compressing.
const PACKED_BYTES_MIN: usize = 2048;

/// Fields of the head of a page, and some to spare.
const HEAD_FIELDS: usize = 16;

/// A request without its body.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) peer: Arc<Peer>,
    pub(crate) admitted: Option<Admitted>,
    pub(crate) locale: Locale,
}

impl Visit {
    pub(crate) fn of(request: &Request) -> Self {
        Self::new(request.uri(), request.headers(), request.extensions())
    }

    fn new(uri: &Uri, headers: &HeaderMap, extensions: &axum::http::Extensions) -> Self {
        Self {
            uri: uri.clone(),
            headers: headers.clone(),
            peer: extensions.get::<Arc<Peer>>().cloned().unwrap_or_default(),
            admitted: extensions.get::<Admitted>().cloned(),
            locale: Locale::of(headers),
        }
    }

    /// The token of a program's header, or of a browser's cookie.
    pub(crate) fn token(&self) -> Option<Vec<u8>> {
        if let Some(sent) = self.headers.get(header::AUTHORIZATION) {
            let (scheme, token) = sent.as_bytes().split_at_checked(7)?;
            return scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii().to_vec());
        }
        let kept = cookie(&self.headers, TOKEN_COOKIE)?;
        field(format!("{TOKEN_COOKIE}={kept}").as_bytes(), TOKEN_COOKIE).map(String::into_bytes)
    }

    /// The client that shares of limits are counted by.
    pub(crate) fn client(&self) -> Client {
        match &self.admitted {
            Some(admitted) => Client::Credential(Arc::clone(admitted.name())),
            None => Client::at(self.peer.address.map(|address| address.ip())),
        }
    }

    pub(crate) fn is_same_origin(&self) -> bool {
        is_same_origin(&self.headers, &self.uri)
    }

    /// The purchases that the cookie lists.
    pub(crate) fn purchases(&self) -> Purchases {
        cookie(&self.headers, COOKIE).map(Purchases::parse).unwrap_or_default()
    }

    /// An answer with a page. It is compressed for other machines: to this one, it costs less to send than to compress.
    pub(crate) fn page(&self, status: StatusCode, page: &impl Template) -> Response {
        let Some(text) = rendered(page) else { return unmade() };
        let is_far = self.peer.address.is_some_and(|address| !address.ip().to_canonical().is_loopback());
        let is_packed = is_far && text.len() >= PACKED_BYTES_MIN && accepts_gzip(&self.headers);
        let body = if is_packed { packed(text.as_bytes(), Compression::fast()).into() } else { Body::from(text) };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let head = response.headers_mut();
        // With what every answer has; a map that grows moves its fields.
        head.reserve(HEAD_FIELDS);
        let mut set = |name, value| drop(head.insert(name, HeaderValue::from_static(value)));
        set(header::CONTENT_TYPE, "text/html; charset=utf-8");
        // The back button shows a form with the key that it had.
        set(header::CACHE_CONTROL, "private, no-cache");
        set(header::VARY, "accept, accept-encoding, accept-language, cookie");
        if is_packed {
            set(header::CONTENT_ENCODING, "gzip");
        }
        response
    }
}

impl<S: Sync> FromRequestParts<S> for Visit {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::new(&parts.uri, &parts.headers, &parts.extensions))
    }
}

/// The text of a page.
pub(crate) fn rendered(page: &impl Template) -> Option<String> {
    page.render().ok()
}

/// The answer in place of a page that cannot be made.
pub(crate) fn unmade() -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, "the page cannot be made\n").into_response()
}

/// Sets a cookie.
pub(crate) fn keep(response: &mut Response, cookie: &str) {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
}

pub(crate) fn secure(is_tls: bool) -> &'static str {
    if is_tls { "; Secure" } else { "" }
}

/// The cookie of a token, until the browser is closed.
pub(crate) fn token_cookie(token: &str, is_tls: bool) -> String {
    format!("{TOKEN_COOKIE}={}; Path=/; HttpOnly; SameSite=Lax{}", encoded(token), secure(is_tls))
}

/// The cookie of purchases, for a year.
pub(crate) fn purchases_cookie(purchases: &Purchases, is_tls: bool) -> String {
    format!("{COOKIE}={purchases}; Path=/shop; Max-Age=31536000; HttpOnly; SameSite=Lax{}", secure(is_tls))
}
