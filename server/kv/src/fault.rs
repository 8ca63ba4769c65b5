//! Errors of requests.

use std::time::Duration;

use crate::entry::Version;

/// A limit that a request exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// A key, in bytes.
    KeyBytes,
    /// A value, in bytes.
    ValueBytes,
    /// Entries in the map.
    Entries,
    /// Memory of all entries.
    TotalBytes,
    /// Entries requested in one page.
    PageEntries,
    /// Watchers at once.
    Watchers,
    /// Events queued for one watcher.
    WatchEvents,
    /// Memory of the events queued for one watcher.
    WatchBytes,
    /// Writes queued for the journal.
    WritesQueued,
}

impl Limit {
    /// Every limit, so that metrics list them all from the start.
    pub const ALL: [Self; 9] = [
        Self::KeyBytes,
        Self::ValueBytes,
        Self::Entries,
        Self::TotalBytes,
        Self::PageEntries,
        Self::Watchers,
        Self::WatchEvents,
        Self::WatchBytes,
        Self::WritesQueued,
    ];

    /// Its setting's name below `kv`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KeyBytes => "key_bytes",
            Self::ValueBytes => "value_bytes",
            Self::Entries => "entries",
            Self::TotalBytes => "total_bytes",
            Self::PageEntries => "page_entries",
            Self::Watchers => "watchers",
            Self::WatchEvents => "watch_events",
            Self::WatchBytes => "watch_bytes",
            Self::WritesQueued => "writes_queued",
        }
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::KeyBytes => "use a shorter key",
            Self::ValueBytes => "send a smaller value",
            Self::Entries | Self::TotalBytes => "delete entries first; nothing is evicted",
            Self::PageEntries => "ask for a smaller page",
            Self::Watchers => "end another watch first; a client gets three quarters of what others leave",
            Self::WatchEvents | Self::WatchBytes => "the watch was cut off; scan, watch again and read faster",
            Self::WritesQueued => "try again after a pause",
        }
    }
}

/// Reason why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The key already exists.
    #[error("the key exists")]
    Exists,
    /// The key does not exist.
    #[error("there is no such key")]
    Missing,
    /// The entry's version differs from the expected one.
    #[error("the entry has version {0}, not the expected one: read it again and decide again")]
    Conflict(Version),
    /// A limit was reached; nothing was done.
    #[error("the server's limit kv.{} is {at}: {}", limit.name(), limit.advice())]
    Limit {
        /// The limit.
        limit: Limit,
        /// Its value.
        at: usize,
    },
    /// More writes arrive than the disk can take, and this one would wait too long; nothing was done.
    #[error(
        "more writes come than the disk takes, and this one would wait too long: nothing was done, try again in {} ms",
        retry_after.as_millis()
    )]
    Overloaded {
        /// Delay before a retry.
        retry_after: Duration,
    },
    /// The deadline passed before work began; nothing was done.
    #[error("the deadline passed before the store began: nothing was done, try again with a longer one")]
    Late,
    /// The journal accepts no writes now; nothing was done.
    #[error("the key-value store is {0}: nothing was done, try again later")]
    Unavailable(&'static str),
    /// The journal failed in between: the write's outcome is unknown until it has been read back.
    #[error("the key-value store failed while it wrote: the outcome is unknown; read the key to learn it")]
    OutcomeUnknown,
}
