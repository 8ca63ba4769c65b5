//! `quire-laboratory` reproduces published experiments: each is a module that starts its servers, loads them in turns,
//! and shows its figures beside the published ones.
//!
//! To add an experiment, write a module with a function from [`Lab`] to [`Findings`], and a line in [`EXPERIMENTS`].
//! Must not know how a load is made or timed: the load generator does.

mod bookstore;
mod clients;
mod kv;
mod lab;
mod machine;
mod records;
mod results;
mod rpcgame;
mod tasks;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, ensure};
use clap::Parser;

use crate::lab::{Lab, Options};
use crate::results::{Findings, warning};

/// Repeats a published experiment on servers that it starts itself
#[derive(Clone, Debug, Parser)]
#[command(name = "quire-laboratory", version, arg_required_else_help = true)]
struct Args {
    /// Name of the experiment; an unknown name lists them all
    experiment: String,
    /// Folder for index.html, the rows as CSV and summary.json [default: reproduce-EXPERIMENT]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// With which programs, and how often.
    #[command(flatten)]
    options: Options,
}

type Experiment = fn(&mut Lab) -> anyhow::Result<Findings>;

/// All experiments, by name.
const EXPERIMENTS: &[(&str, Experiment)] = &[
    // One line each.
    ("bookstore", bookstore::run),
    ("records", records::run),
    ("kv", kv::run),
    ("rpcgame", rpcgame::run),
    ("tasks", tasks::run),
    ("clients", clients::run),
];

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quire-laboratory: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs the experiment and writes its findings: `index.html`, `summary.json` and CSV files. Writes nothing until
/// everything is measured, so that a partial report cannot be mistaken for a complete one.
fn run(args: Args) -> anyhow::Result<()> {
    let known = || EXPERIMENTS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let (name, experiment) = EXPERIMENTS
        .iter()
        .find(|(name, _)| *name == args.experiment)
        .ok_or_else(|| anyhow!("there is no experiment {:?}; there are: {}", args.experiment, known()))?;
    for (program, flag) in [(&args.options.quire, "--quire"), (&args.options.bench, "--bench")] {
        let missing = "is not there; build it with `cargo build --release`, or name it with";
        ensure!(program.is_file(), "{} {missing} {flag}", program.display());
    }
    let out = args.out.unwrap_or_else(|| format!("reproduce-{name}").into());
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make the folder {}", out.display()))?;
    let mut lab = Lab::open(&out, args.options)?;
    let Findings { page, csvs, summary } = experiment(&mut lab)?;
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
    for (name, figure) in summary.figures() {
        eprintln!("{name} {figure}");
    }
    eprintln!("written to {}", out.join("index.html").display());
    Ok(())
}
