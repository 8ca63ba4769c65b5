//! A database as a store: opened, written by the ledger, read by everyone.

use std::{
    io, mem,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tokio::{
    runtime::{Builder, Runtime},
    sync::{oneshot, watch},
    time::sleep,
};

use super::{
    super::{
        interface::{Broken, Found, LedgerConnection, Page, ReadFuture, SalesSums, Store, Which},
        sums::Sums,
    },
    errors::PostgresError,
    follow::{Follower, follow, start},
    link::{Link, connect, reconnect_pause},
    read::Readers,
    schema::{self, First, SchemaError, migrate},
    target::{Target, TargetError},
    transaction::PostgresConnection,
    visible::Visible,
};
use crate::{
    catalogue::{Book, Books, Shelf},
    domain::{BookId, Entry, LogFilter, SalesQuery},
    fault::Unavailable,
    metrics::Metrics,
    settings::Settings,
};

/// Longest wait of a start for a primary. Twice the time that Patroni's defaults leave a silent primary.
const START_WAIT: Duration = Duration::from_mins(1);

/// Reason why a database cannot be used. Each message names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The setting is wrong.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// No primary answers, or it has no connection left.
    #[error("cannot use {name}: {reason}")]
    Unreachable {
        /// Hosts and database.
        name: String,
        /// The error of the driver or the database.
        reason: String,
    },
    /// The primary refuses the connection.
    #[error("cannot use {name}: {reason}")]
    Refused {
        /// Hosts and database.
        name: String,
        /// The error of the driver or the database.
        reason: String,
    },
    /// The tables are missing or of another release.
    #[error("{name}: {reason}")]
    Schema {
        /// Hosts and database.
        name: String,
        /// The error and its remedy.
        reason: SchemaError,
    },
    /// The system cannot start a thread.
    #[error("cannot start a thread for the database: {0}; raise the limit on processes")]
    Threads(io::Error),
}

impl DatabaseError {
    /// True if the cause passes by itself, like a failover.
    const fn passes(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Schema { reason: SchemaError::Away(_), .. })
    }
}

/// An open database.
pub(super) struct PostgresStore {
    target: Arc<Target>,
    settings: Settings,
    metrics: Arc<Metrics>,
    visible: Arc<Visible>,
    readers: Readers,
    /// Reason, for callers, of the last connection that could not be opened.
    failed_by: Mutex<Unavailable>,
    /// Ends the background thread on drop.
    _end: oneshot::Sender<()>,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("name", &self.target.name).finish_non_exhaustive()
    }
}

/// Opens the database at `url` as a store; see [`PostgresStore::open`].
pub(crate) fn open_shared(
    url: &str,
    settings: Settings,
    shelf: Arc<Shelf>,
    metrics: Arc<Metrics>,
) -> Result<Arc<dyn Store>, DatabaseError> {
    Ok(Arc::new(PostgresStore::open(url, settings, shelf, metrics)?))
}

impl PostgresStore {
    /// Opens the database at `url`, creates the tables with the sample catalogue if there are none, and loads the
    /// catalogue into `shelf`. Blocks.
    fn open(url: &str, settings: Settings, shelf: Arc<Shelf>, metrics: Arc<Metrics>) -> Result<Self, DatabaseError> {
        let timeout = settings.database_timeout;
        let target = Arc::new(Target::new(url, settings.database_ca.as_deref(), timeout)?);
        let visible = Arc::new(Visible::new(shelf));
        let runtime = runtime().map_err(DatabaseError::Threads)?;
        let follower = runtime.block_on(first(&target, &visible))?;
        let readers =
            Readers::new(Arc::clone(&target), Arc::clone(&visible), runtime.handle().clone(), settings.read_pool);
        let (end, ended) = oneshot::channel::<()>();
        let following = follow(Some(follower), Arc::clone(&target), Arc::clone(&visible), settings.follow_interval);
        let work = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = following => {}
                    // Completes when the sender is dropped.
                    _ = ended => {}
                }
            });
            runtime.shutdown_background();
        };
        thread::Builder::new().name("database".to_owned()).spawn(work).map_err(DatabaseError::Threads)?;
        let failed_by = Mutex::new(Unavailable::Unreachable);
        Ok(Self { target, settings, metrics, visible, readers, failed_by, _end: end })
    }
}

