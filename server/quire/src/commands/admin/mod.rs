//! `quire admin`: the operator's commands, once or at a prompt. The console of `quire serve` is the same program over a
//! channel within its process.

mod books;
mod desk;
mod history;
mod machine;
mod show;
mod store;
mod terminal;
mod verb;

use std::{io, process::ExitCode, rc::Rc};

use clap::Parser as _;
use quire_client::{
    Client,
    cli::{Connection, Exit, connections, split},
};
use quire_rpc::client::Channel;
use quire_terminal::{
    screen,
    shell::{End, Next, Shell},
};
use tokio::runtime::Handle;

use self::{desk::Desk, verb::Verb};
use crate::{
    cli::{AdminArgs, COMMANDS, VerbLine},
    telemetry,
};

pub(crate) use self::store::{export, import};

/// `quire admin`.
pub(crate) fn command(args: &AdminArgs) -> ExitCode {
    let exit = run(args).unwrap_or_else(|error| {
        eprintln!("quire: {}", screen::line(&format!("{error:#}")));
        Exit::Usage
    });
    exit.into()
}

/// An error means exit code 2.
fn run(args: &AdminArgs) -> anyhow::Result<Exit> {
    let (address, words) = split(&args.verb.words, verb::is_command);
    let verb = if words.is_empty() { None } else { Some(Verb::parse(&words, &args.verb)?) };
    let runtime = connections()?;
    let connection = args.connection.clone();
    let client = {
        let _context = runtime.enter();
        connection.client(address)?
    };
    let desk = Desk::new(client, connection, address, runtime)?;
    match verb {
        Some(verb) => Ok(desk.run(&verb)),
        None => Ok(prompt(desk, "quire admin> ", "admin", |_| ())?.0),
    }
}

/// The console of a server in this process: a prompt until its input ends or the operator leaves.
pub(crate) fn console(channel: Channel, runtime: Handle) -> anyhow::Result<End> {
    let mut desk = Desk::new(Client::over(channel.clone()), Connection::default(), "the server", runtime)?;
    desk.console = Some(channel);
    let share = |shell: &mut Shell| {
        if let Some(printer) = shell.printer() {
            telemetry::share_terminal(printer);
        }
    };
    Ok(prompt(desk, "quire> ", "console", share)?.1)
}

fn prompt(mut desk: Desk, prompt: &str, history: &str, open: impl FnOnce(&mut Shell)) -> io::Result<(Exit, End)> {
    desk.is_prompt = true;
    let desk = Rc::new(desk);
    let asking = Rc::clone(&desk);
    let complete = move |command: &str, typed: &str| asking.runtime.block_on(asking.complete(command, typed));
    let names = COMMANDS.iter().map(|command| command.0.to_owned()).collect();
    let mut shell = Shell::open(prompt, names, history, Box::new(complete))?;
    open(&mut shell);
    let run = |words: Result<Vec<String>, String>| {
        let parsed = words.map_err(anyhow::Error::msg).and_then(|words| Ok((parse(&words)?, words)));
        let exit = match parsed {
            Ok((Verb::Exit, _)) => return Next::Leave,
            Ok((verb, words)) => {
                desk.line.replace(words.join(" "));
                desk.run(&verb)
            }
            Err(error) => {
                desk.complain(&format!("{error:#}"));
                Exit::Usage
            }
        };
        if desk.is_interrupted.take() { Next::Interrupted(exit) } else { Next::Line(exit) }
    };
    shell.converse(Exit::Done, run)
}

/// Parses a line of a prompt.
fn parse(words: &[String]) -> anyhow::Result<Verb> {
    let line = VerbLine::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        anyhow::anyhow!("{}; help lists the commands", first.strip_prefix("error: ").unwrap_or(first))
    })?;
    let words: Vec<&str> = line.verb.words.iter().map(String::as_str).collect();
    Verb::parse(&words, &line.verb)
}
