//! The program `quire-laboratory`.

use std::path::PathBuf;
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
    /// With which programs, and how often.
    #[command(flatten)]
    options: Options,
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
    for (program, flag) in [(&args.options.quire, "--quire"), (&args.options.bench, "--bench")] {
        let missing = "is not there; build it with `cargo build --release`, or name it with";
        ensure!(program.is_file(), "{} {missing} {flag}", program.display());
    }
    let out = args.out.unwrap_or_else(|| format!("reproduce-{}", experiment.name).into());
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make the folder {}", out.display()))?;
    let summary = reproduce(experiment, &out, args.options)?;
    for (name, figure) in summary.figures() {
        eprintln!("{name} {figure}");
    }
    eprintln!("written to {}", out.join("index.html").display());
    Ok(())
}
