//! Requests for books that another transaction has locked, kept aside so that requests for other books go on.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::job::Request;
use crate::domain::BookId;

/// The requests, by book.
#[derive(Default)]
pub(super) struct Blocked {
    books: BTreeMap<BookId, Waiting>,
    count: usize,
}

struct Waiting {
    /// Time at which the lock was first met.
    since: Instant,
    requests: Vec<Request>,
}

impl Blocked {
    pub(super) fn is_empty(&self) -> bool {
        self.books.is_empty()
    }

    /// Number of requests.
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    pub(super) fn has(&self, book: BookId) -> bool {
        self.books.contains_key(&book)
    }

    /// Keeps a request for a book that is locked.
    pub(super) fn add(&mut self, book: BookId, request: Request) {
        let waiting = self.books.entry(book);
        waiting.or_insert_with(|| Waiting { since: Instant::now(), requests: Vec::new() }).requests.push(request);
        self.count += 1;
    }

    /// Takes up to `most` requests to try them again. Their books stay marked as locked.
    pub(super) fn take(&mut self, most: usize) -> (BTreeSet<BookId>, Vec<Request>) {
        let (mut books, mut taken) = (BTreeSet::new(), Vec::new());
        for (book, waiting) in &mut self.books {
            let count = waiting.requests.len().min(most - taken.len());
            if count > 0 {
                books.insert(*book);
                taken.extend(waiting.requests.drain(..count));
            }
        }
        self.count -= taken.len();
        (books, taken)
    }

    /// Forgets books that are no longer locked; returns their remaining requests.
    pub(super) fn unlock(&mut self, books: &BTreeSet<BookId>) -> Vec<Request> {
        self.remove(|book, _| books.contains(book))
    }

    /// Gives up books that have been locked for that long; returns their requests.
    pub(super) fn expired(&mut self, after: Duration) -> Vec<Request> {
        self.remove(|_, waiting| waiting.since.elapsed() >= after)
    }

    fn remove(&mut self, which: impl Fn(&BookId, &Waiting) -> bool) -> Vec<Request> {
        let removed = self.books.extract_if(.., |book, waiting| which(book, waiting));
        let requests: Vec<Request> = removed.flat_map(|(_, waiting)| waiting.requests).collect();
        self.count -= requests.len();
        requests
    }
}
