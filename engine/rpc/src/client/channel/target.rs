//! The servers of a channel, and sockets to them: TCP or Unix, with optional TLS, their traffic counted below TLS.

use std::collections::VecDeque;
#[cfg(feature = "tls")]
use std::error::Error as _;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
#[cfg(feature = "http1")]
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};
#[cfg(feature = "tls")]
use tokio_rustls::{TlsConnector, rustls, rustls::ClientConfig, rustls::pki_types::ServerName};

use crate::client::service_config::LoadBalancing;
use crate::failure::{TransportError, TransportFailure};

/// Listening address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A Unix socket; on Linux an abstract one, if the path begins with a zero byte.
    #[cfg(unix)]
    Unix(PathBuf),
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

/// Resolves the addresses of the servers behind a channel; a constant list is a resolver too.
///
/// With `pick_first` a channel resolves each time it connects. Round robin resolves at first use and when a connection
/// has ended or failed, with pauses from [`Settings::reconnect_first`](crate::client::Settings::reconnect_first) on; it
/// keeps its servers if that fails. Open connections stay where they are, except to servers that round robin no longer
/// gets from the resolver; `Limits::connection_age_max` on the servers makes channels resolve from time to time.
pub trait Resolver: Send + Sync + 'static {
    /// The current addresses.
    fn resolve(&self) -> impl Future<Output = io::Result<Vec<Address>>> + Send;
}

impl<T: Clone + Into<Address> + Send + Sync + 'static> Resolver for Vec<T> {
    async fn resolve(&self) -> io::Result<Vec<Address>> {
        Ok(self.iter().cloned().map(Into::into).collect())
    }
}

/// A name for the system's resolver.
pub(crate) struct HostName {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Resolver for HostName {
    async fn resolve(&self) -> io::Result<Vec<Address>> {
        Ok(tokio::net::lookup_host((self.host.as_str(), self.port)).await?.map(Address::Tcp).collect())
    }
}

type Resolved<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<Address>>> + Send + 'a>>;

/// A type-erased resolver.
pub(crate) trait AnyResolver: Send + Sync {
    fn resolve_any(&self) -> Resolved<'_>;
}

impl<R: Resolver> AnyResolver for R {
    fn resolve_any(&self) -> Resolved<'_> {
        Box::pin(self.resolve())
    }
}

/// End of the error message of a TLS call to a server without TLS.
pub const NO_TLS: &str = "the server does not speak TLS: write http://";

/// End of the error message of a call without TLS to a server with TLS.
pub const ONLY_TLS: &str = "the server speaks TLS: write https://";

/// End of the error message of a call to a server whose certificate was refused.
pub const UNTRUSTED: &str = "the server's certificate is not trusted";

/// Explains a failed handshake.
#[cfg(feature = "tls")]
fn insecure(error: io::Error) -> TransportError {
    use rustls::{Error, InvalidMessage};

    let failure = TransportError::io(TransportFailure::Tls, error);
    let text = match failure.source().and_then(|source| source.downcast_ref()) {
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => NO_TLS.to_owned(),
        Some(Error::InvalidCertificate(_)) => format!("{}: {UNTRUSTED}", failure.reason()),
        _ => return failure,
    };
    failure.explained(text)
}

/// Makes a channel's connections, in place of sockets to addresses: through a proxy, to a virtual machine, or within the
/// process. An async closure is a connector, and so is a [`Server`](crate::Server).
pub trait Connector: Send + Sync + 'static {
    /// A connection, without TLS; the channel adds that.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Connects.
    fn connect(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl<F, Fut, T> Connector for F
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = io::Result<T>> + Send,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = T;

    fn connect(&self) -> impl Future<Output = io::Result<T>> + Send {
        self()
    }
}

type Connecting<'a> = Pin<Box<dyn Future<Output = io::Result<Connected>> + Send + 'a>>;

/// A type-erased connector.
pub(crate) trait AnyConnector: Send + Sync {
    fn connect_any(&self) -> Connecting<'_>;
}

impl<C: Connector> AnyConnector for C {
    fn connect_any(&self) -> Connecting<'_> {
        Box::pin(async { Ok(Box::pin(self.connect().await?) as Connected) })
    }
}

/// Addresses of the servers, and the TLS settings for them.
pub(crate) struct Target {
    pub(crate) authority: String,
    pub(crate) resolver: Box<dyn AnyResolver>,
    /// Set in place of a resolver.
    pub(crate) connector: Option<Box<dyn AnyConnector>>,
    pub(crate) policy: LoadBalancing,
    /// Connections made so far, so that each of HTTP/1.1 in round robin uses the next address.
    #[cfg(feature = "http1")]
    pub(crate) turn: AtomicUsize,
    pub(crate) is_https: bool,
    pub(crate) user_agent: &'static str,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// A connection's transport, with or without TLS.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Transport for T {}

pub(crate) type Connected = Pin<Box<dyn Transport>>;

/// A server to connect to: an address, or `None` for the channel's connector.
pub(crate) type ServerAddress = Option<Address>;

type Opening<'a> = Pin<Box<dyn Future<Output = Result<Connected, TransportError>> + Send + 'a>>;

/// Time after which the next server is tried beside those that have not answered (RFC 8305, "Connection Attempt
/// Delay").
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

fn no_address() -> TransportError {
    TransportError::new(TransportFailure::Resolve, "the resolver knows no address")
}

/// Fails if the future takes longer than `limit`.
async fn in_time<T>(
    limit: Duration,
    future: impl Future<Output = Result<T, TransportError>>,
) -> Result<T, TransportError> {
    let late = |_| Err(TransportError::new(TransportFailure::Timeout, "no connection in time"));
    timeout(limit, future).await.unwrap_or_else(late)
}

impl Target {
    /// The servers, in the order in which they are tried; at least one.
    pub(crate) async fn resolve(&self, limit: Duration) -> Result<VecDeque<ServerAddress>, TransportError> {
        if self.connector.is_some() {
            return Ok([None].into());
        }
        let unresolved = |error| TransportError::io(TransportFailure::Resolve, error);
        let resolving = async { self.resolver.resolve_any().await.map_err(unresolved) };
        let mut addresses = in_time(limit, resolving).await?;
        if self.policy == (LoadBalancing::PickFirst { shuffles: true }) {
            fastrand::shuffle(&mut addresses);
        }
        if addresses.is_empty() { Err(no_address()) } else { Ok(addresses.into_iter().map(Some).collect()) }
    }

