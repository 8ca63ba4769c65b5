//! Why something could not be done, apart from business. Must not know any transport's codes.

use std::{fmt, time::Duration};

/// A limit that a request ran into; the name it has in the configuration and in the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Purchases and operator actions that wait for the ledger.
    PurchasesQueued,
    /// A topic, in bytes.
    TopicBytes,
    /// Items asked for in one page.
    PageSize,
    /// Callers that follow the log.
    LogTails,
    /// Searches that are streamed.
    SearchStreams,
}

impl Limit {
    /// Every limit, for metrics that show them all from the start.
    pub const ALL: [Self; 5] =
        [Self::PurchasesQueued, Self::TopicBytes, Self::PageSize, Self::LogTails, Self::SearchStreams];

    /// Its key in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PurchasesQueued => "limits.purchases_queued",
            Self::TopicBytes => "limits.topic_bytes",
            Self::PageSize => "limits.page_size",
            Self::LogTails => "limits.log_tails",
            Self::SearchStreams => "limits.search_streams",
        }
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::PurchasesQueued => "try again after a pause",
            Self::TopicBytes => "name a shorter topic",
            Self::PageSize => "ask for a smaller page",
            Self::LogTails => {
                "end another tail or read the log by pages; a client gets three quarters of what others leave"
            }
            Self::SearchStreams => {
                "end another stream or search by pages; a client gets three quarters of what others leave"
            }
        }
    }
}

/// How much of a bad value is quoted back, in characters.
const QUOTED_MAX: usize = 60;

/// Why the store takes nothing for the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// Its file failed and is being read back.
    Recovering,
    /// No primary of the database answers.
    Unreachable,
    /// The database takes no further connection.
    Crowded,
    /// Another process holds the file's write lock for longer than the store waits.
    Locked,
    /// Another transaction holds the book for longer than the store waits.
    BookLocked,
    /// The server stops.
    Closing,
}

impl Unavailable {
    /// What is wrong.
    pub(crate) const fn state(self) -> &'static str {
        match self {
            Self::Recovering => "the store is being read back after a failure",
            Self::Unreachable => "the store is out of reach, because no primary of its database answers",
            Self::Crowded => "the store is out of reach, because all connections of its database are taken",
            Self::Locked => "the store is locked by another program, which may be stuck in a transaction",
            Self::BookLocked => "the book is locked by another transaction of the database, which may be stuck",
            Self::Closing => "the store is closing",
        }
    }

    /// When another try may succeed; `None` if not with this server.
    const fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Recovering | Self::Unreachable | Self::Crowded => Some(Duration::from_millis(500)),
            Self::Locked | Self::BookLocked => Some(Duration::from_secs(1)),
            Self::Closing => None,
        }
    }
}

/// What a caller is told when its request could not be dealt with. Each message says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The request is malformed; sending it again will not help.
    #[error("{field} is {got}; it must be {want}")]
    Invalid {
        /// The field as the wire contract names it.
        field: &'static str,
        /// What was sent, shortened.
        got: String,
        /// What would be right.
        want: String,
    },
    /// A bound was reached; nothing was done.
    #[error("the server's limit {} is {at}: {}", limit.name(), limit.advice())]
    Limit {
        /// Which.
        limit: Limit,
        /// Its value.
        at: u64,
    },
    /// More purchases come than the disk takes, and this one would wait for too long; nothing was done.
    #[error(
        "more purchases come than the disk takes, and this one would wait too long: nothing was done, try again in {} ms",
        retry_after.as_millis()
    )]
    Overloaded {
        /// When another try is worth it.
        retry_after: Duration,
    },
    /// The deadline passed before work began; nothing was done.
    #[error("the deadline passed before the store began: nothing was done, try again with a longer one")]
    Late,
    /// The whole answer is more than one message may hold.
    #[error(
        "the answer is larger than one message, and the server's limit limits.message_bytes is {at}: set page_size and ask for \
         pages, or call SearchStream"
    )]
    AnswerBytes {
        /// The limit's value.
        at: usize,
    },
    /// The store does not take requests now; nothing was done.
    #[error("{}: nothing was done, try again later", .0.state())]
    Unavailable(Unavailable),
    /// The store could not do it; nothing was done.
    #[error("the store failed ({0}): nothing was done, try again later")]
    Failed(String),
    /// A restock that raised this many books, and not the rest.
    #[error("the restock stopped after {0} books: send it again for the rest")]
    Stopped(u64),
    /// The commit failed half-way: whether it was done will be known once the file has been read back.
    #[error(
        "the store failed while it committed: the outcome is unknown; send it again with its idempotency key to learn it, or look into the log"
    )]
    OutcomeUnknown,
    /// The key is that of another request.
    #[error(
        "this idempotency key belongs to an earlier request, for {} of book {book} (number {number} in the log): send that request again, or this one with a new key",
        copies(*quantity)
    )]
    KeyReused {
        /// The earlier request's log entry.
        number: i64,
        /// The book it wanted, by its id.
        book: i32,
        /// The copies it wanted.
        quantity: u32,
    },
}

fn copies(count: u32) -> String {
    if count == 1 { "1 copy".to_owned() } else { format!("{count} copies") }
}

/// Text as it is quoted back.
fn shortened(text: &str) -> String {
    let mut shown: String = text.chars().take(QUOTED_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown.escape_debug().to_string()
}

impl Fault {
    /// When another try may succeed, if the store knows.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Overloaded { retry_after } => Some(*retry_after),
            Self::Unavailable(why) => why.retry_after(),
            _ => None,
        }
    }

    /// A malformed request: the field, what it held and what it should hold.
    pub fn invalid(field: &'static str, got: impl fmt::Display, want: impl Into<String>) -> Self {
        Self::Invalid { field, got: shortened(&got.to_string()), want: want.into() }
    }

    /// As [`Fault::invalid`], for a word that a person typed.
    pub fn invalid_word(field: &'static str, got: &str, want: impl Into<String>) -> Self {
        Self::Invalid { field, got: format!("'{}'", shortened(got)), want: want.into() }
    }
}
