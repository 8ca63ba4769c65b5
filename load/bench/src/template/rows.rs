//! Rows of a CSV file, read into memory before a run.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, ensure};

/// Maximum size of the file, all of which is kept in memory.
pub const ROWS_BYTES_MAX: u64 = 256 << 20;

/// The rows of a CSV file with a header row.
#[derive(Debug)]
pub struct Rows {
    columns: Vec<String>,
    /// End of each cell in `text`, row by row; a cell begins where the one before it ends.
    ends: Vec<u32>,
    text: String,
    count: u64,
}

impl Rows {
    /// Reads a file of at most [`ROWS_BYTES_MAX`] bytes.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let read = || {
            let mut bytes = Vec::new();
            File::open(path)?.take(ROWS_BYTES_MAX + 1).read_to_end(&mut bytes)?;
            ensure!(bytes.len() as u64 <= ROWS_BYTES_MAX, "more than {ROWS_BYTES_MAX} bytes");
            Self::from_csv(&bytes)
        };
        read().with_context(|| format!("rows of {}", path.display()))
    }

    /// Reads CSV text.
    pub fn from_csv(bytes: &[u8]) -> anyhow::Result<Self> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let mut reader = csv::Reader::from_reader(bytes);
        let columns: Vec<String> = reader.headers()?.iter().map(|name| name.trim().to_owned()).collect();
        ensure!(!columns.is_empty(), "empty; a header row with the names of the columns comes first");
        for (number, name) in columns.iter().enumerate() {
            ensure!(!name.is_empty(), "column {} has no name in the header row", number + 1);
            ensure!(!columns[..number].contains(name), "the header row names column `{name}` twice");
        }
        let mut rows = Self { columns, ends: Vec::new(), text: String::new(), count: 0 };
        let mut record = csv::StringRecord::new();
        while reader.read_record(&mut record)? {
            for cell in &record {
                rows.text.push_str(cell);
                rows.ends.push(u32::try_from(rows.text.len()).unwrap_or(u32::MAX));
            }
            rows.count += 1;
        }
        ensure!(rows.count > 0, "no rows follow the header row");
        Ok(rows)
    }

    /// The names in the header row.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Number of rows, at least one.
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
