//! Opens the file: access by role, `SQLite`'s settings, and errors for a file that cannot be used.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, config::DbConfig};

use super::{
    errors::OpenError,
    log::{check, head::Head, tree::LogTree},
    rows::insert_books,
    schema,
    wal::{WAL_PAGES, rewrite_log},
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
pub(crate) struct OpenFile {
    /// The connection.
    pub(crate) connection: Connection,
    /// True if this call created the file.
    pub(super) created: bool,
    /// For an owner or importer: the head of the log, and the tree over it.
    pub(super) head: Option<(Head, LogTree)>,
}

pub(crate) fn open(path: &Path, role: Role, settings: &Settings) -> Result<OpenFile, OpenError> {
    let owns = matches!(role, Role::Owner | Role::Importer);
    if let Some(folder) = path.parent().filter(|_| owns) {
        fs::create_dir_all(folder).map_err(|reason| OpenError::Folder { path: folder.to_owned(), reason })?;
    }
    if owns && !path.exists() {
        check::check_absent(path, settings.accept_loss)?;
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
    // A file that is refused stays as it is: without a checkpoint of a WAL that may be damaged.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, owns).map_err(sqlite)?;
    check(&connection, path)?;
    let (mut created, mut head) = (false, None);
    if role != Role::Reader {
        if connection.is_readonly(rusqlite::MAIN_DB).map_err(sqlite)? {
            return Err(OpenError::ReadOnly(path.to_owned()));
        }
        let checked = if owns { Some(check::check(&connection, path, settings.accept_loss)?) } else { None };
        configure(&connection, settings).map_err(sqlite)?;
        let first = match role {
            Role::Owner => Some(sample::books().collect()),
            Role::Importer => Some(Vec::new()),
            _ => None,
        };
        if let Some(first) = first {
            created = own(&mut connection, path, first)?;
        }
        if let Some(checked) = checked {
            head = Some(check::establish(&mut connection, path, checked)?);
            connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(())).map_err(sqlite)?;
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(sqlite)?;
        }
    }
    if role == Role::Ledger {
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false).map_err(sqlite)?;
        // The ledger empties the WAL before closing, except after a failure it could not repair.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(sqlite)?;
    }
    connection.set_prepared_statement_cache_capacity(64);
    Ok(OpenFile { connection, created, head })
}

/// Makes the file's visible contents durable, because an earlier process may have ended before repairing a failed
/// fsync, and migrates the file to the current schema; true if the file is new.
fn own(connection: &mut Connection, path: &Path, first: Vec<NewBook>) -> Result<bool, OpenError> {
    let sqlite = |reason| OpenError::from_sqlite(path, &reason);
    connection.execute_batch("BEGIN IMMEDIATE").map_err(sqlite)?;
    rewrite_log(path).map_err(|reason| OpenError::Log { path: path.to_owned(), reason })?;
    connection.execute_batch("COMMIT").map_err(sqlite)?;
    schema::migrate(connection, |file| insert_books(file, first)).map_err(sqlite)
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
