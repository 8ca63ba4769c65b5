//! Address of the server: `host:port`, `:port` on this machine, `http://host:port` or `https://host:port`.

use std::fmt;
use std::sync::Arc;

use anyhow::{Context, bail};
use quire_rpc::client::{Channel, Settings};
use quire_rpc::rustls::ClientConfig;

use crate::probe::Probe;
use crate::tls::TlsArgs;
use crate::values::with_host;

/// A server's address and TLS.
#[derive(Clone, Debug)]
pub struct Target {
    url: String,
    tls: Option<Arc<ClientConfig>>,
    authority: Option<String>,
}

impl Target {
    /// Parses an address; only `https://` uses TLS.
    pub fn parse(address: &str, tls: &TlsArgs) -> anyhow::Result<Self> {
        let is_https = address.starts_with("https://");
        let whole = with_host(address);
        let url = if is_https || address.starts_with("http://") { whole } else { format!("http://{whole}") };
        let wrong =
            || format!("{address:?} is not an address: write host:port, :port, http://host:port or https://host:port");
        let parsed: http::Uri = url.parse().ok().with_context(wrong)?;
        let host_and_port = parsed.host().is_some_and(|host| !host.is_empty()) && (is_https || parsed.port().is_some());
        let has_scheme_twice = address.matches("://").count() > 1;
        if !host_and_port || has_scheme_twice || !matches!(parsed.path(), "" | "/") || parsed.query().is_some() {
            bail!(wrong());
        }
        let tls = tls.config_for(is_https)?.map(Arc::new);
        Ok(Self { url, tls, authority: None })
    }

    /// Name of the server in every call [default: the address].
    #[must_use]
    pub fn authority(mut self, authority: Option<String>) -> Self {
        self.authority = authority;
        self
    }

    /// A probe of the server's counts, if it is one of ours.
    pub fn probe(&self) -> Option<Probe> {
        let uri: http::Uri = self.url.parse().ok()?;
        let port = uri.port_u16().unwrap_or(443);
        Probe::find(&format!("{}:{port}", uri.host()?), self.tls.as_ref())
    }

    /// Connects, or returns the reason why not.
    pub async fn connect(&self, settings: Settings) -> anyhow::Result<Channel> {
        let mut builder = Channel::builder(&self.url)?.settings(settings);
        if let Some(tls) = &self.tls {
            builder = builder.tls(Arc::clone(tls))?;
        }
        if let Some(authority) = &self.authority {
            builder = builder.authority(authority);
        }
        Ok(builder.connect().await?)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.strip_prefix("http://").unwrap_or(&self.url))
    }
}
