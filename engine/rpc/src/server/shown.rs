//! State of a connection that the channelz service shows beyond the registry's.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use bytes::Bytes;

/// Last id of a server or a connection: channelz has one sequence for the whole process.
static LAST_ID: AtomicI64 = AtomicI64::new(0);

pub(crate) fn next_id() -> i64 {
    LAST_ID.fetch_add(1, Relaxed) + 1
}

/// A connection of a shown server.
#[derive(Debug)]
pub(crate) struct ShownSocket {
    pub(crate) id: i64,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) calls_ended: AtomicI64,
    /// Set by the handshake.
    pub(crate) tls: OnceLock<ShownTls>,
}

impl ShownSocket {
    pub(crate) fn new(local: Option<SocketAddr>) -> Self {
        Self { id: next_id(), local, calls_ended: AtomicI64::new(0), tls: OnceLock::new() }
    }
}

/// TLS of a connection.
#[derive(Debug)]
pub(crate) struct ShownTls {
    /// The standard's name of the cipher suite, if it has one.
    pub(crate) cipher_suite: Option<String>,
    /// The client's certificate, in DER.
    pub(crate) certificate: Option<Bytes>,
}

#[cfg(feature = "tls")]
impl ShownTls {
    pub(crate) fn of(session: &tokio_rustls::rustls::ServerConnection, certificate: Option<&Bytes>) -> Self {
        let suite = session.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str());
        // rustls marks the suites of TLS 1.3, whose standard names have no version.
        Self { cipher_suite: suite.map(|name| name.replacen("TLS13_", "TLS_", 1)), certificate: certificate.cloned() }
    }
}
