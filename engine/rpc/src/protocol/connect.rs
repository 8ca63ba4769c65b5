//! The Connect protocol (connectrpc.com/docs/protocol): unary calls as plain POST or GET, streams of envelopes, the
//! last with the outcome of the call.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use prost::Message;
use prost_types::Any;
use quire_http2::{Field, Head, Indexing};
use serde_json::{Map, Value, json};

use super::client::{AnswerHead, ClientProtocol, Codec, Put, RequestTerms, answer_encoding, check_content_type};
use super::server::{Ending, Protocol, Terms, accepts, encoding};
use crate::message::compression::{ACCEPTED, Encoding};
use crate::message::framing::{self, Framing};
use crate::metadata::Metadata;
use crate::status::{Code, Details, Reach, Status};

/// Flag of the envelope that ends a stream.
const END_FLAG: u8 = 2;
/// End of nearly every stream.
const PLAIN_SUCCESS: &[u8] = b"\x02\x00\x00\x00\x02{}";
/// Longest value of `connect-timeout-ms`.
const TIMEOUT_DIGITS_MAX: usize = 10;
const TIMEOUT_MS_MAX: u128 = 9_999_999_999;
/// Prefix of a unary response's trailers, which are sent in its head.
const TRAILER: &[u8] = b"trailer-";
/// Accepted encodings in the protocol's form: without `identity`, unless it is the only one.
pub(super) fn accepted() -> &'static str {
    ACCEPTED.strip_prefix("identity,").unwrap_or(&ACCEPTED)
}

pub(super) const UNPADDED: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent);
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(&STANDARD, UNPADDED);

/// Calls with one message each way.
pub(super) struct Unary;

/// Calls with a stream in either direction.
pub(super) struct Streamed;

pub(super) fn timeout(head: &Head) -> Result<Option<Duration>, Status> {
    let Some(value) = head.get(b"connect-timeout-ms") else { return Ok(None) };
    let text = std::str::from_utf8(value).unwrap_or_default();
    let digits = text.len() <= TIMEOUT_DIGITS_MAX && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| digits);
    number.map(|number| Some(Duration::from_millis(number))).ok_or_else(|| {
        Status::invalid_argument(format!("connect-timeout-ms is `{text}`: send milliseconds in ten digits at most"))
    })
}

pub(super) fn check_version(version: Option<&[u8]>, expected: &str) -> Result<(), Status> {
    match version {
        Some(version) if version != expected.as_bytes() => {
            let version = version.escape_ascii();
            Err(Status::invalid_argument(format!("Connect's version is `{version}`: this server speaks {expected}")))
        }
        _ => Ok(()),
    }
}

fn terms(head: &Head, sent: &str, accepted: &str) -> Result<Terms, Status> {
    check_version(head.get(b"connect-protocol-version"), "1")?;
    Ok(Terms {
        timeout: timeout(head)?,
        encoding: encoding(head, sent, self::accepted())?,
        accepted: accepts(head, accepted),
    })
}

fn unary_type(codec: Codec) -> &'static [u8] {
    match codec {
        Codec::Proto => b"application/proto",
        Codec::Json => b"application/json",
    }
}

fn stream_type(codec: Codec) -> &'static [u8] {
    match codec {
        Codec::Proto => b"application/connect+proto",
        Codec::Json => b"application/connect+json",
    }
}

impl Protocol for Unary {
    fn name(&self) -> &'static str {
        "Connect"
    }

    fn framing(&self) -> Framing {
        Framing::Complete
    }

    fn terms(&self, head: &Head) -> Result<Terms, Status> {
        terms(head, "content-encoding", "accept-encoding")
    }

    fn put_head(&self, codec: Codec, encoding: Option<Encoding>, put: Put<'_>) {
        put(b":status", b"200", Indexing::Insert);
        put(b"content-type", unary_type(codec), Indexing::Insert);
        if let Some(encoding) = encoding {
            put(b"content-encoding", encoding.name().as_bytes(), Indexing::Insert);
        }
    }

    fn end(&self, outcome: Result<&Metadata, &Status>) -> Ending {
        match outcome {
            Ok(_) => Ending::Nothing,
            Err(status) => {
                let body = Value::Object(error(status)).to_string().into_bytes();
                Ending::Instead { http_status: status.code().http_status(), body }
            }
        }
    }
}

