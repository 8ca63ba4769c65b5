//! Exclusive access to a file that must not change while it is read.

use std::path::Path;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::{
    super::sums::Sums,
    copy::CopyError,
    open::{OpenError, check},
    reason::reason,
    rows::{BOOK_COLUMNS, ENTRY_COLUMNS, book, entry},
    schema,
};
use crate::domain::{Entry, NewBook};

/// Reason why a file cannot be frozen.
#[derive(Debug)]
pub(crate) enum FreezeError {
    Absent(CopyError),
    Open(OpenError),
    InUse,
}

/// A file locked for this program only.
pub(crate) struct Frozen(Connection);

impl Frozen {
    /// Locks the file until dropped. Fails if any program has it open, even an idle one.
    pub(crate) fn open(path: &Path) -> Result<Self, FreezeError> {
        if !path.exists() {
            return Err(FreezeError::Absent(CopyError::Absent(path.to_owned())));
        }
        let failed = |error: rusqlite::Error| match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => FreezeError::InUse,
            _ => FreezeError::Open(OpenError::from_sqlite(path, &error)),
        };
        let access = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, access).map_err(failed)?;
        // Before any read: a connection that already has the WAL open does not lock the whole file.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(failed)?;
        connection.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
        check(&connection, path).map_err(FreezeError::Open)?;
        connection.execute_batch("COMMIT").map_err(failed)?;
        // No other program can come between: the lock on the file stays.
        if schema::identity(&connection).map_err(failed)?.version < schema::VERSION {
            schema::migrate(&mut connection, |_| Ok(())).map_err(failed)?;
        }
        connection.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
        Ok(Self(connection))
    }

    pub(crate) fn sums(&self) -> Result<Sums, String> {
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Sums {
                books: row.get(0)?,
                copies: row.get(1)?,
                cents: row.get(2)?,
                entries: row.get(3)?,
                last_number: row.get(4)?,
                sold: row.get(5)?,
                keys: row.get(6)?,
            })
        };
        self.0.query_row(Sums::QUERY, (), read).map_err(|error| reason(&error))
    }

    /// Visits books by id until `show` returns false.
    pub(crate) fn each_book(&self, show: impl FnMut(NewBook) -> bool) -> Result<(), String> {
        self.each(&format!("SELECT {BOOK_COLUMNS} FROM book ORDER BY id"), book, show)
    }

    /// Visits the log from the beginning until `show` returns false.
    pub(crate) fn each_entry(&self, show: impl FnMut(Entry) -> bool) -> Result<(), String> {
        self.each(&format!("SELECT {ENTRY_COLUMNS} FROM entry ORDER BY number"), entry, show)
    }

    fn each<T>(
        &self,
        sql: &str,
        read: fn(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
        mut show: impl FnMut(T) -> bool,
    ) -> Result<(), String> {
        let failed = |error: rusqlite::Error| reason(&error);
        let mut query = self.0.prepare(sql).map_err(failed)?;
        let mut rows = query.query(()).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            if !show(read(row).map_err(failed)?) {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::open::{Role, open},
        Frozen,
    };
    use crate::settings::Settings;

    #[test]
    fn a_file_of_an_older_release_is_read_as_a_current_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let older = open(&path, Role::Owner, &Settings::default()).unwrap().connection;
        older.execute_batch("ALTER TABLE entry DROP COLUMN key_owner; PRAGMA user_version = 1").unwrap();
        older.close().unwrap();
        let (frozen, mut entries) = (Frozen::open(&path).unwrap(), 0);
        let mut count = |_| {
            entries += 1;
            true
        };
        frozen.each_entry(&mut count).unwrap();
        assert_eq!(entries, frozen.sums().unwrap().entries);
    }
}
