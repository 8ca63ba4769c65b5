//! The WAL as a file.

use std::{
    fs::OpenOptions,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

/// Pages in the WAL before a checkpoint: 16 MiB, so that a frequently changed page is copied back seldom.
pub(super) const WAL_PAGES: i64 = 4096;

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
    let (length, mut offset) = (log.metadata()?.len(), 0);
    let mut chunk = vec![0; usize::try_from(length).unwrap_or(CHUNK).min(CHUNK)];
    while offset < length {
        log.seek(SeekFrom::Start(offset))?;
        let read = log.read(&mut chunk)?;
        if read == 0 {
            break;
        }
        log.seek(SeekFrom::Start(offset))?;
        log.write_all(&chunk[..read])?;
        offset += read as u64;
    }
    log.sync_all()
}
