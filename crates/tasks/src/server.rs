//! Accepts clients, a bounded number of them, and waits for them to end when the server stops. The listener, the threads
//! and the signal to stop come from the caller. Must not know the line protocol.

use std::{fmt::Display, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::{Semaphore, watch},
    task::JoinSet,
};

use crate::{
    connection::{self, Closed},
    metrics::Metrics,
    runner::Runner,
    settings::Settings,
    socket::prepare,
};

/// Pause after an error of the system, as when too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The task server; clones share results and limits.
#[derive(Clone, Debug)]
pub struct Server {
    runner: Arc<Runner>,
    connections: Arc<Semaphore>,
}

impl Server {
    /// `cpu_threads` is the runtime in whose pool for blocking work CPU-bound tasks run.
    pub fn new(settings: &Settings, metrics: Metrics, cpu_threads: Handle) -> Self {
        let connections_max = settings.limits.connections.min(Semaphore::MAX_PERMITS);
        Self {
            runner: Arc::new(Runner::new(settings, metrics, cpu_threads)),
            connections: Arc::new(Semaphore::new(connections_max)),
        }
    }

    /// Serves on the current thread until `stop` turns true; then accepts no more, answers what is in flight, and
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
        let Ok(place) = Arc::clone(&self.connections).try_acquire_owned() else {
            self.runner.metrics.refused();
            let limit = self.runner.limits.connections;
            return tracing::info!(%peer, limit, "a task connection was refused: tasks.connections is reached");
        };
        open.spawn(async move {
            let _place = place;
            // If the system refuses, the first write fails with the reason.
            let _ = prepare(&stream);
            server.talk(stream, peer, stop).await;
        });
    }

    /// Serves one client on any connection; returns why it ended, as metrics name it.
    pub async fn talk<S>(&self, stream: S, peer: impl Display, stop: watch::Receiver<bool>) -> &'static str
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let counted = self.runner.metrics.connection();
        let closed = connection::serve(stream, Arc::clone(&self.runner), stop).await;
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
