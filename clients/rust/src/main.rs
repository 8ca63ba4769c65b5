//! `quire-client`, the command line of Quire's client.

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    quire_client::cli::run("quire-client", env::args_os().skip(1))
}
