//! The readers' view of the database, from three sources: the ledger's own commits, other servers' notifications, and
//! the follower's reads of the log.

use std::{
    collections::HashSet,
    mem,
    ops::RangeInclusive,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use rangemap::RangeInclusiveSet;
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, watch};

use super::{
    super::interface::Changes,
    announcements::{Announcement, RANGES_MAX},
};
use crate::{
    catalogue::{Book, Catalogue, Shelf},
    domain::{BookId, NewBook},
    money::Cents,
};

/// State of a book after the entry with this number; `None` if removed.
pub(super) type Version = (BookId, i64, Option<(NewBook, u32)>);

/// Numbers that distinguish old from new information.
#[derive(Debug, Default)]
struct Known {
    /// The newest applied entry of each book that has one above the horizon.
    versions: FxHashMap<BookId, i64>,
    /// Everything up to this entry was applied, and no entry below it can still be committed.
    horizon: i64,
    /// Numbers above the horizon of completely applied transactions.
    announced: RangeInclusiveSet<i64>,
    /// Something unannounced was committed above the horizon.
    is_unannounced: bool,
    /// This server's commits not yet announced.
    announcement: Announcement,
}

/// Parts of the log that must be read.
#[derive(Debug)]
pub(super) struct Lacking {
    /// Everything up to this entry is known.
    pub(super) horizon: i64,
    /// There are unannounced entries above it.
    pub(super) is_unannounced: bool,
    /// Unannounced numbers.
    pub(super) gaps: Vec<RangeInclusive<i64>>,
}

/// The catalogue, protected from going back in time.
#[derive(Debug)]
pub(super) struct Visible {
    shelf: Arc<Shelf>,
    known: Mutex<Known>,
    newest: watch::Sender<i64>,
    /// The ledger has commits to announce to the other servers.
    pub(super) committed: Notify,
    begun: Instant,
    /// Last time the view was current, in milliseconds after `begun`.
    current_ms: AtomicI64,
    /// Replicas of the primary; -1 if their number is not known.
    replicas: AtomicI64,
}

impl Visible {
    pub(super) fn new(shelf: Arc<Shelf>) -> Self {
        Self {
            shelf,
            known: Mutex::default(),
            newest: watch::Sender::new(0),
            committed: Notify::new(),
            begun: Instant::now(),
            current_ms: AtomicI64::new(0),
            replicas: AtomicI64::new(-1),
        }
    }

    /// Applies a commit of this server, whose transaction drew these numbers.
    pub(super) fn publish(&self, changes: &Changes, drawn: Vec<RangeInclusive<i64>>) {
        let numbers: FxHashMap<BookId, i64> = changes.entries.iter().map(|entry| (entry.book, entry.number)).collect();
        let mut announcement = Announcement::default();
        for change in &changes.books {
            let number = numbers.get(&change.id).copied().unwrap_or_default();
            if let Some(price) = Cents::new(change.price_cents.1) {
                announcement.add_book(change.id, (number, change.stock.1, price, change.held.1));
            }
        }
        // Without its numbers other servers read the transaction in the log: an announcement has no texts.
        if changes.puts.is_empty() {
            announcement.add_numbers(drawn);
        }
        let mut known = self.lock();
        known.show(&announcement, &self.shelf);
        if !changes.puts.is_empty() {
            known.put(changes, &numbers, &self.shelf);
        }
        known.announcement.add(announcement);
        drop(known);
        self.committed.notify_one();
    }

    /// Applies another server's notification.
    pub(super) fn announced(&self, announcement: &Announcement) {
        self.lock().show(announcement, &self.shelf);
    }

    /// Notes that something unannounced was committed.
    pub(super) fn set_unannounced(&self) {
        self.lock().is_unannounced = true;
    }

    /// Takes this server's commits since the last call.
    pub(super) fn take_announcement(&self) -> Announcement {
        mem::take(&mut self.lock().announcement)
    }

