//! Technical errors of requests.

use std::{fmt, time::Duration};

use crate::money::Cents;

/// A limit that a request exceeded, named as in the configuration and the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Purchases and operator actions queued for the ledger.
    PurchasesQueued,
    /// Open reservations.
    Reservations,
    /// A topic, in bytes.
    TopicBytes,
    /// Items requested in one page.
    PageSize,
    /// Callers that follow the log.
    LogTails,
    /// Streamed searches.
    SearchStreams,
    /// Imports into the open store.
    Imports,
    /// Summaries of sales.
    Sales,
}

impl Limit {
    /// Every limit, so that metrics list them all from the start.
    pub const ALL: [Self; 8] = [
        Self::PurchasesQueued,
        Self::Reservations,
        Self::TopicBytes,
        Self::PageSize,
        Self::LogTails,
        Self::SearchStreams,
        Self::Imports,
        Self::Sales,
    ];

    /// Its key in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PurchasesQueued => "limits.purchases_queued",
            Self::Reservations => "limits.reservations",
            Self::TopicBytes => "limits.topic_bytes",
            Self::PageSize => "limits.page_size",
            Self::LogTails => "limits.log_tails",
            Self::SearchStreams => "limits.search_streams",
            Self::Imports => "limits.imports",
            Self::Sales => "limits.sales",
        }
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::PurchasesQueued => "try again after a pause",
            Self::Reservations => "confirm or release another reservation; a client has at most half of them",
            Self::TopicBytes => "name a shorter topic",
            Self::PageSize => "ask for a smaller page",
            Self::LogTails => {
                "end another tail or read the log by pages; a client gets three quarters of what others leave"
            }
            Self::SearchStreams => {
                "end another stream or search by pages; a client gets three quarters of what others leave"
            }
            Self::Imports => "wait until another import has ended; a client gets three quarters of what others leave",
            Self::Sales => "wait until another summary is there; a client gets three quarters of what others leave",
        }
    }
}

/// Longest quotation of a bad value, in characters.
const QUOTED_MAX: usize = 60;

/// Reason why the store temporarily refuses requests.
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
    /// The log has more entries than hashes of it are known.
    Hashing,
    /// The entry is newer than the log's head on disk.
    Unsigned,
    /// No witness has signed the log since the start.
    Unwitnessed,
    /// The server is stopping.
    Closing,
}

impl Unavailable {
    /// The state, as a clause of a message.
    pub(crate) const fn state(self) -> &'static str {
        match self {
            Self::Recovering => "the store is being read back after a failure",
            Self::Unreachable => "the store is out of reach, because no primary of its database answers",
            Self::Crowded => "the store is out of reach, because all connections of its database are taken",
            Self::Locked => "the store is locked by another program, which may be stuck in a transaction",
            Self::BookLocked => "the book is locked by another transaction of the database, which may be stuck",
            Self::Hashing => "the hashes of the log are being computed, which a long log needs once",
            Self::Unsigned => "the entry is not yet in the head of the log on disk",
            Self::Unwitnessed => "no witness has signed the log since the start; the server's log has the reason",
            Self::Closing => "the store is closing",
        }
    }

    /// Delay before a retry; `None` if this server will not recover.
    const fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Recovering | Self::Unreachable | Self::Crowded => Some(Duration::from_millis(500)),
            Self::Unsigned => Some(Duration::from_millis(100)),
            Self::Locked | Self::BookLocked | Self::Hashing | Self::Unwitnessed => Some(Duration::from_secs(1)),
            Self::Closing => None,
        }
    }
}

