//! What readers see of the database, from two sources: the ledger's own commits, and what the follower reads of all
//! servers'. Must not know where a change comes from.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::sync::{Notify, watch};

use super::super::interface::Changes;
use crate::{
    catalogue::{Book, Catalogue, Shelf},
    domain::{BookId, NewBook},
    money::Cents,
};

/// A book as the log's entry with this number left it; `None` if it was removed.
pub(super) type Version = (BookId, i64, Option<NewBook>);

/// The numbers that tell old news from new.
#[derive(Debug, Default)]
struct Known {
    /// The newest entry shown of books that have one above the horizon.
    versions: HashMap<BookId, i64>,
    /// Everything up to this entry has been shown, and no entry below it can still be committed.
    horizon: i64,
}

/// The catalogue, with what is needed to keep it from going back in time.
#[derive(Debug)]
pub(super) struct Shown {
    shelf: Arc<Shelf>,
    known: Mutex<Known>,
    newest: watch::Sender<i64>,
    /// The ledger has committed something since the follower last looked.
    pub(super) committed: Notify,
    begun: Instant,
    /// When what is shown was the newest, in milliseconds after `begun`.
    current_ms: AtomicI64,
    /// How long the database may be silent before it counts as out of reach.
    patience: Duration,
}

impl Shown {
    pub(super) fn new(shelf: Arc<Shelf>, patience: Duration) -> Self {
        Self {
            shelf,
            known: Mutex::default(),
            newest: watch::Sender::new(0),
            committed: Notify::new(),
            begun: Instant::now(),
            current_ms: AtomicI64::new(0),
            patience,
        }
    }

    /// Shows a commit of this server.
    pub(super) fn publish(&self, changes: &Changes) {
        let numbers: HashMap<BookId, i64> = changes.entries.iter().map(|entry| (entry.book, entry.number)).collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let catalogue = self.shelf.load();
        for change in &changes.books {
            let number = numbers.get(&change.id).copied().unwrap_or_default();
            if !known.is_news(change.id, number) {
                continue;
            }
            // A book that another server has just added comes with the log.
            if let Some((book, price)) = catalogue.get(change.id).zip(Cents::new(change.price_cents.1)) {
                known.versions.insert(change.id, number);
                book.publish(change.stock.1, price);
            }
        }
        drop(known);
        self.committed.notify_one();
    }

    /// Shows what the follower read. No entry up to `horizon` is missing in it.
    pub(super) fn apply(&self, read: Vec<Version>, horizon: i64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let news: Vec<Version> = read.into_iter().filter(|(id, number, _)| known.is_news(*id, *number)).collect();
        known.versions.extend(news.iter().map(|(id, number, _)| (*id, *number)));
        self.shelf.apply(news.into_iter().map(|(id, _, book)| (id, book)));
        known.horizon = horizon.max(known.horizon);
        let horizon = known.horizon;
        known.versions.retain(|_, number| *number > horizon);
    }

    /// Shows all books anew, with everything up to `horizon` in them. What came later is shown again by what is read next.
    pub(super) fn replace(&self, books: Vec<NewBook>, horizon: i64) {
        let mut topics = HashSet::<Arc<str>>::new();
        let books = books.into_iter().map(|book| {
            let topic = topics.get(&*book.topic).map_or_else(|| Arc::from(&*book.topic), Arc::clone);
            topics.insert(Arc::clone(&topic));
            Arc::new(Book::new(book.id, book.title, topic, book.stock, book.price))
        });
        let catalogue = Catalogue::from_ordered(books.collect());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Known { versions: HashMap::new(), horizon };
        self.shelf.replace(catalogue);
    }

    pub(super) fn horizon(&self) -> i64 {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).horizon
    }

    /// The newest entry that followers of the log may see.
    pub(super) fn newest(&self) -> &watch::Sender<i64> {
        &self.newest
    }

    /// What is shown was the newest at `moment`.
    pub(super) fn set_current(&self, moment: Instant) {
        let since = moment.saturating_duration_since(self.begun);
        self.current_ms.store(i64::try_from(since.as_millis()).unwrap_or(i64::MAX), Relaxed);
    }

    /// How old what is shown may be.
    pub(super) fn age(&self) -> Duration {
        let current = Duration::from_millis(self.current_ms.load(Relaxed).unsigned_abs());
        self.begun.elapsed().saturating_sub(current)
    }

    /// Whether the database answered lately.
    pub(super) fn is_reached(&self) -> bool {
        self.age() <= self.patience
    }
}

impl Known {
    fn is_news(&self, id: BookId, number: i64) -> bool {
        number > self.versions.get(&id).copied().unwrap_or(self.horizon)
    }
}
