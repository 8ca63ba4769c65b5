//! What flags of several loads name: rows for templates, and data given as text or as a file.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;

use crate::template::{Rows, Sources};

/// Most bytes of a `--data @FILE`.
pub(crate) const DATA_BYTES_MAX: u64 = 256 << 20;

/// What placeholders take their values from.
pub(crate) fn sources(seed: u64, rows: Option<&Path>) -> anyhow::Result<Sources> {
    let rows = rows.map(Rows::read).transpose()?.map(Arc::new);
    Ok(Sources { seed, rows })
}

/// The argument itself, or what the file holds that it names with `@`.
pub(crate) fn data(argument: &str) -> anyhow::Result<Vec<u8>> {
    let Some(path) = argument.strip_prefix('@') else { return Ok(argument.as_bytes().to_vec()) };
    let cannot_read = || format!("cannot read --data @{path}");
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(cannot_read)?;
    file.take(DATA_BYTES_MAX + 1).read_to_end(&mut bytes).with_context(cannot_read)?;
    anyhow::ensure!(bytes.len() as u64 <= DATA_BYTES_MAX, "--data @{path} is larger than {DATA_BYTES_MAX} bytes");
    Ok(bytes)
}

/// Runs what has to be asked of a server before a load; there is no runtime yet.
pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start a runtime")?.block_on(work)
}
