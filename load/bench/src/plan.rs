//! The validated plan of a run: pace, concurrency and end.

use std::time::Duration;

use crate::schedule::{Arrivals, Profile};

/// Pace of requests.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// Closed loop: each client sends its next request after the answer to the last. Shows capacity, but hides the cost
    /// of waiting (coordinated omission).
    Closed,
    /// Open loop: requests are due at times that do not depend on the server; each is timed from its due time.
    Open { arrivals: Arrivals, profile: Profile },
}

/// End of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// After this time, without the warm-up.
    After(Duration),
    /// After this many requests, without those of the warm-up.
    Count(u64),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub pace: Pace,
    pub end: End,
    pub warm_up: Duration,
    /// Connections, divided among the workers.
    pub connections: usize,
    /// Requests in flight on a connection: the exact number in a closed loop, the maximum in an open one.
    pub in_flight: usize,
    pub workers: usize,
    /// Cores that workers are pinned to in turn; `None` leaves placement to the system.
    pub cores: Option<Vec<usize>>,
    /// Longest wait of a request for a slot on a connection, and then for its answer.
    pub timeout: Duration,
    pub seed: u64,
}
