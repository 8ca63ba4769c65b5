//! The settings `records.…`: the file, modes and limits.

use std::path::PathBuf;

use hosting::{Meanings, Reader, Refused};

/// Method of finding rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scan {
    /// Compares every row's value, sequentially: the classic way, for comparison.
    Sequential,
    /// Like sequential, divided among threads.
    Parallel,
    /// Looks the value up in an index of rows.
    #[default]
    Indexed,
}

/// The byte between the fields of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delimiter {
    /// As RFC 4180 has it.
    #[default]
    Comma,
    /// As programs write it where the comma is the decimal point.
    Semicolon,
    /// Tab-separated values.
    Tab,
}

impl Delimiter {
    /// In the order in which a header is searched for them.
    pub(crate) const ALL: [Self; 3] = [Self::Comma, Self::Semicolon, Self::Tab];

    pub(crate) const fn byte(self) -> u8 {
        match self {
            Self::Comma => b',',
            Self::Semicolon => b';',
            Self::Tab => b'\t',
        }
    }

    /// The name in the setting.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Comma => "comma",
            Self::Semicolon => "semicolon",
            Self::Tab => "tab",
        }
    }
}

/// Time of encoding rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encode {
    /// For each answer: the classic way, for comparison.
    Each,
    /// When the file is loaded; answers consist of pre-encoded rows.
    #[default]
    Once,
}

/// Forms in which rows are pre-encoded. The others are encoded for each answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// For `GetRecord` and `StreamRecords`.
    pub protobuf: bool,
    /// For `/search`.
    pub json: bool,
    /// For `GetRecordString` and `/search_string`.
    pub text: bool,
}

/// Settings of the service.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The file; without one every query is refused.
    pub csv: Option<PathBuf>,
    /// Byte between fields; by default the one that the header uses.
    pub delimiter: Option<Delimiter>,
    /// Method of finding rows.
    pub scan: Scan,
    /// Time of encoding rows.
    pub encode: Encode,
    /// Pre-encoded forms, if `encode` is [`Encode::Once`].
    pub keep: Keep,
    /// True to compress answers for callers that accept it.
    pub compress: bool,
    /// Threads that share one parallel scan.
    pub scan_threads: usize,
    /// Limits.
    pub limits: Limits,
}

/// Limits of the service's memory and of a request.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Columns of the file.
    pub columns: usize,
    /// Rows of the file.
    pub rows: usize,
    /// Bytes in a field.
    pub field_bytes: usize,
    /// Bytes in a row, as in the file.
    pub row_bytes: usize,
    /// Memory of one loaded file; a reload holds two.
    pub total_bytes: usize,
    /// Bytes of an answer in one message or page.
    pub answer_bytes: usize,
    /// Bytes of rows in a message of a stream; a message holds at least one row.
    pub page_bytes: usize,
    /// Minimum size of answers to compress.
    pub compress_bytes_min: usize,
    /// Memory of the cache of compressed answers; 0 for none.
    pub cache_bytes: usize,
    /// Memory of the cache of answers in one piece; 0 for none. No answer takes more than an eighth of it.
    pub kept_bytes: usize,
    /// Concurrent scans, encodings and compressions.
    pub jobs: usize,
    /// Queries that may wait for those.
    pub jobs_queued: usize,
}

/// Rows are numbered in 32 bits, with a number to spare.
const ROWS_MAX: u64 = u32::MAX as u64 - 1;

/// Row lengths are 32 bits, and no form has more than six times the row's bytes in the file.
const ROW_BYTES_MAX: u64 = 256 << 20;

/// A message's length is 32 bits, and clients accept half of that at most.
const ANSWER_BYTES_MAX: u64 = (2 << 30) - 1;

