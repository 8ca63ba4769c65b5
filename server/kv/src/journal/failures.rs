//! Number of the journal's failures, and the reason why it accepts no writes.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Failures up to now.
#[derive(Debug, Default)]
pub(super) struct Failures {
    count: AtomicU64,
    /// Reason of the last one, until the journal was read back.
    reason: Mutex<Option<String>>,
}

impl Failures {
    /// Notes a failure, and counts it if it is new.
    pub(super) fn add(&self, reason: String, is_new: bool) {
        self.count.fetch_add(is_new.into(), Relaxed);
        self.set(Some(reason));
    }

    /// Notes that the journal accepts writes again.
    pub(super) fn over(&self) {
        self.set(None);
    }

    fn set(&self, reason: Option<String>) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Reason why no writes are accepted; `None` while they are.
    pub(super) fn reason(&self) -> Option<String> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
