//! Where servers are: one address, several, or what a name stands for at the moment.
//!
//! Must not know what is spoken there.
//!
//! Implements: no specification.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP port.
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

/// Knows the addresses of the servers behind a channel; a list that never changes is one.
///
/// A channel asks before each connection that it makes and takes the addresses in turn, so its connections are shared
/// out among the servers. A connection that stands stays where it is: servers that come later get calls as connections
/// end, which `Limits::connection_age_max` on the servers sees to.
pub trait Resolver: Send + Sync + 'static {
    /// The addresses at the moment.
    fn resolve(&self) -> impl Future<Output = io::Result<Vec<Address>>> + Send;
}

impl<T: Clone + Into<Address> + Send + Sync + 'static> Resolver for Vec<T> {
    async fn resolve(&self) -> io::Result<Vec<Address>> {
        Ok(self.iter().cloned().map(Into::into).collect())
    }
}

/// What the system's resolver knows of a name.
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

/// A resolver of any type.
pub(super) trait AnyResolver: Send + Sync {
    fn resolve_any(&self) -> Resolved<'_>;
}

impl<R: Resolver> AnyResolver for R {
    fn resolve_any(&self) -> Resolved<'_> {
        Box::pin(self.resolve())
    }
}
