//! Opens the file: access by role, `SQLite`'s settings, and errors for a file that cannot be used.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, config::DbConfig};

use super::{
    super::interface::Broken,
    durability::{WAL_PAGES, rewrite_log},
    errors::reason as reason_of,
    inspect::{NUMBER_MAX, impossible_numbers},
    rows::insert_books,
    schema,
};
use crate::{domain::NewBook, sample, settings::Settings};

/// Role of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The first of a process: creates or migrates the file.
    Owner,
    /// Like the owner, but creates a file without books.
    Importer,
    /// The ledger: writes its own log entries.
    Ledger,
    /// Changes books and lets the file's triggers log it.
    Tool,
    /// Reads only.
    Reader,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The connection.
    pub connection: Connection,
    /// True if this call created the file.
    pub created: bool,
}

/// Reason why a file cannot be used. Each message names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder cannot be created.
    #[error("cannot make the folder {path}: {reason}; name one that can be written with --data")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        reason: std::io::Error,
    },
    /// Not a `SQLite` database.
    #[error("{0} is not an SQLite database; move it away or name another folder with --data")]
    NotADatabase(PathBuf),
    /// A database of another program.
    #[error("{0} is an SQLite database of another program; name another folder with --data")]
    Foreign(PathBuf),
    /// Written by a later release.
    #[error("{path} has schema version {found}, and this program knows versions up to {known}; use a newer quire")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// This program's version.
        known: i64,
    },
    /// No permission to write.
    #[error("{0} cannot be written; make the file and its folder writable or name another folder with --data")]
    ReadOnly(PathBuf),
    /// It is marked as a store, but lacks its tables.
    #[error(
        "{0} has the mark of a store, but not its tables; restore it from a backup or name another folder with --data"
    )]
    Damaged(PathBuf),
    /// Its log cannot be continued.
    #[error(
        "the log of {path} has an entry with the number {number}, and its numbers must be from 1 to {last}; if another program wrote that row, delete it, else start with a new file and import the catalogue into it",
        last = NUMBER_MAX
    )]
    Numbers {
        /// The file.
        path: PathBuf,
        /// The number out of range.
        number: i64,
    },
    /// The system cannot write its WAL.
    #[error("cannot write the log beside {path}: {reason}; repair the disk or make room")]
    Log {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: std::io::Error,
    },
    /// Anything else.
    #[error("cannot use {path}: {reason}")]
    Other {
        /// The file.
        path: PathBuf,
        /// The error and its remedy.
        reason: String,
    },
}

impl OpenError {
    pub(crate) fn from_sqlite(path: &Path, reason: &rusqlite::Error) -> Self {
        let path = path.to_owned();
        match reason.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotADatabase(path),
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly(path),
            Some(ErrorCode::CannotOpen) if not_writable(&path) => Self::ReadOnly(path),
            _ => Self::Other { path, reason: reason_of(reason) },
        }
    }
}

impl From<OpenError> for Broken {
    fn from(error: OpenError) -> Self {
        Self(error.to_string())
    }
}

/// True if permissions prevent opening the file, which `SQLite` does not report.
fn not_writable(path: &Path) -> bool {
    let opened = fs::OpenOptions::new().write(true).create(!path.exists()).truncate(false).open(path);
    opened.is_err_and(|reason| {
        matches!(reason.kind(), std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem)
    })
}

pub(crate) fn open(path: &Path, role: Role, settings: &Settings) -> Result<OpenFile, OpenError> {
    if let (Role::Owner | Role::Importer, Some(folder)) = (role, path.parent()) {
        fs::create_dir_all(folder).map_err(|reason| OpenError::Folder { path: folder.to_owned(), reason })?;
    }
    let sqlite = |reason| OpenError::from_sqlite(path, &reason);
    let access = match role {
        Role::Owner | Role::Importer => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        Role::Ledger | Role::Tool => OpenFlags::SQLITE_OPEN_READ_WRITE,
        Role::Reader => OpenFlags::SQLITE_OPEN_READ_ONLY,
    };
    // No mutex: one thread at a time uses each connection, which Rust checks.
    let mut connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(sqlite)?;
    connection.busy_timeout(settings.busy_timeout).map_err(sqlite)?;
    check(&connection, path)?;
    let mut created = false;
    if role != Role::Reader {
        if connection.is_readonly(rusqlite::MAIN_DB).map_err(sqlite)? {
            return Err(OpenError::ReadOnly(path.to_owned()));
        }
        configure(&connection, settings).map_err(sqlite)?;
        let first = match role {
            Role::Owner => Some(sample::books().collect()),
            Role::Importer => Some(Vec::new()),
            _ => None,
        };
        if let Some(first) = first {
            created = own(&mut connection, path, first)?;
        }
    }
    if role == Role::Ledger {
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false).map_err(sqlite)?;
        // The ledger empties the WAL before closing, except after a failure it could not repair.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(sqlite)?;
    }
    connection.set_prepared_statement_cache_capacity(64);
    Ok(OpenFile { connection, created })
}

/// Makes the file's visible contents durable, because an earlier process may have ended before repairing a failed
/// fsync, and migrates the file to the current schema; true if the file is new.
fn own(connection: &mut Connection, path: &Path, first: Vec<NewBook>) -> Result<bool, OpenError> {
    let sqlite = |reason| OpenError::from_sqlite(path, &reason);
    connection.execute_batch("BEGIN IMMEDIATE").map_err(sqlite)?;
    rewrite_log(path).map_err(|reason| OpenError::Log { path: path.to_owned(), reason })?;
    connection.execute_batch("COMMIT").map_err(sqlite)?;
    let created = schema::migrate(connection, |file| insert_books(file, first)).map_err(sqlite)?;
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(())).map_err(sqlite)?;
    match impossible_numbers(connection).map_err(sqlite)? {
        None => Ok(created),
        Some(number) => Err(OpenError::Numbers { path: path.to_owned(), number }),
    }
}

/// Refuses other programs' files before anything is written.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let found = schema::identity(connection).map_err(|reason| OpenError::from_sqlite(path, &reason))?;
    let untouched = found.application_id == 0 && found.version == 0 && found.empty;
    if found.application_id != schema::APPLICATION_ID && !untouched {
        return Err(OpenError::Foreign(path.to_owned()));
    }
    if !untouched && (found.version < 1 || found.empty) {
        return Err(OpenError::Damaged(path.to_owned()));
    }
    if found.version > schema::VERSION {
        return Err(OpenError::Newer { path: path.to_owned(), found: found.version, known: schema::VERSION });
    }
    Ok(())
}

fn configure(connection: &Connection, settings: &Settings) -> rusqlite::Result<()> {
    // Switching a new file to WAL does not wait for a lock; the busy timeout has no effect on it.
    let deadline = Instant::now() + settings.busy_timeout;
    while let Err(error) = connection.pragma_update(None, "journal_mode", "WAL") {
        if error.sqlite_error_code() != Some(ErrorCode::DatabaseBusy) || Instant::now() > deadline {
            return Err(error);
        }
        thread::sleep(Duration::from_millis(5));
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    // On macOS fsync does not reach the disk; this does.
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    // The ledger makes checkpoints, because `SQLite` does not report failed automatic ones.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "journal_size_limit", WAL_PAGES * 4096 * 2)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    let kibibytes = i64::try_from(settings.page_cache_bytes / 1024).unwrap_or(i64::MAX);
    connection.pragma_update(None, "cache_size", -kibibytes)
}
