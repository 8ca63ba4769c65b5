//! The server: accepts connections, detects their protocol by their first bytes, and starts their tasks.
//!
//! Listener, runtime and shutdown signal come from the caller.
//!
//! Implements: RFC 9113 sections 3 (starting HTTP/2) and 9.1 (connection management), RFC 9112 section 3 (request
//! line).

pub(crate) mod incoming;
pub(crate) mod role;

use std::future::{Future, ready};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use quire_http2::PREFACE;
use quire_net::{Accept, Client, Permit, before, turned_on};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::envelope::Peer;
use crate::io::read_failed;
use crate::server::call::Shared;
use crate::server::connection::{DRAIN_ANSWER_MAX, Driver};
#[cfg(feature = "http1")]
use crate::server::http1;
use crate::server::observer::Refusal;
use crate::server::registry;
#[cfg(all(feature = "channelz", feature = "tls"))]
use crate::server::shown::ShownTls;
#[cfg(feature = "tower")]
use crate::server::tower::HttpCalls;
use incoming::Incoming;
use role::{Draining, Role};

/// Pause after a connection that could not be accepted, most likely for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Time limit of an excess connection.
const REFUSAL_MAX: Duration = Duration::from_secs(3);

/// Time limit, and below the read limit, for the peer to close after we did.
const LINGER: Duration = Duration::from_secs(1);
const HANG_UP_READS_MAX: usize = 64;

/// The first bytes of TLS: a record of a handshake, version 3 (RFC 8446 section 5.1).
const TLS_HANDSHAKE: [u8; 2] = [0x16, 0x03];
/// In clear, so that a client of TLS reads that there is none here.
const NO_TLS: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length: 44\r\n\r\n\
    this port does not speak TLS: write http://\n";

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
        self.shared.permits.taken()
    }

    /// Calls waiting now.
    pub fn calls(&self) -> usize {
        self.shared.calls.taken()
    }

    /// Accepts connections until `shutdown` is ready, then drains them, for `drain_timeout` at most.
    pub async fn serve(&self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        quire_net::accept(self, listener, &self.workers, shutdown, self.drain_timeout()).await;
        Ok(())
    }

    /// As [`Server::serve`], for connections of any kind, all on this runtime.
    pub async fn serve_incoming<I: Incoming>(&self, mut incoming: I, shutdown: impl Future<Output = ()>) {
        let (drain, draining) = watch::channel(false);
        // Nothing is sent: the drop of the last sender reports the end of all connections.
        let (alive, mut ended) = mpsc::channel::<()>(1);
        let mut shutdown = pin!(shutdown);
        loop {
            let (stream, peer) = match before(incoming.next(), &mut shutdown).await {
                None => break,
                Some(None) => {
                    shutdown.await;
                    break;
                }
                Some(Some(Ok(accepted))) => accepted,
                Some(Some(Err(_))) => {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let client = Client::at(peer.address.map(|address| address.ip()));
            let Some(permit) = before(self.permit(&client), &mut shutdown).await else { break };
            let (server, draining, alive) = (self.clone(), Box::pin(turned_on(draining.clone())), alive.clone());
            tokio::spawn(async move {
                server.run(stream, peer, draining, permit).await;
                drop(alive);
            });
        }
        drop(incoming);
        drain.send_replace(true);
        drop(alive);
        let _ = tokio::time::timeout(self.drain_timeout(), ended.recv()).await;
    }

    /// Time for the drain: beyond that for calls, connections have a little for their last bytes.
    fn drain_timeout(&self) -> Duration {
        self.shared.limits.drain_timeout + Duration::from_secs(2)
    }

    /// Waits for a connection's permit, which may be one to refuse it.
    async fn permit(&self, client: &Client) -> Permit {
        let permit = self.shared.permits.wait(client).await;
        if permit.is_refused() {
            self.shared.observer.refused_client(Refusal::Connections, client);
        } else if let Some(other) = permit.instead_of() {
            self.shared.observer.made_room(Refusal::Connections, other);
        }
        permit
    }

    /// Serves one accepted connection to its end; once `draining` completes, only its current calls are finished.
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
        let role = Role::of(&permit, &self.shared.permits, draining, self.shared.limits.handshake_timeout);
        peer.is_known = permit.known();
        let mut listed = self.shared.connections.open(address, "");
        #[cfg(feature = "channelz")]
        let shown = self.shared.shown.as_ref().map(|shown| shown.open(listed.state(), peer.local));
        peer.connection = Some(Arc::clone(listed.state()));
        let mut reason = if role.refusing {
            let refused = tokio::time::timeout(REFUSAL_MAX, self.serve_protocol(io, peer, role));
            Box::pin(refused).await.unwrap_or_else(|_| "cut off after its refusal".to_owned())
        } else {
            let serving = pin!(self.serve_protocol(io, peer, role));
            listed.unless_cut(serving).await.unwrap_or_else(|| registry::CUT.to_owned())
        };
        #[cfg(feature = "channelz")]
        drop(shown);
        drop(listed);
        if permit.standing().is_leaving() {
            "made room for another client".clone_into(&mut reason);
        }
        drop(permit);
        self.shared.observer.connection_closed(address, &reason);
    }

    async fn serve_protocol<T>(&self, io: T, peer: Peer, role: Role) -> String
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        #[cfg(feature = "tls")]
        if let Some(tls) = shared.tls.clone() {
            // Boxed, so that plaintext connections hold no TLS state.
            return Box::pin(run_tls(tls, io, shared, peer, role)).await;
        }
        serve(io, shared, Arc::new(peer), role).await
    }
}

