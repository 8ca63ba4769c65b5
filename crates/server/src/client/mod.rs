//! `quire client`: the shopper's commands, once or at a prompt.

mod calls;
mod command;

use std::{io::Write as _, process::ExitCode};

use bookstore::IdempotencyKey;
use tokio::runtime::Builder;

use self::{
    calls::{Answer, Calls, Failed},
    command::{COMMANDS, Command},
};
use crate::{
    cli::ClientArgs,
    config::ports,
    shell::{self, Line, Shell},
};

/// How a command ended, for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    Done = 0,
    Refused = 1,
    Usage = 2,
    Unreachable = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// `quire client`.
pub(crate) fn command(args: &ClientArgs) -> ExitCode {
    let exit = talk(args).unwrap_or_else(|error| {
        eprintln!("quire: {error:#}");
        Exit::Usage
    });
    exit.into()
}

/// An error is one of usage.
fn talk(args: &ClientArgs) -> anyhow::Result<Exit> {
    let (address, words) = split(&args.words);
    let key = args.key.as_deref().map(|key| IdempotencyKey::from_wire(key.as_bytes())).transpose()?.flatten();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut calls = {
        let _context = runtime.enter();
        Calls::new(args, &address, key)?
    };
    if !words.is_empty() {
        return match Command::parse(&words)? {
            Command::Help => {
                writeln!(std::io::stdout(), "{}", shell::help(&COMMANDS))?;
                Ok(Exit::Done)
            }
            Command::Exit => Ok(Exit::Done),
            Command::Call(call) => Ok(show(args.json, runtime.block_on(calls.run(&call)))),
        };
    }
    prompt(args.json, &runtime, &mut calls)
}

/// Reads commands until `exit`; the exit code is that of the last command, so that a script can use it.
fn prompt(json: bool, runtime: &tokio::runtime::Runtime, calls: &mut Calls) -> anyhow::Result<Exit> {
    let mut shell = Shell::open("quire client> ", &COMMANDS)?;
    let mut last = Exit::Done;
    loop {
        let parsed = match shell.next()? {
            Line::Text(line) => match line.split_whitespace().collect::<Vec<_>>() {
                words if words.is_empty() => continue,
                words => Command::parse(&words),
            },
            Line::Unusable(reason) => Err(anyhow::anyhow!(reason)),
            Line::PipeEnded | Line::Left => return Ok(last),
        };
        last = match parsed {
            Ok(Command::Exit) => return Ok(last),
            Ok(Command::Help) => {
                writeln!(std::io::stdout(), "{}", shell::help(&COMMANDS))?;
                last
            }
            Ok(Command::Call(call)) => show(json, runtime.block_on(calls.run(&call))),
            Err(error) => {
                eprintln!("{error:#}");
                Exit::Usage
            }
        };
    }
}

/// The first word is an address if it looks like one: no command has a colon.
fn split(words: &[String]) -> (String, Vec<&str>) {
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    let address = words.first().copied().filter(|word| word.contains(':'));
    if address.is_some() {
        words.remove(0);
    }
    (address.map_or_else(|| format!("127.0.0.1:{}", ports::MAIN), str::to_owned), words)
}

fn show(json: bool, answer: Result<Answer, Failed>) -> Exit {
    let (exit, text) = match answer {
        Ok(answer) => {
            let exit = if answer.success { Exit::Done } else { Exit::Refused };
            let text = if json { answer.json.to_string() } else { answer.text };
            (exit, text)
        }
        Err(failed) => {
            let exit = if failed.unreachable { Exit::Unreachable } else { Exit::Refused };
            if json {
                let fault = serde_json::json!({ "success": false, "status": failed.code, "message": failed.message });
                (exit, fault.to_string())
            } else {
                eprintln!("{}", failed.message);
                return exit;
            }
        }
    };
    // A reader that has gone does not want the rest.
    let _ = writeln!(std::io::stdout(), "{text}");
    exit
}

fn usage(arguments: &str) -> anyhow::Error {
    anyhow::anyhow!("usage: {arguments}")
}
