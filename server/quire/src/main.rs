//! `quire`: the server, its client, and tools for its data.

mod cli;
mod commands;
mod config;
mod console;
mod manager;
mod pages;
mod process;
mod reload;
mod serve;
mod services;
mod telemetry;
mod transport;

use std::{env, process::ExitCode};

use clap::Parser as _;
use quire_terminal::screen;
use rustix::{fs::Mode, process::umask};

fn main() -> ExitCode {
    let command = cli::Cli::parse().command;
    if !matches!(command, cli::Command::Export(_) | cli::Command::Generate(_)) {
        // Stores hold customers' data: no other user of the machine may read their files.
        umask(Mode::RWXG | Mode::RWXO);
    }
    let done = match command {
        cli::Command::Serve(args) => serve::command(&args),
        // It parses its own arguments.
        cli::Command::Client(_) => Ok(quire_client::cli::run("quire client", env::args_os().skip(2))),
        cli::Command::Admin(args) => Ok(commands::admin::command(&args)),
        cli::Command::Kv(args) => Ok(commands::kv::command(&args)),
        cli::Command::Tasks(args) => commands::tasks::command(&args),
        cli::Command::Game(args) => Ok(commands::game::command(&args)),
        cli::Command::Import(args) if args.update => commands::admin::import(&args),
        cli::Command::Import(args) => commands::data::import(&args),
        cli::Command::Export(args) if args.what != cli::Exported::Books => commands::admin::export(&args),
        cli::Command::Export(args) => commands::data::export(&args),
        cli::Command::Migrate(args) => commands::data::migrate(&args),
        cli::Command::Backup(args) => commands::backup::backup(&args),
        cli::Command::Restore(args) => commands::backup::restore(&args),
        cli::Command::Verify(args) => Ok(commands::verify::command(&args)),
        cli::Command::Config(args) => config::reference::command(&args.command),
        cli::Command::Health(args) => Ok(commands::health::command(&args)),
        cli::Command::Top(args) => Ok(commands::top::command(&args)),
        cli::Command::Token(args) => commands::token::command(&args),
        cli::Command::Receipt(args) => Ok(commands::receipt::command(&args)),
        cli::Command::Generate(args) => commands::data::generate(&args.what),
    };
    done.unwrap_or_else(|error| {
        // One line with the error and its remedy.
        eprintln!("quire: {}", screen::line(&format!("{error:#}")));
        ExitCode::FAILURE
    })
}
