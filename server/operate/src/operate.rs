//! The handle that transports and pages use.

use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use bytes::Bytes;
use futures_util::Stream;
use hosting::Error;
use quire_rpc::server::{ConnectionRegistry, OpenConnection};
use tokio::sync::watch;

use crate::figures::{Figures, Point, ServiceHealth};

/// Pieces of a backup's file, in their order.
pub type BackupPieces = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// Makes a backup of the data folder.
pub type MakeBackup = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<BackupPieces, Error>> + Send>> + Send + Sync>;

/// The parts of a server that figures and backups are made from.
pub struct Sources {
    /// The page `/metrics`.
    pub metrics: Box<dyn Fn() -> String + Send + Sync>,
    /// The services' health; `trouble` of the server as a whole, if any, is that of a service named `server`.
    pub health: Box<dyn Fn() -> Vec<ServiceHealth> + Send + Sync>,
    /// Makes a backup.
    pub backup: MakeBackup,
}

/// The operators' view of a server; clones are the same.
#[derive(Clone)]
pub struct Operate(Arc<Inner>);

struct Inner {
    connections: ConnectionRegistry,
    sources: OnceLock<Sources>,
    newest: watch::Sender<Arc<Figures>>,
    points: Mutex<VecDeque<Arc<Point>>>,
}

impl Operate {
    /// A view of the server whose connections are in `connections`; without figures until it has its sources.
    pub fn new(connections: ConnectionRegistry) -> Self {
        let newest = watch::Sender::new(Arc::default());
        Self(Arc::new(Inner { connections, sources: OnceLock::new(), newest, points: Mutex::default() }))
    }

    /// The newest sample, which changes once a second.
    pub fn newest(&self) -> watch::Receiver<Arc<Figures>> {
        self.0.newest.subscribe()
    }

    /// The points of the last hour, oldest first.
    pub fn history(&self) -> Vec<Arc<Point>> {
        self.0.points.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// The open connections over gRPC and HTTP, those that moved most bytes first.
    pub fn connections(&self) -> Vec<OpenConnection> {
        let mut open = self.0.connections.list();
        open.sort_by_key(|open| std::cmp::Reverse(open.bytes_read.saturating_add(open.bytes_written)));
        open
    }

    /// Ends a connection at once, with its calls; false if none has this id. `by` is the operator's name, for the log.
    pub fn cut(&self, id: u64, by: &str) -> bool {
        let was_open = self.0.connections.cut(id);
        tracing::warn!(id, by, was_open, "an operator cut a connection");
        was_open
    }

    /// Makes a backup of the data folder: the file that `quire backup` writes.
    pub async fn backup(&self) -> Result<BackupPieces, Error> {
        match self.0.sources.get() {
            Some(sources) => (sources.backup)().await,
            None => Err("the server is still starting; try again after a pause".into()),
        }
    }
}

impl fmt::Debug for Operate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Operate({:?})", self.0.connections)
    }
}
