//! Builder of a server: services, limits, other protocols and runtimes.

use std::future::Future;
use std::sync::Arc;
use std::{fmt, io};

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
#[cfg(feature = "tls")]
use tokio_rustls::rustls::ServerConfig;
use tower_service::Service as TowerService;

use super::accept::Server;
use super::accept::incoming::Incoming;
use super::browser::{Cors, Hosts};
use super::call::Shared;
use super::call::plan::{Contracts, Routes};
use super::call::service::{Method, Service};
use super::deadlines::Deadlines;
use super::limits::Limits;
use super::observer::{NoObserver, Observer, Refusal};
use super::registry::ConnectionRegistry;
#[cfg(feature = "channelz")]
use super::shown_servers::{ShownServer, ShownServers};
#[cfg(feature = "tower")]
use super::tower::{self, HttpCalls};
use crate::body::{Body, BoxError, ErasedService, HttpService};
use crate::interceptor::Interceptor;
use crate::message::compression::Encoding;
use quire_net::Permits;
use quire_net::Shares;

impl Server {
    /// A server without services.
    pub fn builder() -> Builder {
        Builder {
            routes: Routes::default(),
            limits: Limits::default(),
            connections: ConnectionRegistry::default(),
            #[cfg(feature = "channelz")]
            shown: None,
            observer: Arc::new(NoObserver),
            http: None,
            compression: None,
            cors: Cors::default(),
            interceptors: Vec::new(),
            deadlines: Vec::new(),
            #[cfg(feature = "tower")]
            layers: Vec::new(),
            hosts: Hosts::default(),
            always: Vec::new(),
            asks_callers: false,
            freeing: Vec::new(),
            #[cfg(feature = "tls")]
            tls: None,
            workers: Vec::new(),
        }
    }
}

/// Predicate of the methods that an interceptor or deadlines are for.
type IsFor = Box<dyn Fn(&str) -> bool + Send>;

/// Builder of a [`Server`].
#[must_use]
pub struct Builder {
    routes: Routes,
    limits: Limits,
    connections: ConnectionRegistry,
    #[cfg(feature = "channelz")]
    shown: Option<(ShownServers, String)>,
    observer: Arc<dyn Observer>,
    http: Option<Arc<dyn HttpService>>,
    compression: Option<(Encoding, usize)>,
    cors: Cors,
    interceptors: Vec<(IsFor, Arc<dyn Interceptor>)>,
    deadlines: Vec<(IsFor, Deadlines)>,
    #[cfg(feature = "tower")]
    layers: Vec<tower::Wrap>,
    hosts: Hosts,
    always: Vec<String>,
    asks_callers: bool,
    freeing: Vec<String>,
    #[cfg(feature = "tls")]
    tls: Option<Arc<ServerConfig>>,
    workers: Vec<Handle>,
}

impl Builder {
    /// Adds a service.
    pub fn add_service(mut self, service: impl Service) -> Self {
        let name = service.name();
        self.routes.contracts.add(service.descriptors());
        self.routes.add(name, service.methods());
        self
    }

    /// Calls `method` for every path that no service has; call reports carry that method's name.
    pub fn fallback(mut self, method: Method) -> Self {
        self.routes.set_fallback(method);
        self
    }

    /// Contracts of the services, including those added later.
    pub(crate) fn contracts(&self) -> Contracts {
        self.routes.contracts.clone()
    }

