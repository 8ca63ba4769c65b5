//! Counts and sums of a store, for comparison with a copy.

/// Counts and sums over a whole store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Books.
    pub books: i64,
    /// Unsold copies of all books.
    pub copies: i64,
    /// Sum of all books' prices.
    pub cents: i64,
    /// Entries in the log.
    pub entries: i64,
    /// The newest entry.
    pub last_number: i64,
    /// Copies in all purchases of the log.
    pub sold: i64,
    /// Idempotency keys.
    pub keys: i64,
}

impl Sums {
    /// The same for both databases; the columns are in the order of the fields.
    pub(super) const QUERY: &str = "SELECT b.books, b.copies, b.cents, e.entries, e.last_number, e.sold, e.keys FROM \
        (SELECT count(*) AS books, CAST(coalesce(sum(stock), 0) AS bigint) AS copies, \
            CAST(coalesce(sum(price_cents), 0) AS bigint) AS cents FROM book) b, \
        (SELECT count(*) AS entries, coalesce(max(number), 0) AS last_number, \
            CAST(coalesce(sum(CASE WHEN kind = 2 THEN quantity END), 0) AS bigint) AS sold, \
            count(idempotency_key) AS keys FROM entry) e";

    /// True without books and log.
    pub fn is_empty(&self) -> bool {
        self.books == 0 && self.entries == 0
    }
}

impl std::fmt::Display for Sums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { books, copies, entries, sold, keys, .. } = self;
        write!(
            f,
            "{books} books with {copies} copies, and {entries} log entries with {sold} copies sold and {keys} keys"
        )
    }
}

/// Books to be visited, and whether some of them are delisted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count {
    pub(crate) books: u64,
    pub(crate) delisted: bool,
}
