//! The ledger's writing connection: its statements, each prepared once.

use std::time::Duration;

use rusqlite::{CachedStatement, Connection, OptionalExtension, config::DbConfig};

use super::{
    super::interface::{BookChange, BookPut, code},
    rows::{BOOK_COLUMNS, ENTRY_COLUMNS, book, book_id, entry, key},
};
use crate::domain::{Actor, BookId, Entry, EntryKind, IdempotencyKey, NewBook};

/// Rows per INSERT, largest first. One statement per row spends half its time starting and ending statements.
const ROWS: [usize; 3] = [64, 8, 1];

/// Columns of an entry, and of one without those at the end, which most lack.
const WHOLE_WIDTH: usize = 11;
const ENTRY_WIDTH: usize = 9;
const KEY_WIDTH: usize = 2;

/// A writing connection. Its statements are prepared once, by the connection's cache.
pub(crate) struct Writer {
    connection: Connection,
    append: [String; ROWS.len()],
    append_whole: [String; ROWS.len()],
    index_keys: [String; ROWS.len()],
    hold: [String; ROWS.len()],
}

/// Statements that look up keys.
pub(crate) struct KeyLookup<'c> {
    numbers: CachedStatement<'c>,
    entry: CachedStatement<'c>,
}

impl KeyLookup<'_> {
    /// The indexed entries whose key has this hash.
    pub(crate) fn numbers(&mut self, hash: i64) -> rusqlite::Result<Vec<i64>> {
        self.numbers.query_map((hash,), |row| row.get(0))?.collect()
    }

    pub(crate) fn entry(&mut self, number: i64) -> rusqlite::Result<Option<Entry>> {
        self.entry.query_row((number,), entry).optional()
    }
}

impl Writer {
    pub(crate) fn new(connection: Connection) -> Self {
        let many = |head: &str, width: usize| {
            let row = format!("({})", vec!["?"; width].join(","));
            ROWS.map(|rows| format!("{head} {}", vec![&*row; rows].join(",")))
        };
        let without_last = ENTRY_COLUMNS.trim_end_matches(", actor, until_ms");
        Self {
            connection,
            append: many(&format!("INSERT INTO entry ({without_last}) VALUES"), ENTRY_WIDTH),
            append_whole: many(&format!("INSERT INTO entry ({ENTRY_COLUMNS}) VALUES"), WHOLE_WIDTH),
            index_keys: many("INSERT OR IGNORE INTO key_index (hash, number) VALUES", KEY_WIDTH),
            hold: many("INSERT INTO hold (number) VALUES", 1),
        }
    }

