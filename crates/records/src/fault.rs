//! Why a query is not answered. Must not know any transport's codes.

use std::time::Duration;

/// What a caller is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No file is loaded.
    #[error("the server has no records: name a CSV file with the setting records.csv and start it again")]
    NoFile,
    /// The query is malformed; the text says what would be right.
    #[error("{0}")]
    Invalid(String),
    /// The file has no such column.
    #[error("there is no column '{wanted}'; the columns are {columns}")]
    NoColumn {
        /// As asked.
        wanted: String,
        /// All names, as a list to read.
        columns: String,
    },
    /// The answer is too large to be one.
    #[error(
        "the answer has {bytes} bytes in {rows} rows, and the server's limit records.answer_bytes is {at}: \
         ask for pages with offset and limit, for a smaller result_size, or for a stream with \
         RecordStreamService/StreamRecords"
    )]
    AnswerBytes {
        /// Of the answer.
        bytes: usize,
        /// Of the answer.
        rows: usize,
        /// The limit.
        at: usize,
    },
    /// Too many queries wait.
    #[error("the server's limit records.jobs_queued is {at}: try again after a pause")]
    Busy {
        /// The limit.
        at: usize,
    },
    /// More queries come than the server answers, and this one would wait for too long.
    #[error(
        "more queries come than the server answers, and this one would wait too long: try again in {} ms",
        retry_after.as_millis()
    )]
    Overloaded {
        /// When another try is worth it.
        retry_after: Duration,
    },
    /// The deadline passed before work began.
    #[error("the deadline passed before the query was begun: try again with a longer one")]
    Late,
    /// A job ended without an answer.
    #[error("the query failed inside the server")]
    Failed,
}

/// Column names for an error message.
pub(crate) fn name_list<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    const SHOWN_MAX: usize = 100;
    let count = names.len();
    let list = names.take(SHOWN_MAX).collect::<Vec<_>>().join(", ");
    if count > SHOWN_MAX { format!("{list} and {} more", count - SHOWN_MAX) } else { list }
}
