//! How many connections there are: those that are served, and beyond them those that only hear that the server is full.
//!
//! Must not know what a connection says.
//!
//! Implements: no specification.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The places that are taken.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) served: AtomicUsize,
    pub(super) refused: AtomicUsize,
    /// A place was given back.
    pub(super) freed: Notify,
    /// A connection waits for a place.
    pub(super) crowded: Notify,
}

impl Places {
    /// Connections that are served now.
    pub(super) fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }
}

/// Takes a place, if fewer than `most` are taken.
pub(super) fn has_taken(counter: &AtomicUsize, most: usize) -> bool {
    let taken = counter.fetch_add(1, Ordering::Relaxed) < most;
    if !taken {
        counter.fetch_sub(1, Ordering::Relaxed);
    }
    taken
}
