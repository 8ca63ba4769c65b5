//! Errors of loading a file, with position and expected form.

use std::{io, path::PathBuf};

/// A file that was not loaded.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct LoadError {
    /// The file.
    pub path: PathBuf,
    /// The problem.
    pub problem: Problem,
}

/// A problem of a file. Lines count from 1, including line breaks within quotes.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file cannot be opened.
    #[error("the file cannot be opened: {0}; name a readable CSV file with records.csv")]
    Open(io::Error),
    /// A read failed.
    #[error("reading failed after line {line}: {error}")]
    Read {
        /// Last line that was read.
        line: u64,
        /// The system's error.
        error: io::Error,
    },
    /// The file is empty.
    #[error("the file is empty; its first line must name the columns")]
    Empty,
    /// The first line is not a header.
    #[error("line {line}: every field is a number; the first line must be a header that names the columns")]
    NoHeader {
        /// Number of the first line.
        line: u64,
    },
    /// A column without a name.
    #[error("line {line}: column {column} has no name; every column needs one")]
    NoName {
        /// Line of the header.
        line: u64,
        /// From 1.
        column: usize,
    },
    /// Two columns with one name.
    #[error("line {line}: columns {first} and {second} are both named '{name}'; names must differ")]
    DuplicateName {
        /// Line of the header.
        line: u64,
        /// The name.
        name: String,
        /// First column, from 1.
        first: usize,
        /// Second column, from 1.
        second: usize,
    },
    /// A row with more or fewer fields than the header.
    #[error("line {line}: {fields} fields, where the header has {wanted}; every row needs as many")]
    Ragged {
        /// First line of the row.
        line: u64,
        /// Number of fields found.
        fields: usize,
        /// Number of fields in the header.
        wanted: usize,
    },
    /// Invalid UTF-8.
    #[error("line {line}: the field in column {column} is not valid UTF-8; convert the file to UTF-8")]
    Utf8 {
        /// First line of the row.
        line: u64,
        /// From 1.
        column: usize,
    },
    /// A field that is too long.
    #[error("line {line}: the field in column {column} has {bytes} bytes, and the limit records.field_bytes is {at}")]
    FieldBytes {
        /// First line of the row.
        line: u64,
        /// From 1.
        column: usize,
        /// Length found.
        bytes: usize,
        /// The limit.
        at: usize,
    },
    /// A quote that is never closed.
    #[error("line {line}: the quote that begins the field in column {column} is not closed; close it, or double it")]
    OpenQuote {
        /// Line in which the field begins.
        line: u64,
        /// From 1.
        column: usize,
    },
    /// Text between a closing quote and the field's end.
    #[error(
        "line {line}: text follows the closing quote of the field in column {column}; quote the whole field, and double \
         each quote in it"
    )]
    AfterQuote {
        /// The quote's.
        line: u64,
        /// From 1.
        column: usize,
    },
    /// A row that is too long, perhaps because a quote is never closed.
    #[error(
        "line {line}: the row has more bytes than the limit records.row_bytes, which is {at}, by column {column}; is a \
         quote not closed?"
    )]
    RowBytes {
        /// First line of the row.
        line: u64,
        /// From 1.
        column: usize,
        /// The limit.
        at: usize,
    },
    /// Too many columns.
    #[error("line {line}: {columns} columns, and the limit records.columns is {at}")]
    Columns {
        /// Line of the header.
        line: u64,
        /// Number found.
        columns: usize,
        /// The limit.
        at: usize,
    },
    /// Too many rows.
    #[error("line {line}: more rows than the limit records.rows, which is {at}")]
    Rows {
        /// First line beyond the limit.
        line: u64,
        /// The limit.
        at: usize,
    },
    /// The file would take too much memory.
    #[error(
        "line {line}: the rows up to here take {bytes} bytes of memory, and the limit records.total_bytes is {at}; \
         raise it, or keep fewer forms with records.keep_protobuf, records.keep_json and records.keep_text"
    )]
    TotalBytes {
        /// Last line that was read.
        line: u64,
        /// Memory by then.
        bytes: usize,
        /// The limit.
        at: usize,
    },
}