impl hosting::Settings for Settings {
    const MEANINGS: Meanings = &[
        ("records.enabled", "`false`: without record queries"),
        ("records.csv", "CSV file with a header row; without it every query is refused"),
        ("records.delimiter", "byte between fields; `auto`: the one that the header has"),
        ("records.scan", "way of finding rows; the others are there to compare with"),
        ("records.encode", "time of encoding rows; `each`: for every answer, to compare with"),
        ("records.keep_protobuf", "keeps each row encoded for `GetRecord` and `StreamRecords`"),
        ("records.keep_json", "keeps each row encoded for `/search`"),
        ("records.keep_text", "keeps each row encoded for `GetRecordString` and `/search_string`"),
        ("records.compress", "compresses answers for callers that accept it"),
        ("records.scan_threads", "threads of one parallel scan"),
        ("records.columns", "columns of the file"),
        ("records.rows", "rows of the file"),
        ("records.field_bytes", "length of a field"),
        ("records.row_bytes", "length of a row of the file"),
        ("records.total_bytes", "memory of the loaded file; a reload holds two"),
        ("records.answer_bytes", "length of an answer in one message or page"),
        ("records.page_bytes", "rows in a message of a stream, which holds at least one row"),
        ("records.compress_bytes_min", "least length of an answer that is compressed"),
        ("records.cache_bytes", "memory of compressed answers; 0 keeps none"),
        ("records.kept_bytes", "memory of answers kept in one piece; 0 keeps none"),
        ("records.jobs", "scans, encodings and compressions at once"),
        ("records.jobs_queued", "queries that may wait for those"),
    ];

    fn read(from: &mut Reader<'_>) -> Result<Self, Refused> {
        let csv = from.reloaded_path("records.csv")?;
        if csv.as_ref().is_some_and(|csv| csv.as_os_str().is_empty()) {
            return Err(from.refuse("records.csv", "", "the path of a CSV file"));
        }
        let mut delimiters = vec![("auto", None)];
        delimiters.extend(Delimiter::ALL.map(|delimiter| (delimiter.name(), Some(delimiter))));
        let scans = [("indexed", Scan::Indexed), ("sequential", Scan::Sequential), ("parallel", Scan::Parallel)];
        Ok(Self {
            csv,
            delimiter: from.choice("records.delimiter", &delimiters)?,
            scan: from.choice("records.scan", &scans)?,
            encode: from.choice("records.encode", &[("once", Encode::Once), ("each", Encode::Each)])?,
            keep: Keep {
                protobuf: from.switch("records.keep_protobuf", true)?,
                json: from.switch("records.keep_json", true)?,
                text: from.switch("records.keep_text", true)?,
            },
            compress: from.switch("records.compress", true)?,
            scan_threads: from.cores("records.scan_threads")?,
            limits: Limits {
                columns: from.whole("records.columns", 1024, 1..=65_536)?,
                rows: from.whole("records.rows", 100_000_000, 0..=ROWS_MAX)?,
                field_bytes: from.bytes("records.field_bytes", 16 << 20, 1..=ROW_BYTES_MAX)?,
                row_bytes: from.bytes("records.row_bytes", 64 << 20, 1..=ROW_BYTES_MAX)?,
                total_bytes: from.bytes("records.total_bytes", 64 << 30, 1..=1 << 50)?,
                answer_bytes: from.bytes("records.answer_bytes", 64 << 20, 1..=ANSWER_BYTES_MAX)?,
                page_bytes: from.bytes("records.page_bytes", 256 << 10, 1..=ANSWER_BYTES_MAX)?,
                compress_bytes_min: from.bytes("records.compress_bytes_min", 1024, 0..=1 << 40)?,
                cache_bytes: from.bytes("records.cache_bytes", 64 << 20, 0..=1 << 40)?,
                kept_bytes: from.bytes("records.kept_bytes", 64 << 20, 0..=1 << 40)?,
                jobs: from.cores("records.jobs")?,
                jobs_queued: from.whole("records.jobs_queued", 1024, 0..=1 << 20)?,
            },
        })
    }
}

impl Default for Settings {
    fn default() -> Self {
        hosting::defaults()
    }
}

impl Default for Limits {
    fn default() -> Self {
        Settings::default().limits
    }
}
