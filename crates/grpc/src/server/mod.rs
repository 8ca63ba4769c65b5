//! The server: what it is built of, and the loop that accepts connections.
//!
//! Listener, runtime and the signal to stop come from the caller. Must not know what the services do.
//!
//! Implements: RFC 9113 section 3 (starting HTTP/2) and 9.1 (connection management).

mod call;
mod calls;
mod discard;
mod driver;
mod first_bytes;
mod http_calls;
mod limits;
mod method;
mod observer;
mod plan;
mod reply;
mod report;
mod run;
mod running;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tower_service::Service as TowerService;

use crate::body::{Body, BoxError};
use crate::compression::Encoding;
use crate::envelope::Peer;
use crate::status::Status;
pub use call::{Answer, Answered, Call, Later};
use http_calls::{Erased, HttpService};
pub use limits::Limits;
pub use method::Method;
pub use observer::{CallReport, NoObserver, Observer, Refusal};
use plan::Routes;

/// When `accept` fails for want of descriptors, trying again at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A gRPC service, as generated code implements it.
pub trait Service {
    /// `package.Service`.
    fn name(&self) -> &'static str;
    /// Its methods.
    fn methods(self) -> Vec<Method>;
}

/// A service that cannot serve: every call of it fails with the same status.
#[derive(Clone, Debug)]
pub struct RefusedService {
    /// `package.Service`.
    pub name: &'static str,
    /// The paths of its methods.
    pub methods: &'static [&'static str],
    /// What every caller is told.
    pub status: Status,
}

impl Service for RefusedService {
    fn name(&self) -> &'static str {
        self.name
    }

    fn methods(self) -> Vec<Method> {
        let status = Arc::new(self.status);
        let names = self.methods.iter().filter_map(|path| path.rsplit('/').next());
        names.map(|name| Method::refused(name, Arc::clone(&status))).collect()
    }
}

/// What all connections of a server share.
pub(crate) struct Shared {
    routes: Routes,
    limits: Arc<Limits>,
    observer: Arc<dyn Observer>,
    http: Option<Arc<dyn HttpService>>,
    compression: Option<(Encoding, usize)>,
    tls: Option<TlsAcceptor>,
    connections: AtomicUsize,
    refusals: AtomicUsize,
    /// Calls that wait for something, over all connections.
    calls: AtomicUsize,
}

/// Puts a server together.
#[must_use]
pub struct Builder {
    routes: Routes,
    limits: Limits,
    observer: Arc<dyn Observer>,
    http: Option<Arc<dyn HttpService>>,
    compression: Option<(Encoding, usize)>,
    tls: Option<Arc<ServerConfig>>,
    workers: Vec<Handle>,
}

impl Builder {
    /// Adds a service.
    pub fn add_service(mut self, service: impl Service) -> Self {
        let name = service.name();
        self.routes.add(name, service.methods());
        self
    }

    /// Calls `method` for every path that no service has; reports name it as the method is named.
    pub fn fallback(mut self, method: Method) -> Self {
        self.routes.set_fallback(method);
        self
    }

    /// Names of the services added so far, in their order.
    pub fn services(&self) -> &[String] {
        self.routes.services()
    }

    /// The methods added so far, `/package.Service/Method`, those of a service together.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.routes.table.iter().map(|route| route.path.as_str())
    }

    /// What the server allows.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Whom the server tells what happens.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Serves HTTP/1.1, and HTTP/2 that is not gRPC: an axum router or any other tower service. Requests carry an
    /// `Arc<`[`Peer`]`>` among their extensions.
    pub fn http<S, B>(mut self, service: S) -> Self
    where
        S: TowerService<http::Request<Body>, Response = http::Response<B>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.http = Some(Arc::new(Erased(service)));
        self
    }

    /// Compresses answers of at least `bytes_min` for clients that accept the encoding.
    pub fn compress(mut self, encoding: Encoding, bytes_min: usize) -> Self {
        self.compression = Some((encoding, bytes_min));
        self
    }

    /// Speaks TLS only. ALPN is set to what is served if the configuration names nothing.
    pub fn tls(mut self, config: Arc<ServerConfig>) -> Self {
        self.tls = Some(config);
        self
    }

    /// Runtimes to share the connections out to, in turn; without any, the one that calls [`Server::serve`] has all.
    pub fn workers(mut self, workers: Vec<Handle>) -> Self {
        self.workers = workers;
        self
    }

    /// The server, ready to serve.
    pub fn build(self) -> Server {
        let http = self.http.is_some();
        let tls = self.tls.map(|mut config| {
            if config.alpn_protocols.is_empty() {
                let config = Arc::make_mut(&mut config);
                config.alpn_protocols.push(b"h2".to_vec());
                if http {
                    config.alpn_protocols.push(b"http/1.1".to_vec());
                }
            }
            TlsAcceptor::from(config)
        });
        let shared = Shared {
            routes: self.routes,
            limits: Arc::new(self.limits),
            observer: self.observer,
            http: self.http,
            compression: self.compression,
            tls,
            connections: AtomicUsize::new(0),
            refusals: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
        };
        Server { shared: Arc::new(shared), workers: self.workers.into() }
    }

    /// Builds the server and serves; see [`Server::serve`].
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        self.build().serve(listener, shutdown).await
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Builder({:?})", self.routes.services())
    }
}

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

