//! The backup file: a tar whose first part is a manifest and whose last part is input for `sha256sum --check`.

use std::{
    fmt::{self, Write as _},
    fs::File,
    io::{self, BufReader, BufWriter, Read},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use crate::commands::data::Progress;

/// The format version that this program writes, and the latest that it reads.
pub(super) const FORMAT: u32 = 1;

/// The store's file.
pub(super) const BOOKSTORE: &str = "bookstore.db";
/// Key-value entries: chunks of a snapshot, each prefixed with its length.
pub(super) const ENTRIES: &str = "kv.snapshot";
const MANIFEST: &str = "manifest.json";
const SUMS: &str = "SHA256SUMS";

/// Size limit of the manifest and of the sums; they have some hundred bytes.
const WORDS_BYTES_MAX: u64 = 1 << 20;

/// A new file that only its owner may read.
pub(super) fn private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

pub(super) fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// Description of a backup.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Manifest {
    pub format: u32,
    /// The release that wrote it.
    pub quire: String,
    /// The backup has everything acknowledged before this time.
    pub began: String,
    pub books: Books,
    /// Absent if the data folder has no key-value entries.
    pub entries: Option<Entries>,
}

/// The store's contents.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Books {
    pub schema: i64,
    pub count: i64,
    pub copies: i64,
    pub log_entries: i64,
    pub sold: i64,
}

/// The key-value service's contents.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Entries {
    pub entries: u64,
    pub last_version: u64,
}

impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.books)?;
        self.entries.iter().try_for_each(|entries| write!(f, ", {entries}"))?;
        write!(f, ", as of {}", self.began)
    }
}

impl fmt::Display for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, copies, sold, log_entries, .. } = self;
        write!(f, "{count} books with {copies} copies, {sold} copies sold, {log_entries} log entries")
    }
}

impl fmt::Display for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} key-value entries", self.entries)
    }
}

/// Writes a complete backup file.
pub(super) fn write(
    into: &File,
    manifest: &Manifest,
    parts: &[(&str, PathBuf)],
    progress: &Progress,
) -> anyhow::Result<()> {
    let mut archive = tar::Builder::new(BufWriter::with_capacity(1 << 20, into));
    let mut sums = String::new();
    let words = serde_json::to_vec_pretty(manifest)?;
    let mut done = 0;
    let mut append = |name: &str, length: usize, part: &mut dyn Read, sums: &mut String| -> anyhow::Result<()> {
        let length = u64::try_from(length)?;
        let mut header = tar::Header::new_gnu();
        header.set_size(length);
        header.set_mode(0o600);
        let mut summing = Summing { part, sum: Context::new(&SHA256), progress, done };
        archive.append_data(&mut header, name, &mut summing)?;
        done = summing.done;
        writeln!(sums, "{}  {name}", hex(summing.sum))?;
        Ok(())
    };
    append(MANIFEST, words.len(), &mut &words[..], &mut sums)?;
    for (name, path) in parts {
        let part = File::open(path)?;
        append(name, usize::try_from(part.metadata()?.len())?, &mut BufReader::new(part), &mut sums)?;
    }
    append(SUMS, sums.len(), &mut sums.clone().as_bytes(), &mut String::new())?;
    archive.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok(())
}

/// Reads a whole file, passes each part to `take`, and returns the manifest if every checksum matches. Until then no
/// part can be trusted.
pub(super) fn read(
    file: impl Read,
    progress: &Progress,
    mut take: impl FnMut(&str, &mut dyn Read) -> anyhow::Result<()>,
) -> anyhow::Result<Manifest> {
    let mut archive = tar::Archive::new(BufReader::with_capacity(1 << 20, file));
    let (mut manifest, mut read, mut written, mut done) = (None, String::new(), None, 0);
    // Raw, because a long name of GNU's or PAX' is read into memory whatever its length; our parts have none.
    for part in archive.entries()?.raw(true) {
        let mut part = part.context(if manifest.is_none() { NO_BACKUP } else { DAMAGED })?;
        let name = part.path().ok().and_then(|path| path.to_str().map(ToOwned::to_owned)).unwrap_or_default();
        let mut summing = Summing { part: &mut part, sum: Context::new(&SHA256), progress, done };
        match &*name {
            MANIFEST if manifest.is_none() => manifest = Some(words(&mut summing).and_then(|words| known(&words))?),
            SUMS if written.is_none() => written = Some(words(&mut summing).context(DAMAGED)?),
            BOOKSTORE | ENTRIES if manifest.is_some() && written.is_none() => take(&name, &mut summing)?,
            _ if manifest.is_none() => bail!(NO_BACKUP),
            _ => bail!("damaged: there is a part '{}' where none should be", name.escape_debug()),
        }
        // An unused part is still read for its checksum.
        io::copy(&mut summing, &mut io::sink())?;
        done = summing.done;
        if name != SUMS {
            writeln!(read, "{}  {name}", hex(summing.sum))?;
        }
    }
    let manifest = manifest.context(NO_BACKUP)?;
    let written = written.context("damaged: its end is missing; the copy of it is not complete")?;
    for (read, written) in read.lines().zip(written.lines()) {
        let name = |line: &str| line.rsplit(' ').next().unwrap_or_default().escape_debug().to_string();
        ensure!(read == written, "damaged: its part {} is not what was written; use another backup", name(read));
    }
    ensure!(read.len() == written.len(), "damaged: it should have other parts; use another backup");
    Ok(manifest)
}

const NO_BACKUP: &str = "this is no file that `quire backup` made";
const DAMAGED: &str = "damaged: its end cannot be read; use another backup";

/// Reads a short part as text.
fn words(part: &mut impl Read) -> anyhow::Result<String> {
    let mut text = String::new();
    part.take(WORDS_BYTES_MAX).read_to_string(&mut text).context(NO_BACKUP)?;
    Ok(text)
}

/// Parses a manifest of a supported format.
fn known(words: &str) -> anyhow::Result<Manifest> {
    #[derive(Deserialize)]
    struct Form {
        format: u32,
    }
    let Form { format } = serde_json::from_str(words).context("damaged: its manifest cannot be read")?;
    ensure!(format == FORMAT, "it has format {format}, and this program knows format {FORMAT}; use a newer quire");
    serde_json::from_str(words).context("damaged: its manifest cannot be read")
}

/// Reader that computes the checksum of its data.
struct Summing<'a, R: ?Sized> {
    part: &'a mut R,
    sum: Context,
    progress: &'a Progress,
    done: u64,
}

impl<R: Read + ?Sized> Read for Summing<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.part.read(into)?;
        self.sum.update(&into[..read]);
        self.done += u64::try_from(read).unwrap_or(0);
        self.progress.at(self.done, 0);
        Ok(read)
    }
}

fn hex(sum: Context) -> String {
    sum.finish().as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
