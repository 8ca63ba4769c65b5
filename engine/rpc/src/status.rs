//! Outcome of a call: code, message, details and metadata (gRPC over HTTP/2, "Status" and "Responses").
//!
//! On the wire the message is percent-encoded and the details are base64.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, utf8_percent_encode};
use prost::Message as _;
use prost_types::Any;
use quire_http2::ErrorCode;

use crate::failure::TransportError;
use crate::metadata::{Metadata, MetadataError};

macro_rules! codes {
    ($($name:ident = $value:literal $text:literal $doc:literal;)*) => {
        /// Status codes of calls.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Code { $(#[doc = $doc] $name = $value,)* }

        impl Code {
            /// All codes, in numerical order.
            pub const ALL: [Self; 17] = [$(Self::$name,)*];

            /// Code of a number; unknown numbers are `Unknown`.
            pub fn from_number(number: u32) -> Self {
                match number { $($value => Self::$name,)* _ => Self::Unknown }
            }

            /// Name in the protocol documents.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

macro_rules! constructors {
    ($($function:ident $code:ident,)*) => {
        impl Status {
            $(
                #[doc = concat!("A failure with [`Code::", stringify!($code), "`].")]
                pub fn $function(message: impl Into<Cow<'static, str>>) -> Self {
                    Self::new(Code::$code, message)
                }
            )*
        }
    };
}

constructors! {
    cancelled Cancelled,
    unknown Unknown,
    invalid_argument InvalidArgument,
    deadline_exceeded DeadlineExceeded,
    not_found NotFound,
    already_exists AlreadyExists,
    permission_denied PermissionDenied,
    resource_exhausted ResourceExhausted,
    failed_precondition FailedPrecondition,
    aborted Aborted,
    out_of_range OutOfRange,
    unimplemented Unimplemented,
    internal Internal,
    unavailable Unavailable,
    data_loss DataLoss,
    unauthenticated Unauthenticated,
}

codes! {
    Ok = 0 "OK" "It worked.";
    Cancelled = 1 "CANCELLED" "The caller gave up.";
    Unknown = 2 "UNKNOWN" "An error that no one classified.";
    InvalidArgument = 3 "INVALID_ARGUMENT" "The request is wrong whatever the state of the system.";
    DeadlineExceeded = 4 "DEADLINE_EXCEEDED" "Time was up first.";
    NotFound = 5 "NOT_FOUND" "What was asked for does not exist.";
    AlreadyExists = 6 "ALREADY_EXISTS" "What was to be made exists.";
    PermissionDenied = 7 "PERMISSION_DENIED" "The caller is known and may not.";
    ResourceExhausted = 8 "RESOURCE_EXHAUSTED" "A limit was reached; trying later may work.";
    FailedPrecondition = 9 "FAILED_PRECONDITION" "The system is not in the state the request needs.";
    Aborted = 10 "ABORTED" "A conflict with another call; the whole may be tried again.";
    OutOfRange = 11 "OUT_OF_RANGE" "Beyond the valid range, which may grow.";
    Unimplemented = 12 "UNIMPLEMENTED" "No such method here.";
    Internal = 13 "INTERNAL" "An invariant of the system is broken.";
    Unavailable = 14 "UNAVAILABLE" "Not reachable now; trying again is right.";
    DataLoss = 15 "DATA_LOSS" "Data is lost for good.";
    Unauthenticated = 16 "UNAUTHENTICATED" "The caller is not known.";
}

impl Code {
    /// Name in Connect's errors: gRPC's in lower case, and `canceled` with one `l`.
    pub fn connect_name(self) -> String {
        match self {
            Self::Cancelled => "canceled".to_owned(),
            _ => self.name().to_ascii_lowercase(),
        }
    }

    /// HTTP status over Connect.
    pub fn http_status(self) -> u16 {
        match self {
            Self::Ok => 200,
            Self::InvalidArgument | Self::FailedPrecondition | Self::OutOfRange => 400,
            Self::Unauthenticated => 401,
            Self::PermissionDenied => 403,
            Self::NotFound => 404,
            Self::AlreadyExists | Self::Aborted => 409,
            Self::ResourceExhausted => 429,
            Self::Cancelled => 499,
            Self::Unknown | Self::Internal | Self::DataLoss => 500,
            Self::Unimplemented => 501,
            Self::Unavailable => 503,
            Self::DeadlineExceeded => 504,
        }
    }
}

/// Progress of a failed call, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reach {
    /// The server may have acted on the call, but did not answer.
    #[default]
    Unanswered,
    /// The server has done nothing: the call was not sent, or was refused before it began.
    Untouched,
    /// The server answered with this status.
    Answered,
}

/// Result of a call: code, message and details.
#[derive(Clone)]
pub struct Status(Box<Parts>);

/// Fields of a status; boxed, so that results which hold a status or a small message are small.
#[derive(Clone)]
struct Parts {
    code: Code,
    reach: Reach,
    message: Cow<'static, str>,
    details: Bytes,
    metadata: Metadata,
    transport: Option<Box<TransportError>>,
}

impl Status {
    /// Creates a status without details.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self::with_details(code, message, Bytes::new())
    }

    /// Success.
    pub fn ok() -> Self {
        Self::new(Code::Ok, "")
    }

    /// Creates a status with an encoded, machine-readable `google.rpc.Status`.
    pub fn with_details(code: Code, message: impl Into<Cow<'static, str>>, details: Bytes) -> Self {
        let message = message.into();
        Self(Box::new(Parts {
            code,
            reach: Reach::default(),
            message,
            details,
            metadata: Metadata::new(),
            transport: None,
        }))
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The status in an error or among its causes, if any.
    #[cfg(any(feature = "http1", feature = "tower"))]
    pub(crate) fn in_error(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut causes = std::iter::successors(Some(error), |error| (*error).source());
        causes.find_map(|error| error.downcast_ref::<Self>()).cloned()
    }

    /// Status of a call whose layer failed: that in the error, or gRPC's code for other kinds of errors.
    #[cfg(feature = "tower")]
    pub(crate) fn of_layer(error: &(dyn Error + 'static)) -> Self {
        Self::in_error(error).unwrap_or_else(|| Self::unknown(error.to_string()))
    }

    /// Progress of the call, for its caller.
    pub fn reach(&self) -> Reach {
        self.0.reach
    }

    /// Sets the delay after which the client may retry; without one it must not (gRPC A6, "Pushback").
    #[must_use]
    pub fn with_retry_pushback(mut self, delay: Option<Duration>) -> Self {
        let milliseconds = delay.map_or_else(|| "-1".to_owned(), |delay| delay.as_millis().to_string());
        // The name and digits are always valid.
        let _ = self.metadata_mut().insert("grpc-retry-pushback-ms", &milliseconds);
        self
    }

    /// Adds a detail for programs: one of [`details`](crate::details), or a message of the service's own with a
    /// [`prost::Name`].
    #[must_use]
    pub fn with_detail<T: prost::Message + prost::Name>(mut self, detail: &T) -> Self {
        let mut all = Details { code: self.code() as i32, message: self.message().to_owned(), details: Vec::new() };
        all.details = Details::decode(self.details()).unwrap_or_default().details;
        let type_url = format!("type.googleapis.com/{}", T::full_name());
        all.details.push(Any { type_url, value: detail.encode_to_vec() });
        self.0.details = all.encode_to_vec().into();
        self
    }

    /// The first detail of this type, if there is one that can be decoded.
    pub fn detail<T: prost::Message + prost::Name + Default>(&self) -> Option<T> {
        let details = Details::decode(self.details()).ok()?.details;
        let is_wanted = |detail: &&Any| detail.type_url.rsplit('/').next() == Some(&*T::full_name());
        details.iter().filter(is_wanted).find_map(|detail| T::decode(&*detail.value).ok())
    }

    /// Failure of the transport that ended a client's call. The message has its reason already, so it is not the
    /// [`Error::source`], and a report of the whole chain names the reason once.
    pub fn transport(&self) -> Option<&TransportError> {
        self.0.transport.as_deref()
    }

    /// The status of a call whose connection failed.
    pub(crate) fn connection_ended(failure: TransportError) -> Self {
        Self::unavailable(format!("the connection ended: {}", failure.reason())).with_transport(failure)
    }

    pub(crate) fn with_transport(mut self, failure: TransportError) -> Self {
        self.0.transport = Some(Box::new(failure));
        self
    }

    /// Sets the progress of the call.
    #[must_use]
    pub fn with_reach(mut self, reach: Reach) -> Self {
        self.0.reach = reach;
        self
    }

    /// Message for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// An encoded `google.rpc.Status`, or empty.
    pub fn details(&self) -> &[u8] {
        &self.0.details
    }

    /// Trailing metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// Like [`Status::metadata`], mutable.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.0.metadata
    }

    /// Status for a reset stream (gRPC over HTTP/2, "HTTP2 Transport Mapping", "Errors").
    pub(crate) fn from_reset(code: ErrorCode) -> Self {
        let outcome = match code {
            ErrorCode::REFUSED_STREAM => Code::Unavailable,
            ErrorCode::CANCEL => Code::Cancelled,
            ErrorCode::ENHANCE_YOUR_CALM => Code::ResourceExhausted,
            ErrorCode::INADEQUATE_SECURITY => Code::PermissionDenied,
            _ => Code::Internal,
        };
        Self::new(outcome, format!("the stream was reset: {code}"))
    }

    /// Status for an HTTP response without a gRPC status (gRPC's "HTTP to gRPC Status Code Mapping").
    pub(crate) fn from_http(http_status: u16) -> Self {
        let outcome = match http_status {
            400 => Code::Internal,
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::Unimplemented,
            429 | 502 | 503 | 504 => Code::Unavailable,
            _ => Code::Unknown,
        };
        Self::new(outcome, format!("the peer answered HTTP {http_status} and no gRPC status"))
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({}: {:?}, {} bytes of details)", self.code().name(), self.message(), self.details().len())
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code().name(), self.message())
    }
}

impl Error for Status {}

/// A handler's metadata is its own, so that what is wrong with it is no fault of the caller.
impl From<MetadataError> for Status {
    fn from(error: MetadataError) -> Self {
        Self::internal(error.to_string())
    }
}

/// Bytes that `grpc-message` cannot hold as they are; beyond ASCII everything is encoded.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// Percent-encodes a message for `grpc-message`.
pub(crate) fn encode_message(message: &str) -> Cow<'_, str> {
    const BLANKS_TOO: &AsciiSet = &ENCODED.add(b' ');
    // A leading or trailing blank would make the field illegal; then all blanks are encoded.
    let trims = message.starts_with(' ') || message.ends_with(' ');
    utf8_percent_encode(message, if trims { BLANKS_TOO } else { ENCODED }).into()
}

