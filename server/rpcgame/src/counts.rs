//! Counts for metrics: refusals by reason, and lean connections with their ends.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::refusal::Refusal;

/// Reason for the end of a lean connection, as named in metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeanEnd {
    /// Closed by the client.
    Client,
    /// The socket failed.
    Broken,
    /// The client read nothing for too long.
    Unread,
    /// The limit of connections was reached.
    Superfluous,
    /// An invalid frame, or one that is not allowed now.
    Malformed,
    /// A missing token, or one that does not permit games.
    Denied,
    /// No common version.
    Version,
    /// A limit was exceeded.
    Limit,
    /// A serial that is not the next.
    Serial,
    /// A reference to a name that is not in the table.
    Reference,
    /// More messages than the window allows.
    Window,
    /// No frame came for too long.
    Idle,
    /// The server stopped.
    Stopping,
}

impl LeanEnd {
    /// Every name, in the order of the variants.
    pub const NAMES: [&'static str; 13] = [
        "client",
        "broken",
        "unread",
        "superfluous",
        "malformed",
        "denied",
        "version",
        "limit",
        "serial",
        "reference",
        "window",
        "idle",
        "stopping",
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// Counters, and the number of open connections.
#[derive(Debug, Default)]
pub struct Counts {
    refusals: [AtomicU64; Refusal::NAMES.len()],
    lean_ends: [AtomicU64; LeanEnd::NAMES.len()],
    lean_messages: AtomicU64,
    lean_connections: AtomicU64,
}

impl Counts {
    /// Refused messages and calls over gRPC, by reason.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Refusal::NAMES.into_iter().zip(self.refusals.iter().map(|count| count.load(Relaxed)))
    }

    /// Closed lean connections, by reason.
    pub fn lean_ends(&self) -> impl Iterator<Item = (&'static str, u64)> {
        LeanEnd::NAMES.into_iter().zip(self.lean_ends.iter().map(|count| count.load(Relaxed)))
    }

    /// Messages handled on lean connections.
    pub fn lean_messages(&self) -> u64 {
        self.lean_messages.load(Relaxed)
    }

    /// Lean connections open now.
    pub fn lean_connections(&self) -> u64 {
        self.lean_connections.load(Relaxed)
    }

    /// Counts a refusal and returns it.
    pub(crate) fn refused(&self, refusal: Refusal) -> Refusal {
        self.refusals[refusal.place()].fetch_add(1, Relaxed);
        refusal
    }

    pub(crate) fn lean_handled(&self, messages: u64) {
        if messages > 0 {
            self.lean_messages.fetch_add(messages, Relaxed);
        }
    }

    pub(crate) fn lean_ended(&self, end: LeanEnd) {
        self.lean_ends[end as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn lean_came(&self) {
        self.lean_connections.fetch_add(1, Relaxed);
    }

    pub(crate) fn lean_left(&self) {
        self.lean_connections.fetch_sub(1, Relaxed);
    }
}
