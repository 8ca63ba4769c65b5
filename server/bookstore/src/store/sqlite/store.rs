//! A file as a store: opened, written by the ledger, read by everyone.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
};

use commit::FileIdentity;
use rusqlite::config::DbConfig;
use tokio::sync::watch;

use super::{
    super::interface::{Broken, Found, LedgerConnection, Page, ReadFuture, SalesSums, SignedLog, Store, Which},
    errors::OpenError,
    holds::Clock,
    log::audit::Audit,
    open::{Role, open},
    read::Readers,
    signed::SignedTree,
    state::{Shared, State, longest_reservation_ms},
    transaction::SqliteConnection,
    writer::Writer,
};
use crate::{
    catalogue::{Book, Books, Shelf},
    domain::{BookId, Entry, LogFilter, SalesQuery},
    fault::Unavailable,
    metrics::Metrics,
    settings::Settings,
};

/// An open file.
pub(crate) struct SqliteStore {
    shared: Shared,
    readers: Arc<Readers>,
    signed: SignedTree,
    /// The connection of the start, until the ledger has its own. Without any, another server's failed transaction
    /// could come back: `SQLite` reads the WAL's pages anew, also those that a failed flush never wrote, and the start,
    /// which writes them again, is over.
    first: Mutex<Option<Writer>>,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.shared.path).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the file, creates it with the sample catalogue if it does not exist, and loads the catalogue into `shelf`.
    pub(crate) fn open(
        path: &Path,
        settings: Settings,
        shelf: Arc<Shelf>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, OpenError> {
        let failed = |reason| OpenError::from_sqlite(path, &reason);
        let opened = open(path, Role::Owner, &settings)?;
        let unusable = |reason: String| OpenError::Other { path: path.to_owned(), reason };
        let (head, tree) = opened.head.ok_or_else(|| unusable("it was opened without its head".to_owned()))?;
        if opened.created {
            tracing::info!(path = %path.display(), "created a store with the sample catalogue");
        }
        let writer = Writer::new(opened.connection);
        writer.begin_read().map_err(failed)?;
        let clock = settings.clock.as_ref().map_or_else(Clock::start, |clock| Clock::of(Arc::clone(clock)));
        let longest_ms = longest_reservation_ms(&settings);
        let state = State::load(&writer, &shelf, &settings, &clock, longest_ms, tree).map_err(failed)?;
        writer.rollback().map_err(failed)?;
        // By now another file may have its name: closing it must not remove that one's WAL.
        writer.file().set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
        let file = FileIdentity::of(path).map_err(|reason| unusable(reason.to_string()))?;
        let readers = Arc::new(Readers::new(path.to_owned(), settings.clone()));
        let signed = SignedTree::open(path, Arc::clone(&readers), &settings)?;
        let audit = Audit::start(path, &settings)?;
        let shared = Shared {
            path: path.to_owned(),
            file,
            missing: Mutex::default(),
            settings,
            shelf,
            last_number: watch::Sender::new(state.last_number),
            state: Mutex::new(state),
            head_file: head.identity().clone(),
            head: Mutex::new(head),
            turn: Mutex::default(),
            lost_pages: AtomicBool::new(false),
            audit,
            clock,
            longest_ms,
            metrics,
        };
        Ok(Self { shared, readers, signed, first: Mutex::new(Some(writer)) })
    }

    /// Adds the held copies, which are in memory alone, to a book from the file.
    fn show_held(&self, book: &Book) {
        if let Some(known) = self.shared.shelf.load().get_any(book.id()) {
            book.publish_held(known.held());
        }
    }
}

impl Store for SqliteStore {
    fn connect(&self) -> Result<Box<dyn LedgerConnection + '_>, Broken> {
        self.shared.check_before_opening()?;
        let opened = open(&self.shared.path, Role::Ledger, &self.shared.settings)?;
        self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(Box::new(SqliteConnection::new(&self.shared, Writer::new(opened.connection))))
    }

    fn locks_books(&self) -> bool {
        false
    }

    fn newest(&self) -> watch::Receiver<i64> {
        self.shared.last_number.subscribe()
    }

    fn signed_log(&self) -> Option<&dyn SignedLog> {
        Some(&self.signed)
    }

    fn name(&self) -> String {
        self.shared.path.display().to_string()
    }

    fn while_failed(&self) -> Unavailable {
        Unavailable::Recovering
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
        Box::pin(async move {
            let found = self.readers.book(id).await?;
            if let Some(book) = &found {
                self.show_held(book);
            }
            Ok(found)
        })
    }

    fn books(&self, which: Which, after: Option<BookId>, count: usize) -> ReadFuture<'_, Books> {
        Box::pin(async move {
            let found = self.readers.books(which, after, count).await?;
            for book in found.iter() {
                self.show_held(book);
            }
            Ok(found)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{durability::Checkpoints, wal::log_path},
        *,
    };

    #[test]
    fn from_the_start_on_a_connection_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let store = SqliteStore::open(&path, Settings::default(), Arc::default(), Arc::default()).unwrap();
        store.shared.audit.stop();
        let other = || open(&path, Role::Tool, &store.shared.settings).unwrap().connection;
        drop(other());
        assert!(log_path(&path).exists(), "the other was not the last, which would remove it");
        let ledger = store.connect().ok().unwrap();
        drop(other());
        assert!(log_path(&path).exists());
        assert!(store.first.lock().unwrap().is_none(), "it is the ledger's now");
        drop(ledger);
    }

    #[test]
    fn an_audit_ends_when_the_wal_has_grown_to_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let mut store = SqliteStore::open(&path, Settings::default(), Arc::default(), Arc::default()).unwrap();
        store.shared.audit = Audit::endless(&path);
        let shared = &store.shared;
        let writer = Writer::new(open(&path, Role::Tool, &shared.settings).unwrap().connection);
        writer.file().execute("UPDATE book SET price_cents = price_cents + 1", ()).unwrap();
        let pages = writer.log_pages().unwrap();
        let mut checkpoints = Checkpoints { due_at: 1, audit_max: pages + 1 };
        checkpoints.make_if_due(shared, &writer).unwrap();
        assert!(checkpoints.due_at > pages, "not again with each batch");
        assert!(!writer.checkpoint().unwrap(), "the audit reads the file as it was");
        checkpoints = Checkpoints { due_at: 1, audit_max: pages };
        checkpoints.make_if_due(shared, &writer).unwrap();
        assert!(!shared.audit.stop(), "it has ended");
        assert!(writer.checkpoint().unwrap(), "nothing reads the file as it was");
    }
}
