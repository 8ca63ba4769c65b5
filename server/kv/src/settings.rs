//! The settings `kv.…`: modes, simulated work and limits.

use std::time::Duration;

use hosting::{Live, Meanings, Reader, Refused};

/// Locking of the map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreKind {
    /// No lock during a call's work; only the map access is exclusive, and only for its key.
    #[default]
    Concurrent,
    /// One lock for the whole call, simulated work included: the classic design, for comparison.
    Mutex,
}

/// Meaning of an acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The write is in memory.
    #[default]
    Memory,
    /// The write is on disk.
    Log,
}

/// Settings of the service.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Locking of the map.
    pub store: StoreKind,
    /// Meaning of an acknowledgement.
    pub durability: Durability,
    /// Simulated work in each retrieval.
    pub read_delay: Duration,
    /// Simulated work in each write.
    pub write_delay: Duration,
    /// Limits of the service and of one request.
    pub limits: Limits,
}

/// Limits of the service and of one request.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes in a key.
    pub key_bytes: usize,
    /// Bytes in a value.
    pub value_bytes: usize,
    /// Entries in the map.
    pub entries: usize,
    /// Memory of all entries: keys, values, and the overhead of each entry.
    pub total_bytes: usize,
    /// Entries in a page of a scan.
    pub page_entries: usize,
    /// Keys and values in a page of a scan, in bytes; a page holds at least one entry.
    pub page_bytes: usize,
    /// Watchers at once.
    pub watchers: Live,
    /// Events queued for a watcher before it is cut off.
    pub watch_events: usize,
    /// Memory of the events queued for a watcher before it is cut off.
    pub watch_bytes: usize,
    /// Writes queued for the journal.
    pub writes_queued: usize,
    /// Writes in one commit of the journal.
    pub batch_max: usize,
}

/// The largest value whose `RetrieveResponse` is a message of 4 MiB, the default limit of clients: a tag and 4 bytes of
/// length surround a value of this size.
const VALUE_BYTES_DEFAULT: usize = (4 << 20) - 5;

/// Limit of keys in the store on disk.
const KEY_BYTES_MAX: u64 = 60_000;

/// Limit of simulated work.
const DELAY_MS_MAX: u64 = 60_000;

impl hosting::Settings for Settings {
    const MEANINGS: Meanings = &[
        ("kv.enabled", "`false`: without the key-value store"),
        ("kv.store", "locking of the map; `mutex`: one lock for a whole call, to compare with"),
        (
            "kv.durability",
            "meaning of an acknowledgement: the write is in memory, or on disk in the folder `kv` of `server.data`, which one server uses at a time",
        ),
        ("kv.read_delay_ms", "simulated work in each retrieval; it blocks no thread"),
        ("kv.write_delay_ms", "simulated work in each write; it blocks no thread"),
        ("kv.key_bytes", "length of a key"),
        ("kv.value_bytes", "length of a value; the message around it counts towards `limits.message_bytes`"),
        ("kv.entries", "number of entries"),
        ("kv.total_bytes", "memory of all entries; at most half of `limits.memory_bytes`"),
        ("kv.page_entries", "entries in a page of a scan"),
        ("kv.page_bytes", "keys and values in a page of a scan, which holds at least one entry"),
        ("kv.watchers", "watches at once"),
        ("kv.watch_events", "events queued for a watcher before it is cut off"),
        ("kv.watch_bytes", "memory of the events queued for a watcher before it is cut off"),
        ("kv.writes_queued", "writes queued for the log"),
        ("kv.batch_max", "writes in one commit of the log"),
    ];

    fn read(from: &mut Reader<'_>) -> Result<Self, Refused> {
        let durability = from.choice("kv.durability", &[("memory", Durability::Memory), ("log", Durability::Log)])?;
        if durability == Durability::Log && cfg!(not(feature = "journal")) {
            let want = "memory: this build has no journal, which `make run` leaves out to start sooner; \
                        `cargo build --release -p server` has it";
            return Err(from.refuse("kv.durability", "log", want));
        }
        Ok(Self {
            store: from.choice("kv.store", &[("concurrent", StoreKind::Concurrent), ("mutex", StoreKind::Mutex)])?,
            durability,
            read_delay: from.milliseconds("kv.read_delay_ms", 0, 0..=DELAY_MS_MAX)?,
            write_delay: from.milliseconds("kv.write_delay_ms", 0, 0..=DELAY_MS_MAX)?,
            limits: Limits {
                key_bytes: from.bytes("kv.key_bytes", 16 << 10, 0..=KEY_BYTES_MAX)?,
                value_bytes: from.bytes("kv.value_bytes", VALUE_BYTES_DEFAULT, 0..=1 << 30)?,
                entries: from.whole("kv.entries", 10_000_000, 1..=1 << 40)?,
                total_bytes: from.bytes_of_memory("kv.total_bytes", 1 << 30, 1..=1 << 50, 2)?,
                page_entries: from.whole("kv.page_entries", 1000, 1..=100_000)?,
                page_bytes: from.bytes("kv.page_bytes", 1 << 20, 1..=1 << 30)?,
                watchers: from.live("kv.watchers", 64, 0..=1 << 16)?,
                watch_events: from.whole("kv.watch_events", 4096, 1..=1 << 20)?,
                watch_bytes: from.bytes("kv.watch_bytes", 8 << 20, 1..=1 << 30)?,
                writes_queued: from.whole("kv.writes_queued", 16_384, 1..=1 << 24)?,
                batch_max: from.whole("kv.batch_max", 1024, 1..=1 << 16)?,
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
