//! How a transaction can fail, and what its callers are told then. Must not know what it was to do.

use rusqlite::ErrorCode;

use super::job::{Answers, Request};
use crate::{
    fault::{Fault, Unavailable},
    store::{self, OpenError},
};

/// Why a transaction did not come to its end.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Before COMMIT.
    Sqlite(rusqlite::Error),
    Commit(rusqlite::Error),
    /// The file was changed without a trace in the log.
    Stale,
    /// There are no more numbers.
    LogFull,
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// The connection cannot be used any more, and this is why.
#[derive(Debug)]
pub(super) struct Broken(pub(super) String);

impl From<rusqlite::Error> for Broken {
    fn from(error: rusqlite::Error) -> Self {
        Self(store::reason(&error))
    }
}

impl From<OpenError> for Broken {
    fn from(error: OpenError) -> Self {
        Self(error.to_string())
    }
}

/// A transaction that did not happen, or of which no one knows.
pub(super) enum Failure {
    /// Nothing was done.
    Refused(Fault),
    /// Nothing was done, and the connection is given up, which also rolls back.
    Undone(Fault, Broken),
    /// COMMIT failed: no one knows whether it was done.
    Unknown(Broken),
}

impl Failure {
    /// A transaction could not be begun.
    pub(super) fn not_begun(error: rusqlite::Error) -> Self {
        if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) {
            return Self::Refused(Fault::Unavailable(Unavailable::Locked));
        }
        Self::before_commit(error)
    }

    pub(super) fn before_commit(error: rusqlite::Error) -> Self {
        let reason = match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => "the disk is full",
            Some(ErrorCode::SystemIoFailure) => "the disk cannot be written",
            Some(ErrorCode::DatabaseCorrupt) => "the database is damaged",
            _ => "the database could not be written",
        };
        Self::Undone(Fault::Failed(reason.to_owned()), error.into())
    }

    /// Tells callers what is known; fails if the connection is broken.
    pub(super) fn answer(
        self,
        requests: impl IntoIterator<Item = Request>,
        answers: &mut Answers,
        tell: impl Fn(Fault) -> Fault,
    ) -> Result<(), Broken> {
        let (fault, broken) = match self {
            Self::Refused(fault) => (fault, Ok(())),
            Self::Undone(fault, broken) => (fault, Err(broken)),
            // A request that is dropped has an unknown outcome.
            Self::Unknown(broken) => return Err(broken),
        };
        for request in requests {
            answers.add(request, Err(tell(fault.clone())));
        }
        broken
    }
}
