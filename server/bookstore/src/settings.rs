//! The settings `ledger.…`, `catalogue.…` and, of `limits.…`, those of the store.

use std::{path::PathBuf, sync::Arc, time::Duration};

use hosting::{Live, Meanings, Reader, Refused};

use crate::witness::Witness;

/// Grouping of commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommitMode {
    /// One transaction for all waiting purchases.
    #[default]
    Group,
    /// One transaction per purchase, by a pool of connections: the classic design, for comparison.
    Each,
}

/// Source of reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// The published memory.
    #[default]
    Memory,
    /// A query per read: the classic design, for comparison.
    Database,
}

/// Settings of the store. Only tests set those without a name in the configuration.
#[derive(Clone)]
pub struct Settings {
    /// URL of the `PostgreSQL` database to use instead of a file. It may contain a password.
    pub url: Option<String>,
    /// PEM file of the authorities for the database's certificate; `None` is the system's.
    pub database_ca: Option<PathBuf>,
    /// Time without an answer after which the database counts as unreachable.
    pub database_timeout: Duration,
    /// Interval of polling for other servers' commits, in the absence of notifications.
    pub follow_interval: Duration,
    /// Grouping of commits.
    pub commit: CommitMode,
    /// Source of reads.
    pub reads: Reads,
    /// Most purchases in one transaction.
    pub batch_max: usize,
    /// Connections that write with [`CommitMode::Each`].
    pub write_pool: usize,
    /// Connections that read the log, and the catalogue with [`Reads::Database`].
    pub read_pool: usize,
    /// Interval at which an idle ledger checks for other processes' writes.
    pub poll_interval: Duration,
    /// Longest wait of a transaction for another process's.
    pub busy_timeout: Duration,
    /// Longest wait of a database transaction for books that others have locked, before it goes on without them.
    pub lock_wait: Duration,
    /// Memory for `SQLite`'s page cache, in bytes, for each writing connection.
    pub page_cache_bytes: usize,
    /// Books per transaction of a restock, so that purchases wait for a part of it only.
    pub restock_slice: usize,
    /// Name of the log in checkpoints and receipts; `None` is one that the store's random name gives.
    pub origin: Option<String>,
    /// Witnesses that sign the log.
    pub witnesses: Vec<Witness>,
    /// Time between two checkpoints that are submitted to them.
    pub witness_interval: Duration,
    /// Lost entries without which the file is used all the same; a refused start names the number.
    pub accept_loss: Option<u64>,
    /// Unindexed idempotency keys held in memory before they are moved to the index.
    pub keys_in_memory: usize,
    /// Clock of reservations, in milliseconds since the Unix epoch. `None` over a file is the system's at the start, and goes on
    /// steadily; over a database it is the primary's.
    pub clock: Option<Arc<dyn Fn() -> i64 + Send + Sync>>,
    /// Limits of the store and of one request.
    pub limits: Limits,
}

/// Limits of the store and of one request.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Purchases and operator actions queued for the ledger.
    pub purchases_queued: usize,
    /// Bytes in a topic.
    pub topic_bytes: usize,
    /// Items in a page.
    pub page_size: Live,
    /// Bytes in a message, from the server's limit; a larger answer is refused, and a page ends where the message is
    /// full.
    pub message_bytes: usize,
    /// Searches that are streamed at once.
    pub search_streams: Live,
    /// Copies in one purchase.
    pub quantity: Live,
    /// Open reservations; one client has at most half of them.
    pub reservations: Live,
    /// Longest time of a reservation, in seconds.
    pub reservation_seconds: Live,
    /// Callers that follow the log at once.
    pub log_tails: Live,
    /// Imports into the open store at once.
    pub imports: Live,
    /// Summaries of sales that run or wait; half of the reading connections make them.
    pub sales: Live,
}

/// Default limit of a message, which is also clients' default.
const MESSAGE_BYTES_DEFAULT: usize = 4 << 20;

/// Longest name of a log.
const ORIGIN_BYTES_MAX: usize = 200;

fn is_origin(name: &str) -> bool {
    name.len() <= ORIGIN_BYTES_MAX && tlog::is_name(name)
}

