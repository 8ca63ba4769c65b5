//! What the embedding program may set: modes, simulated work and limits, with defaults for a small machine.

use std::time::Duration;

/// How calls get at the map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreKind {
    /// One lock, held for the whole call, simulated work included: the classic way, kept to compare with.
    Mutex,
    /// Nothing is held while a call works; only the moment in the map is exclusive, and only for its key.
    #[default]
    Concurrent,
}

/// What an acknowledgement means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The write is in memory.
    #[default]
    Memory,
    /// The write is on disk.
    Log,
}

/// How the service works.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How calls get at the map.
    pub store: StoreKind,
    /// What an acknowledgement means.
    pub durability: Durability,
    /// Simulated work in each retrieval.
    pub read_delay: Duration,
    /// Simulated work in each write.
    pub write_delay: Duration,
    /// What a request may ask and what the service holds.
    pub limits: Limits,
}

/// Bounds on what the service holds and on what one request may ask.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes in a key.
    pub key_bytes: usize,
    /// Bytes in a value.
    pub value_bytes: usize,
    /// Entries in the map.
    pub entries: usize,
    /// Memory of all entries: keys, values, and what an entry costs beside them.
    pub total_bytes: usize,
    /// Entries in a page of a scan.
    pub page_entries: usize,
    /// Keys and values in a page of a scan, in bytes; a page holds at least one entry.
    pub page_bytes: usize,
    /// Watchers at once.
    pub watchers: usize,
    /// Events that may wait for a watcher before it is cut off.
    pub watch_events: usize,
    /// Memory of the events that may wait for a watcher before it is cut off.
    pub watch_bytes: usize,
    /// Writes that may wait for the journal.
    pub writes_queued: usize,
}

/// The largest value whose `RetrieveResponse` is a message of 4 MiB, which is what clients take if no one tells them
/// otherwise: around a value of such a size are a field's key and 4 bytes of length.
const VALUE_BYTES_DEFAULT: usize = (4 << 20) - 5;

impl Default for Limits {
    fn default() -> Self {
        Self {
            key_bytes: 16 << 10,
            value_bytes: VALUE_BYTES_DEFAULT,
            entries: 10_000_000,
            total_bytes: 1 << 30,
            page_entries: 1000,
            page_bytes: 1 << 20,
            watchers: 64,
            watch_events: 4096,
            watch_bytes: 8 << 20,
            writes_queued: 16_384,
        }
    }
}
