//! What the ledger promises, put to it through its public face: never oversold, exactly once, nothing hidden
//! from other processes' eyes.

mod foreign;
mod keys;
mod model;

use std::{path::Path, time::Duration};

use bookstore::{
    Bookstore, IdempotencyKey, Settings,
    domain::{BookId, Entry},
    exchange,
    metrics::Metrics,
    store::Page,
};
use tokio::runtime::Runtime;

/// A store in a fresh folder on the disk that holds the build.
struct Shop {
    folder: tempfile::TempDir,
    runtime: Runtime,
}

impl Shop {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).expect("a folder");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        Self { folder, runtime: runtime.expect("a runtime") }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("bookstore.db")
    }

    fn open(&self, settings: &Settings) -> Bookstore {
        Bookstore::open(&self.path(), settings.clone(), Metrics::default()).expect("a store")
    }

    /// Adds books by CSV lines without a header.
    fn import(&self, rows: &str) {
        let csv = format!("id,title,topic,stock,price\n{rows}");
        let options = exchange::Options { progress: &mut |_| {}, skip_bad: None, sample: true };
        exchange::import(&self.path(), csv.as_bytes(), &Settings::default(), options).expect("an import");
    }

    /// The whole log, oldest first.
    fn log(&self, store: &Bookstore) -> Vec<Entry> {
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
