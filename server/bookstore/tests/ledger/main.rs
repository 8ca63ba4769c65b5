//! Tests of the ledger's guarantees through its public interface: never oversold, exactly once, and all changes visible
//! to other processes.

#[cfg(feature = "postgres")]
mod crashes;
mod damage;
#[cfg(feature = "postgres")]
mod database;
mod foreign;
mod keys;
#[cfg(feature = "postgres")]
mod migrate;
mod model;
mod moved_files;
mod operators;
#[cfg(feature = "postgres")]
mod quorum;
mod receipts;
mod reservations;
mod verify;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use bookstore::{
    Bookstore, IdempotencyKey, Settings,
    domain::{Actor, BookId, Entry},
    exchange,
    metrics::Metrics,
    store::Page,
};
use tokio::runtime::Runtime;

/// Kind of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A file of `SQLite`.
    File,
    /// A database of `PostgreSQL`.
    #[cfg(feature = "postgres")]
    Database,
}

/// Defines a test of each function for both kinds of store.
macro_rules! both {
    ($($behaviour:ident),+ $(,)?) => {
        mod file {
            $(#[test] fn $behaviour() { super::$behaviour($crate::Kind::File); })+
        }
        #[cfg(feature = "postgres")]
        mod database {
            $(#[test] fn $behaviour() { super::$behaviour($crate::Kind::Database); })+
        }
    };
}
use both;

/// A store in a new folder on the build's disk, or in a new database.
struct Shop {
    folder: tempfile::TempDir,
    url: Option<String>,
    runtime: Runtime,
}

impl Shop {
    fn new() -> Self {
        Self::of(Kind::File)
    }

    fn of(kind: Kind) -> Self {
        Self::at(match kind {
            Kind::File => None,
            #[cfg(feature = "postgres")]
            Kind::Database => Some(postgres_testing::shared().database()),
        })
    }

    fn at(url: Option<String>) -> Self {
        let folder = tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).expect("a folder");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        Self { folder, url, runtime: runtime.expect("a runtime") }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("bookstore.db")
    }

    fn open(&self, settings: &Settings) -> Bookstore {
        self.try_open(settings).expect("a store")
    }

    fn try_open(&self, settings: &Settings) -> Result<Bookstore, bookstore::bookstore::StartError> {
        let settings = Settings { url: self.url.clone(), ..settings.clone() };
        Bookstore::open(&self.path(), settings, Metrics::default())
    }

    /// Runs SQL as another program would.
    fn other_program(&self, sql: &str) {
        match &self.url {
            None => rusqlite::Connection::open(self.path()).and_then(|file| file.execute_batch(sql)).expect("SQL"),
            Some(url) => {
                let done = postgres_testing::shared().psql(postgres_testing::database_of(url), sql);
                assert!(done.status.success(), "{done:?}");
            }
        }
    }

    /// A program that holds the file's write lock until it commits.
    fn lock(&self) -> rusqlite::Connection {
        let other = rusqlite::Connection::open(self.path()).expect("the file");
        other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
        other
    }

    /// Adds books by CSV lines without a header.
    fn import(&self, rows: &str) {
        let csv = format!("id,title,topic,stock,price\n{rows}");
        let options = exchange::Options { progress: &mut |_| {}, skip_bad: None, sample: true };
        let settings = Settings { url: self.url.clone(), ..Settings::default() };
        exchange::import(&self.path(), csv.as_bytes(), &settings, options).expect("an import");
    }

    /// The whole log, oldest first, once it is final.
    fn log(&self, store: &Bookstore) -> Vec<Entry> {
        let newest = self.runtime.block_on(store.log(Page::Before(i64::MAX), 1)).expect("a page").items;
        let begun = Instant::now();
        while newest.first().is_some_and(|entry| entry.number > store.levels().log_number) {
            assert!(begun.elapsed() < Duration::from_secs(30), "the log is not final");
            self.runtime.block_on(tokio::task::yield_now());
        }
        let (mut entries, mut after) = (Vec::new(), 0);
        loop {
            let page = self.runtime.block_on(store.log(Page::After(after), 0)).expect("a page");
            entries.extend(page.items);
            match page.next {
                Some(last) => after = last,
                None => return entries,
            }
        }
    }
}

fn close(store: &Bookstore) {
    assert!(store.close(Duration::from_secs(20)), "the store closes in time");
}

fn id(id: i32) -> BookId {
    BookId::new(id).expect("a valid id")
}

fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::from_wire(text.as_bytes()).expect("a valid key").expect("not empty")
}

fn operator() -> Actor {
    Actor::named("an operator")
}
