//! Accept loop for a bounded number of clients, and graceful shutdown. The caller provides the listener, the threads
//! and the stop signal.

use std::{fmt::Display, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use hosting::{
    Acceptor, Client, Permit,
    access::{Authenticator, Challenge},
};
use quire_net::{Accept, before, handshake, turned_on};
use quire_rpc::rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::watch,
};

use crate::{
    connection::{self, Closed},
    metrics::Metrics,
    runner::Runner,
    settings::Settings,
    socket::prepare,
};

/// Time limit of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The task server; clones share results and limits.
#[derive(Clone, Debug)]
pub struct Server {
    runner: Arc<Runner>,
    acceptor: Acceptor,
}

impl Server {
    /// `cpu_threads` is the runtime whose pool for blocking work runs CPU-bound tasks.
    pub fn new(settings: &Settings, metrics: Metrics, cpu_threads: Handle) -> Self {
        let acceptor = Acceptor::new("tasks.connections", settings.limits.connections);
        Self { runner: Arc::new(Runner::new(settings, metrics, cpu_threads)), acceptor }
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
        self.serve_one(stream, peer, Client::Unknown, None, None, stop).await
    }

    async fn serve_one<S>(
        &self,
        stream: S,
        peer: impl Display,
        client: Client,
        challenge: Option<Box<Challenge>>,
        permit: Option<&Permit>,
        stop: watch::Receiver<bool>,
    ) -> &'static str
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let counted = self.runner.metrics.connection();
        let closed = connection::serve(stream, Arc::clone(&self.runner), client, challenge, permit, stop).await;
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
        let client = Client::at(Some(peer.ip()));
        let challenge = |certificates: Vec<Bytes>| self.acceptor.challenge(Some(peer), certificates).map(Box::new);
        let Some(tls) = self.acceptor.tls() else {
            self.serve_one(stream, peer, client, challenge(Vec::new()), Some(&permit), stop).await;
            return;
        };
        // Boxed: plain connections need no room for TLS.
        let shaking = Box::pin(handshake(tls, stream, HANDSHAKE_TIMEOUT));
        match before(shaking, pin!(permit.leave())).await {
            None => {}
            Some(Ok((stream, certificates))) => {
                let serving = self.serve_one(stream, peer, client, challenge(certificates), Some(&permit), stop);
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