    /// Connects to the first of the servers that can be reached, within `limit` each. Leaves those in the list that
    /// have not failed.
    pub(crate) async fn connect(
        &self,
        servers: &mut VecDeque<ServerAddress>,
        counters: &Arc<Counters>,
        limit: Duration,
    ) -> Result<Connected, TransportError> {
        let mut running: Vec<(ServerAddress, Opening<'_>)> = Vec::new();
        let mut failure = no_address();
        let mut delay = pin!(sleep(ATTEMPT_DELAY));
        poll_fn(|cx| {
            loop {
                let ended = running.iter_mut().enumerate().find_map(|(index, (_, opening))| {
                    let Poll::Ready(outcome) = opening.as_mut().poll(cx) else { return None };
                    Some((index, outcome))
                });
                match ended {
                    Some((index, Ok(transport))) => {
                        drop(running.remove(index));
                        running.drain(..).rev().for_each(|(server, _)| servers.push_front(server));
                        return Poll::Ready(Ok(transport));
                    }
                    Some((index, Err(error))) => {
                        drop(running.remove(index));
                        failure = error;
                    }
                    None if running.is_empty() => {}
                    None if servers.is_empty() || delay.as_mut().poll(cx).is_pending() => return Poll::Pending,
                    None => {}
                }
                if let Some(server) = servers.pop_front() {
                    let opening = Box::pin(in_time(limit, self.connect_to(server.clone(), counters)));
                    running.push((server, opening));
                    delay.as_mut().reset(Instant::now() + ATTEMPT_DELAY);
                } else if running.is_empty() {
                    return Poll::Ready(Err(failure.clone()));
                }
            }
        })
        .await
    }

    async fn connect_to(&self, server: ServerAddress, counters: &Arc<Counters>) -> Result<Connected, TransportError> {
        let unconnected = |error| TransportError::io(TransportFailure::Connect, error);
        let counters = Arc::clone(counters);
        match (server, &self.connector) {
            (Some(Address::Tcp(address)), _) => {
                let tcp = TcpStream::connect(address).await.map_err(unconnected)?;
                tcp.set_nodelay(true).map_err(unconnected)?;
                self.secure(CountedStream::new(tcp, counters)).await
            }
            #[cfg(unix)]
            (Some(Address::Unix(path)), _) => {
                let unix = UnixStream::connect(path).await.map_err(unconnected)?;
                self.secure(CountedStream::new(unix, counters)).await
            }
            (None, Some(connector)) => {
                let stream = connector.connect_any().await.map_err(unconnected)?;
                self.secure(CountedStream::new(stream, counters)).await
            }
            (None, None) => Err(no_address()),
        }
    }

    #[cfg_attr(not(feature = "tls"), expect(clippy::unused_async, reason = "TLS has a handshake to wait for"))]
    async fn secure<T: Transport + 'static>(&self, io: T) -> Result<Connected, TransportError> {
        #[cfg(feature = "tls")]
        if let Some((config, name)) = &self.tls {
            let connected = TlsConnector::from(Arc::clone(config)).connect(name.clone(), io).await;
            return Ok(Box::pin(connected.map_err(insecure)?));
        }
        Ok(Box::pin(io))
    }
}

/// Socket traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Bytes to the server.
    pub sent_bytes: u64,
    /// Bytes from the server.
    pub received_bytes: u64,
    /// Writes that sent something; concurrent calls share one.
    pub writes: u64,
}

impl Traffic {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            sent_bytes: self.sent_bytes + other.sent_bytes,
            received_bytes: self.received_bytes + other.received_bytes,
            writes: self.writes + other.writes,
        }
    }
}

/// Counters of traffic. Each read or write, which serves many calls, costs one or two atomic additions.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    writes: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> Traffic {
        Traffic {
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
        }
    }
}

/// A byte stream whose traffic is counted.
pub(crate) struct CountedStream<T> {
    io: T,
    counters: Arc<Counters>,
}

impl<T> CountedStream<T> {
    pub(crate) fn new(io: T, counters: Arc<Counters>) -> Self {
        Self { io, counters }
    }

    fn sent(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = &written {
            self.counters.sent_bytes.fetch_add(*count as u64, Ordering::Relaxed);
            self.counters.writes.fetch_add(1, Ordering::Relaxed);
        }
        written
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for CountedStream<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buffer);
        let count = buffer.filled().len() - before;
        if count > 0 {
            self.counters.received_bytes.fetch_add(count as u64, Ordering::Relaxed);
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for CountedStream<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.sent(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.sent(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
