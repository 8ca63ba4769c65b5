//! Input that flags of several loads name: rows for templates, and data as text or a file.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;

use crate::template::{Rows, Sources};

/// Sources of placeholder values.
pub(crate) fn sources(seed: u64, rows: Option<&Path>) -> anyhow::Result<Sources> {
    let rows = rows.map(Rows::read).transpose()?.map(Arc::new);
    Ok(Sources { seed, rows })
}

/// Returns the argument itself, the content of the file after `@`, or standard input for `-`.
pub(crate) fn data(argument: &str, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    let named = || format!("--data {argument}");
    let from: Box<dyn Read> = match argument.strip_prefix('@') {
        Some(path) => Box::new(File::open(path).with_context(named)?),
        None if argument == "-" => Box::new(std::io::stdin()),
        None => return Ok(argument.as_bytes().to_vec()),
    };
    let mut bytes = Vec::new();
    from.take(bytes_max + 1).read_to_end(&mut bytes).with_context(named)?;
    anyhow::ensure!(bytes.len() as u64 <= bytes_max, "{}: more than {bytes_max} bytes", named());
    Ok(bytes)
}

/// Runs requests to a server before a load, when there is no runtime yet.
pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start a runtime")?.block_on(work)
}
