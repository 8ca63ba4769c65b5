//! The rows of an answer, found in the table in one of three ways.

use std::{ops::Range, sync::Arc, thread};

use crate::{
    query::Query,
    settings::Scan,
    table::{Column, Table},
};

/// Minimum number of rows per thread of a parallel scan: comparing fewer takes less time than starting a thread.
const ROWS_PER_THREAD_MIN: usize = 10_000;

/// Rows of one state of the file, in its order.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    table: Arc<Table>,
    found: Found,
    part: Range<usize>,
    matching: usize,
}

#[derive(Clone, Debug)]
enum Found {
    /// Rows from `start` in this column's list by value.
    Listed {
        column: usize,
        start: usize,
    },
    Scanned(Arc<[u32]>),
}

impl Found {
    /// The rows of a value, and their number.
    fn of(table: &Table, column: usize, value: &str, scan: Scan, threads: usize) -> (Self, usize) {
        let searched = &table.columns()[column];
        let rows = match scan {
            Scan::Indexed => {
                let place = searched.place_of(value);
                return (Self::Listed { column, start: place.start }, place.len());
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
        let (mut found, mut matching) = Found::of(&table, column, &query.value, scan, threads);
        if matching == 0
            && let Some(value) = query.unquoted()
        {
            (found, matching) = Found::of(&table, column, &value, scan, threads);
        }
        Self { table, found, part: query.part_of(matching), matching }
    }

    /// Number of matching rows.
    pub(crate) fn matching(&self) -> usize {
        self.matching
    }

    /// Rows of the answer.
    pub(crate) fn rows(&self) -> &[u32] {
        match &self.found {
            Found::Listed { column, start } => {
                &self.table.columns()[*column].rows()[start + self.part.start..start + self.part.end]
            }
            Found::Scanned(rows) => &rows[self.part.clone()],
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
