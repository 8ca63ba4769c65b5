//! Why something was not done. Must not know any transport's codes.

use std::time::Duration;

use crate::entry::Version;

/// A limit that a request ran into; the name it has in the configuration.
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
    /// Entries asked for in one page.
    PageEntries,
    /// Watchers at once.
    Watchers,
    /// Events that wait for one watcher.
    WatchEvents,
    /// Memory of the events that wait for one watcher.
    WatchBytes,
    /// Writes that wait for the journal.
    WritesQueued,
}

impl Limit {
    /// Every limit, for metrics that show them all from the start.
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

    /// Its key below `kv` in the configuration.
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

/// What a caller is told when its request was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There is an entry with this key already.
    #[error("the key exists")]
    Exists,
    /// There is no entry with this key.
    #[error("there is no such key")]
    Missing,
    /// The entry has another version than the caller expects.
    #[error("the entry has version {0}, not the expected one: read it again and decide again")]
    Conflict(Version),
    /// A bound was reached; nothing was done.
    #[error("the server's limit kv.{} is {at}: {}", limit.name(), limit.advice())]
    Limit {
        /// Which.
        limit: Limit,
        /// Its value.
        at: usize,
    },
    /// More writes come than the disk takes, and this one would wait for too long; nothing was done.
    #[error(
        "more writes come than the disk takes, and this one would wait too long: nothing was done, try again in {} ms",
        retry_after.as_millis()
    )]
    Overloaded {
        /// When another try is worth it.
        retry_after: Duration,
    },
    /// The deadline passed before work began; nothing was done.
    #[error("the deadline passed before the store began: nothing was done, try again with a longer one")]
    Late,
    /// The journal takes no writes now; nothing was done.
    #[error("the key-value store is {0}: nothing was done, try again later")]
    Unavailable(&'static str),
    /// The journal failed half-way: whether the write was done is known once it has been read back.
    #[error("the key-value store failed while it wrote: the outcome is unknown; read the key to learn it")]
    OutcomeUnknown,
}
