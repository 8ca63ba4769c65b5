//! What a channel is made of, and how it reaches its server: TCP, and TLS where asked for.
//!
//! Implements: RFC 9113 section 3 (starting HTTP/2; with TLS, section 3.2).

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::lane::Lane;
use super::traffic::{Counted, Counters};
use super::{Channel, RetryPolicy};
use crate::compression::Encoding;
use crate::status::{Reach, Status};

/// What a channel allows and does.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Limits of each connection's HTTP/2.
    pub http2: http2::Config,
    /// Connections to the server.
    pub connections: usize,
    /// Calls at once on a connection, if the server allows as many; further ones wait for their turn.
    pub calls_per_connection_max: usize,
    /// Calls that wait for a connection or their turn on it; further ones fail with `RESOURCE_EXHAUSTED`.
    pub waiting_calls_max: usize,
    /// A received message, after decompression too.
    pub message_bytes_max: usize,
    /// Messages of a stream that nobody has read; beyond, the stream's window stays closed.
    pub unread_bytes_max: usize,
    /// Output of a connection above which streams make no more messages.
    pub output_bytes_max: usize,
    /// TCP, TLS and the server's first frame.
    pub connect_timeout: Duration,
    /// Pause after the first failure to connect; doubles with each.
    pub reconnect_first: Duration,
    /// Longest pause between tries to connect.
    pub reconnect_max: Duration,
    /// Silence after which a connection with calls is pinged; none: never.
    pub keepalive_interval: Option<Duration>,
    /// How long the answer to that ping may take.
    pub keepalive_timeout: Duration,
    /// Which calls are tried again, and how.
    pub retry: Option<RetryPolicy>,
    /// Compresses requests of at least so many bytes.
    pub compression: Option<(Encoding, usize)>,
    /// What answers may be compressed with, as the server is told. An answer that is compressed all the same is read.
    pub accepts: Vec<Encoding>,
    /// Calls without a deadline of their own get this one.
    pub timeout: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            http2: http2::Config {
                stream_window_bytes: 1024 * 1024,
                connection_window_bytes: 4 * 1024 * 1024,
                ..http2::Config::default()
            },
            connections: 1,
            calls_per_connection_max: 1024,
            waiting_calls_max: 100_000,
            message_bytes_max: 4 * 1024 * 1024,
            unread_bytes_max: 256 * 1024,
            output_bytes_max: 1024 * 1024,
            connect_timeout: Duration::from_secs(10),
            reconnect_first: Duration::from_millis(100),
            reconnect_max: Duration::from_secs(10),
            keepalive_interval: None,
            keepalive_timeout: Duration::from_secs(20),
            retry: None,
            compression: None,
            accepts: vec![Encoding::Gzip, Encoding::Zstd],
            timeout: None,
        }
    }
}

/// The address is none, or the server cannot be reached.
#[derive(Debug)]
pub struct ConnectError(pub(super) String);

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConnectError {}

impl From<ConnectError> for Status {
    fn from(error: ConnectError) -> Self {
        Self::unavailable(error.0).with_reach(Reach::Untouched)
    }
}

/// Where the server is and how to speak to it.
pub(super) struct Target {
    pub(super) authority: String,
    host: String,
    port: u16,
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// A connection's transport, TLS or not.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Transport for T {}

impl Target {
    pub(super) async fn connect(&self, counters: &Arc<Counters>) -> io::Result<Pin<Box<dyn Transport>>> {
        let tcp = TcpStream::connect((self.host.as_str(), self.port)).await?;
        tcp.set_nodelay(true)?;
        let tcp = Counted::new(tcp, Arc::clone(counters));
        match &self.tls {
            None => Ok(Box::pin(tcp)),
            Some((config, name)) => {
                Ok(Box::pin(TlsConnector::from(Arc::clone(config)).connect(name.clone(), tcp).await?))
            }
        }
    }
}

/// Puts a channel together.
#[must_use]
pub struct Builder {
    target: Target,
    is_https: bool,
    settings: Settings,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Builder({})", self.target.authority)
    }
}

impl Builder {
    pub(super) fn new(address: &str) -> Result<Self, ConnectError> {
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
        Ok(Self { target: Target { authority, host, port, tls: None }, is_https, settings: Settings::default() })
    }

    /// How to speak TLS; needed for `https`. ALPN is set to `h2` if the configuration names nothing.
    pub fn tls(mut self, mut config: Arc<ClientConfig>) -> Result<Self, ConnectError> {
        if config.alpn_protocols.is_empty() {
            Arc::make_mut(&mut config).alpn_protocols.push(b"h2".to_vec());
        }
        let host = self.target.host.clone();
        let name = ServerName::try_from(host).map_err(|error| ConnectError(error.to_string()))?;
        self.target.tls = Some((config, name));
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
        if self.is_https && self.target.tls.is_none() {
            return Err(ConnectError("https needs a TLS configuration; give one with tls()".to_owned()));
        }
        let settings = Arc::new(self.settings);
        let target = Arc::new(self.target);
        let lanes = (0..settings.connections.max(1)).map(|_| Lane::spawn(&target, &settings)).collect();
        Ok(Channel::new(lanes, settings))
    }

    /// The channel, once its first connection stands; or why it does not.
    pub async fn connect(self) -> Result<Channel, ConnectError> {
        let channel = self.connect_lazy()?;
        for lane in &channel.inner.lanes {
            lane.ready().await?;
        }
        Ok(channel)
    }
}
