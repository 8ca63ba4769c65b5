//! The server's side of a TLS handshake.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, InvalidMessage, ServerConfig};
use tokio_rustls::server::TlsStream;

/// Failure of a handshake.
#[derive(Debug)]
pub enum HandshakeError {
    /// The time was over.
    Timeout,
    /// The peer closed the connection.
    Closed,
    /// The peer's first bytes are not TLS.
    Plaintext,
    /// Any other failure.
    Other(io::Error),
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("no TLS handshake in time"),
            Self::Closed => f.write_str("closed by the peer"),
            Self::Plaintext => f.write_str("no TLS, and this port speaks nothing else"),
            Self::Other(error) => write!(f, "TLS: {error}"),
        }
    }
}

impl std::error::Error for HandshakeError {}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Self::Closed;
        }
        match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => Self::Plaintext,
            _ => Self::Other(error),
        }
    }
}

/// Completes the peer's handshake; returns the stream and the certificates that the peer sent, in DER, its own first.
pub async fn handshake<T: AsyncRead + AsyncWrite + Unpin>(
    config: &Arc<ServerConfig>,
    io: T,
    timeout: Duration,
) -> Result<(TlsStream<T>, Vec<Bytes>), HandshakeError> {
    let accepted = tokio::time::timeout(timeout, TlsAcceptor::from(Arc::clone(config)).accept(io)).await;
    let stream = accepted.map_err(|_| HandshakeError::Timeout)??;
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificates = certificates.iter().map(|der| Bytes::copy_from_slice(der)).collect();
    Ok((stream, certificates))
}
