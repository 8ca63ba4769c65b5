//! The reservations whose copies are held: all of them in memory, by key and in the order in which their times end, and
//! their numbers in the table `hold`, so that a start does not look for them in the log.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use super::writer::Writer;
use crate::{
    catalogue::Catalogue,
    domain::{BookId, Entry, IdempotencyKey, KeyOwner},
};

/// Most reservations that one transaction ends because their time is over.
const OVERDUE_MAX: usize = 1024;

/// The clock by which reservations end, in milliseconds since the Unix epoch. It starts at the system's time and goes on
/// steadily: setting the system's clock changes no reservation until the next start.
#[derive(Clone)]
pub(super) struct Clock(Arc<dyn Fn() -> i64 + Send + Sync>);

impl Clock {
    pub(super) fn start() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        let started = Instant::now();
        Self(Arc::new(move || at_ms.saturating_add(i64::try_from(started.elapsed().as_millis()).unwrap_or(i64::MAX))))
    }

    /// Reads this time instead, for tests.
    pub(super) fn of(now_ms: Arc<dyn Fn() -> i64 + Send + Sync>) -> Self {
        Self(now_ms)
    }

    pub(super) fn now_ms(&self) -> i64 {
        (self.0)()
    }
}

/// The entries that began the open reservations.
#[derive(Default)]
pub(super) struct Holds {
    /// Each with the end of its time.
    entries: HashMap<IdempotencyKey, (Arc<Entry>, i64)>,
    /// By the end of their time and their numbers.
    by_end: BTreeMap<(i64, i64), Arc<Entry>>,
    /// Number of reservations of each owner of keys.
    owners: HashMap<KeyOwner, usize>,
}

impl Holds {
    /// Reads those of the file. Their time ends at `latest_ms` at the latest, so that none is held for long if the system's
    /// clock was ahead when they began.
    pub(super) fn load(writer: &Writer, latest_ms: i64) -> rusqlite::Result<Self> {
        let mut holds = Self::default();
        writer.open_holds()?.into_iter().for_each(|reserved| holds.insert(reserved, latest_ms));
        Ok(holds)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Number of reservations of this owner of keys.
    pub(super) fn of_owner(&self, owner: KeyOwner) -> usize {
        self.owners.get(&owner).copied().unwrap_or_default()
    }

    /// The one with exactly this key.
    pub(super) fn get(&self, key: &IdempotencyKey) -> Option<&Entry> {
        self.entries.get(key).map(|(reserved, _)| &**reserved)
    }

    fn insert(&mut self, reserved: Entry, latest_ms: i64) {
        let Some((key, until_ms)) = reserved.key.zip(reserved.until_ms) else { return };
        let (reserved, until_ms) = (Arc::new(reserved), until_ms.min(latest_ms));
        self.by_end.insert((until_ms, reserved.number), Arc::clone(&reserved));
        *self.owners.entry(key.owner()).or_default() += 1;
        self.entries.insert(key, (reserved, until_ms));
    }

    /// Adds a committed reservation and shows its copies to readers.
    pub(super) fn begin(&mut self, reserved: &Entry, catalogue: &Catalogue) {
        self.insert(reserved.clone(), i64::MAX);
        if let Some((book, copies)) = catalogue.get_any(reserved.book).zip(reserved.quantity) {
            book.publish_held(book.held().saturating_add(copies));
        }
    }

    /// Removes the reservation with this key, which has ended.
    pub(super) fn end(&mut self, key: &IdempotencyKey, catalogue: &Catalogue) {
        let Some((reserved, until_ms)) = self.entries.remove(key) else { return };
        self.by_end.remove(&(until_ms, reserved.number));
        if let Some(count) = self.owners.get_mut(&key.owner()) {
            *count -= 1;
            if *count == 0 {
                self.owners.remove(&key.owner());
            }
        }
        if let Some((book, copies)) = catalogue.get_any(reserved.book).zip(reserved.quantity) {
            book.publish_held(book.held().saturating_sub(copies));
        }
    }

    /// Shows the held copies of a new catalogue.
    pub(super) fn publish(&self, catalogue: &Catalogue) {
        let mut held = HashMap::<BookId, u32>::new();
        for (reserved, _) in self.entries.values() {
            let copies = held.entry(reserved.book).or_default();
            *copies = copies.saturating_add(reserved.quantity.unwrap_or_default());
        }
        for (id, copies) in held {
            if let Some(book) = catalogue.get_any(id) {
                book.publish_held(copies);
            }
        }
    }

    /// True if the time of one is over.
    pub(super) fn has_overdue(&self, now_ms: i64) -> bool {
        self.by_end.first_key_value().is_some_and(|((until_ms, _), _)| *until_ms <= now_ms)
    }

    /// Those whose time is over, the longest first; not all of them if there are many.
    pub(super) fn overdue(&self, now_ms: i64) -> impl Iterator<Item = &Entry> {
        self.by_end.range(..=(now_ms, i64::MAX)).map(|(_, reserved)| &**reserved).take(OVERDUE_MAX)
    }
}
