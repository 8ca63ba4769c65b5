//! The service's part of the metrics page.

use std::fmt;

use hosting::metrics::Page;

use crate::records::Levels;

/// Writes the gauges.
pub(crate) fn write(page: &mut Page<'_>, levels: &Levels) -> fmt::Result {
    page.gauge("records_rows", "Rows of the records' file", levels.rows)?;
    page.gauge("records_bytes", "Memory of the loaded file, as records.total_bytes counts it", levels.bytes)?;
    page.gauge("records_cache_bytes", "Memory of compressed answers", levels.cache_bytes)?;
    page.gauge("records_kept_bytes", "Memory of answers kept in one piece", levels.kept_bytes)?;
    page.gauge("records_jobs_queued", "Record queries that wait for a thread", levels.jobs_queued)?;
    page.counter("records_reloads", "Times the records' file was loaded again", levels.reloads)?;
    page.counter(
        "records_reload_failures",
        "Times that loading the records' file again failed",
        levels.reload_failures,
    )?;
    let [answered, refused] = levels.rest_answers;
    page.counter("records_rest_answers", "Record queries over HTTP that were answered", answered)?;
    page.counter("records_rest_refusals", "Record queries over HTTP that were refused", refused)
}
