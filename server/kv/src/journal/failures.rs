//! How often the journal failed, and why it takes no writes. Must not know what can fail.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Failures up to now.
#[derive(Debug, Default)]
pub(super) struct Failures {
    count: AtomicU64,
    /// Of the last one, until the journal was read back.
    reason: Mutex<Option<String>>,
}

impl Failures {
    /// Takes note of one; one that lasts is counted once.
    pub(super) fn add(&self, reason: String, is_new: bool) {
        self.count.fetch_add(is_new.into(), Relaxed);
        self.set(Some(reason));
    }

    /// The journal takes writes again.
    pub(super) fn over(&self) {
        self.set(None);
    }

    fn set(&self, reason: Option<String>) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Why no writes are taken; `None` while they are.
    pub(super) fn reason(&self) -> Option<String> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
