//! The settings `tasks.…`: the port, modes and limits.

use std::time::Duration;

use hosting::{Live, Meanings, Port, Reader, Refused};

/// Default port.
pub const PORT: u16 = 8080;

/// Concurrency of tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Concurrency {
    /// Every request runs as soon as it arrives.
    #[default]
    Task,
    /// One request of each client at a time, for comparison.
    Client,
    /// One request at a time in the whole server, for comparison.
    None,
}

/// Settings of the task server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Listening port.
    pub listen: Port,
    /// Threads that serve connections.
    pub threads: usize,
    /// Concurrency of tasks.
    pub concurrency: Concurrency,
    /// True to cache results and compute equal requests in flight once.
    pub cache: bool,
    /// Limits.
    pub limits: Limits,
}

/// Limits of the server's memory and of clients' requests.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Cached results.
    pub cache_entries: usize,
    /// Concurrent CPU-bound tasks, each on a thread.
    pub cpu_tasks: usize,
    /// Open connections.
    pub connections: Live,
    /// Unanswered requests of one connection above which no more are read from it.
    pub in_flight: usize,
    /// Unanswered requests of all connections, beyond one of each; at the limit each connection has one at a time.
    pub waiting: usize,
    /// Bytes in a line.
    pub line_bytes: usize,
    /// Idle time limit of a connection without requests in flight.
    pub idle: Duration,
    /// Time limit for reading replies.
    pub unread: Duration,
}

impl hosting::Settings for Settings {
    const MEANINGS: Meanings = &[
        ("tasks.enabled", "`false`: without tasks"),
        ("tasks.listen", "address of the task port"),
        ("tasks.threads", "threads that serve connections"),
        (
            "tasks.concurrency",
            "to compare with: `client` runs one request of a connection at a time, `none` one of all connections",
        ),
        ("tasks.cache", "keeps results, and computes equal requests in flight once"),
        ("tasks.cache_entries", "results in the cache"),
        ("tasks.cpu_tasks", "type-0 tasks that run at once, each on a thread with 1 MiB"),
        ("tasks.connections", "open connections; a further one is closed at once"),
        ("tasks.in_flight", "unanswered requests of a connection; further ones are not read until one is answered"),
        (
            "tasks.waiting",
            "unanswered requests of all connections, besides one of each; then a connection has one at a time",
        ),
        ("tasks.line_bytes", "length of a line"),
        ("tasks.idle_seconds", "silence after which a connection without unanswered requests is closed"),
        ("tasks.unread_seconds", "time that replies may stay unread before the connection is closed"),
    ];

    fn read(from: &mut Reader<'_>) -> Result<Self, Refused> {
        let modes = [("task", Concurrency::Task), ("client", Concurrency::Client), ("none", Concurrency::None)];
        Ok(Self {
            listen: from.port("tasks.listen", PORT)?,
            threads: from.whole("tasks.threads", 1, 1..=256)?,
            concurrency: from.choice("tasks.concurrency", &modes)?,
            cache: from.switch("tasks.cache", true)?,
            limits: Limits {
                cache_entries: from.whole("tasks.cache_entries", 1 << 20, 1..=1 << 30)?,
                cpu_tasks: from.whole("tasks.cpu_tasks", 40, 1..=1024)?,
                connections: from.connections("tasks.connections", 16_384)?,
                in_flight: from.whole("tasks.in_flight", 64, 1..=1 << 16)?,
                waiting: from.whole("tasks.waiting", 65_536, 0..=1 << 24)?,
                line_bytes: from.bytes("tasks.line_bytes", 256, 32..=1 << 16)?,
                idle: from.seconds("tasks.idle_seconds", Duration::from_mins(10))?,
                unread: from.seconds("tasks.unread_seconds", Duration::from_secs(30))?,
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
