//! Reads and validates a CSV file in batches.
//!
//! Implements: RFC 4180, with `;` or tab in place of the comma if so set or found in the header, `\r` and `\n` as line
//! ends too, and empty lines skipped. A quote within a field that does not begin with one is a part of its value.

use std::io::{ErrorKind, Read};

use super::error::Problem;
use crate::settings::{Delimiter, Limits};

/// Rows or bytes that complete a batch.
const BATCH_ROWS: usize = 2048;
const BATCH_BYTES: usize = 1 << 20;
/// Bytes per read of the file; the first of them are searched for the header's delimiter.
const READ_BYTES: usize = 1 << 18;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

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

/// Bytes read and not used yet, and the line they begin in.
struct Input<R> {
    file: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    read: u64,
    line: u64,
    /// True after a carriage return: a line feed then ends no line of its own.
    after_return: bool,
}

impl<R: Read> Input<R> {
    /// Reads the first bytes, without a byte order mark.
    fn open(file: R) -> Result<Self, Problem> {
        let buffer = vec![0; READ_BYTES];
        let mut input = Self { file, buffer, start: 0, end: 0, read: 0, line: 1, after_return: false };
        while input.end < READ_BYTES && input.fill()? > 0 {}
        input.start = if input.unused().starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        Ok(input)
    }

    /// Reads more into the buffer; 0 at the end of the file.
    fn fill(&mut self) -> Result<usize, Problem> {
        let read = loop {
            match self.file.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Problem::Read { line: self.line, error }),
                Ok(read) => break read,
            }
        };
        self.end += read;
        self.read += read as u64;
        Ok(read)
    }

    /// Unused bytes, read if there are none; empty at the end of the file.
    fn some(&mut self) -> Result<&[u8], Problem> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            self.fill()?;
        }
        Ok(self.unused())
    }

    fn unused(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Skips bytes that contain no line end.
    fn skip(&mut self, bytes: usize) {
        self.after_return = false;
        self.start += bytes;
    }

    /// Skips bytes, counting lines.
    fn pass(&mut self, bytes: usize) {
        for byte in &self.buffer[self.start..self.start + bytes] {
            self.line += u64::from(*byte == b'\r' || *byte == b'\n' && !self.after_return);
            self.after_return = *byte == b'\r';
        }
        self.start += bytes;
    }

    /// The delimiter that the header has outside of quotes; a comma if it has none.
    fn delimiter(&self) -> Delimiter {
        let mut is_quoted = false;
        let is_plain = |byte: &&u8| {
            is_quoted ^= **byte == b'"';
            !is_quoted
        };
        let from_header = self.unused().iter().skip_while(|byte| is_line_end(**byte));
        let plain = from_header.filter(is_plain).take_while(|byte| !is_line_end(**byte));
        let place = |byte: &u8| Delimiter::ALL.iter().position(|delimiter| delimiter.byte() == *byte);
        plain.filter_map(place).min().map_or_else(Delimiter::default, |place| Delimiter::ALL[place])
    }
}

fn is_line_end(byte: u8) -> bool {
    byte == b'\r' || byte == b'\n'
}

/// One row as it was read.
#[derive(Debug, Default)]
struct Row {
    bytes: Vec<u8>,
    /// End of each field, up to the allowed number.
    ends: Vec<usize>,
    /// Number of fields, those beyond included.
    fields: usize,
    /// Line that it begins in.
    line: u64,
}

impl Row {
    fn end_field(&mut self, fields_max: usize) {
        self.fields += 1;
        if self.ends.len() < fields_max {
            self.ends.push(self.bytes.len());
        }
    }

    fn field(&self, column: usize) -> &[u8] {
        let start = if column == 0 { 0 } else { self.ends[column - 1] };
        &self.bytes[start..self.ends[column]]
    }
}

/// The reader's position in a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Start,
    Plain,
    /// After the quote that opens the field.
    Quoted,
    /// After a quote that closes the field or is the first of two.
    Quote,
}

/// The rows of a file after its header.
pub(super) struct RowReader<'a, R> {
    input: Input<R>,
    delimiter: Delimiter,
    row: Row,
    limits: &'a Limits,
    header: Vec<Box<str>>,
    count: usize,
}

impl<'a, R: Read> RowReader<'a, R> {
    /// Reads and checks the header, and finds the delimiter in it if none is given.
    pub(super) fn open(file: R, delimiter: Option<Delimiter>, limits: &'a Limits) -> Result<Self, Problem> {
        let input = Input::open(file)?;
        let delimiter = delimiter.unwrap_or_else(|| input.delimiter());
        let mut rows = Self { input, delimiter, row: Row::default(), limits, header: Vec::new(), count: 0 };
        if !rows.advance(limits.columns)? {
            return Err(Problem::Empty);
        }
        rows.header = rows.read_header()?;
        Ok(rows)
    }

