//! Record queries over HTTP: query strings in, domain calls, shared slices out. No rule and no limit lives here.

mod openapi;
mod request;

use std::convert::Infallible;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use bytes::Bytes;
use futures_util::stream;
use hosting::Site;
use serde::{Serialize, Serializer};

use crate::{
    encode::Format,
    fault::Fault,
    query::Selection,
    records::{CacheableAnswer, Records, Representation},
};
pub use request::{MATCHING_HEADER, ROWS_HEADER};

/// GET and HEAD on each path.
pub fn site(records: Records) -> Site {
    let pages = [
        ("/search", get(search), "records whose column headerKey is headerValue, as JSON"),
        ("/search_string", get(search_string), "the same as one string of text"),
    ];
    let described = records.clone();
    let part = move || openapi::part(described.names().as_deref(), described.settings().limits.answer_bytes);
    Site::new(records, pages).described(part)
}

async fn search(State(records): State<Records>, uri: Uri, headers: HeaderMap) -> Response {
    answer(&records, &uri, &headers, &OBJECT, "application/json").await
}

async fn search_string(State(records): State<Records>, uri: Uri, headers: HeaderMap) -> Response {
    answer(&records, &uri, &headers, &LINES, "text/plain; charset=utf-8").await
}

async fn answer(
    records: &Records,
    uri: &Uri,
    headers: &HeaderMap,
    representation: &'static Representation,
    content_type: &'static str,
) -> Response {
    let done = try_answer(records, uri, headers, representation, content_type).await;
    records.rest_answered(done.is_ok());
    done.unwrap_or_else(|fault| refusal(&fault))
}

async fn try_answer(
    records: &Records,
    uri: &Uri,
    headers: &HeaderMap,
    representation: &'static Representation,
    content_type: &'static str,
) -> Result<Response, Fault> {
    let query = request::read(uri.query().unwrap_or_default())?;
    let found = records.answer(query, representation).await?;
    let coding = request::coding(headers).filter(|_| records.packs(found.answer.len()));
    let tag = request::tag(&found.identity, coding);
    let counts = [found.answer.rows(), found.answer.matching()];
    let mut response = if request::is_known(headers, &tag) {
        // A Content-Length would have to be that of the 200 response (RFC 9110 section 8.6), so there is none.
        (StatusCode::NOT_MODIFIED, streamed(std::iter::empty())).into_response()
    } else {
        content(records, found, coding, content_type).await?
    };
    let head = response.headers_mut();
    head.insert(header::ETAG, value(&tag));
    head.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    head.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    for (name, count) in [ROWS_HEADER, MATCHING_HEADER].into_iter().zip(counts) {
        head.insert(name, count.into());
    }
    Ok(response)
}

async fn content(
    records: &Records,
    found: CacheableAnswer,
    coding: Option<crate::cache::Coding>,
    content_type: &'static str,
) -> Result<Response, Fault> {
    let (length, body) = match coding {
        None => (found.answer.len(), streamed(records.joined(found).await.answer.chunks())),
        Some(coding) => {
            let packed: Bytes = records.packed(found, coding).await?;
            (packed.len(), packed.into())
        }
    };
    let mut response = Response::new(body);
    let head = response.headers_mut();
    head.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    head.insert(header::CONTENT_LENGTH, length.into());
    if let Some(coding) = coding {
        head.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    }
    Ok(response)
}

/// A body that is sent piece by piece.
fn streamed(pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Body {
    Body::from_stream(stream::iter(pieces.map(Ok::<_, Infallible>)))
}

/// A value of visible ASCII, as ours are.
fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// An object with the reason as `error`.
fn refusal(fault: &Fault) -> Response {
    let status = match fault {
        Fault::NoFile | Fault::Busy { .. } | Fault::Overloaded { .. } => StatusCode::SERVICE_UNAVAILABLE,
        Fault::Invalid(_) | Fault::NoColumn { .. } => StatusCode::BAD_REQUEST,
        Fault::AnswerBytes { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        Fault::Late => StatusCode::GATEWAY_TIMEOUT,
        Fault::Failed => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let body = serde_json::json!({ "error": fault.to_string() }).to_string();
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
    match fault {
        Fault::Busy { .. } => drop(response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"))),
        Fault::Overloaded { retry_after } => {
            let whole_seconds = retry_after.as_millis().div_ceil(1000);
            let seconds = HeaderValue::from(u64::try_from(whole_seconds).unwrap_or(u64::MAX));
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        _ => {}
    }
    response
}

/// `{"records":[{"column":"value",…},…],"num_record":N,"num_matching":N}`.
static OBJECT: Representation =
    Representation { name: "object", format: Format::Json, head_and_tail: object_head_and_tail, encode: encode_object };

/// A line for each row.
static LINES: Representation = Representation {
    name: "lines",
    format: Format::Text,
    head_and_tail: |_, _, _| Default::default(),
    encode: |selection| lines(selection).into(),
};

fn object_head_and_tail(_: usize, rows: usize, matching: usize) -> (Bytes, Bytes) {
    let tail = format!("],\"num_record\":{rows},\"num_matching\":{matching}}}");
    (Bytes::from_static(b"{\"records\":["), tail.into())
}

#[derive(Serialize)]
struct Object<'a> {
    records: Rows<'a>,
    num_record: usize,
    num_matching: usize,
}

struct Rows<'a>(&'a Selection);

struct Row<'a>(&'a Selection, u32);

impl Serialize for Rows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.rows().iter().map(|row| Row(self.0, *row)))
    }
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let table = self.0.table();
        serializer.collect_map(table.names().zip(table.values(self.1)))
    }
}

fn encode_object(selection: &Selection) -> Vec<u8> {
    let object =
        Object { records: Rows(selection), num_record: selection.rows().len(), num_matching: selection.matching() };
    serde_json::to_vec(&object).expect("strings and numbers can be written")
}

/// The rows as lines of CSV.
pub(crate) fn lines(selection: &Selection) -> String {
    let table = selection.table();
    let mut lines = Vec::new();
    for row in selection.rows() {
        table.encoder().row(Format::Text, table.values(*row), &mut lines);
    }
    String::from_utf8(lines).expect("values are text, and so is what stands between them")
}
