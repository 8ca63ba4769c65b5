//! A file as a store: opened, written by the ledger, read by everyone.

use std::{
    path::Path,
    sync::{Arc, Mutex, atomic::AtomicBool},
};

use commit::FileIdentity;
use tokio::sync::watch;

use super::{
    super::interface::{Broken, Found, LedgerConnection, Page, ReadFuture, SalesSums, SignedLog, Store, Which},
    errors::OpenError,
    holds::Clock,
    log::audit::Audit,
    open::{Role, open},
    read::Readers,
    signed::SignedTree,
    state::{Shared, State},
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
        let state = State::load(&writer, &shelf, &settings, &clock, tree).map_err(failed)?;
        drop(writer);
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
            metrics,
        };
        Ok(Self { shared, readers, signed })
    }
}

impl Store for SqliteStore {
    fn connect(&self) -> Result<Box<dyn LedgerConnection + '_>, Broken> {
        self.shared.check_before_opening()?;
        let opened = open(&self.shared.path, Role::Ledger, &self.shared.settings)?;
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

    fn has_reservations(&self) -> bool {
        true
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
        Box::pin(self.readers.book(id))
    }

    fn books(&self, which: Which, after: Option<BookId>, count: usize) -> ReadFuture<'_, Books> {
        Box::pin(self.readers.books(which, after, count))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::durability::Checkpoints, *};

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
