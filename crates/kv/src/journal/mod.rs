//! Writes that last: one thread takes all that wait, decides them in order, writes them to disk as one batch, and
//! only then shows them to readers and acknowledges them. While the disk is busy the next batch collects.
//!
//! Must not know transports; [`disk`] alone knows files.

mod disk;
mod log;
mod queue;
mod view;
mod writer;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use tokio::sync::{oneshot, watch};

use self::{
    disk::DiskError,
    log::LogError,
    queue::{Job, Queue},
    view::Opened,
    writer::Writer,
};
pub(crate) use self::{
    disk::{Disk, Record},
    view::View,
};
use crate::{
    entry::Key,
    fault::Fault,
    settings::Limits,
    table::Table,
    write::{Action, Outcome},
};

/// The store on disk could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("the key-value store in {} is in use by another server; end it or choose another folder", .0.display())]
    InUse(PathBuf),
    /// The system refuses to read or to write it.
    #[error("the key-value store in {} cannot be opened ({reason}); see to the disk and the folder's permissions, then start the server again", path.display())]
    Unusable {
        /// Where.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// What it holds is damaged.
    #[error("the key-value store in {} is damaged ({reason}); nothing was removed from it: keep a copy of the folder, and restore a backup", path.display())]
    Damaged {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl OpenError {
    fn new(path: &Path, error: DiskError) -> Self {
        let path = path.to_path_buf();
        match error {
            DiskError::Store(fjall::Error::Locked) => Self::InUse(path),
            DiskError::Store(fjall::Error::Io(reason)) | DiskError::Log(LogError::Io(reason)) => {
                Self::Unusable { path, reason }
            }
            other => Self::Damaged { path, reason: other.to_string() },
        }
    }
}

/// What the thread and its callers share.
#[derive(Debug)]
struct Shared {
    queue: Queue,
    failures: AtomicU64,
    sound: watch::Sender<bool>,
    opened: Arc<Opened>,
}

/// The callers' end.
#[derive(Debug)]
pub(crate) struct Journal {
    shared: Arc<Shared>,
    /// Says something, or is disconnected, when the thread has ended.
    ended: Mutex<mpsc::Receiver<()>>,
}

impl Journal {
    /// Opens the folder, reads back what it holds, and starts the thread.
    pub(crate) fn open(folder: &Path, table: Arc<Table>, limits: &Limits) -> Result<Self, OpenError> {
        let refused = |error| OpenError::new(folder, error);
        let disk = Disk::open(folder).map_err(refused)?;
        let read_back = || {
            disk.each(|key, entry| {
                table.skip_versions(entry.version);
                table.found(key, entry);
            })?;
            table.skip_versions(disk.version()?);
            Ok(())
        };
        read_back().map_err(|error| refused(DiskError::Store(error)))?;
        let shared = Arc::new(Shared {
            queue: Queue::new(limits.writes_queued),
            failures: AtomicU64::new(0),
            sound: watch::Sender::new(true),
            opened: Arc::default(),
        });
        shared.opened.set(Some(disk.clone()));
        let writer = Writer::new(folder.to_path_buf(), table, Arc::clone(&shared));
        let (ending, ended) = mpsc::channel();
        let run = move || {
            writer.run(disk);
            drop(ending);
        };
        let spawned = thread::Builder::new().name("kv-journal".to_owned()).spawn(run);
        spawned.map_err(|error| refused(error.into()))?;
        Ok(Self { shared, ended: Mutex::new(ended) })
    }

    /// Does a write; the answer comes when it is on disk.
    pub(crate) async fn write(&self, key: Key, action: Action) -> Result<Outcome, Fault> {
        let (reply, answer) = oneshot::channel();
        self.shared.queue.push(Job { key, action, reply })?;
        // The thread answers whatever it took, unless it panicked.
        answer.await.unwrap_or(Err(Fault::OutcomeUnknown))
    }

    /// What is on disk at this moment.
    pub(crate) fn view(&self) -> Result<View, Fault> {
        View::of(&self.shared.opened)
    }

    pub(crate) fn queued(&self) -> usize {
        self.shared.queue.len()
    }

    pub(crate) fn failures(&self) -> u64 {
        self.shared.failures.load(Relaxed)
    }

    pub(crate) fn sound(&self) -> watch::Receiver<bool> {
        self.shared.sound.subscribe()
    }

    /// Takes no more, and waits until what was taken is on disk; returns whether that was in time.
    pub(crate) fn close(&self, patience: Duration) -> bool {
        self.shared.queue.close();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        !matches!(ended.recv_timeout(patience), Err(mpsc::RecvTimeoutError::Timeout))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}
