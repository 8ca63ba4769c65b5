//! `quire-bench reproduce`: which experiment, with which programs, into which folder.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, ensure};
use clap::Args;

use super::Exit;
use crate::reproduce::progress::Progress;
use crate::reproduce::{EXPERIMENTS, Options, reproduce};

/// Repeats a published experiment on servers that it starts itself
#[derive(Clone, Debug, Args)]
pub struct ReproduceArgs {
    /// Name of the experiment; an unknown name lists them all
    pub experiment: String,
    /// Folder for index.html, the rows as CSV and summary.json [default: reproduce-EXPERIMENT]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Number of rounds; confidence intervals need at least 2
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub rounds: usize,
    /// The server's program [default: quire beside this program]
    #[arg(long, value_name = "FILE")]
    pub quire: Option<PathBuf>,
    /// Folder of the programs to compare with [default: peers/target/release, looked for upwards from this program]
    #[arg(long, value_name = "DIR")]
    pub peers: Option<PathBuf>,
    /// Seed of the order in which subjects take turns
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Rows of the file that `records` asks for [default: 1000000]; fewer only to try it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(200..=100_000_000))]
    pub rows: Option<u64>,
}

/// Runs it.
pub fn command(args: &ReproduceArgs) -> anyhow::Result<Exit> {
    let known = || EXPERIMENTS.iter().map(|experiment| experiment.name).collect::<Vec<_>>().join(", ");
    let experiment = EXPERIMENTS
        .iter()
        .find(|experiment| experiment.name == args.experiment)
        .ok_or_else(|| anyhow!("there is no experiment {:?}; there are: {}", args.experiment, known()))?;
    ensure!(args.rounds > 0, "--rounds must be at least 1");
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    let quire = args.quire.clone().unwrap_or_else(|| own.with_file_name("quire"));
    ensure!(
        quire.is_file(),
        "{} is not there; build it with `cargo build --release`, or name it with --quire",
        quire.display()
    );
    let out = args.out.clone().unwrap_or_else(|| format!("reproduce-{}", experiment.name).into());
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make the folder {}", out.display()))?;
    let peers = args.peers.clone().unwrap_or_else(|| peers_above(&own));
    let options = Options {
        out: out.clone(),
        quire,
        peers,
        rounds: args.rounds,
        seed: args.seed,
        rows: args.rows,
        progress: Progress::default(),
    };
    let findings = reproduce(experiment, &options)?;
    for (name, figure) in &findings.summary {
        eprintln!("{name} {figure}");
    }
    eprintln!("written to {}", out.join("index.html").display());
    Ok(Exit::Done)
}

fn peers_above(own: &Path) -> PathBuf {
    let below = Path::new("peers/target/release");
    own.ancestors().map(|folder| folder.join(below)).find(|folder| folder.is_dir()).unwrap_or_else(|| below.to_owned())
}
