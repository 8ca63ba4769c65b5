//! Errors of the database, for operators and for callers.

use std::{io, time::Duration};

use tokio_postgres::{Error, error::SqlState};
use tokio_rustls::rustls;

use super::super::interface::{Broken, TransactionError};
use crate::fault::{Fault, Unavailable};

/// Reason why a call of the database failed.
#[derive(Debug)]
pub(super) enum PostgresError {
    /// The database refused a statement, or the connection ended.
    Postgres(Error),
    /// No answer came in time.
    Silent(Duration),
    /// The session was ended from elsewhere.
    Ended,
    /// The commit did not wait for its replicas.
    NotDurable,
    /// The contents are not those of a store.
    Contents(String),
}

impl From<Error> for PostgresError {
    fn from(error: Error) -> Self {
        Self::Postgres(error)
    }
}

impl PostgresError {
    fn state(&self) -> Option<&SqlState> {
        match self {
            Self::Postgres(error) => error.code(),
            _ => None,
        }
    }

    /// True if a retry may succeed at once: another transaction was first.
    pub(super) fn is_race(&self) -> bool {
        let races = [
            SqlState::UNIQUE_VIOLATION,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
            // The guards divide by zero to roll back the whole transaction.
            SqlState::DIVISION_BY_ZERO,
        ];
        self.state().is_some_and(|state| races.contains(state))
    }

    /// True if the database itself refused a statement, so that the transaction cannot be committed.
    pub(super) fn is_refusal(&self) -> bool {
        self.state().is_some()
    }

    /// True if no primary accepts the connection, which passes by itself.
    pub(super) fn is_away(&self) -> bool {
        match self {
            Self::Postgres(error) => error.code().map_or_else(|| !is_distrust(error), is_away),
            Self::Silent(_) | Self::Ended | Self::NotDurable => true,
            Self::Contents(_) => false,
        }
    }

    /// True if the connection or its session was ended, so that another is needed.
    pub(super) fn is_cut(&self) -> bool {
        match self {
            Self::Postgres(error) => error.code().map_or_else(|| error.is_closed(), is_away),
            Self::Ended => true,
            _ => false,
        }
    }

    /// True if another transaction holds a lock for longer than this one waits.
    pub(super) fn is_lock(&self) -> bool {
        self.state() == Some(&SqlState::LOCK_NOT_AVAILABLE)
    }

    /// True if the database accepts no further connection.
    pub(super) fn is_crowded(&self) -> bool {
        self.state() == Some(&SqlState::TOO_MANY_CONNECTIONS)
    }

    /// Reason, for callers, why the store accepts nothing.
    pub(super) fn unavailable(&self) -> Unavailable {
        if self.is_crowded() { Unavailable::Crowded } else { Unavailable::Unreachable }
    }

    /// The problem in one line, for operators.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Postgres(error) => reason(error),
            Self::Silent(timeout) => format!("it did not answer within {timeout:?}"),
            Self::Ended => "the row of this session is gone from ledger_session".to_owned(),
            Self::NotDurable => "it committed without waiting for its replicas".to_owned(),
            Self::Contents(what) => what.clone(),
        }
    }

    /// Converts a failure before COMMIT.
    pub(super) fn before_commit(self) -> TransactionError {
        let reason = self.reason();
        let is = |state: &SqlState| self.state() == Some(state);
        if self.is_lock() {
            return TransactionError::Refused(Fault::Unavailable(Unavailable::BookLocked));
        }
        if is(&SqlState::DISK_FULL) {
            return TransactionError::Undone(Fault::Failed("the disk is full".to_owned()), Broken(reason));
        }
        if self.is_race() {
            return TransactionError::Refused(Fault::Failed("the books keep changing".to_owned()));
        }
        let fault = if self.is_away() {
            Fault::Unavailable(self.unavailable())
        } else {
            Fault::Failed("the database could not be written".to_owned())
        };
        TransactionError::Undone(fault, Broken(reason))
    }
}

/// States of a server that stops, starts, is no primary any more, or takes no further connection.
fn is_away(state: &SqlState) -> bool {
    let passing = [SqlState::READ_ONLY_SQL_TRANSACTION, SqlState::TOO_MANY_CONNECTIONS];
    // Classes 57 and 08: the operator intervened; the connection failed.
    state.code().starts_with("57") || state.code().starts_with("08") || passing.contains(state)
}

/// True for an untrusted certificate or a wrong host name, which are permanent.
fn is_distrust(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
    matches!(cause.and_then(io::Error::get_ref), Some(cause) if cause.is::<rustls::Error>())
}

impl From<PostgresError> for Broken {
    fn from(error: PostgresError) -> Self {
        Self(error.reason())
    }
}

/// A driver's error in one line.
pub(super) fn reason(error: &Error) -> String {
    if let Some(error) = error.as_db_error() {
        return format!("{} ({})", error.message(), error.code().code());
    }
    let cause = std::error::Error::source(error).map_or_else(String::new, |cause| format!(": {cause}"));
    format!("{error}{cause}").lines().next().unwrap_or_default().to_owned()
}
