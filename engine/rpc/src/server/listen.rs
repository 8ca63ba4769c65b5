//! The server: accepts connections and starts their tasks.
//!
//! Listener, runtime and shutdown signal come from the caller.
//!
//! Implements: RFC 9113 section 3 (starting HTTP/2) and 9.1 (connection management).

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use super::first_bytes::{self, before};
use super::place::{self, Draining, Stay};
use super::places::Place;
use super::shared::Shared;
use super::shares::Client;
#[cfg(feature = "tower")]
use super::tower::HttpCalls;
use crate::envelope::Peer;

/// Pause after `accept` fails for lack of descriptors; an immediate retry would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time limit of an excess connection.
const REFUSAL_MAX: Duration = Duration::from_secs(3);

/// A gRPC server; clones share limits and counters.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
    workers: Arc<[Handle]>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({:?})", self.shared.routes.services())
    }
}

/// Signals connections to drain; the senders' drop reports their end.
struct Stop {
    draining: watch::Receiver<bool>,
    alive: mpsc::Sender<()>,
}

impl Server {
    pub(super) fn new(shared: Arc<Shared>, workers: Arc<[Handle]>) -> Self {
        Self { shared, workers }
    }

    /// The server as a tower service, to answer calls on connections that axum or hyper manage. Connection limits do
    /// not apply there.
    #[cfg(feature = "tower")]
    pub fn into_service(self) -> HttpCalls {
        HttpCalls::new(self.shared)
    }

    /// Names of the services, in the order they were added.
    pub fn services(&self) -> &[String] {
        self.shared.routes.services()
    }

    /// Connections open now.
    pub fn connections(&self) -> usize {
        self.shared.places.taken()
    }

    /// Calls waiting now.
    pub fn calls(&self) -> usize {
        self.shared.calls.taken()
    }

    /// Accepts connections until `shutdown` is ready, then drains them, for `drain_timeout` at most.
    pub async fn serve(&self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let (drain, draining) = watch::channel(false);
        let (alive, mut gone) = mpsc::channel(1);
        let stop = Stop { draining, alive };
        let mut shutdown = std::pin::pin!(shutdown);
        let mut next_worker = 0;
        loop {
            let accepted = std::future::poll_fn(|cx| {
                if shutdown.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(None);
                }
                listener.poll_accept(cx).map(Some)
            });
            match accepted.await {
                None => break,
                Some(Ok((stream, address))) => {
                    let client = Client::at(Some(address.ip()));
                    let Some(place) = before(place::take(&self.shared, &client), &mut shutdown).await else { break };
                    self.spawn(stream, address, place, &stop, next_worker);
                    next_worker = next_worker.wrapping_add(1);
                }
                Some(Err(_)) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
        drop(listener);
        let _ = drain.send(true);
        drop(stop);
        let longest = self.shared.limits.drain_timeout + Duration::from_secs(2);
        let _ = tokio::time::timeout(longest, gone.recv()).await;
        Ok(())
    }

    fn spawn(&self, stream: TcpStream, address: SocketAddr, place: Place, stop: &Stop, turn: usize) {
        let server = self.clone();
        let (draining, alive) = (stop.draining.clone(), stop.alive.clone());
        let _ = stream.set_nodelay(true);
        if self.workers.is_empty() {
            tokio::spawn(async move { server.connection(stream, address, place, draining, alive).await });
            return;
        }
        // A stream is bound to its runtime's reactor, so it is recreated on the other runtime.
        let Ok(stream) = stream.into_std() else { return };
        self.workers[turn % self.workers.len()].spawn(async move {
            if let Ok(stream) = TcpStream::from_std(stream) {
                server.connection(stream, address, place, draining, alive).await;
            }
        });
    }

    async fn connection(
        self,
        stream: TcpStream,
        address: SocketAddr,
        place: Place,
        mut draining: watch::Receiver<bool>,
        alive: mpsc::Sender<()>,
    ) {
        let peer = Peer { address: Some(address), ..Peer::default() };
        let draining = async move {
            let _ = draining.wait_for(|draining| *draining).await;
        };
        self.run(stream, peer, Box::pin(draining), place).await;
        drop(alive);
    }

    /// Serves one accepted connection until it ends; `draining` asks it to end.
    pub async fn serve_connection<T>(&self, io: T, peer: Peer, draining: impl Future<Output = ()> + Send + 'static)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut draining: Draining = Box::pin(draining);
        let client = Client::at(peer.address.map(|address| address.ip()));
        let Some(place) = before(place::take(&self.shared, &client), &mut draining).await else { return };
        self.run(io, peer, draining, place).await;
    }

    async fn run<T>(&self, io: T, mut peer: Peer, draining: Draining, place: Place)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let address = peer.address;
        self.shared.observer.connection_opened(address);
        let stay = Stay::of(&place, &self.shared, draining);
        peer.is_known = place.known();
        let mut reason = if stay.refusing {
            let refused = tokio::time::timeout(REFUSAL_MAX, self.talk(io, peer, stay));
            Box::pin(refused).await.unwrap_or_else(|_| "cut off after its refusal".to_owned())
        } else {
            self.talk(io, peer, stay).await
        };
        if place.standing().is_leaving() {
            "made room for another client".clone_into(&mut reason);
        }
        drop(place);
        self.shared.observer.connection_closed(address, &reason);
    }

    async fn talk<T>(&self, io: T, peer: Peer, stay: Stay) -> String
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        #[cfg(feature = "tls")]
        if let Some(tls) = shared.tls.clone() {
            // Boxed, so that plaintext connections hold no TLS state.
            return Box::pin(run_tls(tls, io, shared, peer, stay)).await;
        }
        first_bytes::serve(io, shared, Arc::new(peer), stay).await
    }
}

/// True if a handshake failed because the peer does not speak TLS.
#[cfg(feature = "tls")]
fn is_no_tls(error: &io::Error) -> bool {
    use tokio_rustls::rustls::{Error, InvalidMessage};

    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    matches!(inner, Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)))
}

#[cfg(feature = "tls")]
async fn run_tls<T>(
    tls: tokio_rustls::TlsAcceptor,
    io: T,
    shared: Arc<Shared>,
    mut peer: Peer,
    mut stay: Stay,
) -> String
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let accept = tokio::time::timeout(shared.limits.handshake_timeout, tls.accept(io));
    let Some(accepted) = before(accept, &mut stay.draining).await else { return "drained".to_owned() };
    match accepted {
        Err(_) => "no TLS handshake in time".to_owned(),
        Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => "closed by the peer".to_owned(),
        Ok(Err(error)) if is_no_tls(&error) => "no TLS, and this port speaks nothing else".to_owned(),
        Ok(Err(error)) => format!("TLS: {error}"),
        Ok(Ok(io)) => {
            let certificates = io.get_ref().1.peer_certificates().unwrap_or_default();
            peer.certificates = certificates.iter().map(|der| bytes::Bytes::copy_from_slice(der)).collect();
            first_bytes::serve(io, shared, Arc::new(peer), stay).await
        }
    }
}
