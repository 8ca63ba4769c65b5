//! The command line `quire-client`, which is also `quire client`: the shopper's commands, once or at a prompt.
//!
//! Programs with other commands for the same servers use its flags, texts of faults, and exit codes.

mod calls;
mod command;
mod connection;
mod fault;

use std::{ffi::OsString, process::ExitCode, rc::Rc};

use clap::{CommandFactory as _, FromArgMatches as _};
use quire_terminal::{
    pager, screen,
    shell::{Next, Shell},
};
use tokio::runtime::Handle;

use self::{
    calls::Calls,
    command::{AFTER_HELP, Args, Command, Line, commands, parse, reason},
    fault::complain,
};

pub use connection::{Connection, connections, split};
pub use fault::{Exit, fault_json, fault_text, quoted};

/// Runs a command line, without the name of the program; `program` is the name that users type.
pub fn run(program: &'static str, words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let exit = start(program, words).unwrap_or_else(|reason| {
        complain(&format!("{program}: {}", screen::line(&reason)));
        Exit::Usage
    });
    exit.into()
}

/// The flags, and the commands as a part of their help.
pub fn flags(program: &'static str) -> clap::Command {
    let help = format!("Commands:\n{}\n{AFTER_HELP}", commands());
    Args::command().name(program).no_binary_name(true).after_help(help)
}

/// An error is a usage error.
fn start(program: &'static str, words: impl IntoIterator<Item = OsString>) -> Result<Exit, String> {
    let line = Line::command();
    let args = match flags(program).try_get_matches_from(words).and_then(|found| Args::from_arg_matches(&found)) {
        Ok(args) => args,
        Err(error) if error.use_stderr() => return Err(reason(&error, "--help lists the flags")),
        Err(shown) => {
            pager::print(shown.to_string().trim_end());
            return Ok(Exit::Done);
        }
    };
    let (address, words) = split(&args.words, |word| line.find_subcommand(word).is_some());
    let command = if words.is_empty() { None } else { Some(parse(words)?) };
    let runtime = connections().map_err(|error| format!("cannot start a thread: {error}"))?;
    let calls = {
        let _context = runtime.enter();
        Calls::new(program, args.connection, args.key, address).map_err(|error| error.to_string())?
    };
    match command {
        Some(command) => Ok(perform(&calls, &runtime, &command)),
        None => prompt(&Rc::new(calls), &runtime, &line).map_err(|error| error.to_string()),
    }
}

/// Reads commands until `exit`; the exit code is the worst of theirs.
fn prompt(calls: &Rc<Calls>, runtime: &Handle, line: &clap::Command) -> std::io::Result<Exit> {
    let names = line.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let (asked, asking) = (Rc::clone(calls), runtime.clone());
    let complete = move |command: &str, typed: &str| asking.block_on(asked.complete(command, typed));
    let mut shell = Shell::open("quire client> ", names, "client", Box::new(complete))?;
    let run = |words: Result<Vec<String>, String>| {
        let exit = match words.and_then(parse) {
            Ok(Command::Exit) => return Next::Leave,
            Ok(command) => perform(calls, runtime, &command),
            Err(reason) => {
                complain(&screen::line(&reason));
                Exit::Usage
            }
        };
        if calls.was_interrupted() { Next::Interrupted(exit) } else { Next::Line(exit) }
    };
    Ok(shell.converse(Exit::Done, run)?.0)
}

fn perform(calls: &Calls, runtime: &Handle, command: &Command) -> Exit {
    match command {
        Command::Exit => Exit::Done,
        Command::Help => {
            pager::print(commands().trim_end());
            Exit::Done
        }
        command => runtime.block_on(calls.run(command)).show(calls.is_json()),
    }
}
