//! The store's actions: check a request, do the simulated work, and access the table as configured.
//!
//! With [`StoreKind::Concurrent`] no lock is held during a call's work.

use std::{
    num::NonZeroU64,
    ops::ControlFlow,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use hosting::Client;
use tokio::sync::{Mutex, MutexGuard, watch};

use crate::{
    entry::{Clock, Entry, Key, Value, Version},
    fault::{Fault, Limit},
    journal::{Journal, OpenError},
    metrics::{Histograms, Levels},
    settings::{Durability, Limits, Settings, StoreKind},
    snapshot::{Snapshot, Source},
    table::Table,
    timer,
    watch::Watch,
    write::{Action, Outcome},
};

/// Interval of sweeps for expired entries.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);

/// Most entries removed per sweep, so that other tasks of the thread do not wait long; if there are more, the next
/// sweep follows at once.
const SWEEP_ENTRIES_MAX: usize = 256;

/// Request of one page of a scan.
#[derive(Clone, Debug, Default)]
pub struct Scan<'a> {
    /// Only keys with this prefix.
    pub prefix: &'a [u8],
    /// Only keys after this one.
    pub start_after: Option<&'a [u8]>,
    /// Number of entries; 0: as many as the limit allows.
    pub entries: usize,
    /// Omits values, which then do not count towards the page's bytes.
    pub keys_only: bool,
}

/// The key-value service; clones are the same service.
#[derive(Clone, Debug)]
pub struct KeyValue {
    inner: Arc<Inner>,
    /// Deadline of writes through this handle.
    deadline: Option<Instant>,
}

#[derive(Debug)]
struct Inner {
    settings: Settings,
    table: Arc<Table>,
    /// Held for whole calls with [`StoreKind::Mutex`], otherwise unused.
    lock: Mutex<()>,
    journal: Option<Journal>,
    histograms: Histograms,
    /// Never turns false, since memory does not fail.
    always_healthy: watch::Sender<bool>,
}

impl KeyValue {
    /// Opens the service; with [`Durability::Log`] loads the folder's entries. Blocks.
    pub fn open(folder: &Path, settings: Settings, clock: Clock) -> Result<Self, OpenError> {
        let table = Arc::new(Table::new(&settings.limits, clock));
        let histograms = Histograms::default();
        let journal = match settings.durability {
            Durability::Memory => None,
            Durability::Log => Some(Journal::open(folder, Arc::clone(&table), &settings.limits, histograms.clone())?),
        };
        let (lock, always_healthy) = (Mutex::new(()), watch::Sender::new(true));
        let inner = Inner { settings, table, lock, journal, histograms, always_healthy };
        Ok(Self { inner: Arc::new(inner), deadline: None })
    }

    /// A handle with a deadline: a write that cannot be on disk by then is refused.
    #[must_use]
    pub fn until(&self, deadline: Option<Instant>) -> Self {
        Self { inner: Arc::clone(&self.inner), deadline }
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.inner.settings.limits
    }

