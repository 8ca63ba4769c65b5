//! What a channel is made of.
//!
//! Implements: RFC 9113 section 3 (starting HTTP/2; with TLS, section 3.2).

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "tls")]
use tokio_rustls::rustls::{ClientConfig, pki_types::ServerName};

use super::channel::Channel;
use super::reconnect;
use super::settings::{ConnectError, Settings};
use super::target::Target;

impl Channel {
    /// A channel to `http://host:port` or `https://host:port`.
    pub fn builder(address: &str) -> Result<Builder, ConnectError> {
        Builder::new(address)
    }
}

/// Puts a channel together.
#[must_use]
pub struct Builder {
    target: Target,
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
        let wrong = || ConnectError(format!("{address:?} is no address; write http://host:port or https://host:port"));
        let uri: http::Uri = address.parse().map_err(|_| wrong())?;
        let is_https = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        let host = uri.host().ok_or_else(wrong)?.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let authority = uri.authority().ok_or_else(wrong)?.as_str().to_owned();
        let target = Target {
            authority,
            host,
            port,
            is_https,
            #[cfg(feature = "tls")]
            tls: None,
        };
        Ok(Self { target, has_tls: false, settings: Settings::default() })
    }

    /// How to speak TLS; needed for `https`. ALPN is set to `h2` if the configuration names nothing.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, mut config: Arc<ClientConfig>) -> Result<Self, ConnectError> {
        if config.alpn_protocols.is_empty() {
            Arc::make_mut(&mut config).alpn_protocols.push(b"h2".to_vec());
        }
        let host = self.target.host.clone();
        let name = ServerName::try_from(host).map_err(|error| ConnectError(error.to_string()))?;
        self.target.tls = Some((config, name));
        self.target.is_https = true;
        self.has_tls = true;
        Ok(self)
    }

    /// What calls name as the server, where that differs from the address.
    pub fn authority(mut self, authority: &str) -> Self {
        authority.clone_into(&mut self.target.authority);
        self
    }

    /// Everything else.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// The channel, which connects when it is first used. Must be called within a tokio runtime.
    pub fn connect_lazy(self) -> Result<Channel, ConnectError> {
        if self.target.is_https && !self.has_tls {
            return Err(ConnectError("https needs a TLS configuration; give one with tls()".to_owned()));
        }
        let settings = Arc::new(self.settings);
        let target = Arc::new(self.target);
        let lanes = (0..settings.connections.max(1)).map(|_| reconnect::spawn(&target, &settings)).collect();
        Ok(Channel::new(lanes, settings))
    }

    /// The channel, once its first connection stands; or why it does not.
    pub async fn connect(self) -> Result<Channel, ConnectError> {
        let channel = self.connect_lazy()?;
        channel.all_ready().await?;
        Ok(channel)
    }
}
