//! Records of `disk.c`, and the files that a disk would have kept of them.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    ops::Range,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use rand_xoshiro::Xoshiro256PlusPlus;

use crate::random::Random as _;

/// Bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;
const TRACE_BYTES: u64 = 256 << 20;
const HEAD_BYTES: usize = 104;
const RECORD_BYTES: usize = 48;

/// Kinds of calls, as `disk.c` has them.
pub(crate) const OPEN: u32 = 1;
pub(crate) const READ: u32 = 2;
pub(crate) const WRITE: u32 = 4;
pub(crate) const SYNC: u32 = 8;
pub(crate) const CUT: u32 = 16;

/// Fault of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    PowerOff = 1,
    PowerOffAfter,
    Kill,
    KillAfter,
    InputOutput,
    NoSpace,
    Short,
    Flip,
    NoDescriptors,
}

/// The calls that fail: `count` of those that fit, from number `at` on.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) fault: Fault,
    /// Kinds of calls.
    pub(crate) kinds: u32,
    /// Ending of the file's path.
    pub(crate) ending: &'static str,
    pub(crate) at: u32,
    pub(crate) count: u32,
    /// The bit that [`Fault::Flip`] changes.
    pub(crate) bit: u32,
}

/// A file system's identity of a file, which a new file of the same name does not share.
type Identity = (u64, i64, i64);

fn identity(path: &Path) -> io::Result<Identity> {
    let is = path.metadata()?;
    let birth = is.created().ok().and_then(|birth| birth.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    Ok((is.ino(), i64::try_from(birth.as_secs()).unwrap_or(0), birth.subsec_nanos().into()))
}

/// The files below a folder that are on disk: without `SQLite`'s shared memory.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if !path.to_string_lossy().ends_with("-shm") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Copies the files of a folder into a new one.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for path in files(from)? {
        put(to, path.strip_prefix(from).expect("below it"), &fs::read(&path)?)?;
    }
    Ok(())
}

fn put(folder: &Path, name: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("a folder"))?;
    fs::write(path, bytes)
}

/// A record: a write, a change of length or a flush of a file.
#[derive(Clone, Debug)]
struct Record {
    kind: u32,
    failed: bool,
    file: Identity,
    /// Of [`CUT`], the new length.
    at: usize,
    bytes: Vec<u8>,
}

impl Record {
    /// The record at the beginning of `bytes`, and the bytes after it.
    fn split(bytes: &[u8]) -> (Self, &[u8]) {
        let number = |place| number(bytes, place);
        let length = usize::try_from(number(40)).expect("it fits");
        let kind = number(0) & 0xffff_ffff;
        let data = if kind == u64::from(WRITE) { length } else { 0 };
        let record = Self {
            kind: u32::try_from(kind).expect("32 bits"),
            failed: number(0) >> 32 != 0,
            file: (number(8), number(16).cast_signed(), number(24).cast_signed()),
            at: usize::try_from(number(32)).expect("it fits"),
            bytes: bytes[RECORD_BYTES..RECORD_BYTES + data].to_vec(),
        };
        (record, &bytes[RECORD_BYTES + data.next_multiple_of(8)..])
    }

    fn apply(&self, file: &mut Vec<u8>) {
        if self.kind == CUT {
            file.resize(self.at, 0);
        } else {
            self.write(file, self.at, 0..self.bytes.len());
        }
    }

    /// Writes a part of it at another place, if need be after zeros.
    fn write(&self, file: &mut Vec<u8>, at: usize, part: Range<usize>) {
        file.resize(file.len().max(at + part.end), 0);
        file[at + part.start..at + part.end].copy_from_slice(&self.bytes[part]);
    }

