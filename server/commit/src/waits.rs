//! Measures the time that tasks wait for commits.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

thread_local! {
    /// `None` while this thread measures none.
    static WAITED: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Measures waits for commits on this thread until [`waited`]. A wait counts if it begins in a measured poll and ends
/// in another, on any thread.
pub fn measure_waits() {
    WAITED.set(Some(Duration::ZERO));
}

/// Sum of the waits that have ended since [`measure_waits`], including those dropped unanswered.
pub fn waited() -> Duration {
    WAITED.take().unwrap_or_default()
}

/// A wait for a commit, until it is dropped; reads the clock only if it is measured.
#[derive(Debug)]
pub(crate) struct Wait(Option<Instant>);

impl Wait {
    pub(crate) fn begin() -> Self {
        Self(WAITED.get().map(|_| Instant::now()))
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let (Some(begun_at), Some(before)) = (self.0, WAITED.get()) {
            WAITED.set(Some(before + begun_at.elapsed()));
        }
    }
}
