//! Entries and bytes in use, against their limits. Exact with any number of writers.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::fault::{Fault, Limit};

#[derive(Debug)]
pub(crate) struct Usage {
    entries: AtomicUsize,
    bytes: AtomicUsize,
    entries_max: usize,
    bytes_max: usize,
}

impl Usage {
    pub(crate) fn new(entries_max: usize, bytes_max: usize) -> Self {
        Self { entries: AtomicUsize::new(0), bytes: AtomicUsize::new(0), entries_max, bytes_max }
    }

    pub(crate) fn entries(&self) -> usize {
        self.entries.load(Relaxed)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Reserves memory for a new entry, or for one that replaces `old` bytes. Without enough, nothing changes.
    pub(crate) fn take(&self, old: Option<usize>, new: usize) -> Result<(), Fault> {
        if old.is_none() && !grow(&self.entries, 1, self.entries_max) {
            return Err(Fault::Limit { limit: Limit::Entries, at: self.entries_max });
        }
        let old_bytes = old.unwrap_or(0);
        if new <= old_bytes {
            self.bytes.fetch_sub(old_bytes - new, Relaxed);
        } else if !grow(&self.bytes, new - old_bytes, self.bytes_max) {
            if old.is_none() {
                self.entries.fetch_sub(1, Relaxed);
            }
            return Err(Fault::Limit { limit: Limit::TotalBytes, at: self.bytes_max });
        }
        Ok(())
    }

    /// Counts an existing entry, even above a limit lowered meanwhile.
    pub(crate) fn found(&self, bytes: usize) {
        self.entries.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Undoes a [`Usage::take`] with the same numbers.
    pub(crate) fn undo(&self, old: Option<usize>, new: usize) {
        self.bytes.fetch_add(old.unwrap_or(0), Relaxed);
        self.bytes.fetch_sub(new, Relaxed);
        if old.is_none() {
            self.entries.fetch_sub(1, Relaxed);
        }
    }

    /// Frees the memory of a removed entry.
    pub(crate) fn free(&self, bytes: usize) {
        self.entries.fetch_sub(1, Relaxed);
        self.bytes.fetch_sub(bytes, Relaxed);
    }
}

fn grow(level: &AtomicUsize, by: usize, most: usize) -> bool {
    level.fetch_update(Relaxed, Relaxed, |now| now.checked_add(by).filter(|after| *after <= most)).is_ok()
}
