//! Accept loop for a bounded number of clients, and graceful shutdown. The caller provides the listener, the threads
//! and the stop signal.

use std::{fmt::Display, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use hosting::{
    Acceptor, Client, Permit,
    access::{Authenticator, Challenge},
};
use quire_net::{Accept, before, handshake, turned_on};
use quire_rpc::{rustls::ServerConfig, server::ConnectionRegistry};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::watch,
};

use crate::{
    connection::{Closed, Connection},
    metrics::Metrics,
    runner::Runner,
    settings::Settings,
    socket::prepare,
};

/// Time limit of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Name of the protocol among open connections.
const USER_AGENT: &str = "task lines";

/// The task server; clones share results and limits.
#[derive(Clone, Debug)]
pub struct Server {
    runner: Arc<Runner>,
    acceptor: Acceptor,
    connections: ConnectionRegistry,
}

impl Server {
    /// `cpu_threads` is the runtime whose pool for blocking work runs CPU-bound tasks.
    pub fn new(settings: &Settings, metrics: Metrics, cpu_threads: Handle) -> Self {
        let acceptor = Acceptor::new("tasks.connections", settings.limits.connections.clone());
        let runner = Arc::new(Runner::new(settings, metrics, cpu_threads));
        Self { runner, acceptor, connections: ConnectionRegistry::default() }
    }

    /// Lists the server's connections in this registry.
    #[must_use]
    pub fn listed_in(self, connections: ConnectionRegistry) -> Self {
        Self { connections, ..self }
    }

    /// Requires the credentials that `authenticator` does, and TLS if `tls` is set.
    #[must_use]
    pub fn guarded(self, authenticator: Authenticator, tls: Option<Arc<ServerConfig>>) -> Self {
        Self { acceptor: self.acceptor.guarded(authenticator, tls), ..self }
    }

    /// Serves on the current thread until `stop` turns true; then accepts no more, answers requests in flight, and
    /// returns. Several threads may serve clones of one listener.
    pub async fn serve(&self, listener: TcpListener, stop: watch::Receiver<bool>) {
        // The server has its own time limit for all services.
        quire_net::accept(self, listener, &[], turned_on(stop), Duration::MAX).await;
    }

    /// Serves one client on any connection; returns the reason for its end, as named in metrics.
    pub async fn talk<S>(&self, stream: S, peer: impl Display, stop: watch::Receiver<bool>) -> &'static str
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.serve_one(stream, peer, None, None, None, stop).await
    }

    async fn serve_one<S>(
        &self,
        stream: S,
        peer: impl Display,
        address: Option<SocketAddr>,
        challenge: Option<Box<Challenge>>,
        permit: Option<&Permit>,
        stop: watch::Receiver<bool>,
    ) -> &'static str
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let counted = self.runner.metrics.connection();
        let mut listed = self.connections.open(address, USER_AGENT);
        let (stream, caller) = (listed.metered(stream), listed.caller());
        let client = Client::at(address.map(|address| address.ip()));
        let mut connection = Connection::new(stream, Arc::clone(&self.runner), client, challenge);
        let served = listed.unless_cut(pin!(connection.serve(permit, &caller, stop))).await;
        let closed = served.unwrap_or(Closed::Cut);
        log(&peer, &closed);
        let reason = closed.name();
        counted.close(reason);
        reason
    }
}

impl Accept for Server {
    type Permit = Permit;

    async fn admit(&self, peer: SocketAddr) -> Option<Permit> {
        let permit = self.acceptor.permit(&Client::at(Some(peer.ip())));
        if permit.is_none() {
            self.runner.metrics.refused();
        }
        permit
    }

    async fn connection(self, stream: TcpStream, peer: SocketAddr, permit: Permit, stop: watch::Receiver<bool>) {
        // If the system refuses, the first write fails with the reason.
        let _ = prepare(&stream);
        let challenge = |certificates: Vec<Bytes>| self.acceptor.challenge(Some(peer), certificates).map(Box::new);
        let Some(tls) = self.acceptor.tls() else {
            self.serve_one(stream, peer, Some(peer), challenge(Vec::new()), Some(&permit), stop).await;
            return;
        };
        // Boxed: plain connections need no room for TLS.
        let shaking = Box::pin(handshake(tls, stream, HANDSHAKE_TIMEOUT));
        match before(shaking, pin!(permit.leave())).await {
            None => {}
            Some(Ok((stream, certificates))) => {
                let serving = self.serve_one(stream, peer, Some(peer), challenge(certificates), Some(&permit), stop);
                Box::pin(serving).await;
            }
            Some(Err(error)) => tracing::info!(%peer, %error, "a task connection has no TLS"),
        }
    }

    fn cannot_accept(&self, error: &io::Error) {
        self.acceptor.cannot_accept(error);
    }
}

fn log(peer: &impl Display, closed: &Closed) {
    let (reason, details) = (closed.name(), closed.details().map(tracing::field::display));
    if matches!(closed, Closed::Finished | Closed::Drained) {
        tracing::debug!(%peer, reason, "a task connection was closed");
    } else {
        tracing::info!(%peer, reason, details, "a task connection was closed");
    }
}
