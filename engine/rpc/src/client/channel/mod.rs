//! A [`Channel`]: its construction, and what its calls share.
//!
//! Implements: RFC 9113 section 3 (starting HTTP/2; with TLS, section 3.2).

pub(crate) mod balancer;
pub(crate) mod subchannel;
pub(crate) mod target;

use std::fmt;
use std::sync::Arc;
#[cfg(feature = "http1")]
use std::sync::atomic::AtomicUsize;

#[cfg(feature = "tls")]
use tokio_rustls::rustls::{ClientConfig, pki_types::ServerName};

use self::balancer::{Balancer, Connections, RoundRobin};
#[cfg(unix)]
use self::target::Address;
use self::target::{Connector, HostName, Resolver, Target, Traffic};
#[cfg(feature = "tower")]
use super::call::http::Layers;
use super::connection;
#[cfg(feature = "http1")]
use super::http1;
use super::service_config::{LoadBalancing, Throttle};
use super::settings::{ConnectError, HttpVersion, Settings};
use crate::envelope::Request;
use crate::interceptor::Interceptor;
use crate::status::Status;

struct Inner {
    balancer: Balancer,
    settings: Arc<Settings>,
    throttle: Option<Throttle>,
    #[cfg_attr(not(feature = "tower"), expect(dead_code, reason = "only layers use it"))]
    target: Arc<Target>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.balancer.close();
    }
}

/// Makes calls to a server, or to several equivalent ones. Clones share the connections, which close when the last
/// clone is dropped.
#[derive(Clone)]
pub struct Channel {
    inner: Arc<Inner>,
    /// Interceptors of this clone; nearly every channel has none.
    interceptors: Option<Arc<[Arc<dyn Interceptor>]>>,
    #[cfg(feature = "tower")]
    pub(super) layers: Option<Arc<Layers>>,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Channel({} connections)", self.inner.balancer.all().len())
    }
}

impl Channel {
    fn new(balancer: Balancer, settings: Arc<Settings>, target: Arc<Target>) -> Self {
        let throttle = settings.service_config.throttle();
        Self {
            inner: Arc::new(Inner { balancer, settings, throttle, target }),
            interceptors: None,
            #[cfg(feature = "tower")]
            layers: None,
        }
    }

    /// Returns a clone whose calls pass an interceptor before they are sent; several run in turn. Other clones are
    /// unaffected.
    #[must_use]
    pub fn intercepted(&self, interceptor: impl Interceptor) -> Self {
        let known = self.interceptors.iter().flat_map(|known| known.iter().cloned());
        let all = known.chain([Arc::new(interceptor) as Arc<dyn Interceptor>]).collect();
        Self { interceptors: Some(all), ..self.clone() }
    }

    /// Runs the interceptors on a request without its message.
    #[inline]
    pub(super) fn pass(&self, method: &str, mut request: Request<()>) -> Result<Request<()>, Status> {
        for interceptor in self.interceptors.iter().flat_map(|all| all.iter()) {
            interceptor.intercept(method, &mut request)?;
        }
        Ok(request)
    }

    pub(super) fn balancer(&self) -> &Balancer {
        &self.inner.balancer
    }

    /// Waits until a connection is ready, connecting if there is none: the server has sent its first frame and, if
    /// [`ServiceConfig::with_health_check`](super::ServiceConfig::with_health_check) is set, reports that it serves. Of
    /// several connections it is the next in turn; with round robin, any.
    ///
    /// Fails if connecting fails, and at once during the pause after that. With round robin, fails if resolving fails
    /// while no server is known, and as long as the last attempt to reach each server has failed. Sends no call.
    pub async fn ready(&self) -> Result<(), ConnectError> {
        match self.balancer() {
            Balancer::PickFirst(connections) => connections.next().ready().await,
            Balancer::RoundRobin(servers) => servers.ready(false).await.map(drop),
        }
    }

    /// True if a connection is ready, without waiting as [`Channel::ready`] does. Only reads flags.
    pub fn is_ready(&self) -> bool {
        self.inner.balancer.is_ready()
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// Limit of retries and hedges.
    pub(super) fn throttle(&self) -> Option<&Throttle> {
        self.inner.throttle.as_ref()
    }

    #[cfg(feature = "tower")]
    pub(super) fn target(&self) -> &Arc<Target> {
        &self.inner.target
    }

    /// Rejects new calls, lets those in flight finish, and closes the connections.
    pub async fn close(&self) {
        self.inner.balancer.close();
        for subchannel in self.inner.balancer.all() {
            subchannel.closed().await;
        }
    }

    /// Bytes over the sockets of all connections so far, including TLS and HTTP.
    pub fn traffic(&self) -> Traffic {
        self.inner.balancer.traffic()
    }
}

impl Channel {
    /// Begins a channel to `http://host:port`, `https://host:port` or, for a Unix socket, `unix:/path` or
    /// `unix-abstract:name`.
    pub fn builder(address: &str) -> Result<Builder, ConnectError> {
        Builder::new(address)
    }
}

/// Path of a Unix socket's address.
#[cfg(unix)]
fn unix_path(address: &str) -> Option<String> {
    match address.strip_prefix("unix-abstract:") {
        Some(name) => Some(format!("\0{name}")),
        None => address.strip_prefix("unix:").map(str::to_owned),
    }
}

/// Builds a channel.
#[must_use]
pub struct Builder {
    target: Target,
    /// Host name that certificates must match.
    host: String,
    has_tls: bool,
    settings: Settings,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Builder({})", self.target.authority)
    }
}