impl hosting::Settings for Settings {
    const MEANINGS: Meanings = &[
        ("bookstore.enabled", "`false`: without the bookstore and its console"),
        (
            "ledger.url",
            "`postgres://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE`: a PostgreSQL database instead of the file `bookstore.db` ([scale.md](operate/scale.md))",
        ),
        ("ledger.ca", "PEM file of the authorities for the database's certificate, instead of the system's"),
        ("ledger.timeout_seconds", "time without an answer after which the database counts as unreachable"),
        (
            "ledger.commit",
            "`group`: one transaction for all waiting purchases; `each`: one for every purchase, by a pool of connections, to compare with",
        ),
        (
            "ledger.accept_loss",
            "start on the file `bookstore.db` although exactly so many entries of its log are lost, the number that a refused start names ([durability.md](durability.md))",
        ),
        ("ledger.batch_max", "purchases in one transaction"),
        (
            "ledger.origin",
            "name of the log in checkpoints and receipts, such as `shop.example/log`; if it is not set, `quire/` and the log's random name ([receipts.md](receipts.md))",
        ),
        (
            "ledger.witnesses",
            "witnesses that sign the log, each as `URL KEY`, so that a rollback of the whole disk is exposed ([receipts.md](receipts.md))",
        ),
        ("ledger.witness_seconds", "time between two checkpoints that are submitted to witnesses, at least 0.05"),
        ("ledger.pool", "connections that write with `ledger.commit=each`"),
        ("catalogue.reads", "`database`: a query for every read, to compare with"),
        ("catalogue.pool", "connections that read the log, and the catalogue with `catalogue.reads=database`"),
        ("limits.purchases_queued", "purchases, reservations and operator actions queued for the ledger"),
        ("limits.topic_bytes", "length of a topic"),
        ("limits.page_size", "items in a page, and books in a message of `SearchStream`"),
        ("limits.search_streams", "calls of `SearchStream` at once"),
        ("limits.quantity", "copies in one purchase or reservation; a larger one is INVALID_ARGUMENT"),
        ("limits.reservations", "reservations that hold copies; one client has at most half of them"),
        ("limits.reservation_seconds", "the longest that a reservation holds copies; a longer one is INVALID_ARGUMENT"),
        ("limits.log_tails", "calls of `TailLog` at once"),
        ("limits.imports", "calls of `Import` at once"),
        ("limits.sales", "calls of `Sales` at once; they wait for half of the connections of `catalogue.pool`"),
    ];

    fn read(from: &mut Reader<'_>) -> Result<Self, Refused> {
        let url = from.secret("ledger.url")?;
        if url.is_some() && cfg!(not(feature = "postgres")) {
            let want = "unset: this build has no PostgreSQL, which `make run` leaves out to start sooner; \
                        `cargo build --release -p server` has it";
            return Err(from.refuse("ledger.url", "(hidden)", want));
        }
        let origin = Some(from.text("ledger.origin", "")?).filter(|origin| !origin.is_empty());
        if let Some(origin) = origin.as_ref().filter(|origin| !is_origin(origin)) {
            let want = format!("1 to {ORIGIN_BYTES_MAX} bytes without white space and `+`, such as `shop.example/log`");
            return Err(from.refuse("ledger.origin", origin, want));
        }
        let items = from.list("ledger.witnesses")?;
        let witnesses = match Witness::parse_all(&items) {
            Ok(witnesses) if witnesses.is_empty() || url.is_none() => witnesses,
            Ok(_) => {
                return Err(from.refuse(
                    "ledger.witnesses",
                    items.join(", "),
                    "empty if ledger.url is set, which has no signed log",
                ));
            }
            Err(want) => return Err(from.refuse("ledger.witnesses", items.join(", "), want)),
        };
        Ok(Self {
            url,
            database_ca: from.path("ledger.ca")?,
            database_timeout: from.seconds("ledger.timeout_seconds", Duration::from_secs(5))?,
            follow_interval: Duration::from_millis(50),
            commit: from.choice("ledger.commit", &[("group", CommitMode::Group), ("each", CommitMode::Each)])?,
            reads: from.choice("catalogue.reads", &[("memory", Reads::Memory), ("database", Reads::Database)])?,
            batch_max: from.whole("ledger.batch_max", 1024, 1..=1 << 16)?,
            write_pool: from.whole("ledger.pool", 10, 1..=256)?,
            read_pool: from.whole("catalogue.pool", 4, 1..=256)?,
            poll_interval: Duration::from_millis(20),
            busy_timeout: Duration::from_secs(5),
            lock_wait: Duration::from_millis(100),
            page_cache_bytes: 64 << 20,
            accept_loss: from.whole_if_set("ledger.accept_loss")?,
            origin,
            witnesses,
            witness_interval: from.seconds("ledger.witness_seconds", Duration::from_secs(10))?,
            restock_slice: 4096,
            clock: None,
            keys_in_memory: 1 << 19,
            limits: Limits {
                purchases_queued: from.whole("limits.purchases_queued", 16_384, 1..=1 << 24)?,
                topic_bytes: from.bytes("limits.topic_bytes", 256, 1..=1 << 16)?,
                page_size: from.live("limits.page_size", 1000, 1..=100_000)?,
                message_bytes: MESSAGE_BYTES_DEFAULT,
                search_streams: from.live("limits.search_streams", 256, 1..=1 << 16)?,
                quantity: from.live("limits.quantity", 1000, 1..=1 << 30)?,
                reservations: from.live("limits.reservations", 100_000, 1..=1 << 24)?,
                reservation_seconds: from.live("limits.reservation_seconds", 3600, 1..=1 << 30)?,
                log_tails: from.live("limits.log_tails", 16, 1..=1 << 16)?,
                imports: from.live("limits.imports", 4, 1..=1 << 10)?,
                sales: from.live("limits.sales", 4, 1..=1 << 10)?,
            },
        })
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("commit", &self.commit).field("reads", &self.reads).finish_non_exhaustive()
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
