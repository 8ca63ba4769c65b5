//! Parts of the log by time, and the prices at which books were sold. Numbers are in the order of commits and times in that of
//! servers' clocks, so numbers are found by halving with [`SKEW_MS`] to spare, and times are compared afterwards.

use std::collections::{BTreeMap, HashMap};

use crate::domain::{BookId, EntryKind, LogFilter, SalesBy, SalesQuery, Sold};

/// Greatest difference of the clocks that wrote entries with neighbouring numbers.
const SKEW_MS: i64 = 3_600_000;

/// Numbers that a page of a filtered log looks at, so that a rare book does not make one read the whole log.
pub(super) const LOOKED_AT: i64 = 1 << 18;

/// Most rows of sales.
pub(super) const ROWS_MAX: usize = 1 << 20;

const DAY_MS: i64 = 86_400_000;

/// Finds the lowest number from which on all entries are later than a time. The caller answers its probes.
#[derive(Debug)]
pub(super) struct Halving {
    low: i64,
    high: i64,
    limit_ms: i64,
}

impl Halving {
    /// Among the numbers up to `last`: the first entry of a time, or one shortly before it.
    pub(super) const fn first_from(time_ms: i64, last: i64) -> Self {
        Self { low: 1, high: last + 1, limit_ms: time_ms.saturating_sub(SKEW_MS + 1) }
    }

    /// Among the numbers up to `last`: the first entry from which on all are behind a time.
    pub(super) const fn first_behind(time_ms: i64, last: i64) -> Self {
        Self { low: 1, high: last + 1, limit_ms: time_ms.saturating_add(SKEW_MS) }
    }

    /// The number to look at; `None` once it is found.
    pub(super) const fn probe(&self) -> Option<i64> {
        if self.low < self.high { Some(self.low + (self.high - self.low) / 2) } else { None }
    }

    /// Takes the time of the first entry from the probed number on; `None` if there is none.
    pub(super) fn answer(&mut self, time_ms: Option<i64>) {
        let Some(probed) = self.probe() else { return };
        if time_ms.is_some_and(|time_ms| time_ms <= self.limit_ms) {
            self.low = probed + 1;
        } else {
            self.high = probed;
        }
    }

    /// The found number.
    pub(super) const fn found(&self) -> i64 {
        self.low
    }
}

/// The conditions of a filter as SQL for both databases. The values are numbers, so they need no quotes.
pub(super) fn conditions(filter: &LogFilter) -> String {
    let from = filter.from_ms.map(|from_ms| format!(" AND time_ms >= {from_ms}"));
    let to = filter.to_ms.map(|to_ms| format!(" AND time_ms < {to_ms}"));
    let book = filter.book.map(|book| format!(" AND book_id = {book}"));
    let kinds: Vec<String> = filter.kinds.iter().map(|kind| condition(*kind)).collect();
    let kinds = (!kinds.is_empty()).then(|| format!(" AND ({})", kinds.join(" OR ")));
    [from, to, book, kinds].into_iter().flatten().collect()
}

