//! The section `[records]`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Bad, bad, bytes_within, units::Bytes, within};

/// As it is written.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, by its own name in the file")]
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    enabled: bool,
    csv: Option<PathBuf>,
    scan: Scan,
    encode: Encode,
    keep_protobuf: bool,
    keep_json: bool,
    keep_text: bool,
    compress: bool,
    scan_threads: u64,
    columns: u64,
    rows: u64,
    field_bytes: Bytes,
    row_bytes: Bytes,
    total_bytes: Bytes,
    answer_bytes: Bytes,
    page_bytes: Bytes,
    compress_bytes_min: Bytes,
    cache_bytes: Bytes,
    kept_bytes: Bytes,
    jobs: u64,
    jobs_queued: u64,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Scan {
    Sequential,
    Parallel,
    Indexed,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Encode {
    Each,
    Once,
}

impl Default for Raw {
    fn default() -> Self {
        let records::Settings { keep, compress, limits, .. } = records::Settings::default();
        let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        Self {
            enabled: true,
            csv: None,
            scan: Scan::Indexed,
            encode: Encode::Once,
            keep_protobuf: keep.protobuf,
            keep_json: keep.json,
            keep_text: keep.text,
            compress,
            // As many as there are cores.
            scan_threads: 0,
            columns: wide(limits.columns),
            rows: wide(limits.rows),
            field_bytes: limits.field_bytes.into(),
            row_bytes: limits.row_bytes.into(),
            total_bytes: limits.total_bytes.into(),
            answer_bytes: limits.answer_bytes.into(),
            page_bytes: limits.page_bytes.into(),
            compress_bytes_min: limits.compress_bytes_min.into(),
            cache_bytes: limits.cache_bytes.into(),
            kept_bytes: limits.kept_bytes.into(),
            // As many as there are cores.
            jobs: 0,
            jobs_queued: wide(limits.jobs_queued),
        }
    }
}

/// Rows are numbered in 32 bits, with a number to spare.
const ROWS_MAX: u64 = u32::MAX as u64 - 1;

/// A row in any form is measured in 32 bits, and no form has more than six times its bytes.
const ROW_BYTES_MAX: u64 = 256 << 20;

/// A message's length is 32 bits, and clients take half of that at most.
const ANSWER_BYTES_MAX: u64 = (2 << 30) - 1;

/// `None` when the service is off.
pub(super) fn validate(raw: &Raw) -> Result<Option<records::Settings>, Bad> {
    if let Some(csv) = &raw.csv
        && csv.as_os_str().is_empty()
    {
        return bad("records.csv", &"", "the path of a CSV file");
    }
    let or_cores = |key, value| {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(match within(key, value, 0, 1024)? {
            0 => cores(),
            number => number,
        })
    };
    let settings = records::Settings {
        csv: raw.csv.clone(),
        scan: match raw.scan {
            Scan::Sequential => records::Scan::Sequential,
            Scan::Parallel => records::Scan::Parallel,
            Scan::Indexed => records::Scan::Indexed,
        },
        encode: match raw.encode {
            Encode::Each => records::Encode::Each,
            Encode::Once => records::Encode::Once,
        },
        keep: records::Keep { protobuf: raw.keep_protobuf, json: raw.keep_json, text: raw.keep_text },
        compress: raw.compress,
        scan_threads: or_cores("records.scan_threads", raw.scan_threads)?,
        limits: records::Limits {
            columns: within("records.columns", raw.columns, 1, 65_536)?,
            rows: within("records.rows", raw.rows, 0, ROWS_MAX)?,
            field_bytes: bytes_within("records.field_bytes", raw.field_bytes, 1, ROW_BYTES_MAX)?,
            row_bytes: bytes_within("records.row_bytes", raw.row_bytes, 1, ROW_BYTES_MAX)?,
            total_bytes: bytes_within("records.total_bytes", raw.total_bytes, 1, 1 << 50)?,
            answer_bytes: bytes_within("records.answer_bytes", raw.answer_bytes, 1, ANSWER_BYTES_MAX)?,
            page_bytes: bytes_within("records.page_bytes", raw.page_bytes, 1, ANSWER_BYTES_MAX)?,
            compress_bytes_min: bytes_within("records.compress_bytes_min", raw.compress_bytes_min, 0, 1 << 40)?,
            cache_bytes: bytes_within("records.cache_bytes", raw.cache_bytes, 0, 1 << 40)?,
            kept_bytes: bytes_within("records.kept_bytes", raw.kept_bytes, 0, 1 << 40)?,
            jobs: or_cores("records.jobs", raw.jobs)?,
            jobs_queued: within("records.jobs_queued", raw.jobs_queued, 0, 1 << 20)?,
        },
    };
    Ok(raw.enabled.then_some(settings))
}
