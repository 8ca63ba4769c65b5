//! The settings `tasks.…`: the port, modes and limits. Must not know where their values come from.

use std::time::Duration;

use hosting::{Port, Reader, Refused};

/// The usual port.
pub const PORT: u16 = 8080;

/// What may run at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Concurrency {
    /// Every request, as soon as it arrives.
    #[default]
    Task,
    /// One request of each client at a time: to compare with.
    Client,
    /// One request at a time in the whole server: to compare with.
    None,
}

/// How tasks are run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Where clients connect.
    pub listen: Port,
    /// Threads that serve connections.
    pub threads: usize,
    /// What may run at the same time.
    pub concurrency: Concurrency,
    /// Whether results are cached, and equal requests in flight computed once.
    pub cache: bool,
    /// Bounds.
    pub limits: Limits,
}

/// Bounds on what the server holds and on what clients may ask.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Cached results.
    pub cache_entries: usize,
    /// CPU-bound tasks at a time, each on a thread.
    pub cpu_tasks: usize,
    /// Open connections.
    pub connections: usize,
    /// Requests of one connection that wait for their reply; then no more are read from it.
    pub in_flight: usize,
    /// Requests of all connections together that wait for their reply, beside one of each connection; then each has
    /// one at a time.
    pub waiting: usize,
    /// Bytes in a line.
    pub line_bytes: usize,
    /// How long a connection without requests in flight may be silent.
    pub idle: Duration,
    /// How long a client may leave replies unread.
    pub unread: Duration,
}

impl hosting::Settings for Settings {
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
