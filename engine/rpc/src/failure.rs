//! Failures of a channel's transport, as the sources of its errors.

use std::borrow::Cow;
use std::error::Error;
use std::sync::Arc;
use std::{fmt, io};

/// Kind of a [`TransportError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportFailure {
    /// The server's name has no address, or could not be resolved.
    Resolve,
    /// No connection could be made.
    Connect,
    /// The server did not accept the connection, or send its first frame, in time.
    Timeout,
    /// The TLS handshake failed, or one side speaks TLS and the other does not.
    Tls,
    /// A read or write failed.
    Io,
    /// The server closed the connection.
    Closed,
    /// The server did not answer a keepalive PING in time.
    Keepalive,
    /// The server broke a rule of HTTP.
    Protocol,
    /// The connection ended in good order.
    Drained,
}

impl TransportFailure {
    fn text(self) -> &'static str {
        match self {
            Self::Resolve => "the server's name was not resolved",
            Self::Connect => "no connection was made",
            Self::Timeout => "the server did not answer in time",
            Self::Tls => "the TLS handshake failed",
            Self::Io => "the connection broke",
            Self::Closed => "the server closed the connection",
            Self::Keepalive => "no answer to a keepalive PING",
            Self::Protocol => "the server broke a rule of HTTP",
            Self::Drained => "the connection was drained",
        }
    }
}

/// Failure of a connection, from [`Status::transport`](crate::Status::transport) of a call that it failed, or from
/// [`ConnectError::transport`](crate::client::ConnectError::transport). Its [source](Error::source) is the error of the socket, of
/// rustls or of HTTP, if there is one.
#[derive(Clone, Debug)]
pub struct TransportError {
    kind: TransportFailure,
    text: Cow<'static, str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl TransportError {
    /// A failure without an error behind it.
    pub(crate) fn new(kind: TransportFailure, text: &'static str) -> Self {
        Self { kind, text: Cow::Borrowed(text), source: None }
    }

    pub(crate) fn of(kind: TransportFailure, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let source = source.into();
        Self { kind, text: source.to_string().into(), source: Some(source.into()) }
    }

    /// A failure for an I/O error; the source is the error in it, if there is one.
    pub(crate) fn io(kind: TransportFailure, error: io::Error) -> Self {
        if error.get_ref().is_none() {
            return Self::of(kind, error);
        }
        error.into_inner().map_or_else(|| Self::new(kind, "unknown"), |inner| Self::of(kind, inner))
    }

    /// The kind.
    pub fn kind(&self) -> TransportFailure {
        self.kind
    }

    /// The same failure with another reason.
    pub(crate) fn explained(self, text: String) -> Self {
        Self { text: text.into(), ..self }
    }

    /// The reason in the message of a status; the text of the source, if there is one.
    pub(crate) fn reason(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A report of the whole chain has the source's text next.
        f.write_str(if self.source.is_some() { self.kind.text() } else { &self.text })
    }
}

impl Error for TransportError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
