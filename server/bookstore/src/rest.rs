//! The signed log over HTTP, at the paths of <https://c2sp.org/tlog-tiles>. No rule and no limit lives here.

use axum::{
    extract::{Path, State},
    http::{HeaderName, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use hosting::Site;
use tlog::Tile;

use crate::{Bookstore, Fault};

/// Paths that need the scope of operators: an entry shows who changed something, and how much is sold.
const OPERATORS: &[&str] = &["/log/tile/entries/{*tile}"];

/// Caching of a tile: it never changes. Shared caches keep it unless a credential was sent (RFC 9111, section 3.5).
const FOR_EVER: &str = "max-age=31536000, immutable";

/// GET and HEAD on each path.
pub(crate) fn site(store: Bookstore) -> Site {
    let pages = [
        ("/log/checkpoint", get(checkpoint), "size and root of the log, signed"),
        ("/log/key", get(key), "the public key that signs them, to compare with the one that the shop publishes"),
        ("/log/tile/{*tile}", get(tile), "hashes of the log's tree, as c2sp.org/tlog-tiles has them"),
        (OPERATORS[0], get(entries), "entries of the log, 256 in a bundle; for operators"),
    ];
    let witnessed =
        ("/log/witnessed", get(witnessed), "the newest checkpoint that witnesses have signed, with their signatures");
    let witnessed = store.has_witnesses().then_some(witnessed);
    let mut site = Site::new(store, pages.into_iter().chain(witnessed));
    site.operators = OPERATORS.to_vec();
    site
}

async fn checkpoint(State(store): State<Bookstore>) -> Response {
    text(store.checkpoint().await)
}

async fn witnessed(State(store): State<Bookstore>) -> Response {
    text(store.cosigned_checkpoint())
}

async fn key(State(store): State<Bookstore>) -> Response {
    text(store.log_key().await.map(|key| format!("{key}\n")))
}

async fn tile(State(store): State<Bookstore>, Path(path): Path<String>) -> Response {
    let Some(tile) = Tile::parse(&path) else { return no_such_tile() };
    bytes(store.tile(tile).await)
}

async fn entries(State(store): State<Bookstore>, Path(path): Path<String>) -> Response {
    let Some(tile) = Tile::parse_at(0, &path) else { return no_such_tile() };
    bytes(store.entry_bundle(tile).await)
}

/// A text that changes as the log grows.
fn text(made: Result<String, Fault>) -> Response {
    match made {
        Ok(text) => {
            let fields = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")];
            (fields, text).into_response()
        }
        Err(fault) => refusal(&fault),
    }
}

fn bytes(read: Result<Option<Vec<u8>>, Fault>) -> Response {
    match read {
        Ok(Some(bytes)) => {
            let fields = [(header::CONTENT_TYPE, "application/octet-stream"), (header::CACHE_CONTROL, FOR_EVER)];
            (fields, bytes).into_response()
        }
        Ok(None) => no_such_tile(),
        Err(fault) => refusal(&fault),
    }
}

fn no_such_tile() -> Response {
    let text = "the log has no such tile; /log/checkpoint has its size\n";
    (StatusCode::NOT_FOUND, [NOT_KEPT], text).into_response()
}

/// The tile may be there later.
const NOT_KEPT: (HeaderName, &str) = (header::CACHE_CONTROL, "no-store");

fn refusal(fault: &Fault) -> Response {
    let status = match fault {
        Fault::Unsupported(_) => StatusCode::NOT_IMPLEMENTED,
        Fault::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut response = (status, [NOT_KEPT], format!("{fault}\n")).into_response();
    if let Some(after) = fault.retry_after() {
        let seconds = after.as_millis().div_ceil(1000).max(1);
        response.headers_mut().insert(header::RETRY_AFTER, u64::try_from(seconds).unwrap_or(u64::MAX).into());
    }
    response
}
