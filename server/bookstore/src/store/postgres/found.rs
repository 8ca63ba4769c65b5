//! Facts read by a transaction, of books that it has locked.

use std::{
    collections::{HashMap, HashSet},
    mem,
    ops::RangeInclusive,
    vec,
};

use tokio_postgres::Row;

use super::{
    super::interface::{Facts, Failure, Wanted},
    rows::{book_id, entry, stock_and_price},
    schema::NUMBERS_A_VALUE,
    trouble::Trouble,
};
use crate::{
    domain::{BookId, Entry, IdempotencyKey, KeyOwner},
    money::Cents,
};

/// The locked rows and other facts.
pub(super) struct Found {
    books: HashMap<BookId, (u32, Cents)>,
    /// For [`Wanted::Below`]: in order, with the continuation.
    below: (Vec<BookId>, Option<BookId>),
    keys: HashMap<IdempotencyKey, Entry>,
    numbers: vec::IntoIter<i64>,
    /// All numbers drawn by the transaction, used or not.
    drawn: Vec<RangeInclusive<i64>>,
    further: Option<Further>,
    /// Books that others have locked.
    locked: HashSet<BookId>,
}

/// Facts that were wanted later.
struct Further {
    /// Books not wanted before.
    books: HashSet<BookId>,
    /// Drawn after these books were locked.
    numbers: vec::IntoIter<i64>,
}

impl Found {
    pub(super) fn new(wanted: &Wanted, books: &[Row], keys: &[Row], numbers: &Row) -> Result<Self, Trouble> {
        let mut found = HashMap::with_capacity(books.len());
        let mut below = (Vec::new(), None);
        for row in books {
            let id = book_id(row.try_get(0)?)?;
            found.insert(id, stock_and_price(row, 1)?);
            below.0.push(id);
        }
        if let Wanted::Below { most, .. } = wanted {
            below.1 = below.0.last().copied().filter(|_| below.0.len() >= *most);
        }
        let mut earlier = HashMap::with_capacity(keys.len());
        for row in keys {
            let entry = entry(row)?;
            earlier.extend(entry.key.map(|key| (key, entry)));
        }
        let mut values: Vec<i64> = numbers.try_get::<_, Option<Vec<i64>>>(0)?.unwrap_or_default();
        values.sort_unstable();
        let drawn: Vec<_> = values.into_iter().map(|first| first..=first + NUMBERS_A_VALUE - 1).collect();
        let numbers: Vec<i64> = drawn.iter().cloned().flatten().collect();
        Ok(Self {
            books: found,
            below,
            keys: earlier,
            numbers: numbers.into_iter(),
            drawn,
            further: None,
            locked: HashSet::new(),
        })
    }

    /// Adds the books of `there`, which exist, as locked unless they were read.
    pub(super) fn with_locked(mut self, there: &[Row]) -> Result<Self, Trouble> {
        for row in there {
            let id = book_id(row.try_get(0)?)?;
            if !self.books.contains_key(&id) {
                self.locked.insert(id);
            }
        }
        Ok(self)
    }

    /// Adds facts that were wanted later.
    pub(super) fn add(&mut self, first: &Wanted, more: &Wanted, found: Self) {
        self.drawn.extend(found.drawn);
        if let (Wanted::Named { books: first, .. }, Wanted::Named { books: more, .. }) = (first, more) {
            let books = more.difference(first).copied().collect();
            self.further = Some(Further { books, numbers: found.numbers });
            self.books.extend(found.books);
            self.keys.extend(found.keys);
        }
    }

    /// All numbers drawn by the transaction, used or not.
    pub(super) fn take_drawn(&mut self) -> Vec<RangeInclusive<i64>> {
        mem::take(&mut self.drawn)
    }
}

impl Facts for Found {
    fn is_left_out(&self, id: BookId) -> bool {
        self.further.as_ref().is_some_and(|further| further.books.contains(&id)) && !self.books.contains_key(&id)
    }

    fn is_locked(&self, id: BookId) -> bool {
        self.locked.contains(&id)
    }

    fn book(&mut self, id: BookId) -> Option<(u32, Cents)> {
        self.books.get(&id).copied()
    }

    fn earlier(&mut self, key: &IdempotencyKey) -> Result<Option<Entry>, Failure> {
        Ok(self.keys.get(key).or_else(|| self.keys.get(&key.of(KeyOwner::COMMON))).cloned())
    }

    fn below(&mut self) -> (Vec<BookId>, Option<BookId>) {
        self.below.clone()
    }

    fn next_number(&mut self, id: BookId) -> i64 {
        let number = match &mut self.further {
            Some(further) if further.books.contains(&id) => further.numbers.next(),
            Some(further) => self.numbers.next().or_else(|| further.numbers.next()),
            None => self.numbers.next(),
        };
        // One was drawn for each entry that the jobs may write.
        number.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: i32) -> BookId {
        BookId::new(number).expect("a valid id")
    }

    fn wanted(books: impl IntoIterator<Item = i32>) -> Wanted {
        Wanted::Named { books: books.into_iter().map(id).collect(), keys: Vec::new(), entries: 2, waits: true }
    }

    fn found(books: impl IntoIterator<Item = i32>, numbers: std::ops::Range<i64>) -> Found {
        let books = books.into_iter().map(|book| (id(book), (1, Cents::new(1).expect("a valid price")))).collect();
        let numbers = numbers.collect::<Vec<_>>().into_iter();
        let (keys, drawn, locked) = (HashMap::new(), Vec::new(), HashSet::new());
        Found { books, below: Default::default(), keys, numbers, drawn, further: None, locked }
    }

    #[test]
    fn only_a_book_that_was_not_wanted_at_first_is_left_out_and_its_number_is_a_later_one() {
        let mut facts = found([1], 10..12);
        // Book 2 does not exist, and another transaction holds book 4.
        facts.add(&wanted([1, 2]), &wanted([1, 2, 3, 4]), found([1, 3], 20..22));
        assert_eq!([1, 2, 3, 4].map(|book| facts.is_left_out(id(book))), [false, false, false, true]);
        assert_eq!([1, 3, 2, 1].map(|book| facts.next_number(id(book))), [10, 20, 11, 21]);
    }
}
