//! What happened, counted for metrics: refusals by reason, and the lean connections with their ends.
//! Must not know how numbers are shown.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::refusal::Refusal;

/// Why a lean connection was closed; the names that metrics and logs have for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeanEnd {
    /// By the client.
    Client,
    /// The socket failed.
    Broken,
    /// The client took nothing for too long.
    Unread,
    /// It was one too many.
    Superfluous,
    /// Bytes that are no frame, or a frame that may not come now.
    Malformed,
    /// No token, or one that does not admit to games.
    Denied,
    /// No version that both sides speak.
    Version,
    /// More than a limit allows.
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

/// Numbers that only grow, but for the connections that are open.
#[derive(Debug, Default)]
pub struct Counts {
    refusals: [AtomicU64; Refusal::NAMES.len()],
    lean_ends: [AtomicU64; LeanEnd::NAMES.len()],
    lean_messages: AtomicU64,
    lean_connections: AtomicU64,
}

impl Counts {
    /// Messages and calls that were refused over gRPC, by reason.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Refusal::NAMES.into_iter().zip(self.refusals.iter().map(|count| count.load(Relaxed)))
    }

    /// Lean connections that were closed, by reason.
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

    /// Counts a refusal and hands it on.
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
