//! The service's metrics.

use std::fmt;

use hosting::metrics::{Page, batch_sizes, commit_times};
use prometheus_client::{
    metrics::histogram::Histogram,
    registry::{Registry, Unit},
};

/// Current usage and state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// Entries, including expired ones until a sweep removes them.
    pub entries: usize,
    /// Their memory.
    pub bytes: usize,
    /// Watchers.
    pub watchers: usize,
    /// Writes queued for the journal.
    pub writes_queued: usize,
    /// Number of times that the journal failed and was read back.
    pub failures: u64,
    /// True while writes are accepted.
    pub healthy: bool,
}

/// Histograms of the journal; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Histograms {
    /// Times of writes in the queue.
    pub(crate) queue: Histogram,
    /// Times of batches' commits.
    pub(crate) commit: Histogram,
    /// Writes in a commit.
    pub(crate) batch: Histogram,
}

impl Default for Histograms {
    fn default() -> Self {
        Self { queue: commit_times(), commit: commit_times(), batch: batch_sizes() }
    }
}

impl Histograms {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "Time that key-value writes waited for the journal, of one in 16";
        registry.register_with_unit("kv_queue", help, Unit::Seconds, self.queue.clone());
        let help = "Duration of a batch's write to the key-value journal, with its fsync";
        registry.register_with_unit("kv_commit", help, Unit::Seconds, self.commit.clone());
        registry.register("kv_batch_writes", "Writes in one commit of the key-value journal", self.batch.clone());
    }
}

/// Writes the levels.
pub(crate) fn write(page: &mut Page<'_>, levels: &Levels) -> fmt::Result {
    page.gauge("kv_entries", "Entries of the key-value service", levels.entries)?;
    page.gauge("kv_bytes", "Memory of those entries, as kv.total_bytes counts it", levels.bytes)?;
    page.gauge("kv_watchers", "Watches of the key-value service", levels.watchers)?;
    page.gauge("kv_writes_queued", "Writes that wait for the key-value journal", levels.writes_queued)?;
    page.gauge(
        "kv_healthy",
        "1 while key-value writes are taken, 0 while a failed journal is read back or the store is damaged",
        levels.healthy,
    )?;
    page.counter("kv_failures", "Times that the key-value journal failed and was read back", levels.failures)
}
