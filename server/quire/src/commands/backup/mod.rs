//! `quire backup` and `quire restore`: the data folder's contents to one file, and back.

mod archive;
mod entries;
mod latest;
mod running;

pub(crate) use self::{
    latest::age,
    running::{of_services, verify},
};

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
    time::SystemTime,
};

use anyhow::{Context as _, ensure};
use bookstore::{
    BookstoreService, FILE_NAME,
    store::{self, Problem, Verified},
};
use kv::FOLDER_NAME;
use quire_terminal::screen;
use tempfile::{Builder, NamedTempFile, TempDir};

use self::archive::{BOOKSTORE, Books, ENTRIES, Entries, FORMAT, Manifest, cannot_write, private};
use crate::{
    cli::{BackupArgs, RestoreArgs},
    commands::data::Progress,
    config::Config,
};

/// Error of a backup without a store in the data folder.
const IN_DATABASE: &str = "the books are in the database of ledger.url; back it up with pg_dump or pg_basebackup";

/// `quire backup`.
pub(crate) fn backup(args: &BackupArgs) -> anyhow::Result<ExitCode> {
    let config = Config::of_tool(&args.config)?;
    let file = &args.file;
    ensure!(config.settings_of::<BookstoreService>().url.is_none(), IN_DATABASE);
    ensure!(args.force || !file.exists(), "{} exists; name another file, or replace it with --force", file.display());
    let folder = folder_of(file);
    let progress = Progress::default();
    let store = (&*config.data.join(FILE_NAME), &config.settings_of::<BookstoreService>());
    let (whole, manifest) = make(file, store, |into| entries::take(&config, args, into), &progress)?;
    let named = if args.force { whole.persist(file) } else { whole.persist_noclobber(file) };
    named.map_err(|error| error.error).with_context(|| cannot_write(file))?;
    File::open(folder).and_then(|folder| folder.sync_all()).with_context(|| cannot_write(file))?;
    latest::note(&config.data, &manifest);
    drop(progress);
    writeln!(io::stdout(), "{} holds {}", file.display(), manifest)?;
    if manifest.entries.is_none() {
        eprintln!("no key-value entries: {} has none on disk", config.data.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the backup that will be `file`, of the store, with its settings, and of the key-value entries that `entries`
/// writes to a file; then reads it back.
fn make(
    file: &Path,
    (store, settings): (&Path, &bookstore::Settings),
    entries: impl FnOnce(&Path) -> anyhow::Result<Option<Entries>>,
    progress: &Progress,
) -> anyhow::Result<(NamedTempFile, Manifest)> {
    let folder = folder_of(file);
    let workshop = temporary_in(folder)?;
    let began = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let copy = workshop.path().join(BOOKSTORE);
    progress.begin("copying books");
    store::copy(store, &copy, settings, &mut |done, all| progress.at(done, all))?;
    let copied = workshop.path().join(ENTRIES);
    progress.begin("copying key-value entries");
    let entries = entries(&copied)?;
    progress.begin("checking the copy");
    let books = store::contents(&copy)?.into();
    let manifest = Manifest { format: FORMAT, quire: env!("CARGO_PKG_VERSION").to_owned(), began, books, entries };
    let mut parts = vec![(BOOKSTORE, copy)];
    if manifest.entries.is_some() {
        parts.push((ENTRIES, copied));
    }
    // Only its owner may read it.
    let whole = NamedTempFile::new_in(folder).with_context(|| cannot_write(file))?;
    progress.begin("writing the file");
    archive::write(whole.as_file(), &manifest, &parts, progress).with_context(|| cannot_write(file))?;
    whole.as_file().sync_all().with_context(|| cannot_write(file))?;
    drop(workshop);
    progress.begin("reading the file back");
    let read =
        archive::read(&File::open(whole.path())?, progress, |_, _| Ok(())).context("the file that was written")?;
    ensure!(read == manifest, "the file reads back differently than it was written; check the disk");
    Ok((whole, manifest))
}

/// `quire restore`.
pub(crate) fn restore(args: &RestoreArgs) -> anyhow::Result<ExitCode> {
    let config = Config::of_tool(&args.config)?;
    // A link is followed: its target is replaced.
    let data = fs::canonicalize(&config.data).unwrap_or_else(|_| config.data.clone());
    let file = File::open(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    refuse_filled(&data)?;
    let parent = folder_of(&data);
    fs::create_dir_all(parent).with_context(|| format!("cannot make the folder {}", parent.display()))?;
    let workshop = temporary_in(parent)?;
    let progress = Progress::default();
    let unpacked = unpack(&file, workshop.path(), &config, &progress).with_context(|| args.file.display().to_string());
    let (manifest, problems) = unpacked?;
    // Synced before the rename makes it visible.
    for entry in fs::read_dir(workshop.path())? {
        File::open(entry?.path())?.sync_all()?;
    }
    File::open(workshop.path())?.sync_all()?;
    refuse_filled(&data)?;
    // Replaces an empty folder; fails if it was filled meanwhile.
    fs::rename(workshop.path(), &data).with_context(|| {
        format!("cannot put the folder {} in place; nothing was restored, name another one with --data", data.display())
    })?;
    File::open(parent)?.sync_all()?;
    drop(progress);
    writeln!(io::stdout(), "{} holds {manifest}", data.display())?;
    // It may be the only backup, so the folder stays.
    for problem in &problems {
        eprintln!("quire: it was restored as it was backed up, and {}", screen::line(&problem.message));
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Fills `folder` and verifies it; returns what is wrong in the store that was backed up.
fn unpack(
    file: &File,
    folder: &Path,
    config: &Config,
    progress: &Progress,
) -> anyhow::Result<(Manifest, Vec<Problem>)> {
    progress.begin("reading the backup");
    let manifest = archive::read(file, progress, |name, part| {
        let path = folder.join(name);
        let cannot = || format!("cannot write {}", path.display());
        let mut into = private(&path).with_context(cannot)?;
        let mut bytes = vec![0; 1 << 20];
        loop {
            match part.read(&mut bytes)? {
                0 => return into.sync_all().with_context(cannot),
                read => into.write_all(&bytes[..read]).with_context(cannot)?,
            }
        }
    })?;
    let (books, saved) = (folder.join(BOOKSTORE), folder.join(ENTRIES));
    let verified = verified(&books, &manifest, progress)?;
    fs::rename(books, folder.join(FILE_NAME))?;
    if let Some(expected) = manifest.entries {
        progress.begin("restoring key-value entries");
        let found = entries::put(&saved, &folder.join(FOLDER_NAME), config)?;
        ensure!(found == expected, "damaged: it should hold {expected}, and holds {found}");
        fs::remove_file(saved)?;
    }
    Ok((manifest, verified.problems))
}

/// Verifies the store of an unpacked backup.
fn verified(books: &Path, manifest: &Manifest, progress: &Progress) -> anyhow::Result<Verified> {
    progress.begin("checking books");
    let found = Books::from(store::contents(books)?);
    ensure!(found == manifest.books, "damaged: it should hold {}, and holds {found}", manifest.books);
    progress.begin("verifying the log");
    Ok(store::verify_copy(books, &mut |done, all| progress.at(done, all))?)
}

/// Unpacks the store of the backup `file`, and verifies it.
pub(crate) fn verify_file(file: &Path, progress: &Progress) -> anyhow::Result<Verified> {
    let workshop = temporary_in(folder_of(file))?;
    progress.begin("reading the backup");
    let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    let books = workshop.path().join(BOOKSTORE);
    let manifest = archive::read(&opened, progress, |name, part| {
        if name != BOOKSTORE {
            return io::copy(part, &mut io::sink()).map(drop).map_err(Into::into);
        }
        let cannot = || format!("cannot write {}", books.display());
        let mut into = private(&books).with_context(cannot)?;
        io::copy(part, &mut into).map(drop).with_context(cannot)
    });
    verified(&books, &manifest?, progress)
}

impl From<store::Contents> for Books {
    fn from(found: store::Contents) -> Self {
        let store::Contents { schema, books, copies, entries, sold } = found;
        Self { schema, count: books, copies, log_entries: entries, sold }
    }
}

fn refuse_filled(data: &Path) -> anyhow::Result<()> {
    let is_empty = match fs::read_dir(data) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        entries => entries.with_context(|| format!("cannot look into {}", data.display()))?.next().is_none(),
    };
    ensure!(is_empty, "{} is not empty; move it away, or restore into another folder with --data", data.display());
    Ok(())
}

/// The parent folder.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A temporary folder, removed on drop unless renamed.
fn temporary_in(folder: &Path) -> anyhow::Result<TempDir> {
    let made = Builder::new().prefix(".quire-").tempdir_in(folder);
    made.with_context(|| format!("cannot write into the folder {}", folder.display()))
}
