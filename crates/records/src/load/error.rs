//! Why a file cannot be loaded: what is wrong, where, and what would be right.

use std::{io, path::PathBuf};

/// A file that was not loaded.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct LoadError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a file. Lines count from 1, line breaks inside quotes included.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It cannot be opened.
    #[error("the file cannot be opened: {0}; name a readable CSV file with records.csv")]
    Open(io::Error),
    /// A read failed.
    #[error("reading failed after line {line}: {error}")]
    Read {
        /// The last one that was read.
        line: u64,
        /// From the system.
        error: io::Error,
    },
    /// It is empty.
    #[error("the file is empty; its first line must name the columns")]
    Empty,
    /// The first line is not a header.
    #[error("line {line}: every field is a number; the first line must be a header that names the columns")]
    NoHeader {
        /// The first.
        line: u64,
    },
    /// A column without a name.
    #[error("line {line}: column {column} has no name; every column needs one")]
    NoName {
        /// The header's.
        line: u64,
        /// From 1.
        column: usize,
    },
    /// Two columns with one name.
    #[error("line {line}: columns {first} and {second} are both named '{name}'; names must differ")]
    DuplicateName {
        /// The header's.
        line: u64,
        /// Of both.
        name: String,
        /// From 1.
        first: usize,
        /// From 1.
        second: usize,
    },
    /// A row with more or fewer fields than the header.
    #[error("line {line}: {fields} fields, where the header has {wanted}; every row needs as many")]
    Ragged {
        /// Where the row begins.
        line: u64,
        /// Found.
        fields: usize,
        /// In the header.
        wanted: usize,
    },
    /// Bytes that are not text.
    #[error("line {line}: the field in column {column} is not valid UTF-8; convert the file to UTF-8")]
    Utf8 {
        /// Where the row begins.
        line: u64,
        /// From 1.
        column: usize,
    },
    /// A field that is too long.
    #[error("line {line}: the field in column {column} has {bytes} bytes, and the limit records.field_bytes is {at}")]
    FieldBytes {
        /// Where the row begins.
        line: u64,
        /// From 1.
        column: usize,
        /// Found.
        bytes: usize,
        /// The limit.
        at: usize,
    },
    /// A quote that is never closed.
    #[error("line {line}: the quote that begins the field in column {column} is not closed; close it, or double it")]
    OpenQuote {
        /// Where the field begins.
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
        /// Where the row begins.
        line: u64,
        /// From 1.
        column: usize,
        /// The limit.
        at: usize,
    },
    /// Too many columns.
    #[error("line {line}: {columns} columns, and the limit records.columns is {at}")]
    Columns {
        /// The header's.
        line: u64,
        /// Found.
        columns: usize,
        /// The limit.
        at: usize,
    },
    /// Too many rows.
    #[error("line {line}: more rows than the limit records.rows, which is {at}")]
    Rows {
        /// The first row too many.
        line: u64,
        /// The limit.
        at: usize,
    },
    /// It would take too much memory.
    #[error(
        "line {line}: the rows up to here take {bytes} bytes of memory, and the limit records.total_bytes is {at}; \
         raise it, or keep fewer forms with records.keep_protobuf, records.keep_json and records.keep_text"
    )]
    TotalBytes {
        /// The last that was read.
        line: u64,
        /// By then.
        bytes: usize,
        /// The limit.
        at: usize,
    },
}
