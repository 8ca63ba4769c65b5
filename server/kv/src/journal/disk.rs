//! The store on disk, and the only module that uses fjall: an append-only log of batches, and sorted tables made from
//! it. Batches are atomic.
//!
//! ```text
//! 'k' key   ->  version (8 bytes, little-endian), expiry in ms since 1970 or 0 (8 bytes), value
//! 'v'       ->  the greatest version ever used (8 bytes)
//! ```

use std::{
    fmt,
    fs::{self, File, TryLockError},
    io,
    num::NonZeroU64,
    ops::Bound,
    os::unix::fs::FileExt as _,
    path::Path,
    thread,
    time::Duration,
};

use bytes::Bytes;
use commit::{FileIdentity, Moved};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode, Readable as _};

use super::{
    log::{Log, LogError, Newest},
    tables::{self, TablesError},
};
use crate::entry::{Entry, Key, Value, Version};

const ENTRY_TAG: u8 = b'k';
const VERSION_KEY: [u8; 1] = [b'v'];
const NUMBER_BYTES: usize = 8;

/// Small, since blocks are seldom read after the start.
const CACHE_BYTES: u64 = 4 << 20;
/// Size limit of the log, and so of the data a start reads beside the tables.
const LOG_BYTES_MAX: u64 = 128 << 20;
/// Size of the memory table before it is written to disk.
const TABLE_BYTES: u64 = 16 << 20;
/// Values from this size on are stored apart, and not copied in merges.
const VALUE_APART_BYTES: u32 = 4 << 10;

/// Lock file, held while the files are checked and fjall has the store open.
const LOCK_FILE: &str = "lock";
/// Whole once the store is complete.
const VERSION_FILE: &str = "version";
const VERSION_MAGIC: &[u8] = b"FJL";
const VERSION_BYTES: usize = 4;
/// Format of fjall's files, in the byte after the magic.
pub(super) const FORMAT: u8 = 3;
const TABLES_FOLDER: &str = "keyspaces";
/// Interval of checks for written tables.
const TABLES_PAUSE: Duration = Duration::from_millis(1);