fn condition(kind: EntryKind) -> String {
    let code = super::interface::code(kind);
    let text = r#"coalesce("before", 0) = coalesce("after", 0)"#;
    match kind {
        EntryKind::Edited => format!("kind = {code} AND {text}"),
        EntryKind::Delisted => format!(r#"kind = {code} AND "before" = 1 AND "after" = 0"#),
        EntryKind::Listed => format!(r#"kind = {code} AND "before" = 0 AND "after" = 1"#),
        EntryKind::Adjusted => format!("kind = {code} AND quantity IS NULL"),
        EntryKind::Reserved => format!(r#"kind = {code} AND quantity IS NOT NULL AND "before" > "after""#),
        EntryKind::Released => {
            format!(r#"kind = {code} AND quantity IS NOT NULL AND ("before" IS NULL OR "before" <= "after")"#)
        }
        _ => format!("kind = {code}"),
    }
}

/// An entry that concerns sales.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) time_ms: i64,
    pub(super) kind: EntryKind,
    pub(super) book: BookId,
    pub(super) quantity: u32,
    pub(super) before: Option<i64>,
}

impl Line {
    /// Reads the columns of [`Line::query`], given as numbers.
    pub(super) fn of(time_ms: i64, kind: i64, book: i32, quantity: Option<i64>, before: Option<i64>) -> Option<Self> {
        let kind = super::interface::kind(kind, None, None, None)?;
        let quantity = quantity.and_then(|copies| u32::try_from(copies).ok()).unwrap_or_default();
        Some(Self { time_ms, kind, book: BookId::new(book)?, quantity, before })
    }

    /// The entries that a tally needs, newest first: sales with numbers from `first` to before `end`, and everything
    /// from `first` on that concerns prices.
    pub(super) fn query(query: &SalesQuery, first: i64, end: i64) -> String {
        let code = super::interface::code;
        let (sold, priced, removed) = (code(EntryKind::Purchase), code(EntryKind::Price), code(EntryKind::Removed));
        let of_book = query.book.map_or_else(String::new, |book| format!(" AND book_id = {book}"));
        format!(
            "SELECT time_ms, kind, book_id, quantity, \"before\" FROM entry \
             WHERE number >= {first} AND (kind = {sold} AND number < {end} OR kind IN ({priced}, {removed})){of_book} \
             ORDER BY number DESC"
        )
    }
}

/// Sums sales, given the log from its newest entry back: the price of a purchase is the book's price now, or that before
/// the first price change after the purchase.
#[derive(Debug)]
pub(super) struct Tally {
    query: SalesQuery,
    /// Without books whose price is not known.
    prices: HashMap<BookId, i64>,
    rows: BTreeMap<(Option<i64>, Option<BookId>), Sold>,
}

impl Tally {
    /// Begins with the prices of now.
    pub(super) fn new(query: SalesQuery, prices: HashMap<BookId, i64>) -> Self {
        Self { query, prices, rows: BTreeMap::new() }
    }

    /// Takes the next older entry; false if there are too many rows.
    pub(super) fn take(&mut self, line: Line) -> bool {
        match line.kind {
            EntryKind::Price => _ = line.before.map(|cents| self.prices.insert(line.book, cents)),
            EntryKind::Removed => _ = self.prices.remove(&line.book),
            EntryKind::Purchase if self.is_wanted(line.time_ms) => {
                let by = self.query.by;
                let day = (by != SalesBy::Book).then(|| line.time_ms.div_euclid(DAY_MS));
                let book = (by != SalesBy::Day).then_some(line.book);
                let price = self.prices.get(&line.book).copied();
                self.rows.entry((day, book)).or_default().add(line.quantity, price);
            }
            _ => {}
        }
        self.rows.len() <= ROWS_MAX
    }

    fn is_wanted(&self, time_ms: i64) -> bool {
        self.query.from_ms.is_none_or(|from| time_ms >= from) && self.query.to_ms.is_none_or(|to| time_ms < to)
    }

    /// The sums by day, in days since 1970, and by book.
    pub(super) fn finish(self) -> Vec<(Option<i64>, Option<BookId>, Sold)> {
        self.rows.into_iter().map(|((day, book), sold)| (day, book, sold)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: i32) -> BookId {
        BookId::new(number).unwrap()
    }

    /// Halves over entries with these numbers and hours.
    fn found(mut halving: Halving, entries: &[(i64, i64)]) -> i64 {
        while let Some(number) = halving.probe() {
            let entry = entries.iter().find(|entry| entry.0 >= number);
            halving.answer(entry.map(|entry| entry.1 * SKEW_MS));
        }
        halving.found()
    }

    #[test]
    fn a_time_is_found_among_numbers_with_gaps() {
        let entries = [(1, 0), (2, 10), (33, 20), (34, 20), (97, 30)];
        let from = |hour: i64| found(Halving::first_from(hour * SKEW_MS, 97), &entries);
        assert_eq!([0, 11, 12, 21, 22, 31, 32].map(from), [1, 2, 3, 3, 35, 35, 98]);
        let behind = |hour: i64| found(Halving::first_behind(hour * SKEW_MS, 97), &entries);
        assert_eq!([-2, 0, 9, 19, 29, 40].map(behind), [1, 2, 3, 35, 98, 98]);
        assert_eq!(found(Halving::first_from(5, 0), &[]), 1);
    }

    #[test]
    fn a_purchase_counts_with_the_price_of_its_time() {
        let query = SalesQuery { from_ms: Some(5), to_ms: Some(2 * DAY_MS), by: SalesBy::DayAndBook, book: None };
        let mut tally = Tally::new(query, HashMap::from([(id(1), 300)]));
        let line = |time_ms, kind, book, quantity, before| Line { time_ms, kind, book: id(book), quantity, before };
        let (sold, price, removed) = (EntryKind::Purchase, EntryKind::Price, EntryKind::Removed);
        for newest_first in [
            line(2 * DAY_MS, sold, 1, 7, Some(9)),
            line(DAY_MS + 2, sold, 1, 2, Some(9)),
            line(DAY_MS + 1, removed, 2, 0, Some(9)),
            line(DAY_MS + 1, price, 1, 0, Some(200)),
            line(9, sold, 2, 4, None),
            line(8, sold, 1, 1, None),
            line(7, price, 1, 0, Some(100)),
            line(6, sold, 1, 3, None),
            line(4, sold, 1, 3, None),
        ] {
            assert!(tally.take(newest_first));
        }
        let sold = |purchases, copies, cents, copies_unpriced| Sold { purchases, copies, cents, copies_unpriced };
        let wanted = [
            (Some(0), Some(id(1)), sold(2, 4, 500, 0)),
            (Some(0), Some(id(2)), sold(1, 4, 0, 4)),
            (Some(1), Some(id(1)), sold(1, 2, 600, 0)),
        ];
        assert_eq!(tally.finish(), wanted);
    }
}
