//! Errors of connections and streams, in the terms of RFC 9113 section 7.

use std::fmt;

/// Error code of RST_STREAM and GOAWAY (RFC 9113 section 7). Unknown codes are preserved.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

macro_rules! codes {
    ($($name:ident = $value:literal, $doc:literal;)*) => {
        impl ErrorCode {
            $(#[doc = $doc] pub const $name: Self = Self($value);)*

            /// The code's name in the RFC, or `UNKNOWN`.
            pub fn name(self) -> &'static str {
                match self.0 { $($value => stringify!($name),)* _ => "UNKNOWN" }
            }
        }
    };
}

codes! {
    NO_ERROR = 0x0, "Not an error: a graceful end.";
    PROTOCOL_ERROR = 0x1, "A rule of the protocol was broken.";
    INTERNAL_ERROR = 0x2, "The endpoint itself failed.";
    FLOW_CONTROL_ERROR = 0x3, "More bytes came than the window allowed, or a window overflowed.";
    SETTINGS_TIMEOUT = 0x4, "Settings were not acknowledged in time.";
    STREAM_CLOSED = 0x5, "A frame came for a stream that was already closed.";
    FRAME_SIZE_ERROR = 0x6, "A frame had a length its type does not allow.";
    REFUSED_STREAM = 0x7, "Nothing was done for the stream; it is safe to try again.";
    CANCEL = 0x8, "The stream is no longer needed.";
    COMPRESSION_ERROR = 0x9, "The header compression state is lost.";
    CONNECT_ERROR = 0xa, "The tunnel's connection failed.";
    ENHANCE_YOUR_CALM = 0xb, "The peer does too much of something.";
    INADEQUATE_SECURITY = 0xc, "The transport is not safe enough.";
    HTTP_1_1_REQUIRED = 0xd, "The request must be made over HTTP/1.1.";
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({:#x})", self.name(), self.0)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Connection error: a GOAWAY with this code is in the output; flush it and close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionError {
    /// Error code sent to the peer.
    pub code: ErrorCode,
    /// Reason for the log; also sent as GOAWAY debug data.
    pub reason: &'static str,
}

impl ConnectionError {
    pub(crate) const fn new(code: ErrorCode, reason: &'static str) -> Self {
        Self { code, reason }
    }

    pub(crate) const fn protocol(reason: &'static str) -> Self {
        Self::new(ErrorCode::PROTOCOL_ERROR, reason)
    }

    pub(crate) const fn size(reason: &'static str) -> Self {
        Self::new(ErrorCode::FRAME_SIZE_ERROR, reason)
    }

    pub(crate) const fn flow(reason: &'static str) -> Self {
        Self::new(ErrorCode::FLOW_CONTROL_ERROR, reason)
    }

    pub(crate) const fn compression(reason: &'static str) -> Self {
        Self::new(ErrorCode::COMPRESSION_ERROR, reason)
    }

    pub(crate) const fn calm(reason: &'static str) -> Self {
        Self::new(ErrorCode::ENHANCE_YOUR_CALM, reason)
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.reason)
    }
}

impl std::error::Error for ConnectionError {}

/// Reason why a command on a stream did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError {
    /// The stream was finished or reset, by either side.
    Closed,
    /// The peer's limit of concurrent streams is reached; retry when one ends.
    TooManyStreams,
    /// The connection accepts no new stream: it is draining, failed, or out of identifiers.
    GoingAway,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the stream is closed",
            Self::TooManyStreams => "the peer allows no further stream now",
            Self::GoingAway => "the connection takes no new stream",
        })
    }
}

impl std::error::Error for StreamError {}
