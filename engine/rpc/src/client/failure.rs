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

/// Failure of a connection: the [source](Error::source) of the [`Status`](crate::Status) of a call that it failed, and of
/// a [`ConnectError`](super::ConnectError). Its own source is the error of the socket, of rustls or of HTTP, if any.
#[derive(Clone, Debug)]
pub struct TransportError {
    kind: TransportFailure,
    text: Cow<'static, str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl TransportError {
    /// A failure without an error behind it.
    pub(super) fn new(kind: TransportFailure, text: &'static str) -> Self {
        Self { kind, text: Cow::Borrowed(text), source: None }
    }

    pub(super) fn of(kind: TransportFailure, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let source = source.into();
        Self { kind, text: source.to_string().into(), source: Some(source.into()) }
    }

    /// A failure for an I/O error; the source is the error in it, if there is one.
    pub(super) fn io(kind: TransportFailure, error: io::Error) -> Self {
        if error.get_ref().is_none() {
            return Self::of(kind, error);
        }
        error.into_inner().map_or_else(|| Self::new(kind, "unknown"), |inner| Self::of(kind, inner))
    }

    /// The kind.
    pub fn kind(&self) -> TransportFailure {
        self.kind
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for TransportError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
