//! All entries in key order, for a backup, and a folder restored from them.
//!
//! With a journal a snapshot is consistent. In memory it is not: each entry is as of its reading.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    entry::{Entry, Key, Version},
    fault::Fault,
    journal::{self, Record},
    table::Table,
};

/// Keys and values in a page of a snapshot, in bytes; a page holds at least one entry.
const PAGE_BYTES: usize = 256 << 10;
/// Entries in a page of a snapshot.
const PAGE_ENTRIES: usize = 4096;

/// Consecutive entries of a snapshot.
pub type SnapshotPage = Vec<(Key, Entry)>;

/// Iterates over every entry; dropping it ends the snapshot.
#[derive(Debug)]
pub struct Snapshot {
    source: Source,
    last: Option<Key>,
    ended: bool,
}

#[derive(Debug)]
pub(crate) enum Source {
    Memory(Arc<Table>),
    Log(journal::View),
}

impl Snapshot {
    pub(crate) fn new(source: Source) -> Self {
        Self { source, last: None, ended: false }
    }

    /// The next entries in key order, at least one; `None` at the end. Blocks.
    pub fn next_page(&mut self) -> Result<Option<SnapshotPage>, Fault> {
        if self.ended {
            return Ok(None);
        }
        let after = self.last.as_deref();
        let mut page = Vec::new();
        match &self.source {
            Source::Log(view) => {
                let mut bytes = 0;
                view.visit(after, |key, entry| {
                    bytes += key.len() + entry.value.bytes().len();
                    page.push((key, entry));
                    bytes < PAGE_BYTES && page.len() < PAGE_ENTRIES
                })?;
            }
            Source::Memory(table) => read(table, after, &mut page),
        }
        self.last = page.last().map(|(key, _)| Key::clone(key));
        self.ended = page.is_empty();
        Ok((!self.ended).then_some(page))
    }

    /// The greatest version ever used. A store restored from the snapshot uses greater ones.
    pub fn last_version(&self) -> Result<Version, Fault> {
        match &self.source {
            Source::Log(view) => view.last_version(),
            Source::Memory(table) => Ok(table.version()),
        }
    }
}

/// Fills the page with entries after a key; empty only at the end.
fn read(table: &Table, after: Option<&[u8]>, page: &mut SnapshotPage) {
    let mut after = after.map(Key::from);
    let mut bytes = 0;
    while page.is_empty() {
        let keys = table.keys(&[], after.as_deref(), PAGE_ENTRIES);
        let Some(last) = keys.last() else { return };
        after = Some(Key::clone(last));
        for key in keys {
            if let Some(entry) = table.read(&key, Entry::clone) {
                bytes += key.len() + entry.value.bytes().len();
                page.push((key, entry));
            }
            if bytes >= PAGE_BYTES {
                return;
            }
        }
    }
}

/// Reason why a snapshot was not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The folder is not empty.
    #[error("{} is not empty; restore into a folder without key-value entries", .0.display())]
    Filled(PathBuf),
    /// The snapshot is truncated.
    #[error("the snapshot is cut off: its last part is missing; take another one")]
    CutOff,
    /// The folder cannot be written.
    #[error("key-value entries cannot be written to {} ({reason})", path.display())]
    Unwritable {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        reason: String,
    },
}

/// Restores a snapshot to a folder, which a service with [`Durability::Log`](crate::Durability::Log) can open. The
/// entries are written to a temporary folder beside it, renamed when all are on disk.
#[derive(Debug)]
pub struct Restore {
    folder: PathBuf,
    partial: PathBuf,
    disk: journal::Disk,
    last_version: Option<Version>,
}

impl Restore {
    /// Begins a restore. `folder` must be empty or absent, and its parent must exist.
    pub fn begin(folder: &Path) -> Result<Self, RestoreError> {
        let partial = folder.with_extension("partial");
        let prepare = || -> io::Result<bool> {
            if folder.exists() && fs::read_dir(folder)?.next().is_some() {
                return Ok(false);
            }
            if partial.exists() {
                fs::remove_dir_all(&partial)?;
            }
            Ok(true)
        };
        match prepare() {
            Ok(true) => {}
            Ok(false) => return Err(RestoreError::Filled(folder.to_path_buf())),
            Err(reason) => return Err(unwritable(&partial, &reason)),
        }
        let disk = journal::Disk::open(&partial).map_err(|reason| unwritable(&partial, &reason))?;
        Ok(Self { folder: folder.to_path_buf(), partial, disk, last_version: None })
    }

    /// Adds entries; they are on disk when it returns.
    pub fn put(&mut self, page: &[(Key, Entry)]) -> Result<(), RestoreError> {
        let greatest = page.iter().map(|(_, entry)| entry.version).max().unwrap_or(Version(0));
        let records = page.iter().map(|(key, entry)| Record::Put(key, entry));
        self.disk.commit(records, greatest).map_err(|reason| unwritable(&self.partial, &reason))
    }

    /// Marks the end of the snapshot, with its greatest version.
    pub fn end(&mut self, last_version: Version) {
        self.last_version = Some(last_version);
    }

    /// Renames the folder into place.
    pub fn finish(self) -> Result<(), RestoreError> {
        let Self { folder, partial, disk, last_version } = self;
        let last_version = last_version.ok_or(RestoreError::CutOff)?;
        // Consumes the disk, which is closed before the rename.
        let close = |disk: journal::Disk| disk.commit(std::iter::empty(), last_version);
        close(disk).map_err(|reason| unwritable(&partial, &reason))?;
        let place = || {
            fs::rename(&partial, &folder)?;
            let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
            fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
        };
        place().map_err(|reason| unwritable(&folder, &reason))
    }
}

fn unwritable(path: &Path, reason: &impl ToString) -> RestoreError {
    RestoreError::Unwritable { path: path.to_path_buf(), reason: reason.to_string() }
}
