//! State shared by writing connections: the file's contents as known to this process.

use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    time::Instant,
};

use commit::{FileIdentity, Moved};
use tokio::sync::watch;

use super::{
    holds::{Clock, Holds},
    keys::Keys,
    log::{audit::Audit, head::Head, tree::LogTree},
    writer::Writer,
};
use crate::{
    catalogue::{Book, Catalogue, Shelf},
    metrics::Metrics,
    settings::Settings,
};

/// The file's contents. Only the holder of the file's write lock changes it.
pub(super) struct State {
    pub(super) last_number: i64,
    pub(super) keys: Keys,
    pub(super) holds: Holds,
    /// Over the entries up to `last_number`.
    pub(super) tree: LogTree,
    /// Size of the tree at the newest base.
    pub(super) base: u64,
}

impl State {
    /// Reads everything and publishes it. `tree` is over a part of the log.
    pub(super) fn load(
        writer: &Writer,
        shelf: &Shelf,
        settings: &Settings,
        clock: &Clock,
        mut tree: LogTree,
    ) -> rusqlite::Result<Self> {
        let mut topics = HashSet::<Arc<str>>::new();
        let mut books = Vec::new();
        writer.each_book(|book| {
            let topic = topics.get(&*book.topic).map_or_else(|| Arc::from(&*book.topic), Arc::clone);
            topics.insert(Arc::clone(&topic));
            books.push(Arc::new(Book::new(book, topic)));
        })?;
        let keys = Keys::load(writer, settings.keys_in_memory)?;
        let longest_ms = i64::from(settings.limits.reservation_seconds) * 1000;
        let holds = Holds::load(writer, clock.now_ms().saturating_add(longest_ms))?;
        tree.extend(writer.file(), i64::MAX)?;
        // A number in the index is not reused, even if its row is missing.
        tree.skip_to(keys.indexed_up_to());
        let base = LogTree::at_base(writer.file(), u64::MAX)?.frontier().size();
        let catalogue = Catalogue::from_ordered(books);
        holds.publish(&catalogue);
        shelf.replace(catalogue);
        Ok(Self { last_number: tree.last(), keys, holds, tree, base })
    }
}

pub(super) struct Shared {
    pub(super) path: PathBuf,
    /// The file that was opened at the start, and the only one that this process sells from.
    pub(super) file: FileIdentity,
    /// A file that left its place under a connection; none is opened until it is back.
    pub(super) missing: Mutex<Option<FileIdentity>>,
    pub(super) settings: Settings,
    pub(super) shelf: Arc<Shelf>,
    pub(super) state: Mutex<State>,
    /// Used by the thread with a transaction, or with nothing to do.
    pub(super) head: Mutex<Head>,
    pub(super) head_file: FileIdentity,
    /// Held by the thread with a transaction. Its value is the last time a thread gave up waiting for the file's write
    /// lock.
    pub(super) turn: Mutex<Option<Instant>>,
    /// Set when the database file lost pages, until all of it has been rewritten. No checkpoint is made meanwhile,
    /// because `SQLite` discards the WAL after a successful one.
    pub(super) lost_pages: AtomicBool,
    pub(super) last_number: watch::Sender<i64>,
    pub(super) audit: Audit,
    pub(super) clock: Clock,
    pub(super) metrics: Arc<Metrics>,
}

impl Shared {
    /// Fails unless the file that was opened at the start is in its place, and with it what belongs to it.
    pub(super) fn check_before_opening(&self) -> Result<(), Moved> {
        self.file.check()?;
        self.head_file.check()?;
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        missing.as_ref().map_or(Ok(()), FileIdentity::check)?;
        *missing = None;
        Ok(())
    }

    /// Fails if the file, its head or its WAL is not in its place any more. What was committed there may be lost.
    pub(super) fn check(&self, wal: Option<&FileIdentity>) -> Result<(), Moved> {
        self.file.check()?;
        self.head_file.check()?;
        let Some(wal) = wal else { return Ok(()) };
        wal.check().inspect_err(|_| {
            *self.missing.lock().unwrap_or_else(PoisonError::into_inner) = Some(wal.clone());
        })
    }
}
