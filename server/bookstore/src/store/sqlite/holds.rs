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
    domain::{BookId, Entry, Holder, IdempotencyKey},
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

/// An open reservation.
pub(super) struct Open {
    /// The entry that began it.
    pub(super) reserved: Entry,
    /// End of its time.
    until_ms: i64,
    /// `None` for one without a credential that another process began.
    pub(super) holder: Option<Holder>,
}

/// The open reservations.
#[derive(Default)]
pub(super) struct Holds {
    by_key: HashMap<IdempotencyKey, Arc<Open>>,
    /// By the end of their time and their numbers.
    by_end: BTreeMap<(i64, i64), Arc<Open>>,
    /// Number of reservations of each holder that is known.
    holders: HashMap<Holder, usize>,
    /// Held copies of each book that has some, in the catalogue or not.
    copies: HashMap<BookId, u32>,
}

impl Holds {
    /// Reads those of the file. Their time ends at `latest_ms` at the latest, so that none is held for long if the system's
    /// clock was ahead when they began.
    pub(super) fn load(writer: &Writer, latest_ms: i64) -> rusqlite::Result<Self> {
        let mut holds = Self::default();
        writer.open_holds()?.into_iter().for_each(|reserved| holds.insert(reserved, None, latest_ms));
        Ok(holds)
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Number of reservations of this holder.
    pub(super) fn of_holder(&self, holder: Holder) -> usize {
        self.holders.get(&holder).copied().unwrap_or_default()
    }

    /// The one with exactly this key.
    pub(super) fn get(&self, key: &IdempotencyKey) -> Option<&Entry> {
        self.by_key.get(key).map(|open| &open.reserved)
    }

    fn insert(&mut self, reserved: Entry, holder: Option<Holder>, latest_ms: i64) {
        let Some((key, until_ms)) = reserved.key.zip(reserved.until_ms) else { return };
        let holder = holder.or_else(|| Holder::of_owner(key.owner()));
        if let Some(holder) = holder {
            *self.holders.entry(holder).or_default() += 1;
        }
        let copies = self.copies.entry(reserved.book).or_default();
        *copies = copies.saturating_add(reserved.quantity.unwrap_or_default());
        let open = Arc::new(Open { until_ms: until_ms.min(latest_ms), reserved, holder });
        self.by_end.insert((open.until_ms, open.reserved.number), Arc::clone(&open));
        self.by_key.insert(key, open);
    }

    /// Adds a committed reservation and shows its copies to readers.
    pub(super) fn begin(&mut self, reserved: &Entry, holder: Option<Holder>, catalogue: &Catalogue) {
        self.insert(reserved.clone(), holder, i64::MAX);
        self.publish(reserved.book, catalogue);
    }

    /// Removes the reservation with this key, which has ended.
    pub(super) fn end(&mut self, key: &IdempotencyKey, catalogue: &Catalogue) {
        let Some(open) = self.by_key.remove(key) else { return };
        let Open { reserved, until_ms, holder } = &*open;
        self.by_end.remove(&(*until_ms, reserved.number));
        if let Some((holder, count)) = holder.and_then(|holder| Some((holder, self.holders.get_mut(&holder)?))) {
            *count -= 1;
            if *count == 0 {
                self.holders.remove(&holder);
            }
        }
        if let Some(copies) = self.copies.get_mut(&reserved.book) {
            *copies = copies.saturating_sub(reserved.quantity.unwrap_or_default());
            if *copies == 0 {
                self.copies.remove(&reserved.book);
            }
        }
        self.publish(reserved.book, catalogue);
    }

    /// The highest id of a book with held copies.
    pub(super) fn highest(&self) -> Option<BookId> {
        self.copies.keys().max().copied()
    }

    /// Copies held of a book.
    pub(super) fn copies(&self, id: BookId) -> u32 {
        self.copies.get(&id).copied().unwrap_or_default()
    }

    fn publish(&self, id: BookId, catalogue: &Catalogue) {
        if let Some(book) = catalogue.get_any(id) {
            book.publish_held(self.copies(id));
        }
    }

    /// True if the time of one is over.
    pub(super) fn has_overdue(&self, now_ms: i64) -> bool {
        self.by_end.first_key_value().is_some_and(|((until_ms, _), _)| *until_ms <= now_ms)
    }

    /// Those whose time is over, the longest first; not all of them if there are many.
    pub(super) fn overdue(&self, now_ms: i64) -> impl Iterator<Item = &Open> {
        self.by_end.range(..=(now_ms, i64::MAX)).map(|(_, open)| &**open).take(OVERDUE_MAX)
    }
}
