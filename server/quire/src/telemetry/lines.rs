//! Log lines on standard error, or above the console's prompt. Terminal control characters are escaped, except the
//! lines' own colours. A thread of its own writes standard error: a reader of the log that stalls, such as a pipe that
//! no one empties, delays no one who logs.

use std::{
    fmt,
    io::{self, IsTerminal as _, Write},
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use quire_terminal::{screen, shell::ExternalPrinter};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tracing::field::Field;
use tracing_subscriber::fmt::format::Writer;

/// Lines waiting to be shown above the prompt; further ones go to standard error.
const SHOWN_LINES_MAX: usize = 1024;

/// Writes a field as escaped text, since its value may come from a caller.
pub(super) fn field(out: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let value = format!("{value:?}");
    let value = screen::line(&value);
    match field.name() {
        "message" => out.write_str(&value),
        name if out.has_ansi_escapes() => write!(out, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m{value}"),
        name => write!(out, "{name}={value}"),
    }
}

/// Writer of log lines; each arrives in one write.
pub(super) struct Lines {
    pub is_json: bool,
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        // Text is already escaped, except the colours, which are wanted.
        let line = if self.is_json { screen::json_text(line) } else { line.into() };
        let line = format!("{line}\n");
        let unsent = match &*prompt() {
            Some(shared) => shared.lines.try_send(line).err().map(|error| match error {
                TrySendError::Full(line) | TrySendError::Disconnected(line) => line,
            }),
            None => Some(line),
        };
        unsent.map_or(Ok(()), write)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A terminal with a prompt, shared with log lines.
struct Shared {
    lines: SyncSender<String>,
    /// Disconnected once all lines are shown.
    ended: Receiver<()>,
    /// Terminal modes before the prompt.
    modes: Option<Termios>,
}

static PROMPT: Mutex<Option<Shared>> = Mutex::new(None);

fn prompt() -> MutexGuard<'static, Option<Shared>> {
    PROMPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows lines above the prompt from now on, if standard error is a terminal. The printer may wait for the prompt, so
/// it has its own thread.
pub(crate) fn share_terminal(mut printer: impl ExternalPrinter + Send + 'static) {
    if !io::stderr().is_terminal() {
        return;
    }
    let (lines, queue) = sync_channel::<String>(SHOWN_LINES_MAX);
    let (ending, ended) = channel::<()>();
    let print = move || {
        for line in queue {
            if printer.print(line.clone()).is_err() {
                let _ = write(line);
            }
        }
        drop(ending);
    };
    if thread::Builder::new().name("log-lines".to_owned()).spawn(print).is_ok() {
        *prompt() = Some(Shared { lines, ended, modes: tcgetattr(io::stdin()).ok() });
    }
}

/// Ends that: shows waiting lines, and restores the terminal, even if the prompt still has it.
pub(crate) fn take_terminal_back() {
    let Some(Shared { lines, ended, modes }) = prompt().take() else { return };
    drop(lines);
    let _ = ended.recv_timeout(LAST_LINES);
    if let Some(modes) = modes {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &modes);
        // The next line replaces the prompt.
        let _ = io::stderr().write_all(b"\r\x1b[K");
    }
}

/// Lines that may wait for the thread; further ones are lost and counted.
const LINES_MAX: usize = 4096;
/// Time for the last lines when the prompt or the process ends.
const LAST_LINES: Duration = Duration::from_millis(500);

enum Item {
    Line(String),
    /// Acknowledges that everything before it is written.
    Flush(Sender<()>),
}

static QUEUE: OnceLock<SyncSender<Item>> = OnceLock::new();
static LOST: AtomicU64 = AtomicU64::new(0);

/// Starts the thread. Without it lines are written at once.
pub(super) fn start(is_json: bool) -> io::Result<()> {
    let (queue, items) = sync_channel(LINES_MAX);
    thread::Builder::new().name("log".to_owned()).spawn(move || write_all(&items, is_json))?;
    // Logging starts once in a process.
    let _ = QUEUE.set(queue);
    Ok(())
}

fn write_all(items: &Receiver<Item>, is_json: bool) {
    // Only a line that cannot be written fails, and there is nowhere to report it.
    for item in items {
        match item {
            Item::Line(line) => {
                let _ = io::stderr().write_all(line.as_bytes());
            }
            Item::Flush(done) => drop(done),
        }
        let lost = LOST.swap(0, Relaxed);
        if lost > 0 {
            let _ = io::stderr().write_all(lost_line(lost, is_json).as_bytes());
        }
    }
}

fn lost_line(lines: u64, is_json: bool) -> String {
    const MESSAGE: &str = "lines were lost: the reader of the log is too slow";
    if is_json {
        format!(
            "{{\"level\":\"WARN\",\"fields\":{{\"message\":\"{MESSAGE}\",\"lines\":{lines}}},\"target\":\"quire\"}}\n"
        )
    } else {
        format!(" WARN quire: {MESSAGE} lines={lines}\n")
    }
}

/// Writes a line, or counts it as lost if too many wait.
fn write(line: String) -> io::Result<()> {
    match QUEUE.get() {
        None => io::stderr().write_all(line.as_bytes()),
        Some(queue) => {
            if queue.try_send(Item::Line(line)).is_err() {
                LOST.fetch_add(1, Relaxed);
            }
            Ok(())
        }
    }
}

/// Waits until the lines so far are written, for a bounded time.
pub(crate) fn flush() {
    let Some(queue) = QUEUE.get() else { return };
    let until = Instant::now() + LAST_LINES;
    let (done, is_done) = channel();
    while queue.try_send(Item::Flush(done.clone())).is_err() {
        if Instant::now() >= until {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    drop(done);
    let _ = is_done.recv_timeout(LAST_LINES);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tracing_subscriber::{field::MakeExt as _, fmt::format};

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nothing_in_a_line_acts_on_a_terminal() {
        let evil = "evil\u{1b}[2J\u{9b}\u{202e}\r\nINFO all is well";
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).fmt_fields(format::debug_fn(field).delimited(" "));
        let subscriber = subscriber.with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, || tracing::warn!(text = evil, error = %evil, "message {evil}"));
        let written = String::from_utf8(sink.0.lock().expect("no one panicked").clone()).expect("text");
        let line = written.strip_suffix('\n').expect("a line");
        assert_eq!(line.matches("evil\\u{1b}[2J\\u{9b}\\u{202e}\\r\\nINFO").count(), 3, "{line}");
        assert!(screen::is_plain(line), "{line:?}");
    }
}
