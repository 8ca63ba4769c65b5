//! The service's metrics.

use std::fmt;

use hosting::metrics::Page;

use crate::key_value::Levels;

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
