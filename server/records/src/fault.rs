//! Failures of queries.

use std::time::Duration;

/// Reason why a query is not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No file is loaded.
    #[error("the server has no records: name a CSV file with the setting records.csv and start it again")]
    NoFile,
    /// The query is malformed; the text describes the valid form.
    #[error("{0}")]
    Invalid(String),
    /// The file has no such column.
    #[error("there is no column '{wanted}'; the columns are {columns}")]
    NoColumn {
        /// The requested name.
        wanted: String,
        /// All names, as a readable list.
        columns: String,
    },
    /// The answer exceeds the limit.
    #[error(
        "the answer has {bytes} bytes in {rows} rows, and the server's limit records.answer_bytes is {at}: \
         ask for pages with offset and limit, for a smaller result_size, or for a stream with \
         RecordStreamService/StreamRecords"
    )]
    AnswerBytes {
        /// Length of the answer.
        bytes: usize,
        /// Rows of the answer.
        rows: usize,
        /// The limit.
        at: usize,
    },
    /// The queue is full.
    #[error("the server's limit records.jobs_queued is {at}: try again after a pause")]
    Busy {
        /// The limit.
        at: usize,
    },
    /// Overload: the query would wait too long.
    #[error(
        "more queries come than the server answers, and this one would wait too long: try again in {} ms",
        retry_after.as_millis()
    )]
    Overloaded {
        /// Delay after which to retry.
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