/// Percent-decodes a message; invalid escapes are kept.
pub(crate) fn decode_message(value: &[u8]) -> String {
    percent_decode(value).decode_utf8_lossy().into_owned()
}

/// An error with its details (`google.rpc.Status`, the "richer error model" of gRPC). A [`Status`](crate::Status) carries it encoded.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Details {
    /// The code's number.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// Message for people.
    #[prost(string, tag = "2")]
    pub message: String,
    /// Details for machines: `google.rpc.BadRequest`, `google.rpc.RetryInfo` and the service's own messages.
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_codes_agree() {
        for (number, code) in (0u32..).zip(Code::ALL) {
            assert_eq!(code as u32, number);
            assert_eq!(Code::from_number(number), code);
        }
        assert_eq!(Code::from_number(17), Code::Unknown);
    }

    #[test]
    fn metadata_that_is_refused_ends_a_handler_with_a_status() {
        let handler = |name| -> Result<(), Status> { Ok(Metadata::new().insert(name, "value")?) };
        assert!(handler("title").is_ok());
        assert_eq!(handler("Title").unwrap_err().code(), Code::Internal);
    }

    #[test]
    fn any_message_survives_its_wire_form() {
        for message in ["plain", "100% sure", "\ttest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n", " ", ""]
        {
            let coded = encode_message(message);
            assert!(coded.bytes().all(|byte| matches!(byte, b' '..=b'~')));
            assert_eq!(decode_message(coded.as_bytes()), message);
        }
        assert_eq!(decode_message(b"%zz%4"), "%zz%4");
    }
}