/// Prepares the tables and publishes the catalogue. Waits for an absent primary, because a server may start during a
/// failover, but not for one that refuses.
async fn first(target: &Target, visible: &Arc<Visible>) -> Result<Follower, DatabaseError> {
    let begun = Instant::now();
    let mut is_logged = false;
    loop {
        let error = match prepared(target, First::Sample).await {
            Ok(_) => match start(target, visible).await {
                Ok(follower) => return Ok(follower),
                Err(error) => refused(target, &error),
            },
            Err(error) => error,
        };
        if !error.passes() || begun.elapsed() > START_WAIT {
            return Err(error);
        }
        if !mem::replace(&mut is_logged, true) {
            tracing::warn!(%error, seconds = START_WAIT.as_secs(), "trying again to use the database");
        }
        sleep(reconnect_pause()).await;
    }
}

/// Connects and prepares the tables.
pub(super) async fn prepared(target: &Target, first: First) -> Result<Link, DatabaseError> {
    let mut link = connect(target).await.map_err(|error| refused(target, &error))?;
    let schema = |reason| DatabaseError::Schema { name: target.name.clone(), reason };
    if migrate(&mut link.client, first).await.map_err(schema)? {
        tracing::info!(store = %target.name, "made the tables");
    }
    Ok(link)
}

/// Sums of the database, which is not changed; `None` if it has no tables.
pub(super) async fn look(target: &Target) -> Result<Option<Sums>, DatabaseError> {
    let mut link = connect(target).await.map_err(|error| refused(target, &error))?;
    let schema = |reason| DatabaseError::Schema { name: target.name.clone(), reason };
    schema::look(&mut link.client).await.map_err(schema)
}

fn refused(target: &Target, error: &PostgresError) -> DatabaseError {
    let (name, reason) = (target.name.clone(), error.reason());
    if error.is_away() { DatabaseError::Unreachable { name, reason } } else { DatabaseError::Refused { name, reason } }
}

pub(super) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

impl Store for PostgresStore {
    fn connect(&self) -> Result<Box<dyn LedgerConnection + '_>, Broken> {
        let runtime = runtime().map_err(|reason| Broken(format!("the system starts no runtime: {reason}")))?;
        let Self { target, settings, metrics, visible, .. } = self;
        let opened = PostgresConnection::open(runtime, target, settings, metrics, visible);
        let why = opened.as_ref().err().map_or(Unavailable::Unreachable, PostgresError::unavailable);
        *self.failed_by.lock().unwrap_or_else(PoisonError::into_inner) = why;
        Ok(Box::new(opened?))
    }

    fn locks_books(&self) -> bool {
        true
    }

    fn newest(&self) -> watch::Receiver<i64> {
        self.visible.newest().subscribe()
    }

    fn name(&self) -> String {
        self.target.name.clone()
    }

    fn while_failed(&self) -> Unavailable {
        *self.failed_by.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reopen_pause(&self) -> Option<Duration> {
        Some(reconnect_pause())
    }

    fn age(&self) -> Option<Duration> {
        Some(self.visible.age())
    }

    fn replicas(&self) -> Option<u64> {
        self.visible.replicas()
    }

    fn log(&self, page: Page, count: usize) -> ReadFuture<'_, Vec<Entry>> {
        Box::pin(self.readers.log(page, count))
    }

    fn find(&self, before: i64, filter: LogFilter, count: usize) -> ReadFuture<'_, Found> {
        Box::pin(self.readers.find(before, filter, count))
    }

    fn sales(&self, query: SalesQuery) -> ReadFuture<'_, SalesSums> {
        Box::pin(self.readers.sales(query))
    }

    fn book(&self, id: BookId) -> ReadFuture<'_, Option<Arc<Book>>> {
        Box::pin(self.readers.book(id))
    }

    fn books(&self, which: Which, after: Option<BookId>, count: usize) -> ReadFuture<'_, Books> {
        Box::pin(self.readers.books(which, after, count))
    }
}
