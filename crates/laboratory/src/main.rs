//! `quire-laboratory`: which experiment, with which programs, into which folder.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, ensure};
use clap::Parser;
use laboratory::lab::Options;
use laboratory::{EXPERIMENTS, reproduce};

/// Repeats a published experiment on servers that it starts itself
#[derive(Clone, Debug, Parser)]
#[command(name = "quire-laboratory", version, arg_required_else_help = true)]
struct Args {
    /// Name of the experiment; an unknown name lists them all
    experiment: String,
    /// Folder for index.html, the rows as CSV and summary.json [default: reproduce-EXPERIMENT]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Number of rounds; confidence intervals need at least 2
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// The server's program [default: quire beside this program]
    #[arg(long, value_name = "FILE")]
    quire: Option<PathBuf>,
    /// The load generator's program, which `tasks` measures beside the server [default: quire-bench beside this program]
    #[arg(long, value_name = "FILE")]
    bench: Option<PathBuf>,
    /// Folder of the programs to compare with [default: peers/target/release, looked for upwards from this program]
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// Seed of the order in which subjects take turns
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Rows of the file that `records` asks for [default: 1000000]; fewer only to try it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(200..=100_000_000))]
    rows: Option<u64>,
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quire-laboratory: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(args: Args) -> anyhow::Result<()> {
    let known = || EXPERIMENTS.iter().map(|experiment| experiment.name).collect::<Vec<_>>().join(", ");
    let experiment = EXPERIMENTS
        .iter()
        .find(|experiment| experiment.name == args.experiment)
        .ok_or_else(|| anyhow!("there is no experiment {:?}; there are: {}", args.experiment, known()))?;
    ensure!(args.rounds > 0, "--rounds must be at least 1");
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    let [quire, bench] = [("quire", args.quire), ("quire-bench", args.bench)]
        .map(|(name, told)| told.unwrap_or_else(|| own.with_file_name(name)));
    for (program, flag) in [(&quire, "--quire"), (&bench, "--bench")] {
        let missing = "is not there; build it with `cargo build --release`, or name it with";
        ensure!(program.is_file(), "{} {missing} {flag}", program.display());
    }
    let out = args.out.unwrap_or_else(|| format!("reproduce-{}", experiment.name).into());
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make the folder {}", out.display()))?;
    let options = Options {
        out: out.clone(),
        quire,
        bench,
        peers: args.peers.unwrap_or_else(|| peers_above(&own)),
        rounds: args.rounds,
        seed: args.seed,
        rows: args.rows,
    };
    let summary = reproduce(experiment, options)?;
    for (name, figure) in summary.figures() {
        eprintln!("{name} {figure}");
    }
    eprintln!("written to {}", out.join("index.html").display());
    Ok(())
}

fn peers_above(own: &Path) -> PathBuf {
    let below = Path::new("peers/target/release");
    own.ancestors().map(|folder| folder.join(below)).find(|folder| folder.is_dir()).unwrap_or_else(|| below.to_owned())
}
