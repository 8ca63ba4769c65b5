//! A pager: shows long output through `$PAGER`, or screen by screen. Off a terminal, and if it fits on the screen,
//! output is written directly.

use std::{
    env,
    fs::File,
    io::{self, Read as _, Write},
    os::fd::AsFd as _,
    process::{Child, Command, Stdio},
};

use crate::screen;

const MORE: &str = "-- Enter: more, q and Enter: stop --";

/// Output that may exceed the screen; end it with [`Pager::finish`].
pub struct Pager {
    /// Rows and columns.
    screen: Option<(usize, usize)>,
    /// Rows shown since the last pause, or held back.
    rows: usize,
    /// Beginning of an unfinished line.
    partial: Vec<u8>,
    to: To,
}

enum To {
    Output,
    /// Held back while it fits on the screen.
    Held(Vec<u8>),
    Child(Child),
    Pauses,
    /// The reader has quit.
    Stopped,
}

/// Prints a text and a final newline.
pub fn print(text: &str) {
    let mut pager = Pager::new();
    // A reader that has quit does not want the rest.
    let _ = writeln!(pager, "{text}");
    pager.finish();
}

impl Pager {
    /// Holds text back until it exceeds the screen.
    #[expect(clippy::new_without_default, reason = "a pager takes hold of the terminal")]
    pub fn new() -> Self {
        let screen = screen::size();
        let to = if screen.is_some() { To::Held(Vec::new()) } else { To::Output };
        Self { screen, rows: 0, partial: Vec::new(), to }
    }

    /// Shows what was held back, and waits until the reader has finished.
    pub fn finish(mut self) {
        let partial = std::mem::take(&mut self.partial);
        let _ = if partial.is_empty() { Ok(()) } else { self.line(&partial) };
        match self.to {
            To::Held(text) => drop(io::stdout().write_all(&text)),
            To::Child(mut child) => {
                drop(child.stdin.take());
                let _ = child.wait();
            }
            To::Output | To::Pauses | To::Stopped => {}
        }
        let _ = io::stdout().flush();
    }

    /// Screen rows of a line.
    fn rows_of(&self, line: &[u8]) -> usize {
        let columns = self.screen.map_or(usize::MAX, |(_, columns)| columns);
        let shown = line.iter().filter(|byte| !matches!(byte, 0x80..=0xbf | b'\n')).count();
        shown.div_ceil(columns).max(1)
    }

    /// Rows before a pause; the screen's last row is for the prompt.
    fn rows_max(&self) -> usize {
        self.screen.map_or(usize::MAX, |(rows, _)| rows - 1)
    }

    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        let rows = self.rows_of(line);
        if let To::Held(text) = &mut self.to {
            text.extend_from_slice(line);
            self.rows += rows;
            if self.rows > self.rows_max() {
                self.start()?;
            }
            return Ok(());
        }
        match &mut self.to {
            To::Child(child) => match &mut child.stdin {
                Some(input) => input.write_all(line),
                None => Ok(()),
            },
            To::Output => io::stdout().write_all(line),
            To::Pauses => self.line_with_pauses(line, rows),
            To::Held(_) | To::Stopped => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Starts paging: the held text exceeds the screen.
    fn start(&mut self) -> io::Result<()> {
        let To::Held(text) = std::mem::replace(&mut self.to, To::Pauses) else { return Ok(()) };
        self.rows = 0;
        if let Some(pager) = env::var_os("PAGER").filter(|pager| !pager.is_empty()) {
            let spawned = Command::new("sh").arg("-c").arg(pager).stdin(Stdio::piped()).spawn();
            if let Ok(child) = spawned {
                self.to = To::Child(child);
            }
        }
        text.split_inclusive(|byte| *byte == b'\n').try_for_each(|line| self.line(line))
    }

    fn line_with_pauses(&mut self, line: &[u8], rows: usize) -> io::Result<()> {
        let mut out = io::stdout();
        if self.rows > 0 && self.rows + rows > self.rows_max() {
            write!(out, "{MORE}")?;
            out.flush()?;
            if !goes_on()? {
                self.to = To::Stopped;
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.rows = 0;
        }
        self.rows += rows;
        out.write_all(line)
    }
}

/// Reads the answer as a line from the terminal, bypassing standard input's shared buffer.
fn goes_on() -> io::Result<bool> {
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut answer = [0; 256];
    let read = input.read(&mut answer)?;
    Ok(read > 0 && !answer[..read].trim_ascii().eq_ignore_ascii_case(b"q"))
}

impl Write for Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.partial);
                self.line(&line)?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
