//! Durable writes: one thread decides queued writes in order, commits them to disk as one batch ([`commit`]), and only
//! then publishes and acknowledges them.

mod disk;
mod log;
mod tables;
mod view;
mod writer;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use commit::{Failure, Group};
use tokio::sync::watch;

pub(crate) use self::{
    disk::{Disk, Record},
    view::View,
};
use self::{
    disk::{DiskError, Files},
    log::LogError,
    tables::TablesError,
    view::OpenDisk,
    writer::{Write, Writer},
};
use crate::journal::writer::Failures;
use crate::{
    entry::Key,
    fault::{Fault, Limit},
    metrics::Histograms,
    settings::Limits,
    table::Table,
    write::{Action, Outcome},
};

/// Size at which a batch is closed.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// The store on disk could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("the key-value store in {} is in use by another server; end it or choose another folder", .0.display())]
    InUse(PathBuf),
    /// Reading or writing fails.
    #[error("the key-value store in {} cannot be opened ({reason}); check the disk and the folder's permissions, then start the server again", path.display())]
    Unusable {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// Its contents are damaged.
    #[error("the key-value store in {} is damaged ({reason}); nothing was removed from it: keep a copy of the folder, and restore a backup", path.display())]
    Damaged {
        /// The path.
        path: PathBuf,
        /// The damage.
        reason: String,
    },
    /// Another release has written it.
    #[error("the key-value store in {} has format version {found}, and this program reads version {}; use the release that made it, or restore a backup that this one made", path.display(), disk::FORMAT)]
    OtherFormat {
        /// The path.
        path: PathBuf,
        /// The format's version.
        found: u8,
    },
}

impl OpenError {
    fn new(path: &Path, error: DiskError) -> Self {
        let path = path.to_path_buf();
        match error {
            DiskError::Store(fjall::Error::Locked) => Self::InUse(path),
            DiskError::Store(fjall::Error::Io(reason))
            | DiskError::Log(LogError::Io(reason))
            | DiskError::Tables(TablesError::Io(reason)) => Self::Unusable { path, reason },
            DiskError::OtherFormat(found) => Self::OtherFormat { path, found },
            other => Self::Damaged { path, reason: other.to_string() },
        }
    }

    /// True if another process has the store open.
    pub const fn is_in_use(&self) -> bool {
        matches!(self, Self::InUse(_))
    }
}

/// Interval of checks that the files are in place while no write comes.
const IDLE: Duration = Duration::from_secs(1);

/// The callers' handle.
#[derive(Debug)]
pub(crate) struct Journal {
    group: Group<Writer>,
    failures: Arc<Failures>,
    shown: Arc<OpenDisk>,
    writes_queued_max: usize,
}

impl Journal {
    /// Opens the folder, loads its entries, and starts the thread.
    pub(crate) fn open(
        folder: &Path,
        table: Arc<Table>,
        limits: &Limits,
        histograms: Histograms,
    ) -> Result<Self, OpenError> {
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
        let files = Files::of(folder).map_err(|reason| refused(reason.into()))?;
        let (shown, failures) = (Arc::<OpenDisk>::default(), Arc::<Failures>::default());
        shown.set(Some(disk.clone()));
        let writer = Writer::new(
            folder.to_path_buf(),
            table,
            Arc::clone(&shown),
            Arc::clone(&failures),
            histograms,
            disk,
            files,
        );
        let bounds = commit::GroupLimits {
            queued: limits.writes_queued,
            batch: limits.batch_max,
            batch_bytes: BATCH_BYTES_MAX,
            idle: IDLE,
        };
        let group = Group::start("kv-journal", bounds, [writer]).map_err(|error| refused(error.into()))?;
        Ok(Self { group, failures, shown, writes_queued_max: limits.writes_queued })
    }

    /// Writes; returns when the write is on disk. The caller gives up at `deadline`.
    pub(crate) async fn write(&self, key: Key, action: Action, deadline: Option<Instant>) -> Result<Outcome, Fault> {
        self.group.commit(Write { key, action, deadline }).await.unwrap_or_else(|failure| {
            Err(match failure {
                Failure::Full => Fault::Limit { limit: Limit::WritesQueued, at: self.writes_queued_max },
                Failure::Overloaded { retry_after } => Fault::Overloaded { retry_after },
                Failure::Late => Fault::Late,
                Failure::Recovering => Fault::Unavailable("recovering from a disk that failed"),
                Failure::Closing => Fault::Unavailable("stopping"),
                Failure::OutcomeUnknown => Fault::OutcomeUnknown,
            })
        })
    }

    /// A view of the disk's current contents.
    pub(crate) fn view(&self) -> Result<View, Fault> {
        View::of(&self.shown)
    }

    pub(crate) fn queued(&self) -> usize {
        self.group.queued()
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.count()
    }

    /// Reason why writes are not accepted; `None` while they are.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.failures.reason()
    }

    /// True while writes are accepted: false from a failure until the disk has been read back.
    pub(crate) fn healthy(&self) -> watch::Receiver<bool> {
        self.group.healthy()
    }

    /// Stops accepting writes, and waits until those accepted are on disk; false if that takes longer than `timeout`.
    pub(crate) fn close(&self, timeout: Duration) -> bool {
        self.group.close(timeout)
    }
}
