//! The head file beside the database: on disk before a purchase is acknowledged, it tells a start how long the log was
//! and what it held ([docs/durability.md](../../../../../../docs/durability.md) has the bytes and the order).
//!
//! Two slots alternate: a transaction writes the one that it does not need, and so a torn write harms nothing. The mark
//! behind them repeats the size and root of a transaction whose COMMIT has returned; it is flushed with the next slot,
//! or when the ledger is idle.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, fchown},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use commit::FileIdentity;
use tlog::{Frontier, Hash, sha256};

use super::tree::LogTree;

const SLOT: usize = 4096;
const SLOTS: usize = 2 * SLOT;

/// Begins of a slot and of the mark: the name and the form of the file.
const SLOT_MAGIC: &[u8; 8] = b"quireHd1";
const MARK_MAGIC: &[u8; 8] = b"quireMk1";

/// Random name of a log, in `meta` and in its head file.
pub(crate) type LogId = [u8; 16];

/// The path of the head file.
pub(crate) fn head_path(database: &Path) -> PathBuf {
    beside(database, "-head")
}

/// The path with this ending: beside the database itself, as its WAL is, if `database` is a link.
pub(crate) fn beside(database: &Path, ending: &str) -> PathBuf {
    let itself = if database.is_symlink() { fs::canonicalize(database).ok() } else { None };
    let mut name = itself.unwrap_or_else(|| database.to_owned()).into_os_string();
    name.push(ending);
    name.into()
}

/// Size and root of the log, as a slot or the mark has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) id: LogId,
    pub(crate) sequence: u64,
    /// Entries, and the root over them.
    pub(crate) size: u64,
    pub(crate) root: Hash,
}

/// A head file's contents; `None` for what is torn or damaged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Records {
    pub(crate) slots: [Option<Record>; 2],
    pub(crate) mark: Option<Record>,
}

impl Records {
    /// Reads a head file; `None` if there is none.
    pub(crate) fn read(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = [0; SLOTS + SLOT];
        let length = read_at_most(&file, &mut bytes)?;
        Ok(Some(Self::of(&bytes[..length])))
    }

