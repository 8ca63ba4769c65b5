//! What the embedding program may set: the file, ways of working and limits, with defaults for a small machine.

use std::path::PathBuf;

/// How rows are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scan {
    /// Every row's value is compared, one after the other: the classic way, kept to compare with.
    Sequential,
    /// As sequential, with the rows shared out to threads.
    Parallel,
    /// The value is looked up, and its rows are listed there.
    #[default]
    Indexed,
}

/// When rows are encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encode {
    /// For each answer anew: the classic way, kept to compare with.
    Each,
    /// When the file is read; an answer consists of what lies ready.
    #[default]
    Once,
}

/// In which forms rows lie ready. Those that do not are encoded for each answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// For `GetRecord` and `StreamRecords`.
    pub protobuf: bool,
    /// For `/search`.
    pub json: bool,
    /// For `GetRecordString` and `/search_string`.
    pub text: bool,
}

impl Default for Keep {
    fn default() -> Self {
        Self { protobuf: true, json: true, text: true }
    }
}

/// How the service works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The file; without one every query is refused.
    pub csv: Option<PathBuf>,
    /// How rows are found.
    pub scan: Scan,
    /// When rows are encoded.
    pub encode: Encode,
    /// What lies ready, where `encode` is [`Encode::Once`].
    pub keep: Keep,
    /// Whether answers are compressed for callers that accept it.
    pub compress: bool,
    /// Threads that share one parallel scan.
    pub scan_threads: usize,
    /// Bounds.
    pub limits: Limits,
}

/// Bounds on what the service holds and on what one request may ask.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Columns of the file.
    pub columns: usize,
    /// Rows of the file.
    pub rows: usize,
    /// Bytes in a field.
    pub field_bytes: usize,
    /// Bytes in a row, as they are in the file.
    pub row_bytes: usize,
    /// Memory of one loaded file; a reload holds two.
    pub total_bytes: usize,
    /// Bytes of an answer in one message or page.
    pub answer_bytes: usize,
    /// Bytes of rows in a message of a stream; a message holds at least one row.
    pub page_bytes: usize,
    /// Smaller answers are sent as they are.
    pub compress_bytes_min: usize,
    /// Memory of compressed answers kept for the next to ask; 0 keeps none.
    pub cache_bytes: usize,
    /// Memory of answers kept in one piece for the next to ask; 0 keeps none, and none takes more than an eighth.
    pub kept_bytes: usize,
    /// Scans, encodings and compressions at once.
    pub jobs: usize,
    /// Queries that may wait for those.
    pub jobs_queued: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            csv: None,
            scan: Scan::default(),
            encode: Encode::default(),
            keep: Keep::default(),
            compress: true,
            scan_threads: cores(),
            limits: Limits::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            columns: 1024,
            rows: 100_000_000,
            field_bytes: 16 << 20,
            row_bytes: 64 << 20,
            total_bytes: 64 << 30,
            answer_bytes: 64 << 20,
            page_bytes: 256 << 10,
            compress_bytes_min: 1024,
            cache_bytes: 64 << 20,
            kept_bytes: 64 << 20,
            jobs: cores(),
            jobs_queued: 1024,
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
