//! Failures of a transaction on the file.

use commit::Moved;
use rusqlite::ErrorCode;

use super::{
    super::interface::{Broken, Failure},
    open::OpenError,
    reason::reason,
};
use crate::fault::{Fault, Unavailable};

/// Reason why a transaction failed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Before COMMIT.
    Sqlite(rusqlite::Error),
    Commit(rusqlite::Error),
    /// After COMMIT: the file that was written to is not where the next start looks for it.
    Moved(Moved),
    /// The file was changed without a log entry.
    Stale,
    /// The log numbers are exhausted.
    LogFull,
    /// No decision was reached.
    Decided(Failure),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Moved> for Trouble {
    fn from(moved: Moved) -> Self {
        Self::Moved(moved)
    }
}

impl From<Moved> for Broken {
    fn from(moved: Moved) -> Self {
        Self(moved.to_string())
    }
}

impl From<rusqlite::Error> for Broken {
    fn from(error: rusqlite::Error) -> Self {
        Self(reason(&error))
    }
}

impl From<OpenError> for Broken {
    fn from(error: OpenError) -> Self {
        Self(error.to_string())
    }
}

/// Converts a failed BEGIN.
pub(super) fn not_begun(error: rusqlite::Error) -> Failure {
    if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) {
        return Failure::Refused(Fault::Unavailable(Unavailable::Locked));
    }
    before_commit(error)
}

pub(super) fn before_commit(error: rusqlite::Error) -> Failure {
    let reason = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "the disk is full",
        Some(ErrorCode::SystemIoFailure) => "the disk cannot be written",
        Some(ErrorCode::DatabaseCorrupt) => "the database is damaged",
        _ => "the database could not be written",
    };
    Failure::Undone(Fault::Failed(reason.to_owned()), error.into())
}
