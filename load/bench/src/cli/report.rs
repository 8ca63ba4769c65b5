//! `quire-bench report`: shows a saved measurement again, on the terminal or as a page.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;

use super::exit::Exit;
use crate::report::pending::Pending;
use crate::report::{html, json, summary};

/// Show a report that --json wrote
#[derive(Clone, Debug, Args)]
pub(crate) struct ReportArgs {
    /// The report
    #[arg(value_name = "REPORT.json")]
    pub(crate) report: PathBuf,
    /// Write a page with plots, in one file, instead of the summary; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

pub(crate) fn command(args: &ReportArgs) -> anyhow::Result<Exit> {
    let report = json::read(&args.report)?;
    match &args.html {
        Some(path) => Pending::create(path)?.write_whole(html::page(&report).as_bytes())?,
        None => io::stdout().write_all(summary::text(&report).as_bytes())?,
    }
    // The exit code is about the file, not about the validity of its figures.
    Ok(Exit::Done)
}
