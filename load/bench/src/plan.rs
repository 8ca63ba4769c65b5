//! What a run is to do, checked: how requests are paced, how many at once, and when it ends.
//!
//! Must not know the protocol.

use std::time::Duration;

use crate::schedule::{Arrivals, Profile};

/// How requests are paced.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// Every client sends its next request when it has the answer to the last: shows what a server can do, and hides
    /// what waiting costs.
    Closed {
        /// The clients begin one after another over this time.
        ramp_up: Duration,
    },
    /// Requests are due at times that do not depend on the server; each is timed from when it was due.
    Open {
        /// Spacing of the due times.
        arrivals: Arrivals,
        /// The rate over time.
        profile: Profile,
    },
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// After this time, the warm-up not counted.
    After(Duration),
    /// After so many requests, the warm-up's not counted.
    Count(u64),
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// How requests follow each other.
    pub pace: Pace,
    /// When it ends.
    pub end: End,
    /// Load before measuring begins.
    pub warm_up: Duration,
    /// Connections, shared out among the workers.
    pub connections: usize,
    /// Requests at once on a connection: exactly so many in a closed loop, at most so many in an open one.
    pub in_flight: usize,
    /// Threads that make requests.
    pub workers: usize,
    /// The cores that workers are pinned to in turn; if none, the system places them.
    pub cores: Option<Vec<usize>>,
    /// Longest time that a request waits for a place on a connection, and then for its answer.
    pub timeout: Duration,
    /// Seed of everything random.
    pub seed: u64,
}