    fn read_header(&self) -> Result<Vec<Box<str>>, Problem> {
        let Row { line, fields: columns, .. } = self.row;
        if columns > self.limits.columns {
            return Err(Problem::Columns { line, columns, at: self.limits.columns });
        }
        let mut batch = Batch { columns, ..Batch::default() };
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

    pub(super) fn delimiter(&self) -> Delimiter {
        self.delimiter
    }

    /// The line of the last row that was read.
    pub(super) fn line(&self) -> u64 {
        self.row.line
    }

    /// Bytes of the file read so far.
    pub(super) fn bytes_read(&self) -> u64 {
        self.input.read
    }

    /// The next rows; `None` after the last.
    pub(super) fn batch(&mut self) -> Result<Option<Batch>, Problem> {
        let columns = self.header.len();
        let mut batch = Batch { columns, ..Batch::default() };
        while !batch.is_full() && self.advance(columns)? {
            let Row { line, fields, .. } = self.row;
            if fields != columns {
                return Err(Problem::Ragged { line, fields, wanted: columns });
            }
            if self.count == self.limits.rows {
                return Err(Problem::Rows { line, at: self.limits.rows });
            }
            self.count += 1;
            self.take(&mut batch)?;
        }
        Ok((batch.rows() > 0).then_some(batch))
    }

    /// Reads a row; false at the end.
    fn advance(&mut self, fields_max: usize) -> Result<bool, Problem> {
        let Self { input, row, limits, .. } = self;
        let (delimiter, row_bytes) = (self.delimiter.byte(), limits.row_bytes);
        row.bytes.clear();
        row.ends.clear();
        row.fields = 0;
        while input.some()?.first().is_some_and(|byte| is_line_end(*byte)) {
            input.pass(1);
        }
        if input.some()?.is_empty() {
            return Ok(false);
        }
        row.line = input.line;
        let (mut at, mut field_line, mut left) = (At::Start, input.line, row_bytes);
        loop {
            let column = row.fields + 1;
            let some = input.some()?;
            let Some(&first) = some.first() else {
                if at == At::Quoted {
                    return Err(Problem::OpenQuote { line: field_line, column });
                }
                row.end_field(fields_max);
                return Ok(true);
            };
            let was_quoted = at == At::Quoted;
            let passed = match at {
                At::Start => {
                    field_line = input.line;
                    at = if first == b'"' { At::Quoted } else { At::Plain };
                    usize::from(first == b'"')
                }
                At::Plain | At::Quote if first == delimiter => {
                    row.end_field(fields_max);
                    at = At::Start;
                    1
                }
                At::Plain | At::Quote if is_line_end(first) => {
                    row.end_field(fields_max);
                    return Ok(true);
                }
                At::Plain => {
                    let is_end = |byte: &u8| *byte == delimiter || is_line_end(*byte);
                    let length = some.iter().position(is_end).unwrap_or(some.len());
                    row.bytes.extend_from_slice(&some[..length]);
                    length
                }
                At::Quoted => {
                    let quote = some.iter().position(|byte| *byte == b'"');
                    row.bytes.extend_from_slice(&some[..quote.unwrap_or(some.len())]);
                    at = if quote.is_some() { At::Quote } else { At::Quoted };
                    quote.map_or(some.len(), |quote| quote + 1)
                }
                At::Quote if first == b'"' => {
                    row.bytes.push(b'"');
                    at = At::Quoted;
                    1
                }
                At::Quote => return Err(Problem::AfterQuote { line: input.line, column }),
            };
            if was_quoted {
                input.pass(passed);
            } else {
                input.skip(passed);
            }
            left = left.checked_sub(passed).ok_or(Problem::RowBytes { line: row.line, column, at: row_bytes })?;
        }
    }

    /// Validates the row and adds it to the batch.
    fn take(&self, batch: &mut Batch) -> Result<(), Problem> {
        let Row { bytes, ends, line, .. } = &self.row;
        let text = std::str::from_utf8(bytes).map_err(|_| self.not_text())?;
        let (base, mut start) = (batch.text.len(), 0);
        for (place, &end) in ends.iter().enumerate() {
            let (bytes, at) = (end - start, self.limits.field_bytes);
            if bytes > at {
                return Err(Problem::FieldBytes { line: *line, column: place + 1, bytes, at });
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
        let bad = (0..self.row.ends.len()).find(|column| std::str::from_utf8(self.row.field(*column)).is_err());
        Problem::Utf8 { line: self.row.line, column: bad.map_or(1, |place| place + 1) }
    }
}
