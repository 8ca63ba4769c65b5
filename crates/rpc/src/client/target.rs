//! Where a server is, and a socket to it: TCP, and TLS where asked for.
//!
//! Must not know HTTP/2.
//!
//! Implements: no specification.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
#[cfg(feature = "tls")]
use tokio_rustls::{TlsConnector, rustls::ClientConfig, rustls::pki_types::ServerName};

use super::traffic::{Counted, Counters};

/// Where the server is and how to speak to it.
pub(super) struct Target {
    pub(super) authority: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) is_https: bool,
    #[cfg(feature = "tls")]
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
        #[cfg(feature = "tls")]
        if let Some((config, name)) = &self.tls {
            return Ok(Box::pin(TlsConnector::from(Arc::clone(config)).connect(name.clone(), tcp).await?));
        }
        Ok(Box::pin(tcp))
    }
}
