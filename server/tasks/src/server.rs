//! Accept loop for a bounded number of clients, and graceful shutdown. The caller provides the listener, the threads
//! and the stop signal.

use std::{fmt::Display, net::SocketAddr, sync::Arc, time::Duration};

use hosting::{Client, Place, Places, Warnings, access::Gate};
use quire_rpc::{Peer, rustls::ServerConfig};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::watch,
    task::JoinSet,
};

use tokio_rustls::TlsAcceptor;

use crate::{closed::Closed, connection, metrics::Metrics, runner::Runner, settings::Settings, socket::prepare};

/// Time limit of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections that may make room for others at the same time.
const LEAVING_MAX: usize = 64;

/// Pause after a system error such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The task server; clones share results and limits.
#[derive(Clone, Debug)]
pub struct Server {
    runner: Arc<Runner>,
    connections: Places,
    warnings: Warnings,
    gate: Option<Gate>,
    /// Set if TLS is required.
    tls: Option<Arc<ServerConfig>>,
}

/// Places for connections, and a few more for those that make room.
fn places(most: usize, asks_callers: bool) -> Places {
    Places::new(most, LEAVING_MAX.min(most / 4), asks_callers)
}

impl Server {
    /// `cpu_threads` is the runtime whose pool for blocking work runs CPU-bound tasks.
    pub fn new(settings: &Settings, metrics: Metrics, cpu_threads: Handle) -> Self {
        Self {
            runner: Arc::new(Runner::new(settings, metrics, cpu_threads)),
            connections: places(settings.limits.connections, false),
            warnings: Warnings::default(),
            gate: None,
            tls: None,
        }
    }

    /// Requires the credentials that `gate` asks for, and TLS if `tls` is set.
    #[must_use]
    pub fn guarded(self, gate: Gate, tls: Option<Arc<ServerConfig>>) -> Self {
        let gate = Some(gate).filter(Gate::asks);
        let connections = places(self.runner.limits.connections, gate.is_some());
        Self { connections, gate, tls, ..self }
    }

    /// Serves on the current thread until `stop` turns true; then accepts no more, answers requests in flight, and
    /// returns. Several threads may serve clones of one listener.
    pub async fn serve(&self, listener: TcpListener, stop: watch::Receiver<bool>) {
        let mut open = JoinSet::new();
        let mut stopping = stop.clone();
        let stopped = stopping.wait_for(|stop| *stop);
        tokio::pin!(stopped);
        loop {
            tokio::select! {
                _ = &mut stopped => break,
                Some(ended) = open.join_next() => log_panic(ended),
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => self.open(&mut open, stream, peer, stop.clone()),
                    Err(error) => {
                        tracing::warn!(%error, "the system cannot accept a connection; trying again after a pause");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(listener);
        while let Some(ended) = open.join_next().await {
            log_panic(ended);
        }
    }

    fn open(&self, open: &mut JoinSet<()>, stream: TcpStream, peer: SocketAddr, stop: watch::Receiver<bool>) {
        let server = self.clone();
        let client = Client::at(Some(peer.ip()));
        let Some(place) = self.connections.take(&client) else {
            self.runner.metrics.refused();
            return self.warnings.refused("tasks.connections", &client);
        };
        if let Some(other) = place.instead_of() {
            self.warnings.made_room("tasks.connections", other);
        }
        open.spawn(async move {
            // If the system refuses, the first write fails with the reason.
            let _ = prepare(&stream);
            server.begin(stream, peer, &place, stop).await;
        });
    }

    async fn begin(&self, stream: TcpStream, address: SocketAddr, place: &Place, stop: watch::Receiver<bool>) {
        match self.tls.clone() {
            None => {
                let asked = self.asked(address, Vec::new());
                self.serve_one(stream, address, Client::at(Some(address.ip())), asked, Some(place), stop).await;
            }
            // Boxed: plain connections need no room for TLS.
            Some(tls) => Box::pin(self.begin_tls(TlsAcceptor::from(tls), stream, address, place, stop)).await,
        }
    }

    async fn begin_tls(
        &self,
        tls: TlsAcceptor,
        stream: TcpStream,
        address: SocketAddr,
        place: &Place,
        stop: watch::Receiver<bool>,
    ) {
        let accepted = tokio::select! {
            accepted = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)) => accepted,
            () = place.leave() => return,
        };
        match accepted {
            Ok(Ok(stream)) => {
                let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
                let asked = self.asked(address, shown.iter().map(|der| der.to_vec()).collect());
                self.serve_one(stream, address, Client::at(Some(address.ip())), asked, Some(place), stop).await;
            }
            Ok(Err(error)) => tracing::info!(peer = %address, %error, "a task connection has no TLS"),
            Err(_) => tracing::info!(peer = %address, "a task connection has no TLS in time"),
        }
    }

    /// Authentication required of a client, and its known identity.
    fn asked(&self, address: SocketAddr, certificates: Vec<Vec<u8>>) -> Option<Box<(Gate, Peer)>> {
        let gate = self.gate.clone()?;
        let mut peer = Peer::default();
        peer.address = Some(address);
        peer.certificates = certificates.into_iter().map(Into::into).collect();
        Some(Box::new((gate, peer)))
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
        asked: Option<Box<(Gate, Peer)>>,
        place: Option<&Place>,
        stop: watch::Receiver<bool>,
    ) -> &'static str
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let counted = self.runner.metrics.connection();
        let closed = connection::serve(stream, Arc::clone(&self.runner), client, asked, place, stop).await;
        log(&peer, &closed);
        let reason = closed.name();
        counted.close(reason);
        reason
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

fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a task connection ended in a fault of the server");
    }
}
