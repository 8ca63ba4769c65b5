//! Copies a consistent snapshot of the file, while servers go on selling, and checks a copy; and locks a file that must
//! not change while it is read.

use std::{
    fs::OpenOptions,
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rusqlite::{
    Connection, ErrorCode, OpenFlags,
    backup::{Backup, StepResult},
    config::DbConfig,
};

use super::{
    super::{interface::code, sums::Sums},
    errors::{OpenError, reason},
    log::check::{check_frozen, checked_snapshot, forget_head},
    open::{Role, check, open},
    rows::{BOOK_COLUMNS, ENTRY_COLUMNS, book, entry},
    schema,
    wal::log_path,
};
use crate::{
    domain::{Entry, EntryKind, NewBook},
    settings::Settings,
};

/// Pages between progress reports: 4 MiB.
const PAGES_AT_ONCE: i32 = 1024;

/// Counts of a store, for comparison with a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Schema version.
    pub schema: i64,
    /// Books in the catalogue.
    pub books: i64,
    /// Unsold copies of all books.
    pub copies: i64,
    /// Entries in the transaction log.
    pub entries: i64,
    /// Copies sold in the log.
    pub sold: i64,
}

/// Reason why a copy failed or cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// There is nothing to copy.
    #[error("there is no {0}; name the folder of a store with --data")]
    Absent(PathBuf),
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The copy cannot be created.
    #[error("cannot make {path}: {reason}")]
    Make {
        /// The copy.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// Copying failed in between.
    #[error("cannot copy the store to {path}: {reason}")]
    Copy {
        /// The copy.
        path: PathBuf,
        /// The error and its remedy.
        reason: String,
    },
    /// `SQLite` finds it corrupt.
    #[error("{path} is damaged: {found}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage.
        found: String,
    },
}

/// Opens a store for reading; unlike [`open`] it has a separate error for a missing file.
pub(crate) fn reader(path: &Path, settings: &Settings) -> Result<Connection, CopyError> {
    if !path.exists() {
        return Err(CopyError::Absent(path.to_owned()));
    }
    Ok(open(path, Role::Reader, settings)?.connection)
}

/// Copies the store at `source` to the new file `target`, readable only by its owner: everything committed before the
/// call, and nothing later. `progress` gets the pages done and all pages.
pub fn copy(
    source: &Path,
    target: &Path,
    settings: &Settings,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), CopyError> {
    let from = reader(source, settings)?;
    // Inside a transaction the source does not change, however long the copy takes, so that it need not start over.
    // Writers continue; only the WAL cannot be emptied meanwhile.
    let moment = checked_snapshot(&from, source)?;
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(target);
    let made = made.map_err(|reason| CopyError::Make { path: target.to_owned(), reason })?;
    copy_pages(&moment, target, progress)
        .map_err(|error| CopyError::Copy { path: target.to_owned(), reason: reason(&error) })?;
    made.sync_all().map_err(|reason| CopyError::Make { path: target.to_owned(), reason })
}

fn copy_pages(moment: &Connection, target: &Path, progress: &mut dyn FnMut(u64, u64)) -> rusqlite::Result<()> {
    let mut to = Connection::open(target)?;
    // The caller flushes the file once, and deletes an unfinished copy.
    to.pragma_update(None, "journal_mode", "OFF")?;
    to.pragma_update(None, "synchronous", "OFF")?;
    let copying = Backup::new(moment, &mut to)?;
    while copying.step(PAGES_AT_ONCE)? != StepResult::Done {
        let at = copying.progress();
        let pages = |count: i32| u64::try_from(count).unwrap_or(0);
        progress(pages(at.pagecount - at.remaining), pages(at.pagecount));
    }
    drop(copying);
    // A restored copy is another log, and gets a head of its own.
    forget_head(&to)?;
    to.close().map_err(|(_, reason)| reason)
}