    /// Writes a random part of its sectors.
    fn tear(&self, file: &mut Vec<u8>, random: &mut Xoshiro256PlusPlus) {
        for start in (0..self.bytes.len()).step_by(SECTOR) {
            if random.one_in(2) {
                self.write(file, self.at, start..self.bytes.len().min(start + SECTOR));
            }
        }
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Damage that no call reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Damage {
    /// A write that never reached the disk.
    Lost,
    /// A write that went to another place of its file.
    Misdirected,
    /// A bit of a write that changed on its way.
    FlippedInFlight,
    /// From some time on, flushes of files with this ending do nothing, and the power fails.
    Lies(&'static str),
    /// A bit of a file that changed later.
    Flipped,
    /// A range of a file that became zeros.
    Zeroed,
    /// A file that lost its end.
    Cut,
}

/// A file on a disk with a cache.
#[derive(Clone, Debug, Default)]
struct Cached {
    /// As programs read it.
    shown: Vec<u8>,
    /// As the disk has it.
    durable: Vec<u8>,
    /// Written since the last flush.
    waiting: Vec<Record>,
}

impl Cached {
    fn write(&mut self, record: &Record) {
        record.apply(&mut self.shown);
        self.waiting.push(record.clone());
    }

    /// A flush that fails leaves its pages clean: what does not reach the disk then never does, though programs read
    /// it.
    fn flush(&mut self, fails: bool, random: &mut Xoshiro256PlusPlus) {
        for record in self.waiting.drain(..) {
            if !fails || random.one_in(2) {
                record.apply(&mut self.durable);
            }
        }
    }

    /// Keeps, of what was not flushed, so many writes of a hundred.
    fn cut_power(&mut self, kept: u32, random: &mut Xoshiro256PlusPlus) {
        for record in self.waiting.drain(..) {
            if random.below(100) < kept {
                if random.one_in(4) {
                    record.tear(&mut self.durable, random);
                } else {
                    record.apply(&mut self.durable);
                }
            }
        }
        self.shown.clone_from(&self.durable);
    }
}

/// The files of a folder after a life, which the next one begins with.
#[derive(Debug, Default)]
pub(crate) struct Disk(HashMap<PathBuf, Cached>);

/// The trace file of one life of a store, which all its processes share.
#[derive(Debug)]
pub(crate) struct Trace {
    path: PathBuf,
    folder: PathBuf,
    /// Files before the first process.
    before: HashMap<Identity, Cached>,
}

impl Trace {
    /// Begins with the files of a folder, which count as durable if they are not of `disk`.
    pub(crate) fn begin(path: PathBuf, folder: &Path, rule: Option<&Rule>, disk: &mut Disk) -> io::Result<Self> {
        let mut head = vec![0; HEAD_BYTES];
        head[..8].copy_from_slice(&(HEAD_BYTES as u64).to_ne_bytes());
        if let Some(rule) = rule {
            let numbers = [rule.kinds, rule.at, rule.count, rule.fault as u32, rule.bit];
            for (place, number) in numbers.into_iter().enumerate() {
                head[20 + 4 * place..24 + 4 * place].copy_from_slice(&number.to_ne_bytes());
            }
            head[40..40 + rule.ending.len()].copy_from_slice(rule.ending.as_bytes());
        }
        let mut file = File::create(&path)?;
        file.write_all(&head)?;
        file.set_len(TRACE_BYTES)?;
        let mut before = HashMap::new();
        for path in files(folder)? {
            let known = disk.0.remove(path.strip_prefix(folder).expect("below it"));
            let shown = fs::read(&path)?;
            let new = || Cached { durable: shown.clone(), shown, waiting: Vec::new() };
            before.insert(identity(&path)?, known.unwrap_or_else(new));
        }
        Ok(Self { path, folder: folder.to_owned(), before })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, bytes: usize) -> io::Result<Vec<u8>> {
        let mut read = vec![0; bytes];
        File::open(&self.path)?.read_exact(&mut read)?;
        Ok(read)
    }

    /// True once the power is off, and the number of calls that failed.
    pub(crate) fn state(&self) -> io::Result<(bool, u64)> {
        let head = self.read(HEAD_BYTES)?;
        Ok((number(&head, 8) & 1 == 1, number(&head, 16) & 0xffff_ffff))
    }

    fn records(&self) -> io::Result<Vec<Record>> {
        let used = usize::try_from(number(&self.read(HEAD_BYTES)?, 0)).expect("it fits");
        let bytes = self.read(used)?;
        let (mut rest, mut records) = (&bytes[HEAD_BYTES..], Vec::new());
        while !rest.is_empty() {
            let (record, after) = Record::split(rest);
            records.push(record);
            rest = after;
        }
        Ok(records)
    }

    /// The writes that may go wrong: with `spares_newest`, none since the last but one flush of its file.
    fn candidates(records: &[Record], spares_newest: bool) -> Vec<usize> {
        let is_older = |place: usize, file: Identity| {
            records[place..].iter().filter(|record| record.kind == SYNC && record.file == file).count() > 1
        };
        let writes = (0..records.len()).filter(|place| records[*place].kind == WRITE);
        writes.filter(|place| !spares_newest || is_older(*place, records[*place].file)).collect()
    }

    /// Writes what programs read after a restart into a new folder: after a power cut what was flushed and, of the
    /// rest, any part; else all of it. Returns what was damaged, if anything was.
    pub(crate) fn restart(
        &self,
        to: &Path,
        is_power_cut: bool,
        damage: Option<Damage>,
        spares_newest: bool,
        random: &mut Xoshiro256PlusPlus,
    ) -> io::Result<(Option<String>, Disk)> {
        let records = self.records()?;
        let victim = random.pick(&Self::candidates(&records, spares_newest)).copied();
        let kept = random.any([0, 50, 100]);
        let (mut done, mut after) = (None, Vec::new());
        for path in files(&self.folder)? {
            let id = identity(&path)?;
            let mut file = self.before.get(&id).cloned().unwrap_or_default();
            let lies = matches!(damage, Some(Damage::Lies(ending)) if path.to_string_lossy().ends_with(ending));
            for (place, record) in records.iter().enumerate().filter(|(_, record)| record.file == id) {
                let is_lie = lies && victim.is_some_and(|victim| place > victim);
                match record.kind {
                    SYNC if is_lie => done = Some(format!("flushes of {} did nothing", path.display())),
                    SYNC => file.flush(record.failed, random),
                    _ => {
                        let harm = damage.filter(|_| Some(place) == victim);
                        match harm.and_then(|damage| harmed(record, damage, &mut file.shown, random)) {
                            Some(what) => done = Some(format!("{what} of {}", path.display())),
                            None => file.write(record),
                        }
                    }
                }
            }
            if damage.is_none() && file.shown != fs::read(&path)? {
                return Err(io::Error::other(format!("the trace lacks writes of {}", path.display())));
            }
            if is_power_cut {
                file.cut_power(if lies { 0 } else { kept }, random);
            }
            after.push((path.strip_prefix(&self.folder).expect("below it").to_owned(), file));
        }
        if let Some(damage) = damage {
            done = spoil(&mut after, damage, random).or(done);
            for (_, file) in &mut after {
                file.durable.clone_from(&file.shown);
            }
        }
        for (name, file) in &after {
            put(to, name, &file.shown)?;
        }
        Ok((done, Disk(after.into_iter().collect())))
    }
}

/// Applies a write that goes wrong, if it does.
fn harmed(
    record: &Record,
    damage: Damage,
    file: &mut Vec<u8>,
    random: &mut Xoshiro256PlusPlus,
) -> Option<&'static str> {
    match damage {
        Damage::Lost => Some("a write was lost"),
        Damage::Misdirected => {
            let at = random.place(file.len() / SECTOR + 8) * SECTOR;
            record.write(file, at, 0..record.bytes.len());
            Some("a write was misdirected")
        }
        Damage::FlippedInFlight => {
            record.apply(file);
            file[record.at + random.place(record.bytes.len())] ^= 1 << random.below(8);
            Some("a bit was flipped in a write")
        }
        _ => None,
    }
}

/// Damages one of the files at rest. A journal keeps its end: one that lost it looks as if it had never been longer.
fn spoil(files: &mut [(PathBuf, Cached)], damage: Damage, random: &mut Xoshiro256PlusPlus) -> Option<String> {
    let places: Vec<usize> = (0..files.len()).filter(|place| !files[*place].1.shown.is_empty()).collect();
    let (name, Cached { shown: file, .. }) = &mut files[*random.pick(&places)?];
    let is_journal = name.extension().is_some_and(|is| is == "jnl");
    let length = if is_journal { file.len() / 2 } else { file.len() };
    let at = random.place(length.max(1));
    let end = file.len().min(at + 1 + random.place(if is_journal { length.max(1) } else { 20_000 }));
    match damage {
        Damage::Flipped => file[at] ^= 1 << random.below(8),
        Damage::Zeroed => file[at..end].fill(0),
        Damage::Cut if !is_journal => file.truncate(at),
        _ => return None,
    }
    Some(format!("{damage:?} from {at} to {end} in {}", name.display()))
}