/// Reason why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Tables(#[from] TablesError),
    #[error(transparent)]
    Moved(#[from] Moved),
    #[error("its file `{VERSION_FILE}` is missing or damaged")]
    Incomplete,
    #[error("it has format version {0}")]
    OtherFormat(u8),
    #[error(transparent)]
    Store(#[from] fjall::Error),
}

impl From<io::Error> for DiskError {
    fn from(error: io::Error) -> Self {
        Self::Store(error.into())
    }
}

/// A change to write.
pub(crate) enum Record<'a> {
    Put(&'a Key, &'a Entry),
    Remove(&'a Key),
}

#[derive(Clone)]
pub(crate) struct Disk {
    database: Database,
    entries: Keyspace,
}

impl Disk {
    /// Opens the store with an empty log. The log's contents are first flushed to tables: after a failed flush of the
    /// log, the kernel may show data that is not on disk, and reports that only once.
    pub(crate) fn open(folder: &Path) -> Result<Self, DiskError> {
        // A log of another format would look torn or damaged.
        if let Some(found) = header(folder)?.map(|header| header[VERSION_MAGIC.len()]).filter(|found| *found != FORMAT)
        {
            return Err(DiskError::OtherFormat(found));
        }
        if folder.join(LOCK_FILE).exists() {
            Self::prepare(folder)?;
        }
        Ok(Self::opened(folder)?)
    }

    /// Reduces the log to one empty file.
    fn prepare(folder: &Path) -> Result<(), DiskError> {
        let locked = lock(folder)?;
        let mut log = Log::repair(folder)?;
        let holds_something = !log.is_empty()?;
        if !is_complete(folder)? {
            return if holds_something { Err(DiskError::Incomplete) } else { Ok(log.remove()?) };
        }
        tables::check(&folder.join(TABLES_FOLDER))?;
        log.begin_file()?;
        drop(locked);
        if holds_something {
            Self::opened(folder)?.write_out()?;
        }
        let _locked = lock(folder)?;
        Ok(log.keep_newest()?)
    }

    /// Waits until the tables hold everything from the log's older files.
    fn write_out(self) -> Result<(), fjall::Error> {
        while self.entries.sealed_memtable_count() > 0 {
            match self.database.persist(PersistMode::Buffer) {
                Err(fjall::Error::Poisoned) => return Err(io::Error::other("a table cannot be written").into()),
                done => done?,
            }
            thread::sleep(TABLES_PAUSE);
        }
        Ok(())
    }

    fn opened(folder: &Path) -> Result<Self, fjall::Error> {
        let database = Database::builder(folder)
            .worker_threads(1)
            .cache_size(CACHE_BYTES)
            .max_journaling_size(LOG_BYTES_MAX)
            .manual_journal_persist(true)
            .open()?;
        let apart = KvSeparationOptions::default().separation_threshold(VALUE_APART_BYTES);
        let options =
            move || KeyspaceCreateOptions::default().max_memtable_size(TABLE_BYTES).with_kv_separation(Some(apart));
        let entries = database.keyspace("entries", options)?;
        Ok(Self { database, entries })
    }

    /// The greatest version ever used.
    pub(super) fn version(&self) -> Result<Version, fjall::Error> {
        let found = self.entries.get(VERSION_KEY)?;
        Ok(Version(found.and_then(|bytes| number(&bytes)).unwrap_or(0)))
    }

    /// Visits every entry.
    pub(super) fn each(&self, mut visit: impl FnMut(Key, Entry)) -> Result<(), fjall::Error> {
        for item in self.entries.prefix([ENTRY_TAG]) {
            let (key, bytes) = item.into_inner()?;
            if let Some(entry) = entry_from(&bytes) {
                visit(Key::from(&key[1..]), entry);
            }
        }
        Ok(())
    }

    pub(super) fn get(&self, key: &Key) -> Result<Option<Entry>, fjall::Error> {
        Ok(self.entries.get(stored_key(key))?.and_then(|bytes| entry_from(&bytes)))
    }

    /// Writes a batch, which is on disk when this returns. After an error its outcome is unknown, and the disk must be
    /// reopened.
    pub(crate) fn commit<'a>(
        &self,
        records: impl Iterator<Item = Record<'a>>,
        version: Version,
    ) -> Result<(), fjall::Error> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for record in records {
            match record {
                Record::Put(key, entry) => batch.insert(&self.entries, stored_key(key), stored_entry(entry)),
                Record::Remove(key) => batch.remove(&self.entries, stored_key(key)),
            }
        }
        batch.insert(&self.entries, VERSION_KEY, version.0.to_le_bytes());
        batch.commit()
    }
}

/// The files of an open store that show whether the next start finds what is written now.
#[derive(Debug)]
pub(super) struct Files {
    lock: FileIdentity,
    log: Newest,
}

impl Files {
    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        Ok(Self { lock: FileIdentity::of(folder.join(LOCK_FILE))?, log: Newest::of(folder)? })
    }

    /// Fails if the folder or its log is not in its place any more. What was committed there may be lost.
    pub(super) fn check(&mut self) -> Result<(), Moved> {
        self.lock.check()?;
        self.log.check()
    }
}

/// A consistent view of the disk.
pub(super) struct Moment(fjall::Snapshot);

impl Disk {
    /// A snapshot of now: every committed batch, and no later one.
    pub(super) fn moment(&self) -> Moment {
        Moment(self.database.snapshot())
    }

    /// Visits a snapshot's entries after a key, in key order, until `visit` returns false.
    pub(super) fn visit(
        &self,
        moment: &Moment,
        after: Option<&[u8]>,
        mut visit: impl FnMut(Key, Entry) -> bool,
    ) -> Result<(), fjall::Error> {
        let from = after.map_or(Bound::Included(vec![ENTRY_TAG]), |after| Bound::Excluded(stored_key(after)));
        let to = Bound::Excluded(vec![ENTRY_TAG + 1]);
        for item in moment.0.range(&self.entries, (from, to)) {
            let (key, bytes) = item.into_inner()?;
            if let Some(entry) = entry_from(&bytes)
                && !visit(Key::from(&key[1..]), entry)
            {
                break;
            }
        }
        Ok(())
    }

