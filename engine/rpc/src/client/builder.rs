//! Configuration and construction of channels.
//!
//! Implements: RFC 9113 section 3 (starting HTTP/2; with TLS, section 3.2).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

#[cfg(feature = "tls")]
use tokio_rustls::rustls::{ClientConfig, pki_types::ServerName};

use super::channel::Channel;
#[cfg(feature = "http1")]
use super::pool;
use super::reconnect;
#[cfg(unix)]
use super::resolve::Address;
use super::resolve::{Name, Resolver};
use super::settings::{ConnectError, HttpVersion, Settings};
use super::target::Target;

impl Channel {
    /// Begins a channel to `http://host:port`, `https://host:port` or, for a Unix socket, `unix:/path`.
    pub fn builder(address: &str) -> Result<Builder, ConnectError> {
        Builder::new(address)
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
        if let Some(path) = address.strip_prefix("unix:") {
            return Ok(Self::of("localhost", "localhost", false, vec![Address::Unix(path.into())]));
        }
        let wrong = || {
            let forms = "http://host:port, https://host:port or unix:/path";
            ConnectError(format!("{address:?} is no address; write {forms}"))
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
        Ok(Self::of(authority, host, is_https, Name { host: host.to_owned(), port }))
    }

    fn of(authority: &str, host: &str, is_https: bool, resolver: impl Resolver) -> Self {
        let target = Target {
            authority: authority.to_owned(),
            resolver: Box::new(resolver),
            turn: AtomicUsize::new(0),
            is_https,
            #[cfg(feature = "tls")]
            tls: None,
        };
        Self { target, host: host.to_owned(), has_tls: false, settings: Settings::default() }
    }

    /// Addresses to connect to, in place of resolving the host: a list, or a [`Resolver`]. Connections use the
    /// addresses in turn, so [`Settings::connections`] should be at least their number.
    pub fn resolver(mut self, resolver: impl Resolver) -> Self {
        self.target.resolver = Box::new(resolver);
        self
    }

    /// TLS configuration; required for `https`. If it names no ALPN protocols, those of the settings' HTTP version are
    /// set.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: Arc<ClientConfig>) -> Result<Self, ConnectError> {
        let name = ServerName::try_from(self.host.clone()).map_err(|error| ConnectError(error.to_string()))?;
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
            return Err(ConnectError("https needs a TLS configuration; give one with tls()".to_owned()));
        }
        if !self.settings.http.carries(self.settings.protocol) {
            let message = "gRPC needs HTTP/2; over HTTP/1.1, set the protocol to GrpcWeb or Connect";
            return Err(ConnectError(message.to_owned()));
        }
        #[cfg(feature = "tls")]
        if let Some((config, _)) = &mut self.target.tls
            && config.alpn_protocols.is_empty()
        {
            Arc::make_mut(config).alpn_protocols.push(self.settings.http.alpn().to_vec());
        }
        let settings = Arc::new(self.settings);
        let target = Arc::new(self.target);
        let lanes = match settings.http {
            HttpVersion::Http2 => {
                (0..settings.connections.max(1)).map(|_| reconnect::spawn(&target, &settings)).collect()
            }
            #[cfg(feature = "http1")]
            HttpVersion::Http1 => vec![pool::spawn(&target, &settings)],
        };
        Ok(Channel::new(lanes, settings, target))
    }

    /// Creates the channel once all its connections are ready; fails if one does not become ready.
    pub async fn connect(self) -> Result<Channel, ConnectError> {
        let channel = self.connect_lazy()?;
        channel.all_ready().await?;
        Ok(channel)
    }
}
