//! `quire client`: the shopper's commands, once or at a prompt.

pub(crate) mod attempts;
mod calls;
mod command;
pub(crate) mod connection;
mod seen;

use std::{cell::RefCell, process::ExitCode, rc::Rc};

use bookstore::IdempotencyKey;
use tokio::runtime::{Builder, Runtime};

use self::{
    calls::{Answer, Calls},
    command::{COMMANDS, Command},
    seen::Seen,
};
use crate::{
    cli::ClientArgs,
    exit::Exit,
    pager, screen,
    shell::{self, Line, Shell},
};

/// `quire client`.
pub(crate) fn command(args: &ClientArgs) -> ExitCode {
    let exit = talk(args).unwrap_or_else(|error| {
        eprintln!("quire: {}", screen::line(&format!("{error:#}")));
        Exit::Usage
    });
    exit.into()
}

/// An error is one of usage.
fn talk(args: &ClientArgs) -> anyhow::Result<Exit> {
    let (address, words) = connection::split(&args.words, command::is_command);
    let key = args.key.as_deref().map(|key| IdempotencyKey::from_wire(key.as_bytes())).transpose()?.flatten();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let seen = Rc::new(RefCell::new(Seen::default()));
    let calls = {
        let _context = runtime.enter();
        Calls::new(args, &address, key, Rc::clone(&seen))?
    };
    let client = Rc::new(Client { json: args.connection.json, runtime, calls });
    if words.is_empty() { prompt(&client, seen) } else { Ok(client.run(&Command::parse(&words)?)) }
}

struct Client {
    json: bool,
    runtime: Runtime,
    calls: Calls,
}

/// Reads commands until `exit`; the exit code is the worst of theirs, so that a script misses no failure.
fn prompt(client: &Rc<Client>, seen: Rc<RefCell<Seen>>) -> anyhow::Result<Exit> {
    let asking = Rc::clone(client);
    let complete = move |command: &str, typed: &str| {
        if ["search", "topics"].contains(&command) {
            asking.runtime.block_on(asking.calls.learn_topics());
        }
        seen.borrow().arguments(command, typed)
    };
    let mut shell = Shell::open("quire client> ", &COMMANDS, "client", Box::new(complete))?;
    let mut worst = Exit::Done;
    loop {
        let parsed = match shell.next()? {
            Line::Words(words) if words.is_empty() => continue,
            Line::Words(words) => Command::parse(&words.iter().map(String::as_str).collect::<Vec<_>>()),
            Line::Unusable(reason) => Err(anyhow::anyhow!(reason)),
            Line::PipeEnded | Line::Left => return Ok(worst),
        };
        let exit = match parsed {
            Ok(Command::Exit) => return Ok(worst),
            Ok(command) => client.run(&command),
            Err(error) => {
                eprintln!("{}", screen::line(&format!("{error:#}")));
                Exit::Usage
            }
        };
        worst = worst.max(exit);
    }
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
            (false, false) => pager::print(&screen::lines(&answer.text)),
            (false, true) => eprintln!("{}", screen::lines(&answer.text)),
        }
        answer.exit
    }
}
