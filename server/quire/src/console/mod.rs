//! The operator's console on standard input. It calls the same actions of the store as `bookstore.Admin`.

mod actions;

use std::{
    any::Any,
    io::{self, Write as _},
    thread,
};

use bookstore::{Bookstore, BookstoreService};
use quire_terminal::{
    pager::Pager,
    screen,
    shell::{Line, Shell},
};
use tokio::{runtime::Handle, sync::oneshot};

use self::actions::{COMMANDS, Done};
use crate::{http::Services, telemetry};

/// Starts the console. The receiver gets a message when the operator stops the server, and none if the console ends
/// otherwise.
pub(crate) fn start(services: &Services) -> oneshot::Receiver<()> {
    let (leave, left) = oneshot::channel();
    let bookstore = services.iter().find_map(|service| (&**service as &dyn Any).downcast_ref::<BookstoreService>());
    let Some(store) = bookstore.map(|service| service.store().clone()) else { return left };
    let runtime = Handle::current();
    let started = thread::Builder::new().name("console".to_owned()).spawn(move || match talk(&store, &runtime) {
        Ok(true) => drop(leave.send(())),
        Ok(false) => tracing::debug!("standard input has ended; the server runs on"),
        Err(error) => tracing::warn!(%error, "the console has ended; the server runs on"),
    });
    if let Err(error) = started {
        tracing::warn!(%error, "there is no console");
    }
    left
}

/// Runs the console; true if the operator stops the server.
fn talk(store: &Bookstore, runtime: &Handle) -> anyhow::Result<bool> {
    let (books, waiting) = (store.clone(), runtime.clone());
    let complete = move |command: &str, typed: &str| match command {
        "update" => waiting.block_on(actions::ids(&books, typed)),
        "topics" => waiting.block_on(actions::topics_beginning(&books, typed)),
        _ => Vec::new(),
    };
    let mut shell = Shell::open("quire> ", &COMMANDS, "console", Box::new(complete))?;
    if let Some(printer) = shell.printer() {
        telemetry::share_terminal(printer);
    }
    loop {
        let words = match shell.read()? {
            Line::Words(words) => words,
            Line::Unusable(reason) => {
                writeln!(io::stdout(), "{reason}")?;
                continue;
            }
            Line::PipeEnded => return Ok(false),
            Line::Left => return Ok(true),
        };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        log_action(&words);
        let mut out = Pager::new();
        let done = runtime.block_on(actions::run(store, &words, &mut out));
        out.finish();
        match done {
            Ok(Done::Next) => {}
            Ok(Done::Exit) => return Ok(true),
            Err(error) if has_stopped_reading(&error) => {}
            Err(error) => writeln!(io::stdout(), "{}", screen::line(&format!("{error:#}")))?,
        }
    }
}

/// Logs a command that changes something, as calls of `bookstore.Admin` are logged.
fn log_action(words: &[&str]) {
    if let ["restock" | "update", ..] = words {
        let method = words.join(" ");
        tracing::info!(target: telemetry::UNBOUNDED, method, credential = "console", "an operator's action");
    }
}

/// True if the operator left the pager.
fn has_stopped_reading(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