/// Checks with `SQLite` that an unused copy is intact, and returns its counts.
pub fn contents(path: &Path) -> Result<Contents, CopyError> {
    let damaged = |found: String| CopyError::Damaged { path: path.to_owned(), found };
    let sqlite = |error: rusqlite::Error| damaged(reason(&error));
    let file = immutable(path)?;
    let found: String = file.query_row("PRAGMA integrity_check(1)", (), |row| row.get(0)).map_err(sqlite)?;
    if found != "ok" {
        return Err(damaged(found));
    }
    let number = |sql: &str| file.query_row(sql, (), |row| row.get::<_, i64>(0)).map_err(sqlite);
    let purchase = code(EntryKind::Purchase);
    Ok(Contents {
        schema: number("PRAGMA user_version")?,
        books: number("SELECT count(*) FROM book")?,
        copies: number("SELECT coalesce(sum(stock), 0) FROM book")?,
        entries: number("SELECT count(*) FROM entry")?,
        sold: number(&format!("SELECT coalesce(sum(quantity), 0) FROM entry WHERE kind = {purchase}"))?,
    })
}

/// Opens a file that nothing changes, without a file appearing beside it.
pub(super) fn immutable(path: &Path) -> Result<Connection, CopyError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let file = Connection::open_with_flags(unchanging(path), flags)
        .map_err(|error| CopyError::Damaged { path: path.to_owned(), found: reason(&error) })?;
    check(&file, path)?;
    Ok(file)
}

/// A URI with which `SQLite` uses no locks and no WAL, so that no file appears beside this one.
fn unchanging(path: &Path) -> String {
    let escaped = path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    format!("file:{escaped}?immutable=1")
}

/// Reason why a file cannot be frozen.
#[derive(Debug)]
pub(crate) enum FreezeError {
    Absent(CopyError),
    Open(OpenError),
    InUse,
}

/// A file that does not change while it is read.
pub(crate) struct Frozen(Connection);

impl Frozen {
    /// Locks the file until dropped, and migrates it. Fails if any program has it open, even an idle one.
    pub(crate) fn open(path: &Path) -> Result<Self, FreezeError> {
        let mut connection = Self::locked(path)?;
        let failed = |error: rusqlite::Error| FreezeError::Open(OpenError::from_sqlite(path, &error));
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(failed)?;
        // No other program can come between: the lock on the file stays.
        if schema::identity(&connection).map_err(failed)?.version < schema::VERSION {
            schema::migrate(&mut connection, |_| Ok(())).map_err(failed)?;
        }
        connection.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
        Ok(Self(connection))
    }

    /// Reads the file as it is now, and changes nothing. True if another program has it open.
    pub(crate) fn look(path: &Path, settings: &Settings) -> Result<(Self, bool), FreezeError> {
        let failed = |error: rusqlite::Error| FreezeError::Open(OpenError::from_sqlite(path, &error));
        let had_wal = log_path(path).exists();
        let (file, is_in_use) = match Self::locked(path) {
            Err(FreezeError::InUse) => (reader(path, settings).map_err(FreezeError::Absent)?, true),
            locked => (locked?, false),
        };
        if is_in_use {
            drop(checked_snapshot(&file, path).map_err(FreezeError::Open)?);
        } else if !had_wal {
            // The close deletes the empty WAL that the lock made.
            file.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(failed)?;
        }
        file.execute_batch("BEGIN").map_err(failed)?;
        Ok((Self(file), is_in_use))
    }