    /// Contracts of the services added so far, each an encoded `FileDescriptorSet` with comments.
    pub fn descriptors(&self) -> Vec<&'static [u8]> {
        self.routes.contracts.sets()
    }

    /// Names of the services added so far, in their order.
    pub fn services(&self) -> &[String] {
        self.routes.services()
    }

    /// The methods added so far, `/package.Service/Method`, those of a service together.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.routes.table.iter().map(|route| route.path.as_str())
    }

    /// Sets the limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Lists the server's connections in this registry, which several servers may share.
    pub fn connections(mut self, registry: ConnectionRegistry) -> Self {
        self.connections = registry;
        self
    }

    #[cfg(feature = "channelz")]
    pub(crate) fn shown(mut self, name: String, servers: &ShownServers) -> Self {
        self.shown = Some((servers.clone(), name));
        self
    }

    /// Sets the observer of connections, calls and refusals.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Serves HTTP/1.1, and HTTP/2 that is not gRPC: an axum router or any other tower service. Requests carry an
    /// `Arc<`[`Peer`](crate::Peer)`>` among their extensions.
    pub fn http<S, B>(mut self, service: S) -> Self
    where
        S: TowerService<http::Request<Body>, Response = http::Response<B>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.http = Some(Arc::new(ErasedService(service)));
        self
    }

    /// Compresses answers of at least `bytes_min` for clients that accept the encoding.
    pub fn compress(mut self, encoding: Encoding, bytes_min: usize) -> Self {
        self.compression = Some((encoding, bytes_min));
        self
    }

    /// Passes every call, of any service and protocol, through an interceptor before its handler; several run in order.
    pub fn interceptor(self, interceptor: impl Interceptor) -> Self {
        self.interceptor_for(|_| true, interceptor)
    }

    /// As [`Builder::interceptor`], for the methods `/package.Service/Method` for which `is_for` is true; it costs
    /// calls of the others nothing.
    pub fn interceptor_for(
        mut self,
        is_for: impl Fn(&str) -> bool + Send + 'static,
        interceptor: impl Interceptor,
    ) -> Self {
        self.interceptors.push((Box::new(is_for), Arc::new(interceptor)));
        self
    }

    /// Sets the deadlines of all methods.
    pub fn deadlines(self, deadlines: Deadlines) -> Self {
        self.deadlines_for(|_| true, deadlines)
    }

    /// As [`Builder::deadlines`], for the methods `/package.Service/Method` for which `is_for` is true. A method has
    /// the deadlines that were set last.
    pub fn deadlines_for(mut self, is_for: impl Fn(&str) -> bool + Send + 'static, deadlines: Deadlines) -> Self {
        self.deadlines.push((Box::new(is_for), deadlines));
        self
    }

    /// Passes every call through a tower layer before interceptors and handler, as an HTTP request whose body is not
    /// read yet; of several, the first is outermost. A layer that fails with a [`Status`](crate::Status) fails the call
    /// with it; any other failure is `UNKNOWN`. Such calls bypass the engine's fastest path, so servers that count
    /// every microsecond use an interceptor or an [`Observer`].
    #[cfg(feature = "tower")]
    pub fn layer<L, B>(mut self, layer: L) -> Self
    where
        L: tower_layer::Layer<HttpCalls> + Send + 'static,
        L::Service: TowerService<http::Request<Body>, Response = http::Response<B>> + Clone + Send + Sync + 'static,
        <L::Service as TowerService<http::Request<Body>>>::Error: Into<BoxError>,
        <L::Service as TowerService<http::Request<Body>>>::Future: Send,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.layers.push(tower::wrap(layer));
        self
    }

    /// Answers requests for this path, a method's or another, even on connections beyond `connections_max` and while
    /// memory is full: a health check must not take a full server for a broken one.
    pub fn always_answer(mut self, path: impl Into<String>) -> Self {
        self.always.push(path.into());
        self
    }

    /// Declares that an interceptor checks callers' credentials: a quarter of `calls_max` is reserved for calls whose
    /// [`Client`](super::Client) has one, and a full server closes idle connections that never showed one.
    pub fn ask_callers(mut self) -> Self {
        self.asks_callers = true;
        self
    }

    /// Answers calls of this method while memory is full, too: they free some. Without any such call a full server
    /// would stay full.
    pub fn admit_when_full(mut self, path: impl Into<String>) -> Self {
        self.freeing.push(path.into());
        self
    }

    /// Refuses requests to a host for which `is_ours` is false with 421. gRPC calls are exempt: no browser sends them,
    /// and their clients name any host. By default every host is accepted.
    pub fn hosts(mut self, is_ours: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.hosts = Hosts::new(is_ours);
        self
    }

    /// Allows web pages of other origins to call by gRPC-Web and Connect; none by default.
    pub fn cors(mut self, cors: Cors) -> Self {
        self.cors = cors;
        self
    }

    /// Serves TLS only. ALPN is set to the served protocols if the configuration has none.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: Arc<ServerConfig>) -> Self {
        self.tls = Some(config);
        self
    }

    /// Runtimes that get the connections in turn; without any, the one that calls [`Server::serve`] gets all.
    pub fn workers(mut self, workers: Vec<Handle>) -> Self {
        self.workers = workers;
        self
    }

    /// Builds the server.
    pub fn build(mut self) -> Server {
        self.limit_methods();
        let Limits { calls_max, connections_max, refusals_max, .. } = self.limits.clone();
        for route in &mut self.routes.table {
            let ours = self.interceptors.iter().filter(|(is_for, _)| is_for(&route.path));
            route.interceptors = ours.map(|(_, interceptor)| Arc::clone(interceptor)).collect();
            let ours = self.deadlines.iter().rfind(|(is_for, _)| is_for(&route.path));
            route.deadlines = ours.map(|(_, deadlines)| *deadlines).unwrap_or_default();
        }
        let calls = Shares::with_reserve(calls_max, self.asks_callers);
        #[cfg(feature = "channelz")]
        let shown = self.shown.map(|(servers, name)| {
            let server = Arc::new(ShownServer::new(name, calls.clone()));
            servers.add(&server);
            server
        });
        let shared = Arc::new_cyclic(|shared| {
            #[cfg(feature = "tower")]
            let layered = tower::layered(self.layers, shared);
            #[cfg(not(feature = "tower"))]
            let (layered, _) = (None, shared);
            Shared {
                routes: self.routes,
                limits: Arc::new(self.limits),
                wants_details: self.observer.wants_details(),
                has_traces: self.observer.wants_traces(),
                observer: self.observer,
                http: self.http,
                compression: self.compression,
                layered,
                cors: self.cors,
                #[cfg(feature = "tls")]
                tls: self.tls.map(with_protocols),
                connections: self.connections,
                #[cfg(feature = "channelz")]
                shown,
                permits: Permits::new(connections_max, refusals_max, self.asks_callers),
                hosts: self.hosts,
                always: self.always,
                calls,
                freeing: self.freeing,
            }
        });
        Server::new(shared, self.workers.into())
    }

    /// Gives the methods that strangers may call, or that are rarely needed, their own shares of the calls.
    fn limit_methods(&mut self) {
        let watches = Shares::new(self.limits.health_watches_max.clone());
        self.routes.limit_methods(&["/grpc.health.v1.Health/Watch"], Refusal::HealthWatches, &watches);
        let streams = Shares::new(self.limits.reflection_streams_max.clone());
        let versions = ["v1", "v1alpha"].map(|v| format!("/grpc.reflection.{v}.ServerReflection/ServerReflectionInfo"));
        let versions = [&*versions[0], &*versions[1]];
        self.routes.limit_methods(&versions, Refusal::ReflectionStreams, &streams);
    }

    /// Builds the server and serves; see [`Server::serve_incoming`].
    pub async fn serve_incoming(self, incoming: impl Incoming, shutdown: impl Future<Output = ()>) {
        self.build().serve_incoming(incoming, shutdown).await;
    }

    /// Builds the server and serves; see [`Server::serve`].
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        self.build().serve(listener, shutdown).await
    }
}

/// The configuration, which offers the server's protocols unless it has its own.
#[cfg(feature = "tls")]
fn with_protocols(mut config: Arc<ServerConfig>) -> Arc<ServerConfig> {
    if config.alpn_protocols.is_empty() {
        let config = Arc::make_mut(&mut config);
        config.alpn_protocols = vec![b"h2".to_vec()];
        if cfg!(feature = "http1") {
            config.alpn_protocols.push(b"http/1.1".to_vec());
        }
    }
    config
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Builder({:?})", self.routes.services())
    }
}
