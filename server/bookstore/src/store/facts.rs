//! Facts that a transaction of the ledger decides on.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    iter::Flatten,
    ops::RangeInclusive,
    vec,
};

use rustc_hash::FxHashMap;

use crate::{
    domain::{BookId, Entry, Holder, IdempotencyKey, KeyOwner, NewBook},
    money::Cents,
};

/// The facts that a transaction needs.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// Facts of these books and keys.
    Named {
        books: BTreeSet<BookId>,
        keys: Vec<IdempotencyKey>,
        /// Those of `keys` whose reservations may end.
        ends: Vec<IdempotencyKey>,
        /// Clients that may begin reservations.
        holders: Vec<Holder>,
        /// Most log entries that may result.
        entries: usize,
        /// True to wait for books that others have locked before they are left out.
        waits: bool,
    },
    /// All of these books, and the highest id if wanted.
    Whole {
        books: BTreeSet<BookId>,
        highest: bool,
        /// Most log entries that may result.
        entries: usize,
    },
    /// Facts of at most `most` listed books with fewer copies than `amount` and ids above `after`.
    Below { amount: u32, after: Option<BookId>, most: usize },
}

/// State of a book.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BookFacts {
    pub stock: u32,
    pub price: Cents,
    pub listed: bool,
    /// Copies that reservations hold, beside the stock.
    pub held: u32,
}

/// The store's state inside a transaction.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Without books that do not exist.
    pub(super) books: FxHashMap<BookId, BookFacts>,
    /// The books of [`Wanted::Whole`], and the highest id that a book or a reservation has.
    pub(super) whole: (HashMap<BookId, NewBook>, Option<BookId>),
    /// Copies held of these books, also of those that do not exist; of most none are.
    pub(super) held: HashMap<BookId, u32>,
    /// Earlier entries with the wanted keys.
    pub(super) earlier: HashMap<IdempotencyKey, Entry>,
    /// Entries that ended reservations of `earlier`.
    pub(super) ends: HashMap<IdempotencyKey, Entry>,
    /// Reservations whose time is over, and that still hold copies.
    pub(super) overdue: Vec<Entry>,
    /// Time by the clock of reservations, in milliseconds since the Unix epoch.
    pub(super) holds_ms: i64,
    /// Keys of reservations that are not open, and whose end the log lacks.
    pub(super) lost_ends: HashSet<IdempotencyKey>,
    /// Limit of open reservations.
    pub(super) holds_max: usize,
    /// Reservations that may still begin, beside those that are open and not overdue.
    pub(super) holds_left: usize,
    /// The same for each of the wanted holders.
    pub(super) holds_left_to: HashMap<Holder, usize>,
    /// The books of [`Wanted::Below`], in order, and the continuation if there may be more.
    pub(super) below: (Vec<BookId>, Option<BookId>),
    pub(super) numbers: Numbers,
    /// Existing books that others have locked for longer than this transaction waits.
    pub(super) locked: HashSet<BookId>,
    pub(super) further: Option<Further>,
}

/// Numbers for log entries, in ascending order.
pub(super) type Numbers = Flatten<vec::IntoIter<RangeInclusive<i64>>>;

/// Part of the facts that was read later.
#[derive(Debug)]
pub(super) struct Further {
    /// Books not wanted before.
    books: HashSet<BookId>,
    /// Drawn after these books were locked.
    numbers: Numbers,
}

impl Facts {
    /// Adds facts that were wanted later than `first`.
    pub(super) fn add(&mut self, first: &Wanted, more: &Wanted, later: Self) {
        if let (Wanted::Named { books: first, .. }, Wanted::Named { books: more, .. }) = (first, more) {
            // The books of ending reservations were locked at first, though no job named them.
            let books = more.difference(first).filter(|id| !self.books.contains_key(id)).copied().collect();
            self.further = Some(Further { books, numbers: later.numbers });
            self.books.extend(later.books);
            self.earlier.extend(later.earlier);
            self.ends.extend(later.ends);
            self.lost_ends.extend(later.lost_ends);
            self.holds_left = self.holds_left.max(later.holds_left);
            for (holder, left) in later.holds_left_to {
                self.holds_left_to.entry(holder).or_insert(left);
            }
        }
    }

    /// True if a book that was wanted later is locked elsewhere, so that nothing can be decided about it.
    pub(crate) fn is_left_out(&self, id: BookId) -> bool {
        self.further.as_ref().is_some_and(|further| further.books.contains(&id)) && !self.books.contains_key(&id)
    }

    /// True if there are such books.
    pub(crate) fn has_locked(&self) -> bool {
        !self.locked.is_empty()
    }

