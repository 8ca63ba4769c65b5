//! Logs on standard error. Must not know what is logged.

use anyhow::Context;
use tracing_subscriber::{EnvFilter, fmt};

use crate::config::Log;

/// Starts logging; once in a process.
pub(crate) fn init(log: &Log) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&log.filter).with_context(|| {
        format!(
            "log.level is '{}'; it must be error, warn, info, debug, trace or a filter as bookstore=debug",
            log.filter
        )
    })?;
    let lines = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if log.json {
        lines.json().init();
    } else {
        lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init();
    }
    Ok(())
}