/// Reason why a request failed. Each message names the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The request is malformed; retries will not help.
    #[error("{field} is {got}; it must be {want}")]
    Invalid {
        /// The field's name in the wire contract.
        field: &'static str,
        /// The value sent, shortened.
        got: String,
        /// A valid form.
        want: String,
    },
    /// A limit was reached; nothing was done.
    #[error("the server's limit {} is {at}: {}", limit.name(), limit.advice())]
    Limit {
        /// The limit.
        limit: Limit,
        /// Its value.
        at: u64,
    },
    /// More purchases arrive than the disk can take, and this one would wait too long; nothing was done.
    #[error(
        "more purchases come than the disk takes, and this one would wait too long: nothing was done, try again in {} ms",
        retry_after.as_millis()
    )]
    Overloaded {
        /// Delay before a retry.
        retry_after: Duration,
    },
    /// The deadline passed before work began; nothing was done.
    #[error("the deadline passed before the store began: nothing was done, try again with a longer one")]
    Late,
    /// The answer exceeds one message.
    #[error(
        "the answer is larger than one message, and the server's limit limits.message_bytes is {at}: set page_size and ask for \
         pages, or call SearchStream"
    )]
    AnswerBytes {
        /// The limit's value.
        at: usize,
    },
    /// The store accepts no requests now; nothing was done.
    #[error("{}: nothing was done, try again later", .0.state())]
    Unavailable(Unavailable),
    /// The store cannot do it at all.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The store failed; nothing was done.
    #[error("the store failed ({0}): nothing was done, try again later")]
    Failed(String),
    /// A restock stopped after this many books.
    #[error("it stopped after {0} books: send it again for the rest")]
    Stopped(u64),
    /// An import stopped after some of its rows.
    #[error("{cause}; {}", done_up_to(*line))]
    ImportStopped {
        /// The line of the last row that is done, with the header as line 1.
        line: u64,
        /// The reason.
        cause: Box<Fault>,
    },
    /// The commit failed in between: its outcome is unknown until the file has been read back.
    #[error(
        "the store failed while it committed: the outcome is unknown; send it again with its idempotency key, if it has one, to learn it, or look into the log"
    )]
    OutcomeUnknown,
    /// The price is not the agreed one; nothing was done.
    #[error("the price is {0} now, not the one that was agreed on: nothing was bought")]
    PriceChanged(Cents),
    /// The log lacks the entry that ended a reservation; nothing was done, and retries will not help.
    #[error(
        "the reservation that began with the log's entry {number} has ended, and the entry of its end is lost: it is not known \
         whether its copies were sold. Nothing was done, and trying again does not help; the operator can run `quire verify`, \
         which names what the log lacks"
    )]
    LostEnd {
        /// The entry that began it.
        number: i64,
    },
    /// Another program raised a book's stock so far that a reservation's copies do not fit; nothing was done.
    #[error(
        "book {book} has {stock} copies now, and the {copies} of this reservation do not fit, because a book has at most \
         {}: they stay held until the operator lowers the stock",
        i32::MAX
    )]
    NoRoom {
        /// The book's id.
        book: i32,
        /// Its copies.
        stock: u32,
        /// Those of the reservation.
        copies: u32,
    },
    /// The key belongs to another request.
    #[error(
        "this idempotency key belongs to an earlier request, for {} of book {book} (number {number} in the log): send that request again, or this one with a new key",
        copies(*quantity)
    )]
    KeyReused {
        /// The earlier request's log entry.
        number: i64,
        /// Its book's id.
        book: i32,
        /// Its copies.
        quantity: u32,
    },
}

/// Advice for resuming an import whose rows up to this line are done.
pub(crate) fn done_up_to(line: u64) -> String {
    format!(
        "the rows up to the one of line {line} are done: to go on, send the header and the rows after it, because a row that \
         is sent again sets the stock again"
    )
}

fn copies(count: u32) -> String {
    if count == 1 { "1 copy".to_owned() } else { format!("{count} copies") }
}

/// Shortens a quotation.
fn shortened(text: &str) -> String {
    let mut shown: String = text.chars().take(QUOTED_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown.escape_debug().to_string()
}

impl Fault {
    /// Delay before a retry, if known.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Overloaded { retry_after } => Some(*retry_after),
            Self::Unavailable(why) => why.retry_after(),
            _ => None,
        }
    }

    /// A malformed request: the field, its value and a valid form.
    pub fn invalid(field: &'static str, got: impl fmt::Display, want: impl Into<String>) -> Self {
        Self::Invalid { field, got: shortened(&got.to_string()), want: want.into() }
    }

    /// As [`Fault::invalid`], for a typed word.
    pub fn invalid_word(field: &'static str, got: &str, want: impl Into<String>) -> Self {
        Self::Invalid { field, got: format!("'{}'", shortened(got)), want: want.into() }
    }
}
