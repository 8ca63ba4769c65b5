//! What the embedding program may set: modes and limits, with defaults for a small machine.

use std::time::Duration;

/// When the ledger commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Commit {
    /// One transaction for all purchases that wait.
    #[default]
    Group,
    /// One transaction for each purchase, by a pool of connections: the classic way, kept to compare with.
    Each,
}

/// Where reads are answered from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// The published memory.
    #[default]
    Memory,
    /// A query for each read: the classic way, kept to compare with.
    Database,
}

/// How the store works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// When the ledger commits.
    pub commit: Commit,
    /// Where reads are answered from.
    pub reads: Reads,
    /// Purchases in one transaction at the most.
    pub batch_max: usize,
    /// Connections that write with [`Commit::Each`].
    pub write_pool: usize,
    /// Connections that read the log, and the catalogue with [`Reads::Database`].
    pub read_pool: usize,
    /// How often an idle ledger looks for what other processes wrote.
    pub poll_interval: Duration,
    /// How long a transaction waits for another process's before it gives up.
    pub busy_timeout: Duration,
    /// Memory for `SQLite`'s page cache, in bytes, for each writing connection.
    pub page_cache_bytes: usize,
    /// Books that one transaction of a restock raises, so that purchases wait for a part of it only.
    pub restock_slice: usize,
    /// Unindexed idempotency keys held in memory before they are moved to the index.
    pub keys_in_memory: usize,
    /// What a request may ask.
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            commit: Commit::default(),
            reads: Reads::default(),
            batch_max: 1024,
            write_pool: 10,
            read_pool: 4,
            poll_interval: Duration::from_millis(20),
            busy_timeout: Duration::from_secs(5),
            page_cache_bytes: 64 << 20,
            restock_slice: 4096,
            keys_in_memory: 1 << 19,
            limits: Limits::default(),
        }
    }
}

/// Bounds on what the store holds and on what one request may ask.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Purchases and operator actions that may wait for the ledger.
    pub purchases_queued: usize,
    /// Bytes in a topic.
    pub topic_bytes: usize,
    /// Items in a page.
    pub page_size: usize,
    /// Bytes in a message; a larger answer is refused, and a page ends where the message is full.
    pub message_bytes: usize,
    /// Searches that are streamed at once.
    pub search_streams: usize,
    /// Copies in one purchase.
    pub quantity: u32,
    /// Callers that follow the log at once.
    pub log_tails: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            purchases_queued: 16_384,
            topic_bytes: 256,
            page_size: 1000,
            message_bytes: 4 << 20,
            search_streams: 256,
            quantity: 1000,
            log_tails: 16,
        }
    }
}
