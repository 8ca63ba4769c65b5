//! A query, and the part of the matching rows that is returned.

use std::{ops::Range, sync::Arc, thread};

use crate::{
    fault::Fault,
    settings::Scan,
    table::{Column, Table},
};

/// A query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Query {
    /// A column's name.
    pub column: String,
    /// The required value.
    pub value: String,
    /// Share of the matching rows to return, from 0 to 1; all if absent.
    pub share: Option<f64>,
    /// Rows skipped at the start of that share.
    pub offset: u64,
    /// Rows returned at most; all if absent.
    pub limit: Option<u64>,
}

impl Query {
    /// Rejects a query that is invalid for any file.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if let Some(share) = self.share
            && !(0.0..=1.0).contains(&share)
        {
            return Err(Fault::Invalid(format!("result_size is {share}; it must be a number from 0 to 1")));
        }
        Ok(())
    }

    /// The value that a field of a CSV file holds if `value` is its text, quotes included.
    pub(crate) fn unquoted(&self) -> Option<String> {
        let inner = self.value.strip_prefix('"')?.strip_suffix('"')?;
        Some(inner.replace("\"\"", "\""))
    }

    /// The part of `matching` rows that is returned.
    pub(crate) fn part_of(&self, matching: usize) -> Range<usize> {
        let end = self.share.map_or(matching, |share| share_of(matching, share));
        let start = usize::try_from(self.offset).unwrap_or(usize::MAX).min(end);
        let most = self.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        start..end.min(start.saturating_add(most))
    }
}

/// Rounded down, as the product of two doubles.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rows are counted in 32 bits, and the share is from 0 to 1"
)]
fn share_of(rows: usize, share: f64) -> usize {
    (rows as f64 * share) as usize
}

/// Minimum number of rows per thread of a parallel scan: comparing fewer takes less time than starting a thread.
const ROWS_PER_THREAD_MIN: usize = 10_000;

/// Rows of one state of the file, in its order.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    table: Arc<Table>,
    matches: Matches,
    part: Range<usize>,
    matching: usize,
}

/// Matching rows.
#[derive(Clone, Debug)]
enum Matches {
    /// Rows from `start` in this column's list by value.
    Indexed {
        column: usize,
        start: usize,
    },
    Scanned(Arc<[u32]>),
}

impl Matches {
    /// The rows of a value, and their number.
    fn of(table: &Table, column: usize, value: &str, scan: Scan, threads: usize) -> (Self, usize) {
        let searched = &table.columns()[column];
        let rows = match scan {
            Scan::Indexed => {
                let place = searched.place_of(value);
                return (Self::Indexed { column, start: place.start }, place.len());
            }
            Scan::Sequential => sequential(searched, value, 0..table.rows()),
            Scan::Parallel => parallel(searched, value, table.rows(), threads),
        };
        let matching = rows.len();
        (Self::Scanned(rows.into()), matching)
    }
}

impl Selection {
    /// Finds the rows by index.
    pub(crate) fn indexed(table: Arc<Table>, column: usize, query: &Query) -> Self {
        Self::find(table, column, query, Scan::Indexed, 0)
    }

    /// Finds the rows by the method `scan`. If there are none and the value is in quotes, finds those with the value
    /// inside the quotes.
    pub(crate) fn find(table: Arc<Table>, column: usize, query: &Query, scan: Scan, threads: usize) -> Self {
        let (mut matches, mut matching) = Matches::of(&table, column, &query.value, scan, threads);
        if matching == 0
            && let Some(value) = query.unquoted()
        {
            (matches, matching) = Matches::of(&table, column, &value, scan, threads);
        }
        Self { table, matches, part: query.part_of(matching), matching }
    }

    /// Number of matching rows.
    pub(crate) fn matching(&self) -> usize {
        self.matching
    }

    /// Rows of the answer.
    pub(crate) fn rows(&self) -> &[u32] {
        match &self.matches {
            Matches::Indexed { column, start } => {
                &self.table.columns()[*column].rows()[start + self.part.start..start + self.part.end]
            }
            Matches::Scanned(rows) => &rows[self.part.clone()],
        }
    }

    pub(crate) fn part(&self) -> Range<usize> {
        self.part.clone()
    }

    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// A part of the rows, counted from the first.
    pub(crate) fn slice(&self, part: Range<usize>) -> Self {
        let start = self.part.start;
        Self { part: start + part.start..start + part.end, ..self.clone() }
    }
}

fn sequential(column: &Column, value: &str, rows: Range<u32>) -> Vec<u32> {
    rows.filter(|row| column.value(*row) == value).collect()
}

fn parallel(column: &Column, value: &str, rows: u32, threads: usize) -> Vec<u32> {
    let threads = threads.min(rows as usize / ROWS_PER_THREAD_MIN).max(1);
    let each = rows.div_ceil(u32::try_from(threads).unwrap_or(u32::MAX)).max(1);
    let parts: Vec<Range<u32>> =
        (0..rows).step_by(each as usize).map(|start| start..start.saturating_add(each).min(rows)).collect();
    thread::scope(|scope| {
        let (first, rest) = match parts.split_first() {
            None => return Vec::new(),
            Some((first, rest)) => (first.clone(), rest),
        };
        let others: Vec<_> =
            rest.iter().cloned().map(|part| scope.spawn(move || sequential(column, value, part))).collect();
        let mut found = sequential(column, value, first);
        for other in others {
            found.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        found
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(share: Option<f64>, offset: u64, limit: Option<u64>, matching: usize) -> Range<usize> {
        Query { share, offset, limit, ..Query::default() }.part_of(matching)
    }

    #[test]
    fn a_share_is_rounded_down() {
        assert_eq!(part(None, 0, None, 7), 0..7);
        for (share, rows) in [(0.0, 0), (0.1, 0), (0.25, 1), (0.5, 3), (0.99, 6), (1.0, 7)] {
            assert_eq!(part(Some(share), 0, None, 7), 0..rows, "{share}");
        }
    }

    #[test]
    fn a_page_is_cut_from_the_share() {
        assert_eq!(part(Some(0.5), 1, Some(10), 10), 1..5);
        assert_eq!(part(None, 8, Some(3), 10), 8..10);
        assert_eq!(part(None, 11, Some(3), 10), 10..10);
        assert_eq!(part(None, u64::MAX, Some(u64::MAX), 10), 10..10);
        assert_eq!(part(None, 2, Some(u64::MAX), 10), 2..10);
        assert_eq!(part(None, 2, Some(0), 10), 2..2);
    }

    #[test]
    fn rejects_an_invalid_share() {
        for share in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            let error = Query { share: Some(share), ..Query::default() }.check().unwrap_err().to_string();
            assert!(error.contains("from 0 to 1"), "{error}");
        }
        Query { share: Some(-0.0), ..Query::default() }.check().unwrap();
    }
}
