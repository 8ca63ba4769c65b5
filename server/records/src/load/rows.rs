//! Reads and validates a CSV file in batches.

use std::io::{self, Read};

use csv::{ByteRecord, ErrorKind, ReaderBuilder};

use super::error::Problem;
use crate::settings::Limits;

/// Rows or bytes that complete a batch.
const BATCH_ROWS: usize = 2048;
const BATCH_BYTES: usize = 1 << 20;
/// Bytes per read of the file.
const READ_BYTES: usize = 1 << 18;

/// Rows whose fields are concatenated.
#[derive(Debug, Default)]
pub(super) struct Batch {
    text: String,
    /// End of each field, row after row.
    ends: Vec<usize>,
    columns: usize,
}

impl Batch {
    pub(super) fn rows(&self) -> usize {
        self.ends.len() / self.columns.max(1)
    }

    #[inline]
    fn field(&self, place: usize) -> &str {
        let start = if place == 0 { 0 } else { self.ends[place - 1] };
        &self.text[start..self.ends[place]]
    }

    /// A row's values.
    pub(super) fn row(&self, row: usize) -> impl Iterator<Item = &str> + Clone {
        (row * self.columns..(row + 1) * self.columns).map(|place| self.field(place))
    }

    /// All rows' values of one column.
    pub(super) fn column(&self, column: usize) -> impl ExactSizeIterator<Item = &str> {
        (0..self.rows()).map(move |row| self.field(row * self.columns + column))
    }

    /// The text and its field ends, for a checksum.
    pub(super) fn parts(&self) -> (&[u8], &[usize]) {
        (self.text.as_bytes(), &self.ends)
    }

    fn is_full(&self) -> bool {
        self.text.len() >= BATCH_BYTES || self.rows() >= BATCH_ROWS
    }
}

/// A reader that stops rows without end.
struct Metered<R> {
    inner: R,
    left: usize,
    is_exceeded: bool,
    read: u64,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            self.is_exceeded = true;
            return Err(io::Error::other("the row is too long"));
        }
        let room = buffer.len().min(self.left);
        let read = self.inner.read(&mut buffer[..room])?;
        self.left -= read;
        self.read += read as u64;
        Ok(read)
    }
}

/// The rows of a file after its header.
pub(super) struct Rows<'a, R> {
    reader: csv::Reader<Metered<R>>,
    record: ByteRecord,
    limits: &'a Limits,
    header: Vec<Box<str>>,
    count: usize,
    line: u64,
}

impl<'a, R: Read> Rows<'a, R> {
    /// Reads and checks the header.
    pub(super) fn open(file: R, limits: &'a Limits) -> Result<Self, Problem> {
        let metered = Metered { inner: file, left: limits.row_bytes, is_exceeded: false, read: 0 };
        let reader = ReaderBuilder::new().has_headers(false).buffer_capacity(READ_BYTES).from_reader(metered);
        let mut rows = Self { reader, record: ByteRecord::new(), limits, header: Vec::new(), count: 0, line: 0 };
        if !rows.advance()? {
            return Err(Problem::Empty);
        }
        rows.header = rows.read_header()?;
        Ok(rows)
    }

    fn read_header(&self) -> Result<Vec<Box<str>>, Problem> {
        let mut batch = Batch { columns: self.record.len(), ..Batch::default() };
        let line = self.record_line();
        if self.record.len() > self.limits.columns {
            return Err(Problem::Columns { line, columns: self.record.len(), at: self.limits.columns });
        }
        self.take(&mut batch)?;
        let names: Vec<Box<str>> = batch.row(0).map(Into::into).collect();
        if names.iter().all(|name| name.trim().parse::<f64>().is_ok()) {
            return Err(Problem::NoHeader { line });
        }
        let mut places = std::collections::HashMap::new();
        for (name, column) in names.iter().zip(1..) {
            if name.is_empty() {
                return Err(Problem::NoName { line, column });
            }
            if let Some(first) = places.insert(name, column) {
                return Err(Problem::DuplicateName { line, name: name.to_string(), first, second: column });
            }
        }
        Ok(names)
    }

    pub(super) fn header(&self) -> &[Box<str>] {
        &self.header
    }

    /// The last line that was read.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Bytes of the file read so far.
    pub(super) fn bytes_read(&self) -> u64 {
        self.reader.get_ref().read
    }

    /// The next rows; `None` after the last.
    pub(super) fn batch(&mut self) -> Result<Option<Batch>, Problem> {
        let mut batch = Batch { columns: self.header.len(), ..Batch::default() };
        while !batch.is_full() && self.advance()? {
            if self.count == self.limits.rows {
                return Err(Problem::Rows { line: self.record_line(), at: self.limits.rows });
            }
            self.count += 1;
            self.take(&mut batch)?;
        }
        Ok((batch.rows() > 0).then_some(batch))
    }

    fn record_line(&self) -> u64 {
        self.record.position().map_or(0, csv::Position::line)
    }

    /// Reads a record; false at the end.
    fn advance(&mut self) -> Result<bool, Problem> {
        self.reader.get_mut().left = self.limits.row_bytes.saturating_add(2);
        match self.reader.read_byte_record(&mut self.record) {
            Ok(there_is) => {
                self.line = self.reader.position().line().saturating_sub(1).max(1);
                Ok(there_is)
            }
            Err(error) => Err(self.explain(error)),
        }
    }

    fn explain(&self, error: csv::Error) -> Problem {
        let line = self.line;
        if self.reader.get_ref().is_exceeded {
            return Problem::RowBytes { line: line + 1, at: self.limits.row_bytes };
        }
        match error.into_kind() {
            ErrorKind::Io(error) => Problem::Read { line, error },
            ErrorKind::UnequalLengths { pos, expected_len, len } => Problem::Ragged {
                line: pos.map_or(line, |pos| pos.line()),
                fields: usize::try_from(len).unwrap_or(usize::MAX),
                wanted: usize::try_from(expected_len).unwrap_or(usize::MAX),
            },
            kind => Problem::Read { line, error: io::Error::other(format!("{kind:?}")) },
        }
    }

    /// Validates the record and adds it to the batch.
    fn take(&self, batch: &mut Batch) -> Result<(), Problem> {
        let Limits { field_bytes, row_bytes, .. } = *self.limits;
        let bytes = self.record.as_slice();
        if bytes.len() > row_bytes {
            return Err(Problem::RowBytes { line: self.record_line(), at: row_bytes });
        }
        let text = std::str::from_utf8(bytes).map_err(|_| self.not_text())?;
        let base = batch.text.len();
        let mut start = 0;
        for column in 0..self.record.len() {
            let end = self.record.range(column).map_or(start, |range| range.end);
            if end - start > field_bytes {
                let (line, bytes) = (self.record_line(), end - start);
                return Err(Problem::FieldBytes { line, column: column + 1, bytes, at: field_bytes });
            }
            // A character split across neighbouring fields would be valid only when they are joined.
            if !text.is_char_boundary(end) {
                return Err(self.not_text());
            }
            batch.ends.push(base + end);
            start = end;
        }
        batch.text.push_str(text);
        Ok(())
    }

    fn not_text(&self) -> Problem {
        let bad = self.record.iter().position(|field| std::str::from_utf8(field).is_err());
        Problem::Utf8 { line: self.record_line(), column: bad.map_or(1, |place| place + 1) }
    }
}