    fn of(bytes: &[u8]) -> Self {
        let slot = |place: usize| bytes.get(place * SLOT..(place + 1) * SLOT).and_then(read_slot);
        Self { slots: [slot(0), slot(1)], mark: bytes.get(SLOTS..).and_then(read_mark) }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = Record> {
        self.slots.into_iter().chain([self.mark]).flatten()
    }
}

/// A slot: checksum of the rest, magic, id, sequence, bytes of the right edge, the right edge, zeros.
fn slot_of(id: LogId, sequence: u64, tree: &Frontier) -> Box<[u8; SLOT]> {
    let edge = tree.to_bytes();
    let mut bytes = vec![0; Hash::BYTES];
    bytes.extend_from_slice(SLOT_MAGIC);
    bytes.extend(id);
    bytes.extend(sequence.to_be_bytes());
    bytes.extend(u16::try_from(edge.len()).unwrap_or(u16::MAX).to_be_bytes());
    bytes.extend(edge);
    let sum = sha256(&[&bytes[Hash::BYTES..]]);
    bytes[..Hash::BYTES].copy_from_slice(&sum.0);
    let mut slot = Box::new([0; SLOT]);
    slot[..bytes.len()].copy_from_slice(&bytes);
    slot
}

fn read_slot(slot: &[u8]) -> Option<Record> {
    let mut rest = slot;
    let sum: [u8; Hash::BYTES] = take(&mut rest)?;
    let body = rest;
    let (magic, id, sequence) = (take(&mut rest)?, take(&mut rest)?, u64::from_be_bytes(take(&mut rest)?));
    let edge = usize::from(u16::from_be_bytes(take(&mut rest)?));
    let (used, edge) = (body.len() - rest.len() + edge, rest.get(..edge)?);
    let is_whole = magic == *SLOT_MAGIC && sha256(&[&body[..used]]).0 == sum;
    let tree = Frontier::from_bytes(edge).ok().filter(|_| is_whole)?;
    Some(Record { id, sequence, size: tree.size(), root: tree.root() })
}

/// The mark: checksum of the rest, magic, id, sequence, size, root.
fn mark_of(record: &Record) -> Vec<u8> {
    let Record { id, sequence, size, root } = record;
    let body = [&MARK_MAGIC[..], id, &sequence.to_be_bytes(), &size.to_be_bytes(), &root.0].concat();
    [&sha256(&[&body]).0[..], &body].concat()
}

fn read_mark(mark: &[u8]) -> Option<Record> {
    let mut rest = mark;
    let (sum, body): ([u8; Hash::BYTES], _) = (take(&mut rest)?, rest);
    let (magic, id): ([u8; 8], _) = (take(&mut rest)?, take(&mut rest)?);
    let (sequence, size) = (u64::from_be_bytes(take(&mut rest)?), u64::from_be_bytes(take(&mut rest)?));
    let root = Hash(take(&mut rest)?);
    let is_whole = magic == *MARK_MAGIC && sha256(&[&body[..body.len() - rest.len()]]).0 == sum;
    is_whole.then_some(Record { id, sequence, size, root })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

/// An open head file. Only the holder of the database's write lock writes its slots.
pub(crate) struct Head {
    file: Arc<File>,
    identity: FileIdentity,
    id: LogId,
    /// The slots as this process last read or wrote them; others write them as well.
    seen: Box<[u8; SLOTS]>,
    /// The slot that fits the log and is on disk; the next write goes to the other one.
    kept: Kept,
    /// The last write and its tree, until it is known to be committed.
    written: Option<(Record, LogTree)>,
    /// True if the mark is not flushed.
    is_unsettled: bool,
    flusher: Option<Flusher>,
}

#[derive(Clone, Copy)]
struct Kept {
    place: usize,
    sequence: u64,
    /// Entries that it covers.
    size: u64,
}

impl Head {
    /// Makes the file for a log that has none, or overwrites it, with both slots and the mark for `tree`, on disk.
    pub(crate) fn make(database: &Path, id: LogId, tree: &Frontier) -> io::Result<Self> {
        let (path, owner) = (head_path(database), fs::metadata(database)?);
        let mode = owner.mode() & 0o777;
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(mode).open(&path)?;
        // As SQLite does with its WAL, so that a tool which root ran locks no server out; others may not, and need not.
        _ = fchown(&file, Some(owner.uid()), Some(owner.gid()));
        let record = Record { id, sequence: 1, size: tree.size(), root: tree.root() };
        let slot = slot_of(id, 1, tree);
        file.write_all_at(&[&slot[..], &slot[..], &mark_of(&record)].concat(), 0)?;
        file.sync_all()?;
        if let Some(folder) = path.parent() {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            File::open(folder)?.sync_all()?;
        }
        Self::of(path, file, id)
    }

    /// Opens the file of a log that was checked.
    pub(crate) fn open(database: &Path, id: LogId) -> io::Result<Self> {
        let path = head_path(database);
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        Self::of(path, file, id)
    }

    fn of(path: PathBuf, file: File, id: LogId) -> io::Result<Self> {
        let identity = FileIdentity::of(path)?;
        // No slot is trusted before it is compared with the log.
        let seen = Box::new([0; SLOTS]);
        let file = Arc::new(file);
        let kept = Kept { place: 0, sequence: 0, size: 0 };
        Ok(Self { file, identity, id, seen, kept, written: None, is_unsettled: false, flusher: None })
    }

    pub(crate) fn identity(&self) -> &FileIdentity {
        &self.identity
    }

    /// After [`Self::prepare`]: entries that the slot on disk covers.
    pub(crate) fn covered(&self) -> u64 {
        self.kept.size
    }

    /// Before a write, under the database's write lock: finds the slot to keep, if another process has written. Of the
    /// newest slot that `fits` the log nothing may be lost.
    pub(crate) fn prepare<E: From<io::Error>>(
        &mut self,
        mut fits: impl FnMut(&Record) -> Result<bool, E>,
    ) -> Result<(), E> {
        self.join()?;
        let mut bytes = [0; SLOTS + SLOT];
        let length = read_at_most(&self.file, &mut bytes)?;
        if bytes[..SLOTS] == self.seen[..] && self.kept.sequence > 0 {
            return Ok(());
        }
        let records = Records::of(&bytes[..length]);
        let mut slots =
            [0, 1].map(|place| records.slots[place].filter(|slot| slot.id == self.id).map(|slot| (place, slot)));
        slots.sort_by_key(|slot| slot.map(|(_, slot)| slot.sequence));
        let mut kept = None;
        for (place, slot) in slots.into_iter().rev().flatten() {
            if fits(&slot)? {
                kept = Some((place, slot));
                break;
            }
        }
        self.seen.copy_from_slice(&bytes[..SLOTS]);
        let sequence_max = records.all().map(|record| record.sequence).max().unwrap_or_default();
        let none = Kept { place: 1, sequence: sequence_max + 1, size: 0 };
        self.kept = kept.map_or(none, |(place, slot)| Kept { place, sequence: slot.sequence, size: slot.size });
        // A mark is written once its slot is on disk. Without it the slot is written again, because its fsync may have
        // failed in the process that wrote it.
        if records.mark != kept.map(|(_, slot)| slot) {
            let at = self.kept.place * SLOT;
            self.file.write_all_at(&bytes[at..at + SLOT], at as u64)?;
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// Under the write lock: writes the next tree into the slot that is not kept, and begins to flush it.
    pub(crate) fn write(&mut self, tree: LogTree) -> io::Result<()> {
        self.join()?;
        self.put(tree)?;
        self.flush()
    }

    /// Writes a tree into the slot that is not kept.
    fn put(&mut self, tree: LogTree) -> io::Result<()> {
        let (place, sequence) = (1 - self.kept.place, self.kept.sequence + 1);
        let (size, root) = (tree.frontier().size(), tree.frontier().root());
        let slot = slot_of(self.id, sequence, tree.frontier());
        self.seen[place * SLOT..][..SLOT].copy_from_slice(&slot[..]);
        self.written = Some((Record { id: self.id, sequence, size, root }, tree));
        self.file.write_all_at(&slot[..], (place * SLOT) as u64)
    }

    /// Waits until the slot is on disk.
    pub(crate) fn join(&mut self) -> io::Result<()> {
        self.flusher.as_mut().map_or(Ok(()), Flusher::join)
    }

    /// After the COMMIT and [`Self::join`]: keeps the written slot, marks it, and returns its tree.
    pub(crate) fn committed(&mut self) -> io::Result<Option<LogTree>> {
        let Some((record, tree)) = self.written.take() else { return Ok(None) };
        self.kept = Kept { place: 1 - self.kept.place, sequence: record.sequence, size: record.size };
        self.is_unsettled = true;
        self.file.write_all_at(&mark_of(&record), SLOTS as u64)?;
        Ok(Some(tree))
    }

    /// Writes the tree of a log that is on disk into a slot, and waits until it and its mark are on disk.
    pub(crate) fn write_now(&mut self, tree: &LogTree) -> io::Result<()> {
        self.join()?;
        self.put(tree.clone())?;
        self.file.sync_data()?;
        self.committed()?;
        self.is_unsettled = false;
        self.file.sync_data()
    }

    /// Begins to flush the mark, if that is due; for an idle ledger.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        if !self.is_unsettled {
            return Ok(());
        }
        self.is_unsettled = false;
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        let flusher = match &mut self.flusher {
            Some(flusher) => flusher,
            none => none.insert(Flusher::start(Arc::clone(&self.file))?),
        };
        flusher.begin()
    }
}

/// Reads from the beginning of a file until `bytes` are full or the file ends; returns the bytes read.
fn read_at_most(file: &File, bytes: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// The thread that flushes the slots while the ledger writes its rows and waits for its COMMIT.
struct Flusher {
    begin: SyncSender<()>,
    results: Receiver<io::Result<()>>,
    is_busy: bool,
}

impl Flusher {
    fn start(file: Arc<File>) -> io::Result<Self> {
        let (begin, begun) = sync_channel(1);
        let (done, results) = sync_channel(1);
        let work = move || {
            for () in begun {
                if done.send(file.sync_data()).is_err() {
                    break;
                }
            }
        };
        thread::Builder::new().name("head".to_owned()).spawn(work)?;
        Ok(Self { begin, results, is_busy: false })
    }

    fn begin(&mut self) -> io::Result<()> {
        self.join()?;
        self.is_busy = true;
        self.begin.send(()).map_err(|_| gone())
    }

    fn join(&mut self) -> io::Result<()> {
        if !self.is_busy {
            return Ok(());
        }
        self.is_busy = false;
        self.results.recv().map_err(|_| gone())?
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread that flushes the head has ended")
}
