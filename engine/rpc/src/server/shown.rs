//! State that the channelz service reads of a server and its connections beyond their registry.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use bytes::Bytes;

use crate::status::Code;

/// Last id of a server or a connection: channelz has one sequence for the whole process.
static LAST_ID: AtomicI64 = AtomicI64::new(0);

fn next_id() -> i64 {
    LAST_ID.fetch_add(1, Relaxed) + 1
}

/// A shown server.
pub(crate) struct ShownServer {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) calls_succeeded: AtomicI64,
    pub(crate) calls_failed: AtomicI64,
}

impl ShownServer {
    pub(crate) fn new(name: String) -> Self {
        Self { id: next_id(), name, calls_succeeded: AtomicI64::new(0), calls_failed: AtomicI64::new(0) }
    }

    /// Counts equal calls that ended.
    pub(crate) fn count(&self, code: Code, calls: u32, socket: Option<&ShownSocket>) {
        let ended = if code == Code::Ok { &self.calls_succeeded } else { &self.calls_failed };
        ended.fetch_add(calls.into(), Relaxed);
        if let Some(socket) = socket {
            socket.calls_ended.fetch_add(calls.into(), Relaxed);
        }
    }

    /// A connection of this server.
    pub(crate) fn socket(&self, local: Option<SocketAddr>) -> ShownSocket {
        let (id, server) = (next_id(), self.id);
        ShownSocket { id, server, local, calls_ended: AtomicI64::new(0), tls: OnceLock::new() }
    }
}

/// A connection of a shown server.
#[derive(Debug)]
pub(crate) struct ShownSocket {
    pub(crate) id: i64,
    /// The server's id: a registry may be that of several.
    pub(crate) server: i64,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) calls_ended: AtomicI64,
    /// Set by the handshake.
    pub(crate) tls: OnceLock<ShownTls>,
}

/// TLS of a connection.
#[derive(Debug)]
pub(crate) struct ShownTls {
    /// The standard's name of the cipher suite.
    pub(crate) cipher_suite: String,
    /// The client's certificate, in DER.
    pub(crate) certificate: Option<Bytes>,
}

#[cfg(feature = "tls")]
impl ShownTls {
    pub(crate) fn of(session: &tokio_rustls::rustls::ServerConnection, certificate: Option<&Bytes>) -> Self {
        let suite = session.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str()).unwrap_or_default();
        // rustls marks the suites of TLS 1.3, whose standard names have no version.
        Self { cipher_suite: suite.replacen("TLS13_", "TLS_", 1), certificate: certificate.cloned() }
    }
}