impl Builder {
    fn new(address: &str) -> Result<Self, ConnectError> {
        #[cfg(unix)]
        if let Some(path) = unix_path(address) {
            return Ok(Self::of("localhost", "localhost", false, vec![Address::Unix(path.into())]));
        }
        let wrong = || {
            let forms = "http://host:port, https://host:port, unix:/path or unix-abstract:name";
            ConnectError::new(format!("{address:?} is no address; write {forms}"))
        };
        let uri: http::Uri = address.parse().map_err(|_| wrong())?;
        let is_https = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        let host = uri.host().ok_or_else(wrong)?.trim_start_matches('[').trim_end_matches(']');
        let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let authority = uri.authority().ok_or_else(wrong)?.as_str();
        Ok(Self::of(authority, host, is_https, HostName { host: host.to_owned(), port }))
    }

    fn of(authority: &str, host: &str, is_https: bool, resolver: impl Resolver) -> Self {
        let target = Target {
            authority: authority.to_owned(),
            resolver: Box::new(resolver),
            connector: None,
            policy: LoadBalancing::default(),
            #[cfg(feature = "http1")]
            turn: AtomicUsize::new(0),
            is_https,
            user_agent: "",
            #[cfg(feature = "tls")]
            tls: None,
        };
        Self { target, host: host.to_owned(), has_tls: false, settings: Settings::default() }
    }

    /// Addresses to connect to, in place of resolving the host: a list, or a [`Resolver`]. The service config's
    /// [`LoadBalancing`] chooses among them.
    pub fn resolver(mut self, resolver: impl Resolver) -> Self {
        self.target.resolver = Box::new(resolver);
        self
    }

    /// Makes the connections, in place of sockets to the host or to a resolver's addresses.
    pub fn connector(mut self, connector: impl Connector) -> Self {
        self.target.connector = Some(Box::new(connector));
        self
    }

    /// TLS configuration; required for `https`. If it names no ALPN protocols, those of the settings' HTTP version are
    /// set.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: Arc<ClientConfig>) -> Result<Self, ConnectError> {
        let name = ServerName::try_from(self.host.clone()).map_err(|error| ConnectError::new(error.to_string()))?;
        self.target.tls = Some((config, name));
        self.target.is_https = true;
        self.has_tls = true;
        Ok(self)
    }

    /// Server name sent in requests, if it differs from the address.
    pub fn authority(mut self, authority: &str) -> Self {
        authority.clone_into(&mut self.target.authority);
        self
    }

    /// Limits, timeouts, protocol and all other settings.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Creates the channel, which connects on first use. Must be called within a tokio runtime.
    pub fn connect_lazy(mut self) -> Result<Channel, ConnectError> {
        if self.target.is_https && !self.has_tls {
            return Err(ConnectError::new("https needs a TLS configuration; give one with tls()"));
        }
        if !self.settings.http.carries(self.settings.protocol) {
            let message = "gRPC needs HTTP/2; over HTTP/1.1, set the protocol to GrpcWeb or Connect";
            return Err(ConnectError::new(message));
        }
        if self.settings.http != HttpVersion::Http2 && self.settings.service_config.health_check().is_some() {
            return Err(ConnectError::new("health checks need HTTP/2; over HTTP/1.1, leave out healthCheckConfig"));
        }
        #[cfg(feature = "tls")]
        if let Some((config, _)) = &mut self.target.tls
            && config.alpn_protocols.is_empty()
        {
            Arc::make_mut(config).alpn_protocols.push(self.settings.http.alpn().to_vec());
        }
        self.target.user_agent = self.settings.user_agent;
        self.target.policy = self.settings.service_config.load_balancing();
        let settings = Arc::new(self.settings);
        let target = Arc::new(self.target);
        let balancer = match (settings.http, target.policy) {
            (HttpVersion::Http2, LoadBalancing::RoundRobin) => {
                Balancer::RoundRobin(RoundRobin::new(&target, &settings))
            }
            (HttpVersion::Http2, LoadBalancing::PickFirst { .. }) => {
                let spawn = |_| connection::spawn(&target, &settings, None);
                Balancer::PickFirst(Connections::new((0..settings.connections.max(1)).map(spawn).collect()))
            }
            #[cfg(feature = "http1")]
            (HttpVersion::Http1, _) => Balancer::PickFirst(Connections::new(vec![http1::spawn(&target, &settings)])),
        };
        Ok(Channel::new(balancer, settings, target))
    }

    /// Creates the channel once all its connections are ready; fails if one does not become ready. With round robin,
    /// one connection is enough, as for [`Channel::ready`].
    pub async fn connect(self) -> Result<Channel, ConnectError> {
        let channel = self.connect_lazy()?;
        match channel.balancer() {
            Balancer::PickFirst(connections) => connections.ready().await?,
            Balancer::RoundRobin(_) => channel.ready().await?,
        }
        Ok(channel)
    }
}
