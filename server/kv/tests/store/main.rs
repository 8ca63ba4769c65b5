//! The service's rules, the same for every store and every durability.

mod limits;
mod model;
mod places;
mod rules;
mod snapshots;
mod tails;
mod watches;

use std::{
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use kv::{Clock, Durability, KeyValue, Limits, Settings, StoreKind, Value};
use tempfile::TempDir;

/// Every combination of store and durability.
const KINDS: [(StoreKind, Durability); 4] = [
    (StoreKind::Mutex, Durability::Memory),
    (StoreKind::Mutex, Durability::Log),
    (StoreKind::Concurrent, Durability::Memory),
    (StoreKind::Concurrent, Durability::Log),
];

/// A service with a manual clock.
struct Store {
    kv: KeyValue,
    now_ms: Arc<AtomicU64>,
    settings: Settings,
    folder: TempDir,
}

impl Store {
    fn open((store, durability): (StoreKind, Durability), limits: Limits) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let now_ms = Arc::new(AtomicU64::new(1_000_000));
        let settings = Settings { store, durability, limits, ..Settings::default() };
        let kv = Self::opened(&folder, &settings, &now_ms);
        Self { kv, now_ms, settings, folder }
    }

    fn opened(folder: &TempDir, settings: &Settings, now_ms: &Arc<AtomicU64>) -> KeyValue {
        KeyValue::open(folder.path(), settings.clone(), Clock::Manual(Arc::clone(now_ms))).expect("a store")
    }

    /// Closes and reopens the store, as the next process would.
    fn reopen(&mut self) {
        assert!(self.kv.close(Duration::from_secs(30)));
        self.kv = Self::opened(&self.folder, &self.settings, &self.now_ms);
    }

    fn pass(&self, ms: u64) {
        self.now_ms.fetch_add(ms, SeqCst);
    }

    async fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.kv.retrieve(key).await.ok().map(|entry| entry.value.bytes().to_vec())
    }

    async fn expiry(&self, key: &[u8]) -> Option<NonZeroU64> {
        self.kv.retrieve(key).await.expect("an entry").expires_at_ms
    }
}

fn value(bytes: &[u8]) -> Value {
    Value::copied(bytes)
}
