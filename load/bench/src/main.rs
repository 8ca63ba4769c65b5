//! `quire-bench`: parses the command line, runs the command and ends with its exit code.

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
