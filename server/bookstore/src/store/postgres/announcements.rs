//! Announcements: this server's notifications of its commits, which save the others reading the log: payloads in JSON.

use std::{collections::hash_map::Entry, ops::RangeInclusive};

use rangemap::RangeInclusiveSet;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{
    domain::{BookId, STOCK_MAX},
    money::Cents,
};

/// `PostgreSQL` accepts payloads of fewer than 8,000 bytes. A book takes up to 68, a range of numbers up to 42.
const ITEMS_MAX: usize = 117;

/// While notifications cannot be sent, more ranges of numbers than this are left to readers of the log.
pub(super) const RANGES_MAX: usize = 10_000;

/// State of a book after a log entry: the entry's number, stock, price and held copies.
pub(super) type Shown = (i64, u32, Cents, u32);

/// State of books after log entries.
#[derive(Debug, Default)]
pub(super) struct Announcement {
    /// Numbers of completely announced transactions.
    numbers: RangeInclusiveSet<i64>,
    /// The newest entry of each book, with its state after it.
    books: FxHashMap<BookId, Shown>,
}

/// A payload.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Note {
    /// First and last: every committed entry with a number between them is in this or an earlier note.
    numbers: Vec<(i64, i64)>,
    /// Id, entry number, stock, price in cents, held copies.
    books: Vec<(i32, i64, u32, i64, u32)>,
}

impl Announcement {
    pub(super) fn add_numbers(&mut self, drawn: impl IntoIterator<Item = RangeInclusive<i64>>) {
        self.numbers.extend(drawn);
    }

    pub(super) fn add_book(&mut self, id: BookId, shown: Shown) {
        match self.books.entry(id) {
            Entry::Occupied(mut there) if there.get().0 < shown.0 => *there.get_mut() = shown,
            Entry::Occupied(_) => {}
            Entry::Vacant(free) => _ = free.insert(shown),
        }
    }

    /// Adds later commits.
    pub(super) fn add(&mut self, later: Self) {
        self.numbers.extend(later.numbers);
        if self.numbers.len() > RANGES_MAX {
            self.numbers.clear();
        }
        for (id, state) in later.books {
            self.add_book(id, state);
        }
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = RangeInclusive<i64>> {
        self.numbers.iter().cloned()
    }

    pub(super) fn books(&self) -> impl Iterator<Item = (BookId, Shown)> {
        self.books.iter().map(|(id, state)| (*id, *state))
    }

    /// Payloads, to be sent in this order: numbers come after their books.
    pub(super) fn payloads(&self) -> Vec<String> {
        let numbers: Vec<_> = self.numbers.iter().map(|range| (*range.start(), *range.end())).collect();
        let row = |(id, (number, stock, price, held)): (BookId, Shown)| (id.get(), number, stock, price.get(), held);
        let books: Vec<_> = self.books().map(row).collect();
        let books = books.chunks(ITEMS_MAX).map(|books| Note { books: books.to_vec(), numbers: Vec::new() });
        let numbers = numbers.chunks(ITEMS_MAX).map(|numbers| Note { numbers: numbers.to_vec(), books: Vec::new() });
        books.chain(numbers).filter_map(|note| serde_json::to_string(&note).ok()).collect()
    }

    /// Parses a payload; `None` for one of a trigger or of another release.
    pub(super) fn read(payload: &str) -> Option<Self> {
        let note: Note = serde_json::from_str(payload).ok()?;
        let mut announcement = Self::default();
        for (first, last) in note.numbers {
            // The set computes the number after the last one.
            announcement.add_numbers((first <= last && last < i64::MAX).then_some(first..=last));
        }
        for (id, number, stock, price, held) in note.books {
            let stock = (stock <= STOCK_MAX).then_some(stock)?;
            announcement.add_book(BookId::new(id)?, (number, stock, Cents::new(price)?, held));
        }
        Some(announcement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_payload_fits_and_each_is_read_as_it_was_written() {
        let mut announcement = Announcement::default();
        let price = Cents::new(100_000_000_000).expect("the highest price");
        for number in 0..300 {
            let id = BookId::new(i32::MAX - number).expect("an id");
            announcement.add_book(id, (i64::MAX - i64::from(number), STOCK_MAX, price, STOCK_MAX));
            let first = i64::MAX - 3 * i64::from(number) - 2;
            announcement.add_numbers([first..=first + 1]);
        }
        let payloads = announcement.payloads();
        assert_eq!(payloads.len(), 6);
        let longest = payloads.iter().map(String::len).max().expect("six");
        assert!((7900..8000).contains(&longest), "{longest}");
        let mut read = Announcement::default();
        for part in payloads.iter().map(|payload| Announcement::read(payload).expect("an announcement")) {
            assert!(part.books.is_empty() || read.numbers.is_empty(), "numbers come last");
            read.add_numbers(part.numbers());
            part.books().for_each(|(id, state)| read.add_book(id, state));
        }
        assert_eq!((read.books, read.numbers), (announcement.books, announcement.numbers));
    }

    #[test]
    fn rejects_other_payloads() {
        for payload in
            ["", "{}", "later", r#"{"numbers":[],"books":[[0,1,2,3,0]]}"#, r#"{"numbers":[],"books":[[1,1,2,-3,0]]}"#]
        {
            assert!(Announcement::read(payload).is_none(), "{payload}");
        }
    }

    #[test]
    fn of_a_book_the_newest_entry_is_announced() {
        let (id, price) = (BookId::new(1).expect("an id"), Cents::new(1).expect("a price"));
        let mut announcement = Announcement::default();
        for number in [5, 7, 6] {
            announcement.add_book(id, (number, 1, price, 0));
        }
        assert_eq!(announcement.books().collect::<Vec<_>>(), [(id, (7, 1, price, 0))]);
    }
}
