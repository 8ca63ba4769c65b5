//! Connection counts: those served, plus a reserve that is only refused.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Permits in use.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) served: AtomicUsize,
    pub(super) refused: AtomicUsize,
    /// A permit was released.
    pub(super) freed: Notify,
    /// A connection waits for a permit.
    pub(super) crowded: Notify,
}

impl Places {
    /// Connections that are served now.
    pub(super) fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }
}

/// Takes a permit if fewer than `most` are taken.
pub(super) fn has_taken(counter: &AtomicUsize, most: usize) -> bool {
    let taken = counter.fetch_add(1, Ordering::Relaxed) < most;
    if !taken {
        counter.fetch_sub(1, Ordering::Relaxed);
    }
    taken
}
