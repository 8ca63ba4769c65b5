//! Repair of losses from a failed fsync.
//!
//! After a failed fsync Linux marks the pages to be written as clean: they show the program's data, no later fsync
//! writes them, and a power cut loses them (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC
//! 2020). So all possibly lost data is rewritten before anything is built on it:
//!
//! - the WAL byte by byte, with [`rewrite_log`], at each start and after each failure;
//! - the database file by `VACUUM`, which puts each of its pages into the WAL, after a checkpoint whose fsync failed.
//!   Checkpointing again is not enough: `SQLite` does not sync the pages of a checkpoint that a reader cut short,
//!   and does not copy them again.
//!
//! So the ledger makes the checkpoints: `SQLite` does not report failed automatic ones.

use std::{
    fs::OpenOptions,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use rusqlite::ffi;

/// Pages in the WAL before a checkpoint: 16 MiB, so that a frequently changed page is copied back seldom.
pub(crate) const WAL_PAGES: i64 = 4096;

/// Bytes read and written at once.
const CHUNK: usize = 1 << 20;

/// The path of the WAL.
pub(crate) fn log_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// Rewrites the WAL's bytes and syncs them. The caller holds the file's write lock, so no one else writes there;
/// `SQLite` has no locks on this file that closing it could drop.
pub(crate) fn rewrite_log(database: &Path) -> io::Result<()> {
    let mut log = match OpenOptions::new().read(true).write(true).open(log_path(database)) {
        Ok(log) => log,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let (length, mut place) = (log.metadata()?.len(), 0);
    let mut chunk = vec![0; usize::try_from(length).unwrap_or(CHUNK).min(CHUNK)];
    while place < length {
        log.seek(SeekFrom::Start(place))?;
        let read = log.read(&mut chunk)?;
        if read == 0 {
            break;
        }
        log.seek(SeekFrom::Start(place))?;
        log.write_all(&chunk[..read])?;
        place += read as u64;
    }
    log.sync_all()
}

/// True if pages may be lost permanently: later fsyncs will not write them.
pub(crate) fn lost_pages(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC))
}
