//! What the embedding program may set: modes and limits, with defaults for a small machine.

use std::time::Duration;

/// What may run at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Concurrency {
    /// One request after another in the whole server: kept to compare with.
    None,
    /// Clients beside each other, the requests of each one after another: kept to compare with.
    Client,
    /// Every request as it comes.
    #[default]
    Task,
}

/// How tasks are run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What may run at the same time.
    pub concurrency: Concurrency,
    /// Whether results are kept, and equal requests at once computed once.
    pub cache: bool,
    /// Bounds.
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Self { concurrency: Concurrency::default(), cache: true, limits: Limits::default() }
    }
}

/// Bounds on what is held and on what clients may ask.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Results that are kept.
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
    /// How long a connection may ask nothing while it waits for nothing.
    pub idle: Duration,
    /// How long a client may leave replies unread.
    pub unread: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cache_entries: 1 << 20,
            cpu_tasks: 40,
            connections: 16_384,
            in_flight: 64,
            waiting: 65_536,
            line_bytes: 256,
            idle: Duration::from_mins(10),
            unread: Duration::from_secs(30),
        }
    }
}