/// Ends with the server: tells the connections to drain, and is told when they are gone.
struct Stop {
    draining: watch::Receiver<bool>,
    alive: mpsc::Sender<()>,
}

impl Server {
    /// A server without services.
    pub fn builder() -> Builder {
        Builder {
            routes: Routes::default(),
            limits: Limits::default(),
            observer: Arc::new(NoObserver),
            http: None,
            compression: None,
            tls: None,
            workers: Vec::new(),
        }
    }

    /// Names of the services, in the order they were added.
    pub fn services(&self) -> &[String] {
        self.shared.routes.services()
    }

    /// Connections open now.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Calls that wait for something now.
    pub fn calls(&self) -> usize {
        self.shared.calls.load(Ordering::Relaxed)
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
                    return std::task::Poll::Ready(None);
                }
                listener.poll_accept(cx).map(Some)
            });
            match accepted.await {
                None => break,
                Some(Ok((stream, address))) => {
                    self.spawn(stream, address, &stop, next_worker);
                    next_worker = next_worker.wrapping_add(1);
                }
                Some(Err(_)) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
        drop(listener);
        let _ = drain.send(true);
        drop(stop);
        let patience = self.shared.limits.drain_timeout + Duration::from_secs(2);
        let _ = tokio::time::timeout(patience, gone.recv()).await;
        Ok(())
    }

    fn spawn(&self, stream: TcpStream, address: SocketAddr, stop: &Stop, turn: usize) {
        let server = self.clone();
        let (draining, alive) = (stop.draining.clone(), stop.alive.clone());
        let _ = stream.set_nodelay(true);
        if self.workers.is_empty() {
            tokio::spawn(async move { server.connection(stream, address, draining, alive).await });
            return;
        }
        // A stream belongs to the reactor of the runtime it was made on, so it is made again over there.
        let Ok(stream) = stream.into_std() else { return };
        self.workers[turn % self.workers.len()].spawn(async move {
            if let Ok(stream) = TcpStream::from_std(stream) {
                server.connection(stream, address, draining, alive).await;
            }
        });
    }

    async fn connection(
        self,
        stream: TcpStream,
        address: SocketAddr,
        mut draining: watch::Receiver<bool>,
        alive: mpsc::Sender<()>,
    ) {
        let peer = Peer { address: Some(address), ..Peer::default() };
        let draining = async move {
            let _ = draining.wait_for(|draining| *draining).await;
        };
        self.serve_connection(stream, peer, draining).await;
        drop(alive);
    }

    /// Serves one connection that the caller has accepted, until it ends; `draining` asks it to end.
    pub async fn serve_connection<T>(&self, io: T, peer: Peer, draining: impl Future<Output = ()> + Send + 'static)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(place) = self.admit() else {
            return self.shared.observer.refused(Refusal::Refusals);
        };
        let address = peer.address;
        self.shared.observer.connection_opened(address);
        let reason = self.run(io, peer, Box::pin(draining), place.refusing).await;
        drop(place);
        self.shared.observer.connection_closed(address, &reason);
    }

    fn admit(&self) -> Option<Place> {
        let shared = Arc::clone(&self.shared);
        if shared.connections.fetch_add(1, Ordering::Relaxed) < shared.limits.connections_max {
            return Some(Place { shared, refusing: false });
        }
        shared.connections.fetch_sub(1, Ordering::Relaxed);
        shared.observer.refused(Refusal::Connections);
        if shared.refusals.fetch_add(1, Ordering::Relaxed) < shared.limits.refusals_max {
            return Some(Place { shared, refusing: true });
        }
        shared.refusals.fetch_sub(1, Ordering::Relaxed);
        None
    }

    async fn run<T>(
        &self,
        io: T,
        mut peer: Peer,
        draining: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
        refusing: bool,
    ) -> String
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        let mut draining: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = if refusing {
            // Long enough for a call to be refused properly.
            Box::pin(tokio::time::sleep(shared.limits.handshake_timeout.min(Duration::from_secs(1))))
        } else {
            draining
        };
        let Some(tls) = shared.tls.clone() else {
            return first_bytes::serve(io, shared, Arc::new(peer), draining, refusing).await;
        };
        let accept = tokio::time::timeout(shared.limits.handshake_timeout, tls.accept(io));
        let Some(accepted) = first_bytes::before(accept, &mut draining).await else { return "drained".to_owned() };
        match accepted {
            Err(_) => "no TLS handshake in time".to_owned(),
            Ok(Err(error)) => format!("TLS: {error}"),
            Ok(Ok(io)) => {
                let certificates = io.get_ref().1.peer_certificates().unwrap_or_default();
                peer.certificates = certificates.iter().map(|der| Bytes::copy_from_slice(der)).collect();
                first_bytes::serve(io, shared, Arc::new(peer), draining, refusing).await
            }
        }
    }
}

/// A connection's place among those allowed; given back when it is dropped.
struct Place {
    shared: Arc<Shared>,
    refusing: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        let counter = if self.refusing { &self.shared.refusals } else { &self.shared.connections };
        counter.fetch_sub(1, Ordering::Relaxed);
    }
}
