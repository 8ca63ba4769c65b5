//! `quire`: the server, its client, and tools for its data.

mod access;
mod backup;
mod chains;
mod cli;
mod client;
mod config;
mod console;
mod contract;
mod data;
mod descriptors;
mod exit;
mod game;
mod http;
mod index;
mod kv_client;
mod memory;
mod pager;
mod process;
mod screen;
mod serve;
mod services;
mod shell;
mod signals;
mod table;
mod telemetry;
mod token;
mod transport;

use std::process::ExitCode;

use clap::Parser as _;
use rustix::{fs::Mode, process::umask};

fn main() -> ExitCode {
    let command = cli::Cli::parse().command;
    if !matches!(command, cli::Command::Export(_) | cli::Command::Generate(_)) {
        // Stores hold what customers bought and stored: no other user of the machine may read their files.
        umask(Mode::RWXG | Mode::RWXO);
    }
    let done = match command {
        cli::Command::Serve(args) => serve::command(&args),
        cli::Command::Client(args) => Ok(client::command(&args)),
        cli::Command::Kv(args) => Ok(kv_client::command(&args)),
        cli::Command::Tasks(args) => chains::command(&args),
        cli::Command::Game(args) => Ok(game::command(&args)),
        cli::Command::Import(args) => data::import(&args),
        cli::Command::Export(args) => data::export(&args),
        cli::Command::Backup(args) => backup::backup(&args),
        cli::Command::Restore(args) => backup::restore(&args),
        cli::Command::Token(args) => token::command(&args),
        cli::Command::Generate(args) => data::generate(&args.what),
    };
    done.unwrap_or_else(|error| {
        // One line that names what was wrong and what would be right.
        eprintln!("quire: {}", screen::line(&format!("{error:#}")));
        ExitCode::FAILURE
    })
}
