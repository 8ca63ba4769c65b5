//! The reservations whose copies are held: all of them in memory, in the order in which their times end, and in the table
//! `hold`, so that a start does not look for them in the log.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use super::writer::Writer;
use crate::{
    catalogue::Catalogue,
    domain::{BookId, KeyOwner},
    store::OpenHold,
};

/// Most reservations that one transaction ends because their time is over.
const OVERDUE_MAX: usize = 1024;

/// The clock by which reservations end, in milliseconds since the Unix epoch. It starts at the system's time, or at that
/// of the newest entry if the system's is before it, and goes on steadily: who sets the system's clock while the server
/// runs neither ends nor prolongs a reservation.
#[derive(Clone)]
pub(super) struct Clock(Arc<dyn Fn() -> i64 + Send + Sync>);

impl Clock {
    pub(super) fn start(newest_entry_ms: i64) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX).max(newest_entry_ms);
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

/// Open reservations.
#[derive(Default)]
pub(super) struct Holds {
    /// By the end of their time and their numbers.
    open: BTreeMap<(i64, i64), OpenHold>,
    /// How many each owner of keys has.
    owners: HashMap<KeyOwner, usize>,
}

impl Holds {
    /// Reads the table.
    pub(super) fn load(writer: &Writer) -> rusqlite::Result<Self> {
        let mut holds = Self::default();
        writer.each_hold(|hold| holds.insert(hold))?;
        Ok(holds)
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// How many this owner of keys has.
    pub(super) fn of_owner(&self, owner: KeyOwner) -> usize {
        self.owners.get(&owner).copied().unwrap_or_default()
    }

    fn insert(&mut self, hold: OpenHold) {
        self.open.insert((hold.until_ms, hold.number), hold);
        *self.owners.entry(hold.owner).or_default() += 1;
    }

    /// Adds a committed reservation and shows its copies to readers.
    pub(super) fn begin(&mut self, hold: OpenHold, catalogue: &Catalogue) {
        self.insert(hold);
        if let Some(book) = catalogue.get_any(hold.book) {
            book.publish_held(book.held().saturating_add(hold.quantity));
        }
    }

    /// Removes a reservation that has ended; nothing if it was not open.
    pub(super) fn end(&mut self, hold: &OpenHold, catalogue: &Catalogue) {
        let Some(hold) = self.open.remove(&(hold.until_ms, hold.number)) else { return };
        if let Some(count) = self.owners.get_mut(&hold.owner) {
            *count -= 1;
            if *count == 0 {
                self.owners.remove(&hold.owner);
            }
        }
        if let Some(book) = catalogue.get_any(hold.book) {
            book.publish_held(book.held().saturating_sub(hold.quantity));
        }
    }

    /// Shows the held copies of a new catalogue.
    pub(super) fn publish(&self, catalogue: &Catalogue) {
        let mut held = HashMap::<BookId, u32>::new();
        for hold in self.open.values() {
            let copies = held.entry(hold.book).or_default();
            *copies = copies.saturating_add(hold.quantity);
        }
        for (id, copies) in held {
            if let Some(book) = catalogue.get_any(id) {
                book.publish_held(copies);
            }
        }
    }

    /// True if the time of one is over.
    pub(super) fn has_overdue(&self, now_ms: i64) -> bool {
        self.open.first_key_value().is_some_and(|((until_ms, _), _)| *until_ms <= now_ms)
    }

    /// Those whose time is over, the longest first; not all of them if there are many.
    pub(super) fn overdue(&self, now_ms: i64) -> impl Iterator<Item = &OpenHold> {
        self.open.range(..=(now_ms, i64::MAX)).map(|(_, hold)| hold).take(OVERDUE_MAX)
    }
}
