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
use std::time::Duration;

use quire_net::{Accept, Client, Permit, before, turned_on};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::first_bytes;
use super::observer::Refusal;
use super::place::{Draining, Stay};
use super::shared::Shared;
#[cfg(feature = "tower")]
use super::tower::HttpCalls;
use crate::envelope::Peer;

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
        // Beyond the time for calls, connections have a little for their last bytes.
        let drain_timeout = self.shared.limits.drain_timeout + Duration::from_secs(2);
        quire_net::accept(self, listener, &self.workers, shutdown, drain_timeout).await;
        Ok(())
    }

    /// Waits for a connection's permit, which may be one to refuse it.
    async fn permit(&self, client: &Client) -> Permit {
        let permit = self.shared.places.wait(client).await;
        if permit.is_refused() {
            self.shared.observer.refused_client(Refusal::Connections, client);
        } else if let Some(other) = permit.instead_of() {
            self.shared.observer.made_room(Refusal::Connections, other);
        }
        permit
    }

    /// Serves one accepted connection until it ends; `draining` asks it to end.
    pub async fn serve_connection<T>(&self, io: T, peer: Peer, draining: impl Future<Output = ()> + Send + 'static)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut draining: Draining = Box::pin(draining);
        let client = Client::at(peer.address.map(|address| address.ip()));
        let Some(permit) = before(self.permit(&client), &mut draining).await else { return };
        self.run(io, peer, draining, permit).await;
    }

    async fn run<T>(&self, io: T, mut peer: Peer, draining: Draining, permit: Permit)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let address = peer.address;
        self.shared.observer.connection_opened(address);
        let stay = Stay::of(&permit, &self.shared, draining);
        peer.is_known = permit.known();
        let mut reason = if stay.refusing {
            let refused = tokio::time::timeout(REFUSAL_MAX, self.talk(io, peer, stay));
            Box::pin(refused).await.unwrap_or_else(|_| "cut off after its refusal".to_owned())
        } else {
            self.talk(io, peer, stay).await
        };
        if permit.standing().is_leaving() {
            "made room for another client".clone_into(&mut reason);
        }
        drop(permit);
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

impl Accept for Server {
    type Permit = Permit;

    async fn admit(&self, peer: SocketAddr) -> Option<Permit> {
        Some(self.permit(&Client::at(Some(peer.ip()))).await)
    }

    async fn connection(self, stream: TcpStream, peer: SocketAddr, permit: Permit, draining: watch::Receiver<bool>) {
        let peer = Peer { address: Some(peer), ..Peer::default() };
        self.run(stream, peer, Box::pin(turned_on(draining)), permit).await;
    }
}

#[cfg(feature = "tls")]
async fn run_tls<T>(
    tls: Arc<tokio_rustls::rustls::ServerConfig>,
    io: T,
    shared: Arc<Shared>,
    mut peer: Peer,
    mut stay: Stay,
) -> String
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = quire_net::handshake(&tls, io, shared.limits.handshake_timeout);
    match before(handshake, &mut stay.draining).await {
        None => "drained".to_owned(),
        Some(Err(error)) => error.to_string(),
        Some(Ok((io, certificates))) => {
            peer.certificates = certificates;
            first_bytes::serve(io, shared, Arc::new(peer), stay).await
        }
    }
}
