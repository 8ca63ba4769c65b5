//! `quire-bench`: parses, runs, and ends with a code that says how it went.

use std::process::ExitCode;

use bench::cli::{Cli, Exit};
use clap::Parser as _;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("quire-bench: {error:#}");
            Exit::Failed.into()
        }
    }
}
