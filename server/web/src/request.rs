//! Parts of a request: query and form fields, cookies, and the origin of a form.

use axum::http::{HeaderMap, Uri, header};

/// The first value of a field in a query or a form.
pub(crate) fn field(encoded: &[u8], name: &str) -> Option<String> {
    form_urlencoded::parse(encoded).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// The first value of a field in the query.
pub(crate) fn query(uri: &Uri, name: &str) -> Option<String> {
    field(uri.query()?.as_bytes(), name)
}

/// Text as a value in a query.
pub(crate) fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// The value of a cookie.
pub(crate) fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let fields = headers.get_all(header::COOKIE).iter().filter_map(|field| field.to_str().ok());
    fields.flat_map(|field| field.split(';')).find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

/// True unless a browser sends the form from another site's page. Browsers name the form's site in `Sec-Fetch-Site` or
/// `Origin`; a request without either is not a page's.
pub(crate) fn is_same_origin(headers: &HeaderMap, uri: &Uri) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    if let Some(site) = text("sec-fetch-site") {
        return site == "same-origin";
    }
    let Some(origin) = text("origin") else { return true };
    // HTTP/2 has the host in the URI.
    let host = uri.authority().map(axum::http::uri::Authority::as_str).or_else(|| text("host"));
    let named = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    named.is_some() && named == host
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};

    use super::{cookie, encoded, field, is_same_origin};

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        fields.iter().map(pair).collect()
    }

    #[test]
    fn a_form_of_another_site_is_known_by_what_browsers_send() {
        let uri = Uri::from_static("/shop/buy");
        let host = ("host", "shop.example:81");
        for (fields, is_own) in [
            (&[host][..], true),
            (&[host, ("sec-fetch-site", "same-origin")], true),
            (&[host, ("sec-fetch-site", "same-site")], false),
            (&[host, ("sec-fetch-site", "cross-site")], false),
            (&[host, ("sec-fetch-site", "none")], false),
            (&[host, ("origin", "http://shop.example:81")], true),
            (&[host, ("origin", "https://shop.example:81")], true),
            (&[host, ("origin", "http://shop.example")], false),
            (&[host, ("origin", "http://evil.example")], false),
            (&[host, ("origin", "null")], false),
            (&[("origin", "null")], false),
        ] {
            assert_eq!(is_same_origin(&headers(fields), &uri), is_own, "{fields:?}");
        }
        let second = Uri::from_static("https://shop.example/shop/buy");
        assert!(is_same_origin(&headers(&[("origin", "https://shop.example")]), &second));
    }

    #[test]
    fn fields_and_cookies_are_found_by_their_whole_name() {
        assert_eq!(field(b"book=7&key=a%3Ab+c&key=d", "key").as_deref(), Some("a:b c"));
        assert_eq!(field(b"books=7", "book"), None);
        let sent = headers(&[("cookie", "a=1; quire=x=y;quire-b=2")]);
        assert_eq!(
            (cookie(&sent, "quire"), cookie(&sent, "quire-b"), cookie(&sent, "b")),
            (Some("x=y"), Some("2"), None)
        );
        let topic = "a&b/c ü+?#";
        assert_eq!(field(format!("topic={}", encoded(topic)).as_bytes(), "topic").as_deref(), Some(topic));
    }
}
