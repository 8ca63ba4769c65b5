//! Verification of the whole file beside a server that has started.

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rusqlite::{Connection, InterruptHandle};

use super::{
    super::{
        errors::OpenError,
        open::{Role, open},
    },
    verify::{Verified, verify_open},
};
use crate::settings::Settings;

/// Pause between two attempts to interrupt: one that comes between two queries has no effect.
const INTERRUPT_EVERY: Duration = Duration::from_millis(1);

/// A thread that compares all parts of the file once and logs what is wrong. Only the books determine what may be sold, so
/// the server sells meanwhile.
pub(crate) struct Audit {
    is_stopped: Arc<AtomicBool>,
    interrupt: InterruptHandle,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Audit {
    pub(crate) fn start(path: &Path, settings: &Settings) -> Result<Self, OpenError> {
        let file = open(path, Role::Reader, settings)?.connection;
        let named = path.to_owned();
        Self::spawn(file, move |file, is_stopped| audit(file, &named, is_stopped))
            .map_err(|reason| OpenError::Other { path: path.to_owned(), reason: reason.to_string() })
    }

    /// Runs `work` on a thread of its own; `stop` interrupts its queries.
    fn spawn(file: Connection, work: impl FnOnce(&Connection, &AtomicBool) + Send + 'static) -> io::Result<Self> {
        let (interrupt, is_stopped) = (file.get_interrupt_handle(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&is_stopped);
        let thread = thread::Builder::new().name("audit".to_owned()).spawn(move || work(&file, &stopped))?;
        Ok(Self { is_stopped, interrupt, thread: Mutex::new(Some(thread)) })
    }

    /// One that reads the file until it is stopped; returns once its snapshot is there.
    #[cfg(test)]
    pub(crate) fn endless(path: &Path) -> Self {
        let (begun, wait) = std::sync::mpsc::channel();
        let file = open(path, Role::Reader, &Settings::default()).unwrap().connection;
        let audit = Self::spawn(file, move |file, _| {
            let snapshot = file.unchecked_transaction().unwrap();
            snapshot.query_row("SELECT count(*) FROM entry", (), |_| Ok(())).unwrap();
            begun.send(()).unwrap();
            let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
            snapshot.query_row(endless, (), |_| Ok(())).unwrap_err();
        });
        wait.recv().unwrap();
        audit.unwrap()
    }

    /// Stops the thread, whose connection is closed then; false if it had ended.
    pub(crate) fn stop(&self) -> bool {
        self.is_stopped.store(true, Relaxed);
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let was_running = thread.as_ref().is_some_and(|thread| !thread.is_finished());
        while thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            self.interrupt.interrupt();
            thread::sleep(INTERRUPT_EVERY);
        }
        *thread = None;
        was_running
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.stop();
    }
}

fn audit(file: &Connection, path: &Path, is_stopped: &AtomicBool) {
    let begun = Instant::now();
    let verified = verify_open(file, path, &mut |_, _| {});
    let path = tracing::field::display(path.display());
    match verified {
        Ok(verified) => {
            let Verified { entries, known_missing, problems, .. } = verified;
            if known_missing > 0 {
                tracing::warn!(
                    path,
                    known_missing,
                    "entries are missing from the log, as before: their loss was accepted, or is older than its \
                     head. Put them back from a backup, also while the server runs: sqlite3 bookstore.db \"ATTACH 'backup.db' AS b; \
                     INSERT OR IGNORE INTO entry SELECT * FROM b.entry\". Until then a retry of a purchase among them may \
                     be charged again"
                );
            }
            for problem in &problems {
                tracing::error!(path, "{}", problem.message);
            }
            let seconds = begun.elapsed().as_secs_f64();
            let problems = problems.len();
            tracing::info!(path, entries, problems, seconds, "compared the log with the head, the stock and the keys");
        }
        Err(_) if is_stopped.load(Relaxed) => {}
        Err(error) => tracing::error!(%error, "the log was not compared with the head, the stock and the keys"),
    }
}