    /// The connection, for the log's tree.
    pub(super) fn file(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn begin(&self) -> rusqlite::Result<()> {
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.raw_execute().map(drop)
    }

    pub(crate) fn begin_read(&self) -> rusqlite::Result<()> {
        self.connection.execute_batch("BEGIN")
    }

    pub(crate) fn commit(&self) -> rusqlite::Result<()> {
        self.connection.prepare_cached("COMMIT")?.raw_execute().map(drop)
    }

    /// Rolls back the transaction, unless `SQLite` already has.
    pub(crate) fn rollback(&self) -> rusqlite::Result<()> {
        if self.connection.is_autocommit() { Ok(()) } else { self.connection.execute_batch("ROLLBACK") }
    }

    /// Version that changes when another connection commits, not when this one does.
    pub(crate) fn data_version(&self) -> rusqlite::Result<i64> {
        self.connection.prepare_cached("PRAGMA data_version")?.query_row((), |row| row.get(0))
    }

    /// Changes books; false if one differs from its change's old values, so that nothing is sold from stale memory even
    /// if the ledger missed a change.
    pub(crate) fn change_books(&self, changes: &[BookChange]) -> rusqlite::Result<bool> {
        let sql = "UPDATE book SET stock = ?2, price_cents = ?3 WHERE id = ?1 AND stock = ?4 AND price_cents = ?5";
        let mut update = self.connection.prepare_cached(sql)?;
        for change in changes {
            let ((stock_before, stock), (cents_before, cents)) = (change.stock, change.price_cents);
            if (stock_before, cents_before) == (stock, cents) {
                // The held copies are in the table of reservations.
                continue;
            }
            if update.execute((change.id.get(), stock, cents, stock_before, cents_before))? != 1 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds and changes whole books; false if one differs from its state before.
    pub(crate) fn put_books(&self, puts: &[BookPut]) -> rusqlite::Result<bool> {
        let mut update = self.connection.prepare_cached(
            "UPDATE book SET title = ?2, topic = ?3, stock = ?4, price_cents = ?5, listed = ?6 WHERE id = ?1 \
             AND title = ?7 AND topic = ?8 AND stock = ?9 AND price_cents = ?10 AND listed = ?11",
        )?;
        let sql = format!("INSERT OR IGNORE INTO book ({BOOK_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6)");
        let mut insert = self.connection.prepare_cached(&sql)?;
        for BookPut { before, after, .. } in puts {
            let now = (after.id.get(), &after.title, &after.topic, after.stock, after.price.get(), after.listed);
            let done = match before {
                None => insert.execute(now)?,
                Some(was) => {
                    let (id, title, topic, stock, cents, listed) = now;
                    let before = (&was.title, &was.topic, was.stock, was.price.get(), was.listed);
                    update.execute(rusqlite::params![
                        id, title, topic, stock, cents, listed, before.0, before.1, before.2, before.3, before.4
                    ])?
                }
            };
            if done != 1 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Appends log entries. Those of a transaction that only sells are written without the last columns.
    pub(crate) fn append(&self, entries: &[Entry]) -> rusqlite::Result<()> {
        let has_last = entries.iter().any(|entry| entry.actor.is_some() || entry.until_ms.is_some());
        let (statements, width) =
            if has_last { (&self.append_whole, WHOLE_WIDTH) } else { (&self.append, ENTRY_WIDTH) };
        in_rows(&self.connection, statements, entries, width, |statement, at, entry| {
            statement.raw_bind_parameter(at + 1, entry.number)?;
            statement.raw_bind_parameter(at + 2, entry.time_ms)?;
            statement.raw_bind_parameter(at + 3, code(entry.kind))?;
            statement.raw_bind_parameter(at + 4, entry.book.get())?;
            statement.raw_bind_parameter(at + 5, entry.quantity)?;
            statement.raw_bind_parameter(at + 6, entry.before)?;
            statement.raw_bind_parameter(at + 7, entry.after)?;
            statement.raw_bind_parameter(at + 8, entry.key.as_ref().map(IdempotencyKey::as_bytes))?;
            let owner = entry.key.as_ref().map(IdempotencyKey::owner).unwrap_or_default();
            statement.raw_bind_parameter(at + 9, owner.stored())?;
            if has_last {
                statement.raw_bind_parameter(at + 10, entry.actor.as_ref().map(Actor::as_str))?;
                statement.raw_bind_parameter(at + 11, entry.until_ms)?;
            }
            Ok(())
        })
    }

    /// Notes the reservations that begin with one of `entries`, and those that have ended; false if one of these was not
    /// open, so that no copies are given back twice.
    pub(crate) fn change_holds(&self, entries: &[Entry], ended: &[Entry]) -> rusqlite::Result<bool> {
        let begun: Vec<i64> =
            entries.iter().filter(|entry| entry.kind == EntryKind::Reserved).map(|entry| entry.number).collect();
        in_rows(&self.connection, &self.hold, &begun, 1, |statement, at, number| {
            statement.raw_bind_parameter(at + 1, number)
        })?;
        if ended.is_empty() {
            return Ok(true);
        }
        let mut delete = self.connection.prepare_cached("DELETE FROM hold WHERE number = ?1")?;
        for reserved in ended {
            if delete.execute((reserved.number,))? != 1 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The entries that began the open reservations.
    pub(crate) fn open_holds(&self) -> rusqlite::Result<Vec<Entry>> {
        let sql = format!("SELECT {ENTRY_COLUMNS} FROM entry WHERE number IN (SELECT number FROM hold)");
        self.connection.prepare(&sql)?.query_map((), entry)?.collect()
    }

    /// The entries after `number` that begin or end reservations, in order.
    pub(crate) fn reservations_after(&self, number: i64) -> rusqlite::Result<Vec<Entry>> {
        let sql = format!(
            "SELECT {ENTRY_COLUMNS} FROM entry WHERE number > ?1 AND quantity IS NOT NULL AND idempotency_key IS NOT NULL \
             AND (kind = {} OR kind = {} AND \"before\" IS \"after\") ORDER BY number",
            code(EntryKind::Reserved),
            code(EntryKind::Purchase)
        );
        self.connection.prepare_cached(&sql)?.query_map((number,), entry)?.collect()
    }

    /// Indexes `keys`, sorted so that neighbours share a page.
    pub(crate) fn index_keys(&self, keys: &[(i64, i64)]) -> rusqlite::Result<()> {
        in_rows(&self.connection, &self.index_keys, keys, KEY_WIDTH, |statement, at, (hash, number)| {
            statement.raw_bind_parameter(at + 1, hash)?;
            statement.raw_bind_parameter(at + 2, number)
        })
    }

    /// Prepares look-ups of keys.
    pub(crate) fn key_lookup(&self) -> rusqlite::Result<KeyLookup<'_>> {
        let numbers = self.connection.prepare_cached("SELECT number FROM key_index WHERE hash = ?1")?;
        let entry = self.connection.prepare_cached(&format!("SELECT {ENTRY_COLUMNS} FROM entry WHERE number = ?1"))?;
        Ok(KeyLookup { numbers, entry })
    }

    pub(crate) fn book(&self, id: BookId) -> rusqlite::Result<Option<NewBook>> {
        let sql = format!("SELECT {BOOK_COLUMNS} FROM book WHERE id = ?1");
        self.connection.prepare_cached(&sql)?.query_row((id.get(),), book).optional()
    }

    /// Visits every book by id.
    pub(crate) fn each_book(&self, mut visit: impl FnMut(NewBook)) -> rusqlite::Result<()> {
        let mut all = self.connection.prepare(&format!("SELECT {BOOK_COLUMNS} FROM book ORDER BY id"))?;
        let mut rows = all.query(())?;
        while let Some(row) = rows.next()? {
            visit(book(row)?);
        }
        Ok(())
    }

    /// Visits the book and key of every entry after `number`, in order.
    pub(crate) fn each_entry_after(
        &self,
        number: i64,
        mut visit: impl FnMut(i64, BookId, Option<IdempotencyKey>),
    ) -> rusqlite::Result<()> {
        let sql = "SELECT number, book_id, idempotency_key, key_owner FROM entry WHERE number > ?1 ORDER BY number";
        let mut tail = self.connection.prepare_cached(sql)?;
        let mut rows = tail.query((number,))?;
        while let Some(row) = rows.next()? {
            visit(row.get(0)?, book_id(row, 1)?, key(row, 2)?);
        }
        Ok(())
    }

    /// Progress of a move of keys into the index: `(up_to, through)` means that of the keys of entries up to `up_to`,
    /// those with hashes up to `through` are there.
    pub(crate) fn keys_moved(&self) -> rusqlite::Result<Option<(i64, i64)>> {
        let sql = "SELECT a.value, b.value FROM meta a, meta b
                   WHERE a.name = 'keys_moving_up_to' AND b.name = 'keys_moved_through'";
        self.connection.query_row(sql, (), |row| Ok((row.get(0)?, row.get(1)?))).optional()
    }

    pub(crate) fn set_keys_moved(&self, (up_to, through): (i64, i64)) -> rusqlite::Result<()> {
        let mut set = self.connection.prepare_cached("INSERT OR REPLACE INTO meta VALUES (?1, ?2)")?;
        set.execute(("keys_moving_up_to", up_to))?;
        set.execute(("keys_moved_through", through)).map(drop)
    }

    /// The secret seed of the file's key hashes.
    pub(crate) fn key_hash_seed(&self) -> rusqlite::Result<[u8; 16]> {
        self.connection.query_row("SELECT value FROM meta WHERE name = 'key_hash_seed'", (), |row| row.get(0))
    }

    /// Number of the entry up to which all keys are indexed.
    pub(crate) fn keys_indexed_up_to(&self) -> rusqlite::Result<i64> {
        self.connection.query_row("SELECT value FROM meta WHERE name = 'keys_indexed_up_to'", (), |row| row.get(0))
    }

    pub(crate) fn set_keys_indexed_up_to(&self, number: i64) -> rusqlite::Result<()> {
        let sql = "UPDATE meta SET value = max(value, ?1) WHERE name = 'keys_indexed_up_to'";
        self.connection.prepare_cached(sql)?.execute((number,)).map(drop)
    }

    /// Commits a small change, to test whether the file is writable again.
    pub(crate) fn probe(&self) -> rusqlite::Result<()> {
        self.connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'recoveries'", ()).map(drop)
    }

    /// Pages in the WAL.
    pub(crate) fn log_pages(&self) -> rusqlite::Result<i64> {
        self.connection.prepare_cached("PRAGMA wal_checkpoint(NOOP)")?.query_row((), |row| row.get(1))
    }

    /// Copies the WAL back into the file, as far as readers allow; true if it is all there, so that the WAL restarts from
    /// its beginning.
    pub(crate) fn checkpoint(&self) -> rusqlite::Result<bool> {
        let sql = "PRAGMA wal_checkpoint(PASSIVE)";
        self.connection.query_row(sql, (), |row| Ok(row.get::<_, i64>(1)? == row.get::<_, i64>(2)?))
    }

    /// Copies the WAL back into the file and empties it, unless other connections read it; closing may then delete it.
    pub(crate) fn empty_log(&self) -> rusqlite::Result<()> {
        // Waiting for readers would keep other processes from writing.
        self.connection.busy_timeout(Duration::ZERO)?;
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?;
        self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map(drop)
    }

    /// Puts every page of the file into the WAL, so that the next checkpoint writes them all.
    pub(crate) fn rewrite_database(&self) -> rusqlite::Result<()> {
        // A whole copy of the file may exceed memory.
        self.connection.execute_batch("PRAGMA temp_store = FILE; VACUUM; PRAGMA temp_store = MEMORY")
    }
}

/// Runs `items` through statements of [`ROWS`] rows of `width` parameters each.
fn in_rows<T>(
    connection: &Connection,
    statements: &[String; ROWS.len()],
    items: &[T],
    width: usize,
    bind: impl Fn(&mut CachedStatement<'_>, usize, &T) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut rest = items;
    for (sql, rows) in statements.iter().zip(ROWS) {
        if rest.len() < rows {
            continue;
        }
        let mut statement = connection.prepare_cached(sql)?;
        while rest.len() >= rows {
            let (now, later) = rest.split_at(rows);
            for (index, item) in now.iter().enumerate() {
                bind(&mut statement, index * width, item)?;
            }
            statement.raw_execute()?;
            rest = later;
        }
    }
    Ok(())
}
