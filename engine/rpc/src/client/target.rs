//! The servers of a channel, and sockets to them: TCP or Unix, with optional TLS.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
#[cfg(feature = "tls")]
use tokio_rustls::{TlsConnector, rustls::ClientConfig, rustls::pki_types::ServerName};

use super::resolve::{Address, AnyResolver};
use super::traffic::{Counted, Counters};

/// The end of the message of a call that spoke TLS to a server that does not.
pub const NO_TLS: &str = "the server does not speak TLS: write http://";

/// The end of the message of a call that did not speak TLS to a server that does.
pub const ONLY_TLS: &str = "the server speaks TLS: write https://";

/// The end of the message of a call to a server whose certificate was refused.
pub const UNTRUSTED: &str = "the server's certificate is not trusted";

/// A failed handshake with what it means.
#[cfg(feature = "tls")]
fn explained(error: io::Error) -> io::Error {
    use tokio_rustls::rustls::{Error, InvalidMessage};

    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => io::Error::other(NO_TLS),
        Some(Error::InvalidCertificate(_)) => io::Error::other(format!("{error}: {UNTRUSTED}")),
        _ => error,
    }
}

/// Addresses of the servers, and how to connect to them.
pub(super) struct Target {
    pub(super) authority: String,
    pub(super) resolver: Box<dyn AnyResolver>,
    /// Connections made so far, so that each uses the next address.
    pub(super) turn: AtomicUsize,
    pub(super) is_https: bool,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// A connection's transport, with or without TLS.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Transport for T {}

impl Target {
    /// Connects to the next server in turn, or to another if that is unreachable.
    pub(super) async fn connect(&self, counters: &Arc<Counters>) -> io::Result<Pin<Box<dyn Transport>>> {
        let mut addresses = self.resolver.resolve_any().await?;
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let first = turn.checked_rem(addresses.len()).unwrap_or(0);
        addresses.rotate_left(first);
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the resolver knows no address");
        for address in addresses {
            match self.connect_to(address, counters).await {
                Ok(transport) => return Ok(transport),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn connect_to(&self, address: Address, counters: &Arc<Counters>) -> io::Result<Pin<Box<dyn Transport>>> {
        match address {
            Address::Tcp(address) => {
                let tcp = TcpStream::connect(address).await?;
                tcp.set_nodelay(true)?;
                self.secure(Counted::new(tcp, Arc::clone(counters))).await
            }
            #[cfg(unix)]
            Address::Unix(path) => {
                self.secure(Counted::new(UnixStream::connect(path).await?, Arc::clone(counters))).await
            }
        }
    }

    #[cfg_attr(not(feature = "tls"), expect(clippy::unused_async, reason = "TLS has a handshake to wait for"))]
    async fn secure<T: Transport + 'static>(&self, io: T) -> io::Result<Pin<Box<dyn Transport>>> {
        #[cfg(feature = "tls")]
        if let Some((config, name)) = &self.tls {
            let connected = TlsConnector::from(Arc::clone(config)).connect(name.clone(), io).await;
            return Ok(Box::pin(connected.map_err(explained)?));
        }
        Ok(Box::pin(io))
    }
}
