//! The operator's console on standard input. It calls the same actions of the store as `bookstore.Admin`.

mod actions;

use std::{io::Write as _, thread};

use bookstore::Bookstore;
use tokio::{runtime::Handle, sync::oneshot};

use self::actions::{COMMANDS, Done};
use crate::shell::{Line, Shell};

/// Starts the console. The answer comes when the operator wants the server to stop; none comes when the console
/// ends otherwise.
pub(crate) fn start(store: Bookstore) -> oneshot::Receiver<()> {
    let (leave, left) = oneshot::channel();
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

/// True when the operator wants to stop the server.
fn talk(store: &Bookstore, runtime: &Handle) -> anyhow::Result<bool> {
    let mut shell = Shell::open("quire> ", &COMMANDS)?;
    let mut out = std::io::stdout();
    loop {
        let line = match shell.next()? {
            Line::Text(line) => line,
            Line::Unusable(reason) => {
                writeln!(out, "{reason}")?;
                continue;
            }
            Line::PipeEnded => return Ok(false),
            Line::Left => return Ok(true),
        };
        match runtime.block_on(actions::run(store, &line, &mut out)) {
            Ok(Done::Next) => {}
            Ok(Done::Exit) => return Ok(true),
            Err(error) => writeln!(out, "{error:#}")?,
        }
        out.flush()?;
    }
}
