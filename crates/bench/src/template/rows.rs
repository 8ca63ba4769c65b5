//! Rows of a CSV file, read once and kept: a run reads no files.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Most bytes of a file of rows; they are all kept in memory.
pub const ROWS_BYTES_MAX: u64 = 256 << 20;

/// The rows of a CSV file with a header row.
#[derive(Debug)]
pub struct Rows {
    columns: Vec<String>,
    /// Where each cell ends in `text`, row by row; a cell begins where the one before it ends.
    ends: Vec<u32>,
    text: String,
    count: u64,
}

/// A file that holds no rows.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// It cannot be read.
    #[error("rows of {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is too large to be kept.
    #[error("rows of {}: more than {ROWS_BYTES_MAX} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// It is not CSV.
    #[error("rows of {}: {source}", path.display())]
    NotCsv {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: csv::Error,
    },
    /// Its header row or its rows are missing, or the header names a column twice or not at all.
    #[error("rows of {}: {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what would be right.
        reason: String,
    },
}

impl Rows {
    /// Reads a file of at most [`ROWS_BYTES_MAX`] bytes.
    pub fn read(path: &Path) -> Result<Self, RowsError> {
        let unreadable = |source| RowsError::Unreadable { path: path.to_owned(), source };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(unreadable)?;
        file.take(ROWS_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > ROWS_BYTES_MAX {
            return Err(RowsError::TooLarge { path: path.to_owned() });
        }
        Self::from_csv(&bytes, path)
    }

    /// Reads CSV text; `path` is for what is said of it.
    pub fn from_csv(bytes: &[u8], path: &Path) -> Result<Self, RowsError> {
        let not_csv = |source| RowsError::NotCsv { path: path.to_owned(), source };
        let unusable = |reason: String| RowsError::Unusable { path: path.to_owned(), reason };
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let mut reader = csv::ReaderBuilder::new().from_reader(bytes);
        let columns: Vec<String> =
            reader.headers().map_err(not_csv)?.iter().map(|name| name.trim().to_owned()).collect();
        if columns.is_empty() {
            return Err(unusable("empty; a header row with the names of the columns comes first".into()));
        }
        for (number, name) in columns.iter().enumerate() {
            if name.is_empty() {
                return Err(unusable(format!("column {} has no name in the header row", number + 1)));
            }
            if columns[..number].contains(name) {
                return Err(unusable(format!("the header row names column `{name}` twice")));
            }
        }
        let mut rows = Self { columns, ends: Vec::new(), text: String::new(), count: 0 };
        let mut record = csv::StringRecord::new();
        while reader.read_record(&mut record).map_err(not_csv)? {
            for cell in &record {
                rows.text.push_str(cell);
                rows.ends.push(u32::try_from(rows.text.len()).unwrap_or(u32::MAX));
            }
            rows.count += 1;
        }
        if rows.count == 0 {
            return Err(unusable("no rows follow the header row".into()));
        }
        Ok(rows)
    }

    /// The names in the header row.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// How many rows there are, at least one.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// A cell of the row for request `number`.
    pub(super) fn cell(&self, number: u64, column: usize) -> &str {
        let row = usize::try_from(number % self.count).unwrap_or_default();
        let at = row * self.columns.len() + column;
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.text[start..self.ends[at] as usize]
    }
}
