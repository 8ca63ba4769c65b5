//! `SQLite`'s errors: for operators the problem and its remedy in one line, for callers a fault.

use commit::Moved;
use rusqlite::{Error, ErrorCode};

use super::super::interface::{Broken, TransactionError};
use crate::fault::{Fault, Unavailable};

/// Remedy for a file with wrong contents.
const RESTORE: &str = "restore the file from a backup";

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
