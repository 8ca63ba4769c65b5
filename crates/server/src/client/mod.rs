//! `quire client`: the shopper's commands, once or at a prompt.

mod calls;
mod command;

use std::{io::Write as _, process::ExitCode};

use anyhow::bail;
use bookstore::IdempotencyKey;
use tokio::runtime::Builder;

use self::{
    calls::{Answer, Calls, Failed},
    command::{COMMANDS, Command},
};
use crate::{
    cli::ClientArgs,
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

/// Where a server listens if nothing else is said.
const DEFAULT_ADDRESS: &str = "127.0.0.1:10086";

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
        Calls::new(args, address, key)?
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
fn split(words: &[String]) -> (&str, Vec<&str>) {
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    let address = words.first().copied().filter(|word| word.contains(':'));
    if address.is_some() {
        words.remove(0);
    }
    (address.unwrap_or(DEFAULT_ADDRESS), words)
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

/// For the port alone, or with a scheme, as people write addresses.
fn endpoint(address: &str) -> anyhow::Result<String> {
    let (scheme, rest) = address.split_once("://").unwrap_or(("http", address));
    let bare = rest.trim_end_matches('/');
    let port = bare.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
    if !["http", "https"].contains(&scheme)
        || port.and_then(|port| port.parse::<u16>().ok()).is_none_or(|port| port == 0)
    {
        bail!("'{address}' is no address; it must be HOST:PORT, as 127.0.0.1:10086 or [::1]:10086");
    }
    Ok(format!("{scheme}://{bare}"))
}