impl Protocol for Streamed {
    fn name(&self) -> &'static str {
        "Connect stream"
    }

    fn framing(&self) -> Framing {
        Framing::Envelopes
    }

    fn terms(&self, head: &Head) -> Result<Terms, Status> {
        terms(head, "connect-content-encoding", "connect-accept-encoding")
    }

    fn put_head(&self, codec: Codec, encoding: Option<Encoding>, put: Put<'_>) {
        put(b":status", b"200", Indexing::Insert);
        put(b"content-type", stream_type(codec), Indexing::Insert);
        if let Some(encoding) = encoding {
            put(b"connect-content-encoding", encoding.name().as_bytes(), Indexing::Insert);
        }
    }

    fn end(&self, outcome: Result<&Metadata, &Status>) -> Ending {
        let (metadata, failure) = match outcome {
            Ok(metadata) if metadata.is_empty() => return Ending::Body(PLAIN_SUCCESS.into()),
            Ok(metadata) => (metadata, None),
            Err(status) => (status.metadata(), Some(error(status))),
        };
        let mut end = Map::new();
        if let Some(failure) = failure {
            end.insert("error".to_owned(), Value::Object(failure));
        }
        let mut entries: Map<String, Value> = Map::new();
        for (name, value) in metadata.iter() {
            let values = entries.entry(name).or_insert_with(|| json!([]));
            if let Value::Array(values) = values {
                values.push(value.into());
            }
        }
        if !entries.is_empty() {
            end.insert("metadata".to_owned(), Value::Object(entries));
        }
        let mut out = framing::prefix(0, false).to_vec();
        out.extend_from_slice(Value::Object(end).to_string().as_bytes());
        framing::seal(&mut out, 0, None);
        out[0] = END_FLAG;
        Ending::Body(out.into())
    }
}

/// A status as JSON, for "Error End-Stream" and error bodies.
fn error(status: &Status) -> Map<String, Value> {
    let mut error = Map::new();
    error.insert("code".to_owned(), status.code().connect_name().into());
    if !status.message().is_empty() {
        error.insert("message".to_owned(), status.message().into());
    }
    let details = Details::decode(status.details()).unwrap_or_default().details;
    if !details.is_empty() {
        let details = details.iter().map(|detail| {
            let name = detail.type_url.rsplit('/').next().unwrap_or_default();
            json!({ "type": name, "value": BASE64.encode(&detail.value) })
        });
        error.insert("details".to_owned(), details.collect());
    }
    error
}

fn code_of(name: &str) -> Option<Code> {
    Code::ALL.into_iter().find(|code| *code != Code::Ok && code.connect_name() == name)
}

/// Puts `connect-timeout-ms`, rounded up to be no sooner than the caller's deadline, as far as ten digits allow.
fn put_timeout(timeout: Option<Duration>, put: Put<'_>) {
    if let Some(timeout) = timeout {
        let millis = timeout.as_nanos().div_ceil(1_000_000).min(TIMEOUT_MS_MAX);
        put(b"connect-timeout-ms", millis.to_string().as_bytes(), Indexing::Literal);
    }
}

fn put_request(content_type: &[u8], terms: &RequestTerms<'_>, [encoding, accepted]: [&[u8]; 2], put: Put<'_>) {
    if !terms.is_get {
        put(b"content-type", content_type, Indexing::Insert);
        put(b"connect-protocol-version", b"1", Indexing::Insert);
        if let Some(name) = terms.encoding {
            put(encoding, name.name().as_bytes(), Indexing::Insert);
        }
    }
    put(accepted, terms.accepted.strip_prefix("identity,").unwrap_or(terms.accepted).as_bytes(), Indexing::Insert);
    put_timeout(terms.timeout, put);
}

/// Status from an error in JSON; without a code there, the HTTP status decides.
fn read_error(error: &Value, http_status: u16) -> Status {
    let from_http = Status::from_http(http_status);
    let code = error.get("code").and_then(Value::as_str).and_then(code_of).unwrap_or(from_http.code());
    let Some(error) = error.as_object() else { return from_http };
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut details = Vec::new();
    for detail in error.get("details").and_then(Value::as_array).into_iter().flatten() {
        let text = |name| detail.get(name).and_then(Value::as_str);
        let (Some(name), Some(value)) = (text("type"), text("value")) else { continue };
        let Ok(value) = BASE64.decode(value) else { continue };
        details.push(Any { type_url: format!("type.googleapis.com/{name}"), value });
    }
    let encoded = if details.is_empty() {
        Vec::new()
    } else {
        Details { code: code as i32, message: message.clone(), details }.encode_to_vec()
    };
    Status::with_details(code, message, encoded.into()).with_reach(Reach::Answered)
}

