//! Sockets of a load: opened, wrapped in TLS if configured, and counted where the bytes leave the process; and settings of
//! our own engine's channels, for loads over gRPC and plain HTTP/2.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
use quire_rpc::client::{self, Settings};
use quire_rpc::http2::{Config, Rate};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::either::Either;

use super::Traffic;
use crate::tls;

/// Timeout of opening a connection, TLS included, if no request's timeout applies.
pub const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// Byte counters of one session's sockets. Atomic, because a connection's own task shares them; all of them are on one
/// thread.
#[derive(Debug, Default)]
pub struct Counters {
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

impl Counters {
    /// Bytes counted so far.
    pub fn traffic(&self) -> Traffic {
        Traffic {
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
        }
    }

    fn sent(&self, count: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = count {
            self.sent_bytes.fetch_add(*count as u64, Ordering::Relaxed);
        }
    }
}

/// Opens connections to the server.
#[derive(Clone)]
pub struct Dialer {
    address: SocketAddr,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dialer({}, tls: {})", self.address, self.tls.is_some())
    }
}

impl Dialer {
    pub fn plain(address: SocketAddr) -> Self {
        Self { address, tls: None }
    }

    /// TLS for a server of this name if there is a configuration for it, else plain TCP.
    pub fn new(address: SocketAddr, host: &str, tls: Option<Arc<ClientConfig>>) -> anyhow::Result<Self> {
        let Some(config) = tls else { return Ok(Self::plain(address)) };
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
        let name = name.with_context(|| format!("{host} cannot be the name in a certificate"))?;
        Ok(Self { address, tls: Some((TlsConnector::from(config), name)) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// TLS configuration; `None` for plain TCP.
    pub fn tls(&self) -> Option<Arc<ClientConfig>> {
        self.tls.as_ref().map(|(connector, _)| Arc::clone(connector.config()))
    }

    /// Opens a connection; the error is one line.
    pub async fn dial(&self, counters: Arc<Counters>) -> anyhow::Result<Transport> {
        let stream = TcpStream::connect(self.address).await;
        let stream = stream.map_err(|error| anyhow::anyhow!("cannot reach {}: {error}", self.address))?;
        self.wrap(stream, counters).await
    }

    /// Begins TLS on a connection if configured; the error is one line.
    pub async fn wrap(&self, stream: TcpStream, counters: Arc<Counters>) -> anyhow::Result<Transport> {
        stream.set_nodelay(true).context("TCP_NODELAY")?;
        let counted = Counted { stream, counters };
        let Some((connector, name)) = &self.tls else { return Ok(Either::Left(counted)) };
        match connector.connect(name.clone(), counted).await {
            Ok(stream) => Ok(Either::Right(Box::new(stream))),
            Err(error) => anyhow::bail!("{}: {}", self.address, tls::explain(&error)),
        }
    }
}

/// Connects to a host, at the first of its addresses that answers.
pub async fn reach(host: &str, port: u16) -> anyhow::Result<TcpStream> {
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let found = tokio::net::lookup_host((name, port)).await;
    let mut failure = format!("{host} has no address");
    for address in found.map_err(|error| anyhow::anyhow!("cannot find an address for {host}: {error}"))? {
        match tokio::time::timeout(CONNECT_TIME_MAX, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                failure = format!("nothing listens at {address}");
            }
            Ok(Err(error)) => failure = format!("cannot reach {address}: {error}"),
            Err(_) => failure = format!("{address} does not answer within {}s", CONNECT_TIME_MAX.as_secs()),
        }
    }
    anyhow::bail!(failure)
}

/// A socket that counts bytes.
#[derive(Debug)]
pub struct Counted {
    stream: TcpStream,
    counters: Arc<Counters>,
}

/// Byte stream of a connection, plain or through TLS.
pub type Transport = Either<Counted, Box<TlsStream<Counted>>>;

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.counters.received_bytes.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        polled
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.counters.sent(&polled);
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.counters.sent(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Time that a request which could not reach the server keeps its slot, so that requests do not spin during an outage.
/// Not part of any measured time.
pub const REST: Duration = Duration::from_millis(10);
/// Delays of reconnecting: short, because a load should see the server come back.
const RECONNECT_FIRST: Duration = Duration::from_millis(5);
const RECONNECT_MAX: Duration = Duration::from_millis(50);
/// Windows and frames so large that an answer never waits for the client.
const STREAM_WINDOW_BYTES: u32 = 64 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 256 << 20;
const FRAME_BYTES_MAX: u32 = 256 << 10;
/// Maximum size of an answer's head.
const HEAD_BYTES_MAX: u32 = 1 << 20;
/// A server under load may reset any stream: that is a result, not an attack.
const NO_LIMIT: Rate = Rate { burst_max: u32::MAX, per_second_max: u32::MAX };

/// Settings of a channel with one connection and this many requests in flight.
pub(super) fn settings(in_flight_max: usize) -> Settings {
    let defaults = Settings::default();
    Settings {
        http2: Config {
            stream_window_bytes: STREAM_WINDOW_BYTES,
            connection_window_bytes: CONNECTION_WINDOW_BYTES,
            frame_bytes_max: FRAME_BYTES_MAX,
            header_list_bytes_max: HEAD_BYTES_MAX,
            header_block_bytes_max: HEAD_BYTES_MAX,
            resets: NO_LIMIT,
            control_frames: NO_LIMIT,
            ..defaults.http2
        },
        connections: 1,
        calls_per_connection_max: in_flight_max,
        reconnect_first: RECONNECT_FIRST,
        reconnect_max: RECONNECT_MAX,
        ..defaults
    }
}

/// Pause of a request that could not reach the server.
pub(super) async fn rest() {
    tokio::time::sleep(REST).await;
}

impl From<client::Traffic> for Traffic {
    fn from(traffic: client::Traffic) -> Self {
        Self { sent_bytes: traffic.sent_bytes, received_bytes: traffic.received_bytes }
    }
}