    /// True if another transaction has locked a book for longer than this one waits.
    pub(crate) fn is_locked(&self, id: BookId) -> bool {
        self.locked.contains(&id)
    }

    /// A book of [`Wanted::Whole`]; `None` if it does not exist.
    pub(crate) fn whole(&self, id: BookId) -> Option<&NewBook> {
        self.whole.0.get(&id)
    }

    /// Copies held of a book of [`Wanted::Whole`], which need not exist.
    pub(crate) fn held(&self, id: BookId) -> u32 {
        self.held.get(&id).copied().unwrap_or_default()
    }

    /// The highest id that a book or a reservation has, if wanted.
    pub(crate) const fn highest(&self) -> Option<BookId> {
        self.whole.1
    }

    /// A book's state; `None` if it does not exist.
    pub(crate) fn book(&self, id: BookId) -> Option<BookFacts> {
        self.books.get(&id).copied()
    }

    /// The entry that has this key; if there is none, the one that has it in the common space.
    pub(crate) fn earlier(&self, key: &IdempotencyKey) -> Option<&Entry> {
        self.earlier.get(key).or_else(|| self.earlier.get(&key.of(KeyOwner::COMMON)))
    }

    /// The reservation with exactly this key, or another entry that has it.
    pub(crate) fn with_key(&self, key: &IdempotencyKey) -> Option<&Entry> {
        self.earlier.get(key)
    }

    /// The entry that ended the reservation with this key.
    pub(crate) fn end(&self, key: &IdempotencyKey) -> Option<&Entry> {
        self.ends.get(key)
    }

    /// True if the reservation with this key is not open, and the log lacks its end.
    pub(crate) fn has_lost_end(&self, key: &IdempotencyKey) -> bool {
        self.lost_ends.contains(key)
    }

    /// Takes the reservations whose time is over, and that still hold copies.
    pub(crate) fn take_overdue(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.overdue)
    }

    /// Time by the clock of reservations, in milliseconds since the Unix epoch.
    pub(crate) const fn holds_ms(&self) -> i64 {
        self.holds_ms
    }

    /// Limit of open reservations.
    pub(crate) fn holds_max(&self) -> u64 {
        u64::try_from(self.holds_max).unwrap_or(u64::MAX)
    }

    /// Takes one of the reservations that this holder may still begin; false if none is left.
    pub(crate) fn take_hold(&mut self, holder: Holder) -> bool {
        let left_to = self.holds_left_to.entry(holder).or_default();
        let is_left = self.holds_left > 0 && *left_to > 0;
        if is_left {
            (self.holds_left, *left_to) = (self.holds_left - 1, *left_to - 1);
        }
        is_left
    }

    /// The books of [`Wanted::Below`], in order, and the continuation if there may be more.
    pub(crate) fn below(&self) -> (Vec<BookId>, Option<BookId>) {
        self.below.clone()
    }

    /// A number for a log entry of this book, above those of all its earlier entries; 0, which no transaction commits, if
    /// too few were drawn.
    pub(crate) fn next_number(&mut self, id: BookId) -> i64 {
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
        let books = books.into_iter().map(id).collect();
        Wanted::Named { books, keys: Vec::new(), ends: Vec::new(), holders: Vec::new(), entries: 2, waits: true }
    }

    fn facts(books: impl IntoIterator<Item = i32>, numbers: RangeInclusive<i64>) -> Facts {
        let book = BookFacts { stock: 1, price: Cents::new(1).expect("a valid price"), listed: true, held: 0 };
        let books = books.into_iter().map(|number| (id(number), book)).collect();
        Facts { books, numbers: vec![numbers].into_iter().flatten(), ..Facts::default() }
    }

    #[test]
    fn only_a_book_that_was_not_wanted_at_first_is_left_out_and_its_number_is_a_later_one() {
        let mut facts_read = facts([1], 10..=11);
        // Book 2 does not exist, and another transaction holds book 4.
        facts_read.add(&wanted([1, 2]), &wanted([1, 2, 3, 4]), facts([1, 3], 20..=21));
        assert_eq!([1, 2, 3, 4].map(|book| facts_read.is_left_out(id(book))), [false, false, false, true]);
        assert_eq!([1, 3, 2, 1].map(|book| facts_read.next_number(id(book))), [10, 20, 11, 21]);
    }

    #[test]
    fn a_book_that_was_locked_at_first_without_a_job_of_its_own_has_the_first_numbers_too() {
        let mut facts_read = facts([1, 7], 10..=12);
        facts_read.add(&wanted([1]), &wanted([1, 7]), facts([7], 20..=20));
        assert_eq!([7, 7, 7, 7].map(|book| facts_read.next_number(id(book))), [10, 11, 12, 20]);
    }
}
