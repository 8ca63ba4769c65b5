//! The Connect protocol (connectrpc.com/docs/protocol): unary calls as plain POST or GET, streams in envelopes whose last
//! one tells how the call ended.

use std::time::Duration;

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use prost::Message;
use quire_http2::{Head, Indexing};
use serde_json::{Map, Value, json};

use super::{Codec, Dialect, Ending, Framing, Protocol, Put, Terms, accepts, encoding};
use crate::compression::Encoding;
use crate::details::Details;
use crate::message;
use crate::metadata::Metadata;
use crate::status::{Code, Status};

/// Marks the envelope that ends a stream.
const END_FLAG: u8 = 2;
/// What `connect-timeout-ms` may have.
const TIMEOUT_DIGITS_MAX: usize = 10;
/// The encodings that are read, as the fields that accept some say it.
const ACCEPTED: &str = "gzip,zstd";

const UNPADDED: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent);
const BASE64: GeneralPurpose = GeneralPurpose::new(&STANDARD, UNPADDED);
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, UNPADDED);

/// A call with one message each way.
pub(super) struct Unary;

/// A call with a stream either way.
pub(super) struct Streamed;

fn timeout(head: &Head) -> Result<Option<Duration>, Status> {
    let Some(value) = head.get(b"connect-timeout-ms") else { return Ok(None) };
    let text = std::str::from_utf8(value).unwrap_or_default();
    let digits = text.len() <= TIMEOUT_DIGITS_MAX && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| digits);
    number.map(|number| Some(Duration::from_millis(number))).ok_or_else(|| {
        Status::invalid_argument(format!("connect-timeout-ms is `{text}`: send milliseconds in ten digits at most"))
    })
}

fn check_version(version: Option<&[u8]>, expected: &str) -> Result<(), Status> {
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
    Ok(Terms { timeout: timeout(head)?, encoding: encoding(head, sent, ACCEPTED)?, accepted: accepts(head, accepted) })
}

impl Protocol for Unary {
    fn framing(&self) -> Framing {
        Framing::Whole
    }

    fn terms(&self, head: &Head) -> Result<Terms, Status> {
        terms(head, "content-encoding", "accept-encoding")
    }

    fn put_head(&self, codec: Codec, encoding: Option<Encoding>, put: Put<'_>) {
        put(b":status", b"200", Indexing::Insert);
        let content_type = match codec {
            Codec::Proto => &b"application/proto"[..],
            Codec::Json => b"application/json",
        };
        put(b"content-type", content_type, Indexing::Insert);
        if let Some(encoding) = encoding {
            put(b"content-encoding", encoding.name().as_bytes(), Indexing::Insert);
        }
    }

    fn end(&self, outcome: Result<&Metadata, &Status>) -> Ending {
        match outcome {
            Ok(_) => Ending::Nothing,
            Err(status) => {
                let body = Value::Object(error(status)).to_string().into_bytes();
                Ending::Instead { http_status: http_status(status.code()), body }
            }
        }
    }
}

impl Protocol for Streamed {
    fn framing(&self) -> Framing {
        Framing::Envelopes
    }

    fn terms(&self, head: &Head) -> Result<Terms, Status> {
        terms(head, "connect-content-encoding", "connect-accept-encoding")
    }

    fn put_head(&self, codec: Codec, encoding: Option<Encoding>, put: Put<'_>) {
        put(b":status", b"200", Indexing::Insert);
        let content_type = match codec {
            Codec::Proto => &b"application/connect+proto"[..],
            Codec::Json => b"application/connect+json",
        };
        put(b"content-type", content_type, Indexing::Insert);
        if let Some(encoding) = encoding {
            put(b"connect-content-encoding", encoding.name().as_bytes(), Indexing::Insert);
        }
    }

