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
        longest_ms: i64,
        mut tree: LogTree,
    ) -> rusqlite::Result<Self> {
        let longest_ms = longest_ms.max(longest_reservation_ms(settings));
        let holds = Holds::load(writer, clock.now_ms().saturating_add(longest_ms))?;
        let mut topics = HashSet::<Arc<str>>::new();
        let mut books = Vec::new();
        writer.each_book(|book| {
            let topic = topics.get(&*book.topic).map_or_else(|| Arc::from(&*book.topic), Arc::clone);
            topics.insert(Arc::clone(&topic));
            let held = holds.copies(book.id);
            let book = Book::new(book, topic);
            book.publish_held(held);
            books.push(Arc::new(book));
        })?;
        let keys = Keys::load(writer, settings.keys_in_memory)?;
        tree.extend(writer.file(), i64::MAX)?;
        // A number in the index is not reused, even if its row is missing.
        tree.skip_to(keys.indexed_up_to());
        let base = LogTree::at_base(writer.file(), u64::MAX)?.frontier().size();
        shelf.replace(Catalogue::from_ordered(books));
        Ok(Self { last_number: tree.last(), keys, holds, tree, base })
    }
}

/// The longest time of a reservation by the limit now.
pub(super) fn longest_reservation_ms(settings: &Settings) -> i64 {
    i64::try_from(settings.limits.reservation_seconds.get()).unwrap_or(i64::MAX).saturating_mul(1000)
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
    /// The longest time of a reservation by the limit at the start: a lower one ends none that is open.
    pub(super) longest_ms: i64,
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