    /// Parts of the log that must be read; only gaps up to `due`.
    pub(super) fn lacking(&self, due: i64) -> Lacking {
        let mut known = self.lock();
        let (horizon, is_unannounced) = (known.horizon, mem::take(&mut known.is_unannounced));
        Lacking { horizon, is_unannounced, gaps: known.gaps(horizon, due).collect() }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the follower's reads of the log.
    pub(super) fn apply(&self, read: Vec<Version>) {
        let mut known = self.lock();
        let newer: Vec<Version> = read.into_iter().filter(|(id, number, _)| known.is_newer(*id, *number)).collect();
        known.versions.extend(newer.iter().map(|(id, number, _)| (*id, *number)));
        self.shelf.apply(newer.into_iter().map(|(id, _, book)| (id, book)));
    }

    /// Notes that no entry up to `passed` can still be committed, and that the log had no unapplied ones up to `read`
    /// after that. Returns the horizon, which stays below other unannounced numbers.
    pub(super) fn pass(&self, passed: i64, read: i64) -> i64 {
        let mut known = self.lock();
        // Unread entries may be below.
        if !known.is_unannounced {
            let gap = known.gaps(read, passed).next().map(|gap| gap.start() - 1);
            known.pass(gap.unwrap_or(passed));
        }
        known.horizon
    }

    /// Replaces all books, current up to `horizon`. Later entries are read next.
    pub(super) fn replace(&self, books: Vec<(NewBook, u32)>, horizon: i64) {
        let mut topics = HashSet::<Arc<str>>::new();
        let books = books.into_iter().map(|(book, held)| {
            let topic = topics.get(&*book.topic).map_or_else(|| Arc::from(&*book.topic), Arc::clone);
            topics.insert(Arc::clone(&topic));
            let book = Book::new(book, topic);
            book.publish_held(held);
            Arc::new(book)
        });
        let catalogue = Catalogue::from_ordered(books.collect());
        let mut known = self.lock();
        // Notifications may be newer than these books; and another primary's commits may be lost.
        *known = Known { horizon, is_unannounced: true, ..Known::default() };
        self.shelf.replace(catalogue);
    }

    pub(super) fn horizon(&self) -> i64 {
        self.lock().horizon
    }

    /// The newest entry for followers of the log.
    pub(super) fn newest(&self) -> &watch::Sender<i64> {
        &self.newest
    }

    /// Notes that the view was current at `moment`.
    pub(super) fn set_current(&self, moment: Instant) {
        let since = moment.saturating_duration_since(self.begun);
        self.current_ms.store(i64::try_from(since.as_millis()).unwrap_or(i64::MAX), Relaxed);
    }

    pub(super) fn set_replicas(&self, count: Option<i64>) {
        self.replicas.store(count.unwrap_or(-1), Relaxed);
    }

    /// Number of the primary's replicas, if it is known.
    pub(super) fn replicas(&self) -> Option<u64> {
        u64::try_from(self.replicas.load(Relaxed)).ok()
    }

    /// Greatest age of the view.
    pub(super) fn age(&self) -> Duration {
        let current = Duration::from_millis(self.current_ms.load(Relaxed).unsigned_abs());
        self.begun.elapsed().saturating_sub(current)
    }
}

impl Known {
    fn show(&mut self, announcement: &Announcement, shelf: &Shelf) {
        let catalogue = shelf.load();
        for (id, (number, stock, price, held)) in announcement.books() {
            if !self.is_newer(id, number) {
                continue;
            }
            match catalogue.get_any(id) {
                Some(book) => {
                    self.versions.insert(id, number);
                    book.publish(stock, price);
                    book.publish_held(held);
                }
                // Another program just added it.
                None => self.is_unannounced = true,
            }
        }
        self.announced.extend(announcement.numbers());
        if self.announced.len() > RANGES_MAX {
            self.announced.clear();
        }
    }

    /// Shows whole books that this server changed.
    fn put(&mut self, changes: &Changes, numbers: &FxHashMap<BookId, i64>, shelf: &Shelf) {
        let newer = changes.puts.iter().filter_map(|put| {
            let (id, number) = (put.after.id, *numbers.get(&put.after.id)?);
            self.is_newer(id, number).then(|| (id, number, (put.after.clone(), put.held)))
        });
        let newer: Vec<_> = newer.collect();
        self.versions.extend(newer.iter().map(|(id, number, _)| (*id, *number)));
        shelf.apply(newer.into_iter().map(|(id, _, book)| (id, Some(book))));
    }

