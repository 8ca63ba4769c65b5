//! A loaded file: its columns and its pre-encoded rows. Immutable.

use std::{collections::HashMap, hash::BuildHasher as _};

use bytes::Bytes;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::encode::{Format, RowEncoder};

/// A loaded file.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    by_name: HashMap<Box<str>, usize>,
    rows: u32,
    encoder: RowEncoder,
    encoded: [Option<Encoded>; 3],
    version: u64,
}

impl Table {
    /// `version` is equal for files with the same columns and values.
    pub(crate) fn new(columns: Vec<Column>, rows: u32, encoded: [Option<Encoded>; 3], version: u64) -> Self {
        let by_name = columns.iter().enumerate().map(|(place, column)| (column.name().into(), place)).collect();
        let encoder = RowEncoder::new(columns.iter().map(Column::name));
        Self { columns, by_name, rows, encoder, encoded, version }
    }

    pub(crate) fn rows(&self) -> u32 {
        self.rows
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub(crate) fn column_place(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn names(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.columns.iter().map(Column::name)
    }

    /// The row's values, in the order of the columns.
    pub(crate) fn values(&self, row: u32) -> impl Iterator<Item = &str> + Clone {
        self.columns.iter().map(move |column| column.value(row))
    }

    /// The rows in this form, if pre-encoded.
    pub(crate) fn encoded(&self, format: Format) -> Option<&Encoded> {
        self.encoded[format.place()].as_ref()
    }

    /// Length of the row in this form, pre-encoded or not.
    pub(crate) fn row_bytes(&self, row: u32, format: Format) -> usize {
        let encoded = self.encoded(format).map(|encoded| encoded.span(row).len());
        encoded.unwrap_or_else(|| self.encoder.row_len(format, self.values(row)))
    }

    pub(crate) fn encoder(&self) -> &RowEncoder {
        &self.encoder
    }

    /// Memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let columns: usize = self.columns.iter().map(Column::bytes).sum();
        columns + self.encoded.iter().flatten().map(Encoded::bytes).sum::<usize>()
    }
}

/// A column under construction.
#[derive(Debug, Default)]
pub(crate) struct GrowingColumn {
    dictionary: Dictionary,
    codes: Vec<Code>,
}

impl GrowingColumn {
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

/// A value's number.
pub(crate) type Code = u32;

/// The values. They are hashed with a secret of the process, because anyone may have written the file.
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    text: String,
    /// End of each value in `text`.
    ends: Vec<usize>,
    codes: HashTable<Code>,
    hasher: DefaultHashBuilder,
}

fn value_at<'a>(text: &'a str, ends: &[usize], code: Code) -> &'a str {
    let code = code as usize;
    let start = if code == 0 { 0 } else { ends[code - 1] };
    &text[start..ends[code]]
}

impl Dictionary {
    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The value with this number, which must exist.
    #[inline]
    pub(crate) fn value(&self, code: Code) -> &str {
        value_at(&self.text, &self.ends, code)
    }

    /// The value's number.
    pub(crate) fn find(&self, value: &str) -> Option<Code> {
        let hash = self.hasher.hash_one(value);
        self.codes.find(hash, |code| self.value(*code) == value).copied()
    }

    /// The value's number; a new value gets the next one. There are never more values than rows, whose number is
    /// limited elsewhere.
    pub(crate) fn intern(&mut self, value: &str) -> Code {
        let Self { text, ends, codes, hasher } = self;
        let hash = hasher.hash_one(value);
        if let Some(code) = codes.find(hash, |code| value_at(text, ends, *code) == value) {
            return *code;
        }
        let code = Code::try_from(ends.len()).unwrap_or(Code::MAX);
        text.push_str(value);
        ends.push(text.len());
        codes.insert_unique(hash, code, |code| hasher.hash_one(value_at(text, ends, *code)));
        code
    }

    /// Memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<usize>() + self.codes.allocation_size()
    }

    pub(crate) fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}

/// A buffer that exceeds this gets no further row; one row may be longer.
const BLOCK_BYTES: usize = 32 << 20;
/// Room for the row that crosses that line.
const MARGIN_BYTES: usize = 1 << 20;

/// Encoded rows under construction.
#[derive(Debug, Default)]
pub(crate) struct GrowingEncoded {
    blocks: Vec<Bytes>,
    open: Vec<u8>,
    starts: Vec<u64>,
    bytes: usize,
}

/// A block's number in the high bits, an offset in it in the low bits.
fn start(block: usize, offset: usize) -> u64 {
    (block as u64) << 32 | offset as u64
}

