//! Published experiments, repeated: each is a module that starts the servers it needs, loads them in turns, and says
//! what it found beside what was published.
//!
//! A further experiment is a module with a function from [`Options`] to [`Findings`], and a line in [`EXPERIMENTS`].
//!
//! Must not know how a load is made or timed: that is the load generator's.

pub mod awake;
mod bookstore;
mod bookstore_page;
#[cfg(test)]
mod fixtures;
mod kv;
pub mod lab;
mod loopback;
pub mod progress;
mod records;
mod rpcgame;
mod rpcgame_page;
pub mod server;
mod tasks;
mod tasks_page;

use std::path::PathBuf;

use anyhow::{Context as _, ensure};

use bench::report::origin;
use bench::report::page::Page;

use crate::progress::Progress;

/// What an experiment is given.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder for what it writes; it is there.
    pub out: PathBuf,
    /// The program `quire`.
    pub quire: PathBuf,
    /// The program `quire-bench`.
    pub bench: PathBuf,
    /// The folder with the programs of `peers/`.
    pub peers: PathBuf,
    /// How often everything is measured.
    pub rounds: usize,
    /// Seed of the order of the subjects.
    pub seed: u64,
    /// Rows of the data, for experiments that have such; none: as many as the experiment says.
    pub rows: Option<u64>,
    /// Tells how the experiment goes on.
    pub progress: Progress,
}

impl Options {
    /// A program of `peers/`.
    pub fn peer(&self, name: &str) -> anyhow::Result<PathBuf> {
        let program = self.peers.join(name);
        ensure!(
            program.is_file(),
            "{} is not there; build it with `cargo build --release --manifest-path peers/Cargo.toml`, or name its \
             folder with --peers",
            program.display()
        );
        Ok(program)
    }
}

/// The beginning of an experiment's page.
fn experiment_page(title: &str) -> Page {
    Page::new(title).origin(origin::here_and_now())
}

/// What an experiment found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The page to read.
    pub page: String,
    /// Files of rows, by name.
    pub csvs: Vec<(String, String)>,
    /// Named figures, one flat object.
    pub summary: Vec<(String, f64)>,
}

/// A published experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// Runs it.
    pub run: fn(&Options) -> anyhow::Result<Findings>,
}

/// All there are.
pub const EXPERIMENTS: &[Experiment] = &[
    // One line each.
    Experiment { name: "bookstore", run: bookstore::run_experiment },
    Experiment { name: "records", run: records::run_experiment },
    Experiment { name: "kv", run: kv::run_experiment },
    Experiment { name: "rpcgame", run: rpcgame::run_experiment },
    Experiment { name: "tasks", run: tasks::run_experiment },
];

/// Runs an experiment and writes what it found: `index.html`, `summary.json` and the files of rows. Nothing is written
/// before everything is measured, so no half of a report can be taken for a whole one.
pub fn reproduce(experiment: &Experiment, options: &Options) -> anyhow::Result<Findings> {
    let findings = (experiment.run)(options)?;
    let summary: serde_json::Map<String, serde_json::Value> =
        findings.summary.iter().map(|(name, figure)| (name.clone(), (*figure).into())).collect();
    let write = |name: &str, text: &str| {
        let path = options.out.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    for (name, rows) in &findings.csvs {
        write(name, rows)?;
    }
    write("summary.json", &(serde_json::to_string_pretty(&summary)? + "\n"))?;
    write("index.html", &findings.page)?;
    Ok(findings)
}
