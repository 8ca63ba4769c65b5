//! The command line `quire-client`, which is also `quire client`: the shopper's commands, once or at a prompt.
//!
//! Programs with other commands for the same servers use its parts: connection options, texts of faults, and exit
//! codes.

mod args;
mod calls;
mod command;
mod connection;
mod exit;
mod fault;
mod prompt;
mod seen;

use std::{cell::RefCell, ffi::OsString, io, io::Write as _, process::ExitCode, rc::Rc};

use quire_terminal::{
    pager, screen,
    shell::{self, Shell},
};
use tokio::runtime::Handle;

use self::{
    args::{Args, Wanted},
    calls::{Answer, Calls},
    command::{COMMANDS, Command},
    seen::Seen,
};

pub use connection::{Connection, TIME, split, time};
pub use exit::Exit;
pub use fault::{fault_json, fault_text, quoted};
pub use prompt::{End, Next, connections, converse};

/// Output of `--help`.
const HELP: &str = include_str!("help.txt");
/// The standalone program's name in the help.
const NAME: &str = "quire-client";

/// Runs a command line, without the name of the program; `program` is the name that users type.
pub fn run(program: &str, words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let exit = talk(program, words).unwrap_or_else(|reason| {
        complain(&format!("{program}: {}", screen::line(&reason)));
        Exit::Usage
    });
    exit.into()
}

/// An error is a usage error.
fn talk(program: &str, words: impl IntoIterator<Item = OsString>) -> Result<Exit, String> {
    let args = match Args::parse(words)? {
        Wanted::Help => {
            pager::print(HELP.replace(NAME, program).trim_end());
            return Ok(Exit::Done);
        }
        Wanted::Version => {
            pager::print(&format!("{program} {}", env!("CARGO_PKG_VERSION")));
            return Ok(Exit::Done);
        }
        Wanted::Run(args) => args,
    };
    let runtime = connections().map_err(|error| format!("cannot start a thread: {error}"))?;
    let (address, words) = split(&args.words, command::is_command);
    let command = if words.is_empty() { None } else { Some(Command::parse(&words)?) };
    let seen = Rc::new(RefCell::new(Seen::default()));
    let json = args.connection.json;
    let calls = {
        let _context = runtime.enter();
        Calls::new(program, args.connection, args.key, address, Rc::clone(&seen))?
    };
    let client = Rc::new(Client { json, runtime, calls });
    match command {
        Some(command) => Ok(client.run(&command)),
        None => prompt(&client, seen),
    }
}

struct Client {
    json: bool,
    runtime: Handle,
    calls: Calls,
}

/// Reads commands until `exit`; the exit code is the worst of theirs.
fn prompt(client: &Rc<Client>, seen: Rc<RefCell<Seen>>) -> Result<Exit, String> {
    let asking = Rc::clone(client);
    let complete = move |command: &str, typed: &str| {
        if ["search", "topics"].contains(&command) {
            asking.runtime.block_on(asking.calls.learn_topics());
        }
        seen.borrow().arguments(command, typed)
    };
    let failed = |error: io::Error| error.to_string();
    let mut shell = Shell::open("quire client> ", &COMMANDS, "client", Box::new(complete)).map_err(failed)?;
    let run = |words: &[&str]| {
        let exit = match Command::parse(words) {
            Ok(Command::Exit) => return Next::Leave,
            Ok(command) => client.run(&command),
            Err(reason) => {
                complain(&screen::line(&reason));
                Exit::Usage
            }
        };
        if client.calls.was_interrupted() { Next::Interrupted(exit) } else { Next::Line(exit) }
    };
    Ok(converse(&mut shell, run, complain).map_err(failed)?.0)
}

impl Client {
    fn run(&self, command: &Command) -> Exit {
        match command {
            Command::Exit => Exit::Done,
            Command::Help => {
                pager::print(&shell::help(&COMMANDS));
                Exit::Done
            }
            Command::Call(call) => self.show(&self.runtime.block_on(self.calls.run(call))),
        }
    }

    fn show(&self, answer: &Answer) -> Exit {
        match (self.json, answer.is_fault) {
            (true, _) => pager::print(&screen::json(&answer.json)),
            (false, false) => pager::print(&answer.text),
            (false, true) => complain(&answer.text),
        }
        answer.exit
    }
}

fn complain(text: &str) {
    // If no one reads it, nothing else can be done.
    let _ = writeln!(io::stderr(), "{text}");
}
