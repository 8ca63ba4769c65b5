//! A column: each row's value by its number, and each value's rows.

use super::dictionary::{Code, Dictionary};

/// A column under construction.
#[derive(Debug, Default)]
pub(crate) struct Growing {
    dictionary: Dictionary,
    codes: Vec<Code>,
}

impl Growing {
    /// Adds the next rows' values.
    pub(crate) fn extend<'a>(&mut self, values: impl ExactSizeIterator<Item = &'a str>) {
        self.codes.reserve(values.len());
        for value in values {
            // Neighbours are often equal, and comparing costs less than hashing.
            let code = match self.codes.last() {
                Some(last) if self.dictionary.value(*last) == value => *last,
                _ => self.dictionary.intern(value),
            };
            self.codes.push(code);
        }
    }

    /// Memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.dictionary.bytes() + self.codes.capacity() * size_of::<Code>()
    }

    /// Lists each value's rows.
    pub(crate) fn finish(mut self, name: Box<str>) -> Column {
        self.dictionary.shrink();
        self.codes.shrink_to_fit();
        let mut starts = vec![0u32; self.dictionary.len() + 1];
        for code in &self.codes {
            starts[*code as usize + 1] += 1;
        }
        for place in 1..starts.len() {
            starts[place] += starts[place - 1];
        }
        let mut next = starts.clone();
        let mut rows = vec![0u32; self.codes.len()];
        for (row, code) in (0u32..).zip(&self.codes) {
            let place = &mut next[*code as usize];
            rows[*place as usize] = row;
            *place += 1;
        }
        Column { name, dictionary: self.dictionary, codes: self.codes, starts, rows }
    }
}

/// A column of a loaded file.
#[derive(Debug)]
pub(crate) struct Column {
    name: Box<str>,
    dictionary: Dictionary,
    codes: Vec<Code>,
    /// Start of each value's rows in `rows`, and the end of the last.
    starts: Vec<u32>,
    rows: Vec<u32>,
}

impl Column {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The row's value.
    #[inline]
    pub(crate) fn value(&self, row: u32) -> &str {
        self.dictionary.value(self.codes[row as usize])
    }

    /// Range in [`Column::rows`] of the rows with this value, in the order of the file.
    pub(crate) fn place_of(&self, value: &str) -> std::ops::Range<usize> {
        match self.dictionary.find(value) {
            Some(code) => {
                let code = code as usize;
                self.starts[code] as usize..self.starts[code + 1] as usize
            }
            None => 0..0,
        }
    }

    /// The rows, grouped by value.
    pub(crate) fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let numbers = self.codes.capacity() + self.starts.capacity() + self.rows.capacity();
        self.dictionary.bytes() + numbers * size_of::<u32>() + self.name.len()
    }
}
