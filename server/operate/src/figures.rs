//! The figures of a server at one moment, and the points of its last hour.

use std::{sync::Arc, time::Duration};

/// The server at one moment. "Last minute" and "last second" end there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Milliseconds since 1970; 0 before the first sample.
    pub time_ms: u64,
    /// Time since the process started.
    pub uptime: Duration,
    /// Purchases since the start.
    pub purchases: Purchases,
    /// gRPC calls that ended.
    pub calls: Calls,
    /// Requests that a limit refused in the last minute, by the limit's name, most first.
    pub refusals: Vec<Reason>,
    /// Calls that failed in the last minute, by gRPC status, most first.
    pub errors: Vec<Reason>,
    /// Methods that had calls in the last minute, most first; at most 32.
    pub methods: Vec<MethodFigures>,
    /// Transactions of the bookstore in the last minute.
    pub commits: Commits,
    /// Levels against their limits.
    pub levels: Levels,
    /// Seconds until the server's certificate expires, negative once it has; `None` without TLS.
    pub certificate_expires_seconds: Option<i64>,
    /// Age of the newest backup; `None` if there is none.
    pub backup_age: Option<Duration>,
    /// The services, in opening order.
    pub services: Vec<ServiceHealth>,
    /// True if nothing is wrong at `/healthz`.
    pub is_healthy: bool,
}

/// Purchases since the server's start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Purchases {
    /// Bought, and the buyer was answered.
    pub acknowledged: u64,
    /// Bought, and committed by the store.
    pub durable: u64,
    /// Decided in the last second, bought or not.
    pub per_second: f64,
    /// Decided, by outcome: `bought`, `sold_out` and others.
    pub outcomes: Vec<Reason>,
}

impl Purchases {
    /// True if more sales were acknowledged than the store has committed.
    pub fn is_any_lost(&self) -> bool {
        self.acknowledged > self.durable
    }
}

/// gRPC calls that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Calls {
    /// Since the start.
    pub total: u64,
    /// In the last second.
    pub per_second: f64,
    /// Calls that wait for something now.
    pub in_flight: u64,
}

/// A count by reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// A setting (`limits.calls_in_flight`), a gRPC status (`Unavailable`) or an outcome.
    pub name: Arc<str>,
    /// Number of times.
    pub count: u64,
}

/// A method's calls of the last minute.
#[derive(Clone, Debug, PartialEq)]
pub struct MethodFigures {
    /// `/package.Service/Method`, or `other`.
    pub path: Arc<str>,
    /// Calls that ended.
    pub calls: u64,
    /// Of these, those that failed.
    pub failed: u64,
    /// Their times.
    pub times: Times,
}

/// Percentiles in seconds, interpolated within a histogram's buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The greatest bound of the histogram; 0 without values.
    pub bound: f64,
}

impl Times {
    /// True for a percentile at the greatest bound, beyond which the histogram has no bucket.
    pub fn is_bound(self, percentile: f64) -> bool {
        self.bound > 0.0 && percentile >= self.bound
    }
}

/// Transactions of the bookstore in the last minute.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Commits {
    /// Commits a second.
    pub per_second: f64,
    /// Log entries in a commit, on average.
    pub entries: f64,
    /// Times of a commit.
    pub times: Times,
}

/// Levels against their limits; `None` where the system gives none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// Bytes of the process, against `limits.memory_bytes`.
    pub memory_bytes: Option<Level>,
    /// Bytes used on the data folder's disk, against its size.
    pub disk_bytes: Option<Level>,
    /// Against `limits.connections`.
    pub connections: Option<Level>,
    /// Open files, against the process's limit.
    pub descriptors: Option<Level>,
    /// Purchases and operators' actions that wait for the ledger, against `limits.purchases_queued`.
    pub queue: Option<Level>,
}

/// A level and its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// In use now.
    pub used: u64,
    /// The most.
    pub limit: u64,
}

impl Level {
    /// The used part, from 0 to 1; 1 if it is beyond the limit.
    #[expect(clippy::cast_precision_loss, reason = "a part, for a bar")]
    pub fn part(self) -> f64 {
        if self.limit == 0 { 1.0 } else { (self.used as f64 / self.limit as f64).min(1.0) }
    }
}

/// Health of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceHealth {
    /// Its name, as in `quire serve --only`.
    pub name: &'static str,
    /// True while it answers calls; false with [`trouble`](Self::trouble), or if it has nothing to answer from, as
    /// record queries without a file.
    pub is_healthy: bool,
    /// The line of `/healthz` if something is wrong.
    pub trouble: Option<String>,
}

/// One second of the last hour.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// Purchases decided.
    pub purchases_per_second: f64,
    /// Calls that ended.
    pub calls_per_second: f64,
    /// Requests that a limit refused.
    pub refused_per_second: f64,
    /// Calls that failed.
    pub failed_per_second: f64,
    /// Times of all calls; `None` if there were none.
    pub times: Option<Times>,
    /// Commits of the bookstore.
    pub commits_per_second: f64,
    /// Log entries in a commit, on average; `None` if there was none.
    pub commit_entries: Option<f64>,
    /// Seconds of a commit, on average; `None` if there was none.
    pub commit_seconds: Option<f64>,
    /// Bytes of the process.
    pub memory_bytes: u64,
    /// Open connections.
    pub connections: u64,
    /// Methods that had calls, most first; at most 8.
    pub methods: Vec<MethodPoint>,
}

/// A method's calls in one second.
#[derive(Clone, Debug, PartialEq)]
pub struct MethodPoint {
    /// `/package.Service/Method`, or `other`.
    pub path: Arc<str>,
    /// Calls that ended.
    pub calls_per_second: f64,
    /// Their times.
    pub times: Times,
}
