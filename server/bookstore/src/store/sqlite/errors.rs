//! `SQLite`'s errors: for operators the problem and its remedy in one line, for callers a fault.

use std::{
    io,
    path::{Path, PathBuf},
};

use commit::Moved;
use rusqlite::{Error, ErrorCode};
use rustix::{
    fs::{Access, access},
    io::Errno,
};

use super::{
    super::interface::{Broken, TransactionError},
    log::{head::head_path, loss::Loss, numbers::NUMBER_MAX},
};
use crate::fault::{Fault, Unavailable};

/// Remedy for a file with wrong contents.
const RESTORE: &str = "restore the file from a backup";

/// Reason why a file cannot be used. Each message names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder cannot be created.
    #[error("cannot make the folder {path}: {reason}; name one that can be written with --data")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// Not a `SQLite` database.
    #[error("{0} is not an SQLite database; move it away or name another folder with --data")]
    NotADatabase(PathBuf),
    /// A database of another program.
    #[error("{0} is an SQLite database of another program; name another folder with --data")]
    Foreign(PathBuf),
    /// Written by a later release.
    #[error(
        "{path} has schema version {found}, and this program knows versions up to {known}; use a newer quire, or restore a backup that \
         this one made"
    )]
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
    /// Entries that were acknowledged are lost, or may be.
    #[error(transparent)]
    Lost(Loss),
    /// The system cannot use its head.
    #[error(
        "cannot use {path}, which shows whether entries of the log are lost: {reason}; repair the disk or make room"
    )]
    Head {
        /// The head.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// The system cannot write its WAL.
    #[error("cannot write the log beside {path}: {reason}; repair the disk or make room")]
    Log {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
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
    pub(crate) fn from_sqlite(path: &Path, reason: &Error) -> Self {
        let path = path.to_owned();
        match reason.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotADatabase(path),
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly(path),
            Some(ErrorCode::CannotOpen) if not_writable(&path) => Self::ReadOnly(path),
            _ => Self::Other { path, reason: self::reason(reason) },
        }
    }
}

impl From<OpenError> for Broken {
    fn from(error: OpenError) -> Self {
        Self(error.to_string())
    }
}

/// True if permissions prevent opening the file, which `SQLite` does not report. It is not opened to learn that: to close it
/// again would drop all of the process's locks on it.
fn not_writable(path: &Path) -> bool {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let allowed = access(if path.exists() { path } else { folder }, Access::WRITE_OK);
    allowed.is_err_and(|reason| matches!(reason, Errno::ACCESS | Errno::PERM | Errno::ROFS))
}

/// Failure to write the head.
#[derive(Debug)]
pub(super) enum HeadFailure {
    Database(Error),
    /// To write the log before it.
    Log(io::Error),
    File(io::Error),
}

impl HeadFailure {
    pub(super) fn of(self, path: &Path) -> OpenError {
        match self {
            Self::Database(reason) => OpenError::from_sqlite(path, &reason),
            Self::Log(reason) => OpenError::Log { path: path.to_owned(), reason },
            Self::File(reason) => OpenError::Head { path: head_path(path), reason },
        }
    }
}

impl From<io::Error> for HeadFailure {
    fn from(reason: io::Error) -> Self {
        Self::File(reason)
    }
}

impl From<Error> for HeadFailure {
    fn from(reason: Error) -> Self {
        Self::Database(reason)
    }
}

/// One line, to follow the file's name and a colon.
pub(crate) fn reason(error: &Error) -> String {
    match error {
        Error::QueryReturnedNoRows => format!("a row that every store has is missing; {RESTORE}"),
        Error::IntegralValueOutOfRange(_, value) => {
            format!("it holds the number {value} where no store has it; correct that row, or {RESTORE}")
        }
        Error::InvalidColumnType(_, column, found) => {
            format!("a value in its column {column} is of the type {found}; correct that row, or {RESTORE}")
        }
        Error::FromSqlConversionFailure(..) => {
            format!("it holds a value that no store has; correct that row, or {RESTORE}")
        }
        Error::SqlInputError { msg, .. } => format!("its tables are not those of a store ({msg}); {RESTORE}"),
        other => by_code(other),
    }
}