impl Accept for Server {
    type Permit = Permit;

    async fn admit(&self, peer: SocketAddr) -> Option<Permit> {
        Some(self.permit(&Client::at(Some(peer.ip()))).await)
    }

    async fn connection(self, stream: TcpStream, peer: SocketAddr, permit: Permit, draining: watch::Receiver<bool>) {
        let peer = Peer {
            address: Some(peer),
            #[cfg(feature = "channelz")]
            local: self.shared.shown.as_ref().and_then(|_| stream.local_addr().ok()),
            ..Peer::default()
        };
        self.run(stream, peer, Box::pin(turned_on(draining)), permit).await;
    }
}

#[cfg(feature = "tls")]
async fn run_tls<T>(
    tls: Arc<tokio_rustls::rustls::ServerConfig>,
    io: T,
    shared: Arc<Shared>,
    mut peer: Peer,
    mut role: Role,
) -> String
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = quire_net::handshake(&tls, io, shared.limits.handshake_timeout);
    match unless_drained(handshake, &mut role).await {
        None => "drained".to_owned(),
        Some(Err(error)) => error.to_string(),
        Some(Ok((io, certificates))) => {
            peer.certificates = certificates;
            #[cfg(feature = "channelz")]
            if let Some(socket) = peer.connection.as_ref().and_then(|connection| connection.socket.get()) {
                socket.tls.get_or_init(|| ShownTls::of(io.get_ref().1, peer.certificates.first()));
            }
            serve(io, shared, Arc::new(peer), role).await
        }
    }
}

/// The future's result, unless the connection has to end before. In a drain a peer that has just connected may be
/// sending its first bytes.
async fn unless_drained<F: Future>(future: F, role: &mut Role) -> Option<F::Output> {
    let opened_at = Instant::now();
    let end = pin!(async {
        role.draining.as_mut().await;
        role.draining = Box::pin(ready(()));
        if !role.refusing && !role.standing.is_leaving() {
            sleep_until(opened_at + DRAIN_ANSWER_MAX).await;
        }
    });
    before(future, end).await
}

/// Serves a connection of any protocol to its end; returns the reason, for a log.
async fn serve<T>(mut io: T, shared: Arc<Shared>, peer: Arc<Peer>, mut role: Role) -> String
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut first = Vec::with_capacity(PREFACE.len());
    let look = tokio::time::timeout(shared.limits.handshake_timeout, look(&mut io, &mut first));
    let Some(looked) = unless_drained(Box::pin(look), &mut role).await else { return "drained".to_owned() };
    match looked {
        Err(_) => "no first bytes in time".to_owned(),
        Ok(Err(error)) => read_failed(&error),
        Ok(Ok(true)) => {
            // Boxed, so that a connection's task holds only its own protocol's state.
            Driver::boxed(io, first, shared, peer, role).run().await
        }
        Ok(Ok(false)) if first.is_empty() => "closed by the peer".to_owned(),
        #[cfg(feature = "http1")]
        Ok(Ok(false)) if may_be_http1(&first) => {
            Box::pin(http1::connection::serve(first, io, shared, peer, role)).await
        }
        Ok(Ok(false)) => {
            let is_tls = first.starts_with(&TLS_HANDSHAKE);
            let answer = if is_tls { NO_TLS } else { b"" };
            let _ = tokio::time::timeout(LINGER, hang_up(&mut io, answer)).await;
            if is_tls { "TLS, and this port speaks none" } else { "neither HTTP/2 nor HTTP/1.1" }.to_owned()
        }
    }
}

/// Reads until the bytes are the HTTP/2 preface or cannot become it.
async fn look<T: AsyncRead + Unpin>(io: &mut T, first: &mut Vec<u8>) -> io::Result<bool> {
    while first.len() < PREFACE.len() {
        let mut buffer = [0; 24];
        let wanted = PREFACE.len() - first.len();
        let count = io.read(&mut buffer[..wanted]).await?;
        first.extend_from_slice(&buffer[..count]);
        if count == 0 || !PREFACE.starts_with(first) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Answers, closes our side and reads the other to its end: closing with bytes unread would be a reset.
async fn hang_up<T: AsyncRead + AsyncWrite + Unpin>(io: &mut T, answer: &[u8]) {
    let mut buffer = [0; 256];
    let _ = io.write_all(answer).await;
    let _ = io.shutdown().await;
    for _ in 0..HANG_UP_READS_MAX {
        if !matches!(io.read(&mut buffer).await, Ok(1..)) {
            break;
        }
    }
}

/// False for bytes that cannot begin a request line, method, space and target (RFC 9112 section 3); those are not
/// answered.
fn may_be_http1(first: &[u8]) -> bool {
    match first.iter().position(|byte| *byte == b' ') {
        Some(0) => false,
        Some(blank) => first.get(blank + 1).is_none_or(|byte| matches!(byte, b'/' | b'*' | b'h' | b'H')),
        None => first.iter().all(u8::is_ascii_graphic),
    }
}
