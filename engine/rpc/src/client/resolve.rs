//! Server addresses: one, several, or those that a name resolves to.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A Unix socket.
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
/// A channel resolves before each connection and uses the addresses in turn, so its connections are spread over the
/// servers. Open connections stay where they are: new servers get calls as connections end, which
/// `Limits::connection_age_max` on the servers ensures.
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
pub(super) struct Name {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Resolver for Name {
    async fn resolve(&self) -> io::Result<Vec<Address>> {
        Ok(tokio::net::lookup_host((self.host.as_str(), self.port)).await?.map(Address::Tcp).collect())
    }
}

type Resolved<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<Address>>> + Send + 'a>>;

/// A type-erased resolver.
pub(super) trait AnyResolver: Send + Sync {
    fn resolve_any(&self) -> Resolved<'_>;
}

impl<R: Resolver> AnyResolver for R {
    fn resolve_any(&self) -> Resolved<'_> {
        Box::pin(self.resolve())
    }
}