    async fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        match self.inner.settings.store {
            StoreKind::Mutex => Some(self.inner.lock.lock().await),
            StoreKind::Concurrent => None,
        }
    }

    /// Passes a key's entry to `read`; `None` if the call would have to wait.
    #[inline]
    pub fn read_now<R>(&self, key: &[u8], read: impl FnOnce(&Entry) -> R) -> Option<Result<R, Fault>> {
        if !self.inner.settings.read_delay.is_zero() {
            return None;
        }
        let turn = match self.inner.settings.store {
            StoreKind::Concurrent => None,
            StoreKind::Mutex => Some(self.inner.lock.try_lock().ok()?),
        };
        let found = self.inner.table.read(key, read).ok_or(Fault::Missing);
        drop(turn);
        Some(found)
    }

    /// Replaces a value of any version, without an expiry. Returns `None` and changes nothing if the call would have to
    /// wait or would be refused.
    #[inline]
    pub fn update_now(&self, key: &[u8], value: &[u8]) -> Option<Version> {
        let Inner { settings, table, lock, journal, .. } = &*self.inner;
        let is_at_once = settings.write_delay.is_zero() && journal.is_none();
        let fits = key.len() <= settings.limits.key_bytes && value.len() <= settings.limits.value_bytes;
        if !is_at_once || !fits {
            return None;
        }
        let _turn = match settings.store {
            StoreKind::Concurrent => None,
            StoreKind::Mutex => Some(lock.try_lock().ok()?),
        };
        table.overwrite(key, value)
    }

    /// The entry of a key.
    pub async fn retrieve(&self, key: &[u8]) -> Result<Entry, Fault> {
        let _turn = self.turn().await;
        timer::sleep(self.inner.settings.read_delay).await;
        self.inner.table.read(key, Entry::clone).ok_or(Fault::Missing)
    }

    /// Creates an entry, which expires after `time_to_live` if given.
    pub async fn create(&self, key: &[u8], value: Value, time_to_live: Option<Duration>) -> Result<Version, Fault> {
        let expires_at_ms = self.expires_at_ms(time_to_live);
        put(self.write(key, Action::Create { value, expires_at_ms }).await?)
    }

    /// Replaces a value, if it has the expected version.
    pub async fn update(
        &self,
        key: &[u8],
        value: Value,
        expected: Option<Version>,
        time_to_live: Option<Duration>,
    ) -> Result<Version, Fault> {
        let expires_at_ms = self.expires_at_ms(time_to_live);
        put(self.write(key, Action::Update { value, expires_at_ms, expected }).await?)
    }

    /// Creates or replaces a value.
    pub async fn put(&self, key: &[u8], value: Value, time_to_live: Option<Duration>) -> Result<Version, Fault> {
        let expires_at_ms = self.expires_at_ms(time_to_live);
        put(self.write(key, Action::Put { value, expires_at_ms }).await?)
    }

    /// Removes a value, if it has the expected version; true if it existed.
    pub async fn delete(&self, key: &[u8], expected: Option<Version>) -> Result<bool, Fault> {
        Ok(self.write(key, Action::Delete { expected }).await? == Outcome::Removed)
    }

    fn expires_at_ms(&self, time_to_live: Option<Duration>) -> Option<NonZeroU64> {
        let after = u64::try_from(time_to_live?.as_millis()).unwrap_or(u64::MAX);
        NonZeroU64::new(self.inner.table.clock.now_ms().saturating_add(after))
    }

    async fn write(&self, key: &[u8], action: Action) -> Result<Outcome, Fault> {
        let limits = &self.inner.settings.limits;
        if key.len() > limits.key_bytes {
            return Err(Fault::Limit { limit: Limit::KeyBytes, at: limits.key_bytes });
        }
        if action.value().is_some_and(|(value, _)| value.bytes().len() > limits.value_bytes) {
            return Err(Fault::Limit { limit: Limit::ValueBytes, at: limits.value_bytes });
        }
        let _turn = self.turn().await;
        timer::sleep(self.inner.settings.write_delay).await;
        match &self.inner.journal {
            None => self.inner.table.write(Key::from(key), &action),
            Some(journal) => journal.write(Key::from(key), action, self.deadline).await,
        }
    }

    /// Visits entries in key order until a limit of the page is reached or `visit` breaks. Returns the key to continue
    /// after, if there may be more.
    pub async fn scan(
        &self,
        scan: &Scan<'_>,
        mut visit: impl FnMut(&[u8], &Entry) -> ControlFlow<()>,
    ) -> Result<Option<Key>, Fault> {
        let limits = &self.inner.settings.limits;
        if scan.entries > limits.page_entries {
            return Err(Fault::Limit { limit: Limit::PageEntries, at: limits.page_entries });
        }
        let wanted = if scan.entries == 0 { limits.page_entries } else { scan.entries };
        let _turn = self.turn().await;
        let keys = self.inner.table.keys(scan.prefix, scan.start_after, wanted);
        let (mut bytes, mut last) = (0, None);
        for key in &keys {
            let flow = self.inner.table.read(key, |entry| {
                bytes += key.len() + if scan.keys_only { 0 } else { entry.value.bytes().len() };
                // A page holds at least one entry, however large.
                (last.is_none() || bytes <= limits.page_bytes).then(|| visit(key, entry))
            });
            match flow {
                Some(Some(ControlFlow::Continue(()))) => last = Some(key),
                Some(Some(ControlFlow::Break(()))) => return Ok(Some(Key::clone(key))),
                Some(None) => return Ok(last.map(Key::clone)),
                // Removed meanwhile.
                None => {}
            }
        }
        Ok(keys.last().filter(|_| keys.len() == wanted).map(Key::clone))
    }

    /// Every entry, for a backup: consistent with [`Durability::Log`], otherwise as in a scan.
    pub fn snapshot(&self) -> Result<Snapshot, Fault> {
        Ok(Snapshot::new(match &self.inner.journal {
            Some(journal) => Source::Log(journal.view()?),
            None => Source::Memory(Arc::clone(&self.inner.table)),
        }))
    }

    /// Watches changes of the keys with a prefix, from now on, for this client.
    pub fn watch(&self, prefix: &[u8], client: Client) -> Result<Watch, Fault> {
        if prefix.len() > self.inner.settings.limits.key_bytes {
            return Err(Fault::Limit { limit: Limit::KeyBytes, at: self.inner.settings.limits.key_bytes });
        }
        self.inner.table.hub.watch(prefix, client)
    }

    /// Ends every watch.
    pub fn end_watches(&self) {
        self.inner.table.hub.end();
    }

    /// Removes some expired entries, which already count as absent; returns how many it found.
    pub async fn sweep(&self) -> usize {
        let due = self.inner.table.due(SWEEP_ENTRIES_MAX);
        let found = due.len();
        for (key, version) in due {
            let action = Action::Expire { version };
            let done = match &self.inner.journal {
                None => self.inner.table.write(key, &action),
                Some(journal) => journal.write(key, action, None).await,
            };
            if done.is_err() {
                return 0;
            }
        }
        found
    }

    /// Sweeps until dropped.
    pub async fn keep_sweeping(&self) {
        loop {
            if self.sweep().await < SWEEP_ENTRIES_MAX {
                tokio::time::sleep(SWEEP_INTERVAL).await;
            } else {
                tokio::task::yield_now().await;
            }
        }
    }

    /// The time that decides expiry, in milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.inner.table.clock.now_ms()
    }

    /// True while writes are accepted; false while a failed journal is read back.
    pub fn healthy(&self) -> watch::Receiver<bool> {
        match &self.inner.journal {
            Some(journal) => journal.healthy(),
            None => self.inner.always_healthy.subscribe(),
        }
    }

    /// The problem, for operators; `None` if there is none.
    pub fn trouble(&self) -> Option<String> {
        if *self.healthy().borrow() {
            return None;
        }
        let reason = self.inner.journal.as_ref().and_then(Journal::trouble);
        let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        Some(format!("the key-value journal failed and is being read back; writes of keys are refused{reason}"))
    }

    /// Histograms of the journal.
    pub(crate) fn histograms(&self) -> &Histograms {
        &self.inner.histograms
    }

    /// Current usage and state.
    pub fn levels(&self) -> Levels {
        let (table, journal) = (&self.inner.table, self.inner.journal.as_ref());
        Levels {
            entries: table.usage.entries(),
            bytes: table.usage.bytes(),
            watchers: table.hub.count(),
            writes_queued: journal.map_or(0, Journal::queued),
            failures: journal.map_or(0, Journal::failures),
            healthy: *self.healthy().borrow(),
        }
    }

    /// Stops accepting writes, and waits until those accepted are on disk; true if that was in time. Blocks.
    pub fn close(&self, timeout: Duration) -> bool {
        self.end_watches();
        self.inner.journal.as_ref().is_none_or(|journal| journal.close(timeout))
    }
}

/// The version of a successful put.
fn put(outcome: Outcome) -> Result<Version, Fault> {
    match outcome {
        Outcome::Put(version) => Ok(version),
        Outcome::Removed | Outcome::Nothing => Err(Fault::Missing),
    }
}