impl GrowingEncoded {
    /// Adds a row, which `write` appends to its argument. Rows are shorter than 4 GiB: rows of a file are bounded, and
    /// no form has more than six times their bytes.
    pub(crate) fn row(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.open.len() >= BLOCK_BYTES {
            self.close();
        }
        if self.open.capacity() == 0 {
            self.open.reserve_exact(BLOCK_BYTES + MARGIN_BYTES);
        }
        let before = self.open.len();
        self.starts.push(start(self.blocks.len(), before));
        write(&mut self.open);
        self.bytes += self.open.len() - before;
    }

    fn close(&mut self) {
        self.blocks.push(std::mem::take(&mut self.open).into());
    }

    /// Memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.starts.capacity() * size_of::<u64>()
    }

    pub(crate) fn finish(mut self) -> Encoded {
        self.open.shrink_to_fit();
        self.starts.push(start(self.blocks.len(), self.open.len()));
        self.close();
        self.starts.shrink_to_fit();
        Encoded { blocks: self.blocks, starts: self.starts, bytes: self.bytes }
    }
}

/// All rows of a file in one form.
#[derive(Debug)]
pub(crate) struct Encoded {
    blocks: Vec<Bytes>,
    /// Start of each row, and end of the last one.
    starts: Vec<u64>,
    bytes: usize,
}

/// Location of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    block: usize,
    start: usize,
    end: usize,
}

impl Span {
    pub(crate) fn len(self) -> usize {
        self.end - self.start
    }

    /// Extends the range by a directly following one; false if `next` is elsewhere.
    pub(crate) fn join(&mut self, next: Self) -> bool {
        let joins = self.block == next.block && self.end == next.start;
        if joins {
            self.end = next.end;
        }
        joins
    }

    /// Shortens the range at its end.
    pub(crate) fn cut(&mut self, bytes: usize) {
        self.end -= bytes;
    }
}

impl Encoded {
    #[expect(clippy::cast_possible_truncation, reason = "blocks are counted and measured in 32 bits each")]
    pub(crate) fn span(&self, row: u32) -> Span {
        let (from, to) = (self.starts[row as usize], self.starts[row as usize + 1]);
        let (block, start) = ((from >> 32) as usize, from as u32 as usize);
        let end = if to >> 32 == from >> 32 { to as u32 as usize } else { self.blocks[block].len() };
        Span { block, start, end }
    }

    /// The bytes, borrowed.
    pub(crate) fn bytes_at(&self, span: Span) -> &[u8] {
        &self.blocks[span.block][span.start..span.end]
    }

    /// The bytes, shared.
    pub(crate) fn share(&self, span: Span) -> Bytes {
        self.blocks[span.block].slice(span.start..span.end)
    }

    /// Memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.starts.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_one_number_and_every_number_its_value() {
        let mut dictionary = Dictionary::default();
        let values: Vec<String> =
            (0..5000).map(|number| format!("v{}", number % 1000)).chain([String::new()]).collect();
        let codes: Vec<Code> = values.iter().map(|value| dictionary.intern(value)).collect();
        assert_eq!(dictionary.len(), 1001);
        for (value, code) in values.iter().zip(codes) {
            assert_eq!((dictionary.value(code), dictionary.find(value)), (&**value, Some(code)));
        }
        assert_eq!(dictionary.find("v1000"), None);
    }
}

#[cfg(test)]
mod encoded_tests {
    use super::*;

    #[test]
    fn every_row_is_found_in_its_block_and_neighbours_join_up_to_the_blocks_end() {
        let mut growing = GrowingEncoded::default();
        let lengths = [10usize, 0, BLOCK_BYTES - 10, 7, 3 * BLOCK_BYTES, 5, 0];
        for (number, length) in (0u8..).zip(lengths) {
            growing.row(|out| out.resize(out.len() + length, number));
        }
        let encoded = growing.finish();
        for (number, length) in (0u8..).zip(lengths) {
            let bytes = encoded.bytes_at(encoded.span(number.into()));
            assert!(bytes.len() == length && bytes.iter().all(|byte| *byte == number), "{number}: {}", bytes.len());
            assert_eq!(encoded.share(encoded.span(number.into())), bytes);
        }
        let mut run = encoded.span(0);
        assert!(run.join(encoded.span(1)) && run.join(encoded.span(2)) && !run.join(encoded.span(3)));
        assert_eq!(run.len(), BLOCK_BYTES);
        assert!(encoded.bytes() >= lengths.iter().sum());
    }
}
