//! Reproduces published experiments: each is a module that starts its servers, loads them in turns, and shows its
//! figures beside the published ones.
//!
//! To add an experiment, write a module with a function from [`Lab`] to [`Findings`], and a line in [`EXPERIMENTS`].
//! Must not know how a load is made or timed: the load generator does.

mod bookstore;
mod clients;
pub mod findings;
mod kv;
pub mod lab;
mod machine;
pub mod progress;
mod records;
pub mod results;
mod rpcgame;
mod tasks;

use std::path::Path;

use anyhow::Context as _;

use crate::findings::{Findings, Summary, warning};
use crate::lab::{Lab, Options};

/// A published experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Name on the command line.
    pub name: &'static str,
    /// Runs it.
    pub run: fn(&mut Lab) -> anyhow::Result<Findings>,
}

/// All experiments.
pub const EXPERIMENTS: &[Experiment] = &[
    // One line each.
    Experiment { name: "bookstore", run: bookstore::run },
    Experiment { name: "records", run: records::run },
    Experiment { name: "kv", run: kv::run },
    Experiment { name: "rpcgame", run: rpcgame::run },
    Experiment { name: "tasks", run: tasks::run },
    Experiment { name: "clients", run: clients::run },
];

/// Runs an experiment and writes its findings: `index.html`, `summary.json` and CSV files. Writes nothing until
/// everything is measured, so that a partial report cannot be mistaken for a complete one.
pub fn reproduce(experiment: &Experiment, out: &Path, options: Options) -> anyhow::Result<Summary> {
    let mut lab = Lab::open(out, options)?;
    let Findings { page, csvs, summary } = (experiment.run)(&mut lab)?;
    let doubts = "These runs do not meet every condition of a valid one; their figures are shown all the same. Where the \
                  client was the bottleneck, the server's rate is a lower bound and its CPU a call is what to compare.";
    let page = warning(page, "missing", "Not measured", "These could not be measured here:", lab.missing);
    let page = warning(page, "doubtful", "Runs with a doubt", doubts, lab.results.doubts());
    let figures = summary.figures().iter().map(|(name, figure)| (name.clone(), (*figure).into()));
    let figures: serde_json::Map<String, serde_json::Value> = figures.collect();
    let written = [("summary.json", serde_json::to_string_pretty(&figures)? + "\n"), ("index.html", page.finish())];
    for (name, text) in csvs.into_iter().chain(written) {
        let path = out.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(summary)
}
