//! A prompt: lines are read and run one after the other.

use std::{future::pending, io, thread};

use quire_terminal::{
    screen,
    shell::{Line, Shell},
};
use tokio::runtime::{Builder, Handle};

use super::exit::Exit;

/// Next step after a line has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next line.
    Line(Exit),
    /// The next line after a pause of the user: Ctrl-C ended the call; pasted lines are dropped.
    Interrupted(Exit),
    /// The end of the prompt.
    Leave,
}

/// The end of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The input had no more lines.
    Pipe,
    /// The user left.
    User,
}

/// Reads and runs lines to the end. Returns the worst of their results, so that scripts miss no failure.
pub fn converse(
    shell: &mut Shell,
    mut run: impl FnMut(&[&str]) -> Next,
    complain: impl Fn(&str),
) -> io::Result<(Exit, End)> {
    let mut worst = Exit::Done;
    loop {
        let next = match shell.read()? {
            Line::Words(words) if words.is_empty() => continue,
            Line::Words(words) => run(&words.iter().map(String::as_str).collect::<Vec<_>>()),
            Line::Unusable(reason) => {
                complain(&screen::line(&reason));
                Next::Line(Exit::Usage)
            }
            Line::PipeEnded => return Ok((worst, End::Pipe)),
            Line::Left => return Ok((worst, End::User)),
        };
        match next {
            Next::Line(exit) => worst = worst.max(exit),
            Next::Interrupted(exit) if shell.is_terminal() => {
                worst = worst.max(exit);
                shell.drop_pasted();
            }
            Next::Interrupted(exit) => return Ok((worst.max(exit), End::User)),
            Next::Leave => return Ok((worst, End::User)),
        }
    }
}

/// A runtime on its own thread, so that connections are read while a prompt waits for its user.
pub fn connections() -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new().name("connections".to_owned()).spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(handle)
}
