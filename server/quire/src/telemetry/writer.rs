//! Standard error, written by a thread of its own: a reader of the log that stalls, such as a pipe that no one empties,
//! delays no one who logs.

use std::{
    io::{self, Write as _},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Lines that may wait for the thread; further ones are lost and counted.
const LINES_MAX: usize = 4096;
/// Time for the last lines when the process ends.
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
pub(super) fn write(line: String) -> io::Result<()> {
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