    /// The file, checked, with a lock that keeps other programs out until it is closed.
    fn locked(path: &Path) -> Result<Connection, FreezeError> {
        if !path.exists() {
            return Err(FreezeError::Absent(CopyError::Absent(path.to_owned())));
        }
        let failed = |error: rusqlite::Error| match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => FreezeError::InUse,
            _ => FreezeError::Open(OpenError::from_sqlite(path, &error)),
        };
        let access = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, access).map_err(failed)?;
        // A file that is refused stays as it is.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
        // Before any read: a connection that already has the WAL open does not lock the whole file.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(failed)?;
        connection.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
        check(&connection, path).map_err(FreezeError::Open)?;
        check_frozen(&connection, path).map_err(FreezeError::Open)?;
        connection.execute_batch("COMMIT").map_err(failed)?;
        Ok(connection)
    }

    /// The file's schema.
    pub(crate) fn schema(&self) -> Result<i64, String> {
        schema::identity(&self.0).map(|found| found.version).map_err(|error| reason(&error))
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

    /// The numbers of the entries that began the open reservations.
    pub(crate) fn open_holds(&self) -> Result<Vec<i64>, String> {
        let mut numbers = Vec::new();
        self.each(
            "SELECT number FROM hold",
            |row| row.get(0),
            |number| {
                numbers.push(number);
                true
            },
        )?;
        Ok(numbers)
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
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::{
        super::open::{Role, open},
        FreezeError, Frozen, contents, copy,
    };
    use crate::settings::Settings;

    #[test]
    fn a_copy_is_of_the_moment_it_began_however_much_is_written_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let (source, target) = (folder.path().join("a #1?.db"), folder.path().join("50%.db"));
        let settings = Settings::default();
        let writer = open(&source, Role::Importer, &settings).unwrap().connection;
        let filler = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
                      INSERT INTO book SELECT i, hex(randomblob(100)), 'filler', 1, 1, 1 FROM n";
        writer.execute(filler, ()).unwrap();
        let mut steps = Vec::new();
        let mut sell = |done, all| {
            steps.push((done, all));
            writer
                .execute(
                    "UPDATE book SET stock = 0 WHERE id <= 60000 AND stock > 0 AND id % 7 = ?1",
                    (i64::try_from(done % 7).unwrap(),),
                )
                .unwrap();
        };
        copy(&source, &target, &settings, &mut sell).unwrap();
        assert!(steps.len() > 2 && steps.is_sorted(), "{steps:?}");
        let found = contents(&target).unwrap();
        assert_eq!((found.books, found.copies, found.entries, found.sold), (60_000, 60_000, 60_000, 0));
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
        let mut names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| !name.starts_with('a'));
        assert_eq!(names, ["50%.db"]);
        assert!(copy(&source, &target, &settings, &mut |_, _| {}).is_err(), "nothing is overwritten");
    }

    #[test]
    fn a_copy_with_wrong_bytes_is_reported_as_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let (source, target) = (folder.path().join("a.db"), folder.path().join("b.db"));
        drop(open(&source, Role::Owner, &Settings::default()).unwrap());
        copy(&source, &target, &Settings::default(), &mut |_, _| {}).unwrap();
        let mut bytes = fs::read(&target).unwrap();
        bytes[4096..8192].fill(7);
        fs::write(&target, bytes).unwrap();
        let said = contents(&target).unwrap_err().to_string();
        assert!(said.contains("b.db is damaged"), "{said}");
    }

    #[test]
    fn a_file_that_has_lost_entries_is_not_frozen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let file = open(&path, Role::Owner, &Settings::default()).unwrap().connection;
        file.execute("DELETE FROM entry WHERE number = 3", ()).unwrap();
        drop(file);
        let Err(FreezeError::Open(error)) = Frozen::open(&path) else { panic!("it is refused") };
        assert!(error.to_string().contains("has lost an entry that was acknowledged, number 3:"), "{error}");
    }

    #[test]
    fn a_file_of_an_older_release_is_read_as_a_current_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let older = open(&path, Role::Owner, &Settings::default()).unwrap().connection;
        let back = "DROP TRIGGER book_listed; ALTER TABLE book DROP COLUMN listed; ALTER TABLE entry DROP COLUMN actor; \
            ALTER TABLE entry DROP COLUMN key_owner; ALTER TABLE entry DROP COLUMN until_ms; DROP TABLE hold; \
            DELETE FROM meta WHERE name = 'log_id'; \
            PRAGMA user_version = 1";
        older.execute_batch(back).unwrap();
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
