//! The setting `server.cors_origins`: web pages of other origins that may call.

use axum::http::Uri;
use hosting::{Reader, Refused};

const KEY: &str = "server.cors_origins";

/// Expected form, for errors.
const WANT: &str = "`*` for every origin, or origins as a browser sends them, https://shop.example or http://localhost:5173, \
                    with commas between";

/// Reads the origins; empty if no other page may call.
pub(super) fn read(from: &mut Reader<'_>) -> Result<Vec<String>, Refused> {
    let origins = from.list(KEY)?;
    match origins.iter().find(|origin| *origin != "*" && !is_origin(origin)) {
        Some(wrong) => Err(from.refuse(KEY, wrong, WANT)),
        None => Ok(origins),
    }
}

/// True for a browser's `Origin`: scheme and host in lower case, a port unless it is the default one, no path.
fn is_origin(text: &str) -> bool {
    let Ok(uri) = text.parse::<Uri>() else { return false };
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return false };
    let is_usual_port = matches!((scheme, authority.port_u16()), ("http", Some(80)) | ("https", Some(443)));
    let host = authority.as_str();
    text == format!("{scheme}://{host}") && text == text.to_lowercase() && !host.contains('@') && !is_usual_port
}

#[cfg(test)]
mod tests {
    use super::is_origin;

    #[test]
    fn an_origin_is_what_a_browser_sends_and_nothing_longer() {
        for origin in ["https://shop.example", "http://localhost:5173", "http://[::1]:8080", "capacitor://localhost"] {
            assert!(is_origin(origin), "{origin}");
        }
        for wrong in [
            "",
            "shop.example",
            "https://",
            "https://shop.example/",
            "https://shop.example/page",
            "https://Shop.example",
            "https://shop.example:443",
            "http://localhost:80",
            "https://me@shop.example",
            "null",
        ] {
            assert!(!is_origin(wrong), "{wrong}");
        }
    }
}
