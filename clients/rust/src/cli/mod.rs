//! The command line `quire-client`, which is also `quire client`: the shopper's commands, once or at a prompt.
//!
//! Programs with other commands for the same servers use its flags, texts of faults, and exit codes.

mod calls;
mod command;
mod connection;

use std::{ffi::OsString, io, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use quire_terminal::{
    pager, screen,
    shell::{Next, Shell},
};
use tokio::runtime::Handle;

use self::{calls::Calls, command::Command, connection::complain};
use crate::Key;

pub use connection::{Connection, Exit, connections, fault_json, fault_text, quoted, split};

/// Buys books of a Quire server, and shows what it has
#[derive(Debug, Parser)]
#[command(version, args_override_self = true)]
struct Flags {
    #[command(flatten)]
    connection: Connection,
    /// Key that makes a purchase or a reservation happen once however often it is sent; random if absent
    #[arg(long, value_name = "TEXT", value_parser = |text: &str| Key::new(text))]
    key: Option<Key>,
    /// HOST:PORT, a host, :PORT, http://… or https://…, or several with commas between, 127.0.0.1:10086 if absent; then
    /// a command and its arguments
    #[arg(value_name = "[ADDRESS] COMMAND", allow_negative_numbers = true)]
    words: Vec<String>,
}

/// End of `--help`, behind the list of commands.
const AFTER_HELP: &str = "\
Without a command: a prompt on a terminal, else commands from standard input, one a line.

Exit codes: 0 done; 1 refused by the store; 2 usage; 3 unreachable, nothing was sent; 4 the outcome is unknown, and the \
message has the command that asks for it. Commands from standard input end with the highest of theirs.";

#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true, disable_help_subcommand = true)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

/// Runs a command line, without the name of the program; `program` is the name that users type.
pub fn run(program: &'static str, words: impl IntoIterator<Item = OsString>) -> ExitCode {
    start(program, words).unwrap_or_else(|reason| wrong(&format!("{program}: {reason}"))).into()
}

/// The flags, and the commands as a part of their help.
pub fn flags(program: &'static str) -> clap::Command {
    let help = format!("Commands:\n{}\n{AFTER_HELP}", commands());
    Flags::command().name(program).no_binary_name(true).after_help(help)
}

fn commands() -> String {
    Line::command().help_template("{subcommands}").render_help().to_string()
}

/// An error is a usage error.
fn start(program: &'static str, words: impl IntoIterator<Item = OsString>) -> Result<Exit, String> {
    let line = Line::command();
    let flags = match flags(program).try_get_matches_from(words).and_then(|found| Flags::from_arg_matches(&found)) {
        Ok(flags) => flags,
        Err(error) if error.use_stderr() => return Err(reason(&error, "--help lists the flags")),
        Err(shown) => return Ok(print(&shown.to_string())),
    };
    let (address, words) = split(&flags.words, |word| line.find_subcommand(word).is_some());
    // The flags have been read: each word behind the name is an argument, as is a second `--`.
    let words = words.split_first().map(|(name, rest)| [&[*name, "--"], rest].concat()).unwrap_or_default();
    let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    let command = if words.is_empty() { None } else { Some(parse(&words)?) };
    let runtime = connections().map_err(|error| format!("cannot start a thread: {error}"))?;
    let calls = {
        let _context = runtime.enter();
        Calls::new(program, flags.connection, flags.key, address).map_err(|error| error.to_string())?
    };
    match command {
        Some(command) => Ok(perform(&calls, &runtime, &command, &words)),
        None => prompt(&calls, &runtime, &line).map_err(|error| error.to_string()),
    }
}

/// Reads commands until `exit`; the exit code is the worst of theirs.
fn prompt(calls: &Calls, runtime: &Handle, line: &clap::Command) -> io::Result<Exit> {
    let names = line.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let mut shell = Shell::open("quire client> ", names, "client", Box::new(|_, _| Vec::new()))?;
    let run = |words: Result<Vec<String>, String>| {
        let exit = match words.and_then(|words| Ok((parse(&words)?, words))) {
            Ok((Command::Exit, _)) => return Next::Leave,
            Ok((command, words)) => perform(calls, runtime, &command, &words),
            Err(reason) => wrong(&reason),
        };
        if calls.was_interrupted() { Next::Interrupted(exit) } else { Next::Line(exit) }
    };
    Ok(shell.converse(Exit::Done, run)?.0)
}

fn parse(words: &[String]) -> Result<Command, String> {
    Line::try_parse_from(words).map(|line| line.command).map_err(|error| reason(&error, "help lists the commands"))
}

/// First paragraph of an error, in one line.
fn reason(error: &clap::Error, help: &str) -> String {
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
    format!("{}; {help}", first.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn perform(calls: &Calls, runtime: &Handle, command: &Command, words: &[String]) -> Exit {
    match command {
        Command::Exit => Exit::Done,
        Command::Help => print(&commands()),
        command => runtime.block_on(calls.run(command, words)),
    }
}

fn print(text: &str) -> Exit {
    pager::print(text.trim_end());
    Exit::Done
}

fn wrong(reason: &str) -> Exit {
    complain(&screen::line(reason));
    Exit::Usage
}