impl ClientProtocol for Unary {
    fn framing(&self) -> Framing {
        Framing::Complete
    }

    fn put_request(&self, terms: &RequestTerms<'_>, put: Put<'_>) {
        put_request(unary_type(terms.codec), terms, [b"content-encoding", b"accept-encoding"], put);
    }

    fn begin(&self, codec: Codec, head: &Head) -> AnswerHead {
        let encoding = answer_encoding(head, b"content-encoding");
        let is_failure = head.status_code() != Some(200);
        let checked = match codec {
            _ if is_failure => check_content_type(head, "application/", &["application/json"]),
            Codec::Proto => check_content_type(head, "application/", &["application/proto"]),
            Codec::Json => check_content_type(head, "application/", &["application/json"]),
        };
        match checked.and(encoding) {
            Ok(encoding) if is_failure => AnswerHead::Failure(encoding),
            Ok(encoding) => AnswerHead::Messages(encoding),
            Err(_) if is_failure => AnswerHead::Refused(Status::from_http(head.status_code().unwrap_or(0))),
            Err(status) => AnswerHead::Refused(status),
        }
    }

    fn metadata(&self, head: &Arc<Head>) -> Metadata {
        let has_trailers = head.fields().iter().any(|field| field.name().starts_with(TRAILER));
        if !has_trailers {
            return Metadata::received(Arc::clone(head));
        }
        Metadata::of(head.fields().iter().filter(|field| !field.name().starts_with(TRAILER)).cloned())
    }

    fn failure(&self, head: &Arc<Head>, body: &[u8]) -> Status {
        let error = serde_json::from_slice(body).unwrap_or(Value::Null);
        let mut status = read_error(&error, head.status_code().unwrap_or(0));
        *status.metadata_mut() = trailers_of(head);
        status
    }

    fn end(&self, head: &Arc<Head>, _: Option<&Arc<Head>>, _: bool) -> Result<Metadata, Status> {
        Ok(trailers_of(head))
    }
}

/// The trailers among the fields.
fn trailers_of(head: &Head) -> Metadata {
    Metadata::of(head.fields().iter().filter_map(|field| {
        let name = field.name().strip_prefix(TRAILER)?;
        Some(Field::new(name, field.value()))
    }))
}

impl ClientProtocol for Streamed {
    fn framing(&self) -> Framing {
        Framing::Envelopes
    }

    fn end_flag(&self) -> u8 {
        END_FLAG
    }

    fn put_request(&self, terms: &RequestTerms<'_>, put: Put<'_>) {
        put_request(stream_type(terms.codec), terms, [b"connect-content-encoding", b"connect-accept-encoding"], put);
    }

    fn begin(&self, codec: Codec, head: &Head) -> AnswerHead {
        if head.status_code() != Some(200) {
            return AnswerHead::Refused(Status::from_http(head.status_code().unwrap_or(0)));
        }
        let expected = match codec {
            Codec::Proto => "application/connect+proto",
            Codec::Json => "application/connect+json",
        };
        let checked = check_content_type(head, "application/connect+", &[expected]);
        match checked.and_then(|()| answer_encoding(head, b"connect-content-encoding")) {
            Ok(encoding) => AnswerHead::Messages(encoding),
            Err(status) => AnswerHead::Refused(status),
        }
    }

    fn read_end(&self, envelope: &[u8]) -> Result<Metadata, Status> {
        let end: Value = serde_json::from_slice(envelope)
            .map_err(|error| Status::internal(format!("the end of the stream is no JSON: {error}")))?;
        let entries = end.get("metadata").and_then(Value::as_object);
        let metadata = Metadata::of(entries.into_iter().flatten().flat_map(|(name, values)| {
            let name = name.to_ascii_lowercase();
            let values = values.as_array().map_or(&[][..], Vec::as_slice).iter().filter_map(Value::as_str);
            values.map(move |value| Field::new(name.as_bytes(), value.as_bytes())).collect::<Vec<_>>()
        }));
        match end.get("error").filter(|error| !error.is_null()) {
            None => Ok(metadata),
            Some(error) => {
                let mut status = read_error(error, 200);
                *status.metadata_mut() = metadata;
                Err(status)
            }
        }
    }

    fn end(&self, _: &Arc<Head>, _: Option<&Arc<Head>>, _: bool) -> Result<Metadata, Status> {
        Err(Status::internal("the answer ends without the envelope that says how the call ended"))
    }
}