    /// Unannounced numbers above the horizon and `after`, up to `last`.
    fn gaps(&self, after: i64, last: i64) -> impl Iterator<Item = RangeInclusive<i64>> {
        let first = after.max(self.horizon) + 1;
        let range = (first <= last).then_some(first..=last);
        range.into_iter().flat_map(|range| self.announced.gaps(&range).collect::<Vec<_>>())
    }

    fn pass(&mut self, horizon: i64) {
        self.horizon = horizon.max(self.horizon);
        let horizon = self.horizon;
        self.versions.retain(|_, number| *number > horizon);
        self.announced.remove(i64::MIN..=horizon);
    }

    fn is_newer(&self, id: BookId, number: i64) -> bool {
        number > self.versions.get(&id).copied().unwrap_or(self.horizon)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn visible() -> Visible {
        let visible = Visible::new(Arc::default());
        visible.replace(sample::books().map(|book| (book, 0)).collect(), 0);
        visible.lacking(0);
        visible
    }

    fn announcement(numbers: RangeInclusive<i64>, id: i32, number: i64, stock: u32) -> Announcement {
        let mut announcement = Announcement::default();
        announcement.add_numbers([numbers]);
        announcement.add_book(BookId::new(id).expect("an id"), (number, stock, Cents::default(), 0));
        announcement
    }

    fn stock(visible: &Visible) -> u32 {
        visible.shelf.load().get(BookId::new(53477).expect("an id")).expect("a book").stock()
    }

    #[test]
    fn the_horizon_passes_announced_and_read_numbers_and_no_others() {
        let visible = visible();
        visible.announced(&announcement(1..=32, 53477, 5, 7));
        visible.announced(&announcement(65..=96, 53477, 70, 6));
        assert_eq!(visible.pass(96, 0), 32, "the numbers up to 64 are not announced");
        assert_eq!(visible.lacking(96).gaps, [33..=64]);
        assert_eq!(visible.pass(96, 48), 48, "the log was read up to there");
        assert_eq!(visible.pass(80, 64), 80, "later numbers may still be committed");
        assert_eq!(visible.pass(200, 200), 200);
        assert_eq!(visible.pass(100, 100), 200, "it never goes back");
        assert!(visible.lacking(200).gaps.is_empty());
    }

    #[test]
    fn the_log_is_read_for_an_unknown_book_before_the_horizon_passes_its_announcement() {
        let visible = visible();
        visible.announced(&announcement(1..=32, 7, 5, 7));
        assert_eq!(visible.pass(32, 32), 0);
        assert!(visible.lacking(0).is_unannounced);
        assert_eq!(visible.pass(32, 32), 32);
    }

    #[test]
    fn more_ranges_than_are_kept_are_read_in_the_log() {
        let visible = visible();
        let most = i64::try_from(RANGES_MAX).expect("a small number");
        for number in 0..most {
            visible.announced(&announcement(number * 64 + 1..=number * 64 + 32, 53477, 5, 7));
        }
        assert_eq!(visible.lacking(i64::MAX - 1).gaps.len(), RANGES_MAX);
        visible.announced(&announcement(most * 64 + 1..=most * 64 + 32, 53477, 5, 7));
        assert_eq!(visible.lacking(64).gaps, [1..=64]);
    }

    #[test]
    fn late_announcements_change_nothing() {
        let visible = visible();
        visible.announced(&announcement(1..=32, 53477, 5, 7));
        visible.announced(&announcement(1..=32, 53477, 4, 8));
        assert_eq!(stock(&visible), 7, "of the same book a newer entry was shown");
        visible.pass(32, 0);
        visible.announced(&announcement(1..=32, 53477, 6, 9));
        assert_eq!(stock(&visible), 7, "below the horizon everything was shown");
    }
}
