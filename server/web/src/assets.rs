//! Style, scripts and the mark: in the binary, compressed once, each under a name with a hash of its bytes.

use std::{io::Write as _, sync::LazyLock};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use twox_hash::XxHash3_64;

/// Folder of the assets' paths.
pub(crate) const FOLDER: &str = "/shop/assets/";

/// A file in the binary.
#[derive(Debug)]
pub(crate) struct Asset {
    /// Its path with the hash.
    pub(crate) path: String,
    kind: &'static str,
    plain: Bytes,
    packed: Bytes,
}

/// The files that pages link to.
#[derive(Debug)]
pub(crate) struct Assets {
    pub(crate) style: Asset,
    pub(crate) live: Asset,
    pub(crate) buy: Asset,
    pub(crate) search: Asset,
    pub(crate) mark: Asset,
    /// Style and script of the operator's room.
    pub(crate) room_style: Asset,
    pub(crate) room: Asset,
}

const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

static ASSETS: LazyLock<Assets> = LazyLock::new(|| Assets {
    style: Asset::new("style", "css", STYLE, include_bytes!("../assets/style.css")),
    live: Asset::new("live", "js", SCRIPT, include_bytes!("../assets/live.js")),
    buy: Asset::new("buy", "js", SCRIPT, include_bytes!("../assets/buy.js")),
    search: Asset::new("search", "js", SCRIPT, include_bytes!("../assets/search.js")),
    room_style: Asset::new("room", "css", STYLE, include_bytes!("../assets/room.css")),
    room: Asset::new("room", "js", SCRIPT, include_bytes!("../assets/room.js")),
    mark: Asset::new("mark", "svg", "image/svg+xml", include_bytes!("../assets/mark.svg")),
});

impl Asset {
    fn new(name: &str, suffix: &str, kind: &'static str, bytes: &'static [u8]) -> Self {
        let path = format!("{FOLDER}{name}-{:016x}.{suffix}", XxHash3_64::oneshot(bytes));
        Self { path, kind, plain: Bytes::from_static(bytes), packed: packed(bytes, Compression::best()) }
    }
}

/// Compresses with gzip.
pub(crate) fn packed(bytes: &[u8], level: Compression) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 3), level);
    // Writing to memory cannot fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default().into()
}

/// True if a client accepts gzip.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        parts.next() == Some("gzip") && parts.all(|weight| !["q=0", "q=0.0", "q=0.00", "q=0.000"].contains(&weight))
    })
}

impl Assets {
    /// The files.
    pub(crate) fn get() -> &'static Self {
        &ASSETS
    }

    /// The file at a path; `None` if there is none, or one of another version.
    pub(crate) fn answer(path: &str, headers: &HeaderMap) -> Option<Response> {
        let Self { style, live, buy, search, mark, room_style, room } = Self::get();
        let asset = [style, live, buy, search, mark, room_style, room].into_iter().find(|asset| asset.path == path)?;
        let is_packed = accepts_gzip(headers);
        let body = Body::from(if is_packed { asset.packed.clone() } else { asset.plain.clone() });
        let mut response = (StatusCode::OK, body).into_response();
        let head = response.headers_mut();
        head.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.kind));
        head.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
        head.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        if is_packed {
            head.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        Some(response)
    }
}
