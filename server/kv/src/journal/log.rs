//! Checks fjall's log files before fjall opens them. A batch torn by a crash or power cut was never acknowledged and is
//! cut off; fjall would refuse some of these batches, and with them the whole store. A damaged batch followed by others
//! was acknowledged, because each batch is flushed before the next is written; fjall would drop it and all later ones,
//! so the store is not opened.
//!
//! A write may fail after a part of it has reached the file. fjall then accepts no further batch, and when it is closed
//! writes the batch from memory again. So the file ends with the beginning of a batch and then the whole batch, which
//! was not acknowledged either. Both are cut off.
//!
//! ```text
//! batch   1, items (4 bytes), number (8), then each item, then 3, XXH3 of the items (8), "FJL" 3
//! item    2, kind, 0 (not compressed), keyspace (8), key length (2), value length (4, twice), key, value
//!         or 4, keyspace (8): removes all of its items
//! ```
//! Numbers are little-endian; a file may end with zeros.

use std::{
    fs::{self, File},
    hash::Hasher as _,
    io::{self, BufRead, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom},
    ops::Range,
    path::{Path, PathBuf},
};

use commit::{FileIdentity, Moved};
use twox_hash::XxHash3_64;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const END_MAGIC: [u8; 4] = *b"FJL\x03";
const EXTENSION: &str = "jnl";

/// More items than any batch of the journal has.
const BATCH_ITEMS_MAX: u32 = 1 << 16;

/// Most positions in a torn batch that resemble a batch's head. More would take long to check, and are no accident.
const CANDIDATES_MAX: usize = 10_000;

/// More than fjall keeps of a batch in memory, and so more than it may write again.
const WRITTEN_AGAIN_BYTES_MAX: u64 = 64 << 10;

/// Bytes read at once.
const WINDOW_BYTES: usize = 64 << 10;
static ZEROS: [u8; WINDOW_BYTES] = [0; WINDOW_BYTES];

/// The log is unreadable before its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Acknowledged writes are damaged.
    #[error("{} is damaged at byte {offset}, before writes that were acknowledged later", file.display())]
    Damaged { file: PathBuf, offset: u64 },
}

/// The files of the log, oldest first.
#[derive(Debug, Default)]
pub(super) struct Log {
    files: Vec<(u64, PathBuf)>,
    folder: PathBuf,
}

impl Log {
    /// Finds the files.
    fn find(folder: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        for found in fs::read_dir(folder)? {
            let path = found?.path();
            let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
            if let (true, Some(number)) = (path.extension().is_some_and(|is| is == EXTENSION), number) {
                files.push((number, path));
            }
        }
        files.sort_unstable();
        Ok(Self { files, folder: folder.to_path_buf() })
    }

    /// Finds the files and cuts off a torn end, which was never acknowledged. Changes nothing if anything is damaged.
    /// The folder must be locked.
    pub(super) fn repair(folder: &Path) -> Result<Self, LogError> {
        let log = Self::find(folder)?;
        let mut broken: Option<(PathBuf, Scanned)> = None;
        for (_, path) in &log.files {
            let scanned = scan(path)?;
            if let Some((file, before)) = &broken
                && scanned.batches > 0
            {
                return Err(LogError::Damaged { file: file.clone(), offset: before.whole_bytes });
            }
            if scanned.torn_bytes > 0 {
                broken.get_or_insert((path.clone(), scanned));
            }
        }
        if let Some((path, Scanned { whole_bytes, torn_bytes, .. })) = broken {
            let file = File::options().write(true).open(&path)?;
            file.set_len(whole_bytes)?;
            file.sync_all()?;
            tracing::warn!(
                file = %path.display(), at = whole_bytes, bytes = torn_bytes,
                "the key-value log ended with a write that was never acknowledged; it is cut off"
            );
        }
        Ok(log)
    }

