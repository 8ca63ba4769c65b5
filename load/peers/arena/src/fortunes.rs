//! The fortunes: a hash in Redis, read over a fixed number of connections in turn.

use std::{
    fmt,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use redis::{AsyncCommands, Client, RedisError, aio::MultiplexedConnection};

/// As many as in the connectrpc crate's benchmark.
const CONNECTIONS: usize = 8;
const KEY: &str = "fortunes";
const ADDED: &str = "Additional fortune added at request time.";

/// The store of fortunes.
pub struct Fortunes {
    connections: Vec<MultiplexedConnection>,
    next: AtomicUsize,
}

/// Reason why there are no fortunes.
#[derive(Debug)]
pub enum Absent {
    /// The server was started without a store.
    NoStore,
    /// The store failed.
    Redis(RedisError),
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStore => f.write_str("the server was started without --redis"),
            Self::Redis(error) => write!(f, "the store of fortunes failed: {error}"),
        }
    }
}

impl Fortunes {
    /// Connects to the store, if there is one.
    pub async fn connect(address: Option<&str>) -> Result<Self, RedisError> {
        let mut connections = Vec::new();
        if let Some(address) = address {
            let client = Client::open(format!("redis://{address}/"))?;
            for _ in 0..CONNECTIONS {
                connections.push(client.get_multiplexed_async_connection().await?);
            }
        }
        Ok(Self { connections, next: AtomicUsize::new(0) })
    }

    /// The stored fortunes and an additional one, sorted by text.
    pub async fn all(&self) -> Result<Vec<(u32, String)>, Absent> {
        if self.connections.is_empty() {
            return Err(Absent::NoStore);
        }
        let at = self.next.fetch_add(1, Relaxed) % self.connections.len();
        let mut connection = self.connections[at].clone();
        let mut fortunes: Vec<(u32, String)> = connection.hgetall(KEY).await.map_err(Absent::Redis)?;
        fortunes.push((0, ADDED.to_owned()));
        fortunes.sort_unstable_by(|one, other| one.1.cmp(&other.1));
        Ok(fortunes)
    }
}