fn by_code(error: &Error) -> String {
    let message = error.to_string();
    let first = message.lines().next().unwrap_or_default();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another program keeps it locked; end that program's transaction".to_owned()
        }
        Some(ErrorCode::DiskFull) => "the disk is full; make room".to_owned(),
        Some(ErrorCode::SystemIoFailure) => {
            format!("the disk could not read or write it ({first}); look for the disk's errors in the system's log")
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => format!(
            "it is damaged; {RESTORE}, or save what can be read with the command .recover of the program sqlite3"
        ),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            "it cannot be written; make the file and its folder writable".to_owned()
        }
        Some(ErrorCode::CannotOpen) => {
            "it cannot be opened; see that the file and its folder are there and can be written".to_owned()
        }
        Some(ErrorCode::OutOfMemory) => "there is not enough memory; end other programs".to_owned(),
        Some(ErrorCode::ConstraintViolation) => format!("it refuses the change ({first})"),
        _ if first.starts_with("no such table") || first.starts_with("no such column") => {
            format!("its tables are not those of a store ({first}); {RESTORE}")
        }
        _ => first.to_owned(),
    }
}

impl From<Moved> for Broken {
    fn from(moved: Moved) -> Self {
        Self(moved.to_string())
    }
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self(reason(&error))
    }
}

impl From<HeadFailure> for Broken {
    fn from(failure: HeadFailure) -> Self {
        match failure {
            HeadFailure::Database(error) => error.into(),
            HeadFailure::Log(error) => Self(format!("its WAL cannot be written: {error}")),
            HeadFailure::File(error) => head(&error),
        }
    }
}

/// The reason for a head that cannot be written.
pub(super) fn head(error: &io::Error) -> Broken {
    Broken(format!("the head of its log cannot be written ({error}); repair the disk or make room"))
}

/// Converts an error of the head before COMMIT.
pub(super) fn head_before_commit(failure: HeadFailure) -> TransactionError {
    match failure {
        HeadFailure::Database(error) => before_commit(error),
        failure => TransactionError::Undone(Fault::Failed("the disk cannot be written".to_owned()), failure.into()),
    }
}

/// Converts a failed BEGIN.
pub(super) fn not_begun(error: Error) -> TransactionError {
    if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) {
        return TransactionError::Refused(Fault::Unavailable(Unavailable::Locked));
    }
    before_commit(error)
}

/// Converts an error before COMMIT.
pub(super) fn before_commit(error: Error) -> TransactionError {
    let reason = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "the disk is full",
        Some(ErrorCode::SystemIoFailure) => "the disk cannot be written",
        Some(ErrorCode::DatabaseCorrupt) => "the database is damaged",
        _ => "the database could not be written",
    };
    TransactionError::Undone(Fault::Failed(reason.to_owned()), error.into())
}

/// Converts an error of COMMIT, or of the check after it.
pub(super) fn in_doubt(reason: impl Into<Broken>) -> TransactionError {
    TransactionError::Unknown(reason.into(), None)
}

#[cfg(test)]
mod tests {
    use super::reason;
    use rusqlite::Connection;

    #[test]
    fn reasons_are_one_line_without_sql() {
        let file = Connection::open_in_memory().unwrap();
        let none = file.query_row("SELECT 1 WHERE 0", (), |row| row.get::<_, i64>(0)).unwrap_err();
        let table = file.prepare("SELECT a,\n b FROM book").unwrap_err();
        let syntax = file.execute_batch("CREATE\nTABLES").unwrap_err();
        let kind = file.query_row("SELECT 'x' AS stock", (), |row| row.get::<_, i64>(0)).unwrap_err();
        for (error, part) in [
            (none, "a row that every store has is missing"),
            (table, "(no such table: book)"),
            (syntax, "its tables are not those of a store"),
            (kind, "a value in its column stock is of the type Text"),
        ] {
            let said = reason(&error);
            assert!(said.contains(part) && !said.contains('\n') && !said.contains("SELECT"), "{said}");
        }
    }
}