    /// True if it holds no batch.
    pub(super) fn is_empty(&self) -> io::Result<bool> {
        for (_, path) in &self.files {
            if read_batch(&mut BufReader::new(File::open(path)?))?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds an empty file for new batches. Older files are not appended to: if a flush failed, their contents may exist
    /// only in the kernel's memory.
    pub(super) fn begin_file(&mut self) -> io::Result<()> {
        if let Some((_, newest)) = self.files.last()
            && newest.metadata()?.len() == 0
        {
            return Ok(());
        }
        let number = self.files.last().map_or(0, |(number, _)| number + 1);
        let path = path_of(&self.folder, number);
        File::create_new(&path)?.sync_all()?;
        self.files.push((number, path));
        File::open(&self.folder)?.sync_all()
    }

    /// Removes all files but the newest.
    pub(super) fn keep_newest(&mut self) -> io::Result<()> {
        let newest = self.files.pop();
        self.remove()?;
        self.files.extend(newest);
        Ok(())
    }

    /// Removes all files.
    pub(super) fn remove(&mut self) -> io::Result<()> {
        for (_, path) in self.files.drain(..) {
            match fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        File::open(&self.folder)?.sync_all()
    }
}

/// The newest file of an open log.
#[derive(Debug)]
pub(super) struct Newest {
    number: u64,
    place: FileIdentity,
    folder: PathBuf,
}

impl Newest {
    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        let newest = Log::find(folder)?.files.pop();
        let (number, path) = newest.ok_or_else(|| io::Error::new(ErrorKind::NotFound, "the log has no file"))?;
        Ok(Self { number, place: FileIdentity::of(path)?, folder: folder.to_path_buf() })
    }

    /// Fails if the file is not in its place.
    pub(super) fn check(&mut self) -> Result<(), Moved> {
        loop {
            let gone = match self.place.check() {
                Err(Moved::Gone(path)) => Moved::Gone(path),
                checked => return checked,
            };
            // fjall removes a file once tables hold its contents, and not before it has begun the next one.
            self.place = FileIdentity::of(path_of(&self.folder, self.number + 1)).map_err(|_| gone)?;
            self.number += 1;
        }
    }
}

fn path_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number}.{EXTENSION}"))
}

/// The contents of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scanned {
    batches: usize,
    /// Bytes up to the end of the last complete batch.
    whole_bytes: u64,
    /// Bytes after that, without trailing zeros.
    torn_bytes: u64,
}

fn scan(path: &Path) -> Result<Scanned, LogError> {
    let mut input = BufReader::with_capacity(WINDOW_BYTES, File::open(path)?);
    let (mut batches, mut whole_bytes, mut newest, mut last) = (0, 0, 0, 0);
    let damaged = |offset| LogError::Damaged { file: path.to_path_buf(), offset };
    while let Some(batch) = read_batch(&mut input)? {
        // The batch's hash does not cover the number.
        if batches > 0 && batch.number <= newest {
            if batch.number == newest && is_written_again(&mut input, last..whole_bytes, batch, &[])? {
                break;
            }
            return Err(damaged(whole_bytes));
        }
        batches += 1;
        (last, newest) = (whole_bytes, batch.number);
        whole_bytes += batch.bytes;
    }
    let mut candidates = Vec::new();
    let torn_bytes = look_for_heads(path, whole_bytes, &mut candidates, newest)?;
    if candidates.len() > CANDIDATES_MAX {
        return Err(damaged(whole_bytes));
    }
    for offset in &candidates {
        input.seek(SeekFrom::Start(*offset))?;
        if let Some(batch) = read_batch(&mut input)?
            && !is_written_again(&mut input, whole_bytes..*offset, batch, &candidates)?
        {
            return Err(damaged(whole_bytes));
        }
    }
    Ok(Scanned { batches, whole_bytes, torn_bytes })
}

/// True if the bytes of `begun` are nothing but beginnings, one or more, of the batch after them; `heads` are positions
/// where one may begin.
fn is_written_again(input: &mut BufReader<File>, begun: Range<u64>, batch: Batch, heads: &[u64]) -> io::Result<bool> {
    let begun_bytes = begun.end - begun.start;
    if begun_bytes.max(batch.bytes) > WRITTEN_AGAIN_BYTES_MAX {
        return Ok(false);
    }
    let mut bytes = Vec::new();
    input.seek(SeekFrom::Start(begun.start))?;
    input.by_ref().take(begun_bytes + batch.bytes).read_to_end(&mut bytes)?;
    let (begun_bytes, batch) = bytes.split_at(bytes.len().min(usize::try_from(begun_bytes).unwrap_or(usize::MAX)));
    let mut at = 0;
    while at < begun_bytes.len() {
        let same = begun_bytes[at..].iter().zip(batch).take_while(|(one, other)| one == other).count();
        let starts =
            heads.iter().chain([&begun.end]).filter_map(|head| usize::try_from(head.checked_sub(begun.start)?).ok());
        let Some(next) = starts.filter(|start| (at + 1..=at + same).contains(start)).max() else { return Ok(false) };
        at = next;
    }
    Ok(true)
}