    fn end(&self, outcome: Result<&Metadata, &Status>) -> Ending {
        let (metadata, failure) = match outcome {
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
        let mut out = message::prefix(0, false).to_vec();
        out.extend_from_slice(Value::Object(end).to_string().as_bytes());
        message::seal(&mut out, 0, None);
        out[0] = END_FLAG;
        Ending::Body(out)
    }
}

/// A status as the protocol's "Error End-Stream" and error bodies have it.
fn error(status: &Status) -> Map<String, Value> {
    let mut error = Map::new();
    error.insert("code".to_owned(), code_name(status.code()).into());
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

/// As gRPC's names, in lower case, and with one `l` in `canceled`.
fn code_name(code: Code) -> String {
    match code {
        Code::Cancelled => "canceled".to_owned(),
        _ => code.name().to_ascii_lowercase(),
    }
}

fn http_status(code: Code) -> u16 {
    match code {
        Code::Ok => 200,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => 400,
        Code::Unauthenticated => 401,
        Code::PermissionDenied => 403,
        Code::NotFound => 404,
        Code::AlreadyExists | Code::Aborted => 409,
        Code::ResourceExhausted => 429,
        Code::Cancelled => 499,
        Code::Unknown | Code::Internal | Code::DataLoss => 500,
        Code::Unimplemented => 501,
        Code::Unavailable => 503,
        Code::DeadlineExceeded => 504,
    }
}

/// A call as the query of a GET.
#[derive(Debug)]
pub(crate) struct Get {
    pub(crate) dialect: Dialect,
    pub(crate) terms: Terms,
    /// The message, and whether it is compressed.
    pub(crate) message: Result<Bytes, Status>,
}

impl Get {
    /// Reads a query; `None` if it is no call's.
    pub(crate) fn read(head: &Head, query: &[u8]) -> Option<Self> {
        let (mut codec, mut message, mut compression, mut version) = (None, None, None, None);
        let mut in_base64 = false;
        for pair in query.split(|byte| *byte == b'&') {
            let (name, value) = pair.split_at(pair.iter().position(|byte| *byte == b'=')?);
            let value = &value[1..];
            match name {
                b"encoding" => codec = Some(value),
                b"message" => message = Some(value),
                b"compression" => compression = Some(unescape(value)),
                b"connect" => version = Some(unescape(value)),
                b"base64" => in_base64 = value == b"1",
                _ => {}
            }
        }
        let codec = match codec? {
            b"proto" => Codec::Proto,
            b"json" => Codec::Json,
            _ => return None,
        };
        let read = || {
            check_version(version.as_deref(), "v1")?;
            let encoding = match &compression {
                None => None,
                Some(name) => Encoding::parse(name).map_err(|()| {
                    let name = name.escape_ascii();
                    Status::unimplemented(format!("compression {name} is not spoken here; send one of {ACCEPTED}"))
                })?,
            };
            let terms = Terms { timeout: timeout(head)?, encoding, accepted: accepts(head, "accept-encoding") };
            let Some(message) = message else {
                return Err(Status::invalid_argument("the query has no message: send message=…"));
            };
            let message = unescape(message);
            let message = if in_base64 {
                let decoded = BASE64_URL.decode(&message).or_else(|_| BASE64.decode(&message));
                decoded
                    .map_err(|_| Status::invalid_argument("the query's message is not in base64, as base64=1 says"))?
            } else {
                message
            };
            Ok((terms, Bytes::from(message)))
        };
        let (terms, message) = match read() {
            Ok((terms, message)) => (terms, Ok(message)),
            Err(status) => (Terms::default(), Err(status)),
        };
        Some(Self { dialect: Dialect::get(codec), terms, message })
    }
}

/// Undoes percent-encoding; what is none stays as it is.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        let hex = |at: usize| after.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        match (byte, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or_default());
                rest = &after[2..];
            }
            (b'+', ..) => {
                out.push(b' ');
                rest = after;
            }
            _ => {
                out.push(*byte);
                rest = after;
            }
        }
    }
    out
}