    /// The greatest version in a snapshot.
    pub(super) fn version_at(&self, moment: &Moment) -> Result<Version, fjall::Error> {
        let found = moment.0.get(&self.entries, VERSION_KEY)?;
        Ok(Version(found.and_then(|bytes| number(&bytes)).unwrap_or(0)))
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").finish_non_exhaustive()
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moment").finish_non_exhaustive()
    }
}

/// True if the store was ever complete. After a crash during its creation it holds nothing, and a remnant that would
/// block another attempt is removed.
fn is_complete(folder: &Path) -> Result<bool, DiskError> {
    let (version, tables) = (folder.join(VERSION_FILE), folder.join(TABLES_FOLDER));
    if let Some(header) = header(folder)? {
        // Written again, because its flush may have failed when the store was made.
        let file = File::options().write(true).open(&version)?;
        file.write_all_at(&header, 0)?;
        file.sync_all()?;
        return Ok(true);
    }
    // fjall flushes the file before it makes the first table.
    if tables.exists() && fs::read_dir(tables)?.next().is_some() {
        return Err(DiskError::Incomplete);
    }
    match fs::remove_file(version) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(false),
    }
}

/// The header in the version file, if it is whole.
fn header(folder: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(folder.join(VERSION_FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        read => Ok(read.ok().filter(|header| header.len() >= VERSION_BYTES && header.starts_with(VERSION_MAGIC))),
    }
}

/// Locks out other processes until dropped.
fn lock(folder: &Path) -> Result<File, fjall::Error> {
    let file = File::options().read(true).write(true).open(folder.join(LOCK_FILE))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(fjall::Error::Locked),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

fn stored_key(key: &[u8]) -> Vec<u8> {
    [&[ENTRY_TAG], key].concat()
}

fn stored_entry(entry: &Entry) -> Vec<u8> {
    let expiry = entry.expires_at_ms.map_or(0, NonZeroU64::get);
    [&entry.version.0.to_le_bytes()[..], &expiry.to_le_bytes(), entry.value.bytes()].concat()
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

fn entry_from(bytes: &[u8]) -> Option<Entry> {
    let version = Version(number(bytes)?);
    let expires_at_ms = NonZeroU64::new(number(bytes.get(NUMBER_BYTES..)?)?);
    let value = Value::received(Bytes::copy_from_slice(bytes.get(2 * NUMBER_BYTES..)?), 0);
    Some(Entry { value, version, expires_at_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_is_there_when_the_folder_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let entry = |version, value: &[u8], expires| Entry {
            value: Value::copied(value),
            version: Version(version),
            expires_at_ms: NonZeroU64::new(expires),
        };
        let (empty, large) = (Key::from(&b""[..]), Key::from(&[7; 9000][..]));
        let disk = Disk::open(folder.path()).unwrap();
        let (first, second) = (entry(1, b"", 0), entry(2, &vec![1; 100_000], 77));
        disk.commit([Record::Put(&empty, &first), Record::Put(&large, &second)].into_iter(), Version(2)).unwrap();
        disk.commit([Record::Remove(&empty)].into_iter(), Version(3)).unwrap();
        drop(disk);
        let disk = Disk::open(folder.path()).unwrap();
        assert_eq!(disk.version().unwrap(), Version(3));
        let mut found = Vec::new();
        disk.each(|key, entry| found.push((key, entry))).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (&found[0].0, found[0].1.version, found[0].1.expires_at_ms),
            (&large, Version(2), NonZeroU64::new(77))
        );
        assert_eq!(found[0].1.value.bytes(), &vec![1; 100_000]);
        assert!(disk.get(&empty).unwrap().is_none());
    }
}