/// Collects positions after `from` where a batch newer than `newest` may begin; returns the length up to the last byte
/// that is not zero.
fn look_for_heads(path: &Path, from: u64, candidates: &mut Vec<u64>, newest: u64) -> io::Result<u64> {
    let mut input = BufReader::with_capacity(WINDOW_BYTES, File::open(path)?);
    input.seek(SeekFrom::Start(from))?;
    let (mut position, mut not_zero) = (0, 0);
    // The bytes before the window, where a head may begin.
    let mut head = [0; HEAD_BYTES];
    loop {
        let window = input.fill_buf()?;
        if window.is_empty() {
            return Ok(not_zero);
        }
        let length = window.len();
        // fjall creates a file as 64 MiB of zeros and fills it.
        if window == &ZEROS[..length] {
            (position, head) = (position + length as u64, [0; HEAD_BYTES]);
            input.consume(length);
            continue;
        }
        for byte in window {
            head.rotate_left(1);
            head[HEAD_BYTES - 1] = *byte;
            position += 1;
            if *byte != 0 {
                not_zero = position;
            }
            // The batch at `from` itself is the unreadable one.
            let is_candidate = head[0] == START && position > HEAD_BYTES as u64 && is_head(&head, newest);
            if is_candidate && candidates.len() <= CANDIDATES_MAX {
                candidates.push(from + position - HEAD_BYTES as u64);
            }
        }
        input.consume(length);
    }
}

/// A batch's head and the first byte of its first item.
const HEAD_BYTES: usize = 1 + 4 + 8 + 1;

fn is_head(head: &[u8; HEAD_BYTES], newest: u64) -> bool {
    let items = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
    let mut number = [0; 8];
    number.copy_from_slice(&head[5..13]);
    let is_newer = u64::from_le_bytes(number) > newest;
    (1..=BATCH_ITEMS_MAX).contains(&items) && is_newer && matches!(head[13], ITEM | CLEAR)
}

/// A complete batch.
#[derive(Clone, Copy, Debug)]
struct Batch {
    number: u64,
    bytes: u64,
}

/// Reads a batch; `None` if there is no complete one here.
fn read_batch(input: &mut impl BufRead) -> io::Result<Option<Batch>> {
    let parser = Parser { input, hash: XxHash3_64::new(), bytes: 0 };
    match parser.batch() {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        read => read,
    }
}

struct Parser<'a, R> {
    input: &'a mut R,
    hash: XxHash3_64,
    bytes: u64,
}

impl<R: BufRead> Parser<'_, R> {
    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        self.bytes += N as u64;
        Ok(bytes)
    }

    /// Like [`Parser::array`], adding the bytes to the items' hash.
    fn hashed<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let bytes = self.array()?;
        self.hash.write(&bytes);
        Ok(bytes)
    }

    fn batch(mut self) -> io::Result<Option<Batch>> {
        if self.array()? != [START] {
            return Ok(None);
        }
        let items = u32::from_le_bytes(self.array()?);
        let number = u64::from_le_bytes(self.array()?);
        for _ in 0..items {
            if !self.item()? {
                return Ok(None);
            }
        }
        if self.array()? != [END] {
            return Ok(None);
        }
        let is_whole = u64::from_le_bytes(self.array()?) == self.hash.finish() && self.array()? == END_MAGIC;
        Ok(is_whole.then_some(Batch { number, bytes: self.bytes }))
    }

    fn item(&mut self) -> io::Result<bool> {
        match self.hashed()? {
            [CLEAR] => {
                self.hashed::<8>()?;
                return Ok(true);
            }
            [ITEM] => {}
            _ => return Ok(false),
        }
        let [_kind, compression] = self.hashed()?;
        self.hashed::<8>()?;
        let key = u16::from_le_bytes(self.hashed()?);
        let value = u32::from_le_bytes(self.hashed()?);
        let stored = u32::from_le_bytes(self.hashed()?);
        if compression != 0 || value != stored {
            return Ok(false);
        }
        self.skip(u64::from(key) + u64::from(stored))
    }

    /// Hashes bytes without holding all of them in memory.
    fn skip(&mut self, mut bytes: u64) -> io::Result<bool> {
        self.bytes += bytes;
        while bytes > 0 {
            let window = self.input.fill_buf()?;
            if window.is_empty() {
                return Ok(false);
            }
            let part = window.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
            self.hash.write(&window[..part]);
            self.input.consume(part);
            bytes -= part as u64;
        }
        Ok(true)
    }
}
