//! The tables, and migrations of older files.

use rusqlite::{Connection, Transaction, TransactionBehavior};

/// The schema that first has reservations.
pub(super) const HOLDS_SINCE: i64 = 4;

/// Marks the file as ours in its header ("Quir").
pub(super) const APPLICATION_ID: i64 = 0x5175_6972;

/// The schema that this program reads and writes.
#[expect(clippy::cast_possible_wrap, reason = "there will not be 2^63 migrations")]
pub const VERSION: i64 = MIGRATIONS.len() as i64;

/// Each step migrates from the version equal to its index to the next. A released step is never changed.
const MIGRATIONS: &[&str] = &[V1, V2, V3, V4];

/// `key_index` holds hashes instead of keys, because a leaf then holds ten times as many, and lags behind the
/// log, because one key at a time costs a page of WAL each; see [`keys`](super::keys).
const V1: &str = r#"
CREATE TABLE book (
    id          INTEGER PRIMARY KEY CHECK (id BETWEEN 1 AND 2147483647),
    title       TEXT    NOT NULL CHECK (title <> ''),
    topic       TEXT    NOT NULL CHECK (topic <> ''),
    stock       INTEGER NOT NULL CHECK (stock BETWEEN 0 AND 2147483647),
    price_cents INTEGER NOT NULL CHECK (price_cents BETWEEN 0 AND 100000000000)
) STRICT;
CREATE INDEX book_topic ON book (topic);

CREATE TABLE entry (
    number          INTEGER PRIMARY KEY,
    time_ms         INTEGER NOT NULL,
    kind            INTEGER NOT NULL CHECK (kind BETWEEN 1 AND 8),
    book_id         INTEGER NOT NULL,
    quantity        INTEGER,
    "before"        INTEGER,
    "after"         INTEGER,
    idempotency_key BLOB
) STRICT;

CREATE TABLE key_index (
    hash   INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (hash, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE meta (name TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES ('key_hash_seed', randomblob(16)), ('keys_indexed_up_to', 0), ('recoveries', 0);
"#;

/// Keys have owners; see [`KeyOwner`](crate::domain::KeyOwner).
const V2: &str = "ALTER TABLE entry ADD COLUMN key_owner INTEGER NOT NULL DEFAULT 0";

/// Operators' entries have an actor, and books can be delisted.
const V3: &str = "ALTER TABLE entry ADD COLUMN actor TEXT; \
    ALTER TABLE book ADD COLUMN listed INTEGER NOT NULL DEFAULT 1 CHECK (listed IN (0, 1))";

/// Entries have the end of a reservation's time; the table `hold` has the numbers of open reservations, see
/// [`Holds`](super::holds::Holds).
const V4: &str = "ALTER TABLE entry ADD COLUMN until_ms INTEGER; \
    CREATE TABLE hold (number INTEGER PRIMARY KEY) STRICT";

/// The triggers write log entries for what other programs change, so that a server learns what happened to the file
/// from the log's tail alone. Our own writing connections switch triggers off, because they
/// write their entries many to a statement. `julianday` rather than `unixepoch('subsec')`: programs with an
/// `SQLite` from before 3.42 must be able to run them.
///
/// Made whenever they are missing, so that no program that drops them changes books unseen after the next start.
const TRIGGERS: &str = r#"
CREATE TRIGGER IF NOT EXISTS book_added AFTER INSERT ON book BEGIN
    INSERT INTO entry (time_ms, kind, book_id, "before", "after")
    VALUES (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER), 1, new.id, 0, new.stock);
END;
CREATE TRIGGER IF NOT EXISTS book_removed AFTER DELETE ON book BEGIN
    INSERT INTO entry (time_ms, kind, book_id, "before", "after")
    VALUES (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER), 7, old.id, old.stock, 0);
END;
CREATE TRIGGER IF NOT EXISTS book_adjusted AFTER UPDATE OF stock ON book WHEN old.stock <> new.stock BEGIN
    INSERT INTO entry (time_ms, kind, book_id, "before", "after")
    VALUES (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER), 6, new.id, old.stock, new.stock);
END;
CREATE TRIGGER IF NOT EXISTS book_priced AFTER UPDATE OF price_cents ON book WHEN old.price_cents <> new.price_cents BEGIN
    INSERT INTO entry (time_ms, kind, book_id, "before", "after")
    VALUES (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER), 5, new.id, old.price_cents, new.price_cents);
END;
CREATE TRIGGER IF NOT EXISTS book_edited AFTER UPDATE OF title, topic ON book
WHEN old.title <> new.title OR old.topic <> new.topic BEGIN
    INSERT INTO entry (time_ms, kind, book_id)
    VALUES (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER), 8, new.id);
END;
CREATE TRIGGER IF NOT EXISTS book_renumbered BEFORE UPDATE OF id ON book WHEN old.id <> new.id BEGIN
    SELECT RAISE(ABORT, 'a book keeps its id: delete it and add another');
END;
"#;

/// The trigger for `listed`, which files have since the third version.
const TRIGGER_LISTED: &str = r#"
CREATE TRIGGER IF NOT EXISTS book_listed AFTER UPDATE OF listed ON book WHEN old.listed <> new.listed BEGIN
    INSERT INTO entry (time_ms, kind, book_id, "before", "after")
    VALUES (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER), 8, new.id, old.listed, new.listed);
END;
"#;

/// Counts ours by name: other programs may have made triggers of their own.
const TRIGGERS_THERE: &str = "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'book' AND name IN \
    ('book_added', 'book_removed', 'book_adjusted', 'book_priced', 'book_edited', 'book_renumbered', 'book_listed')";
const TRIGGERS_COUNT: i64 = 7;

/// Triggers of a file with this version: before the third there was none for `listed`.
const fn triggers_of(version: i64) -> i64 {
    if version < 3 { TRIGGERS_COUNT - 1 } else { TRIGGERS_COUNT }
}

/// Identity from a file's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    pub application_id: i64,
    pub version: i64,
    pub empty: bool,
}

pub(super) fn identity(connection: &Connection) -> rusqlite::Result<Identity> {
    let number = |sql: &str| connection.query_row(sql, (), |row| row.get::<_, i64>(0));
    Ok(Identity {
        application_id: number("PRAGMA application_id")?,
        version: number("PRAGMA user_version")?,
        empty: number("SELECT count(*) FROM sqlite_schema")? == 0,
    })
}

/// Migrates the file to [`VERSION`]; `created` fills an empty file in the same transaction.
pub(super) fn migrate(
    connection: &mut Connection,
    created: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> rusqlite::Result<bool> {
    run(connection, MIGRATIONS, created)
}

fn run(
    connection: &mut Connection,
    migrations: &[&str],
    created: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> rusqlite::Result<bool> {
    let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
    // Reread under the lock: another process may have migrated the file meanwhile.
    let found = identity(&transaction)?;
    let done = usize::try_from(found.version).unwrap_or(usize::MAX);
    for step in migrations.iter().skip(done) {
        transaction.execute_batch(step)?;
    }
    if done < migrations.len() {
        transaction.pragma_update(None, "user_version", i64::try_from(migrations.len()).unwrap_or(i64::MAX))?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    let new = found.empty && found.version == 0;
    let triggers: i64 = transaction.query_row(TRIGGERS_THERE, (), |row| row.get(0))?;
    if triggers < TRIGGERS_COUNT {
        transaction.execute_batch(TRIGGERS)?;
        transaction.execute_batch(TRIGGER_LISTED)?;
        let missing = triggers_of(found.version) - triggers;
        if !new && missing > 0 {
            tracing::warn!(
                missing,
                "triggers of the books were gone and are made again; what other programs changed meanwhile is not in the log"
            );
        }
    }
    if new {
        created(&transaction)?;
    }
    transaction.commit()?;
    if !new && done < migrations.len() {
        tracing::info!(from = found.version, to = migrations.len(), "migrated the store to this program's schema");
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::{
        super::rows::{BOOK_COLUMNS, ENTRY_COLUMNS, book, entry},
        MIGRATIONS, TRIGGERS, VERSION, run,
    };
    use crate::domain::{EntryKind, IdempotencyKey};
    use rusqlite::Connection;

    /// A file as a release with this version of the schema made it.
    fn older(version: usize) -> Connection {
        let file = Connection::open_in_memory().unwrap();
        file.execute_batch(&MIGRATIONS[..version].join(";")).unwrap();
        file.execute_batch(TRIGGERS).unwrap();
        file.pragma_update(None, "user_version", i64::try_from(version).unwrap()).unwrap();
        file
    }

    #[test]
    fn an_older_file_is_brought_forward_and_keeps_what_it_holds() {
        let mut file = Connection::open_in_memory().unwrap();
        assert!(run(&mut file, MIGRATIONS, |_| Ok(())).unwrap());
        file.execute("INSERT INTO book (id, title, topic, stock, price_cents) VALUES (1, 'A', 'b', 3, 100)", ())
            .unwrap();
        let next = [MIGRATIONS, &["ALTER TABLE book ADD COLUMN author TEXT NOT NULL DEFAULT 'unknown'"]].concat();
        assert!(!run(&mut file, &next, |_| Ok(())).unwrap());
        assert!(!run(&mut file, &next, |_| Ok(())).unwrap(), "a current file is left alone");
        let row: (String, i64) =
            file.query_row("SELECT author, stock FROM book", (), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(row, ("unknown".to_owned(), 3));
        let version: i64 = file.query_row("PRAGMA user_version", (), |row| row.get(0)).unwrap();
        assert_eq!(version, VERSION + 1);
    }

    #[test]
    fn a_file_of_the_first_release_keeps_its_keys_and_triggers_that_are_gone_come_back() {
        let mut file = older(1);
        file.execute("INSERT INTO entry VALUES (1, 0, 2, 1, 1, 3, 2, 'a key')", ()).unwrap_err();
        file.execute("INSERT INTO entry VALUES (1, 0, 2, 1, 1, 3, 2, x'6b')", ()).unwrap();
        file.execute_batch("DROP TRIGGER book_added; DROP TRIGGER book_priced").unwrap();
        assert!(!run(&mut file, MIGRATIONS, |_| Ok(())).unwrap());
        let entry = file.query_row("SELECT * FROM entry", (), entry).unwrap();
        assert_eq!((entry.key, entry.actor), (IdempotencyKey::from_wire(b"k").unwrap(), None));
        file.execute("INSERT INTO book (id, title, topic, stock, price_cents) VALUES (1, 'A', 'b', 3, 100)", ())
            .unwrap();
        file.execute("UPDATE book SET price_cents = 1", ()).unwrap();
        let logged: i64 = file.query_row("SELECT count(*) FROM entry", (), |row| row.get(0)).unwrap();
        assert_eq!(logged, 3);
    }

    #[test]
    fn a_file_of_the_second_schema_keeps_its_books_listed_and_logs_who_else_delists_them() {
        let mut file = older(2);
        file.execute("INSERT INTO book VALUES (1, 'A', 'b', 3, 100)", ()).unwrap();
        file.execute("DELETE FROM entry", ()).unwrap();
        file.execute_batch("CREATE TRIGGER of_another AFTER UPDATE ON book BEGIN SELECT 1; END").unwrap();
        assert!(!run(&mut file, MIGRATIONS, |_| Ok(())).unwrap());
        assert!(file.query_row(&format!("SELECT {BOOK_COLUMNS} FROM book"), (), book).unwrap().listed);
        file.execute("UPDATE book SET listed = 0", ()).unwrap();
        file.execute("UPDATE book SET listed = 0, stock = 2", ()).unwrap();
        file.execute("UPDATE book SET listed = 1", ()).unwrap();
        file.execute("UPDATE book SET listed = 2", ()).unwrap_err();
        let sql = format!("SELECT {ENTRY_COLUMNS} FROM entry ORDER BY number");
        let mut log = file.prepare(&sql).unwrap();
        let kinds = log.query_map((), entry).unwrap().map(|entry| entry.unwrap());
        let kinds: Vec<_> = kinds.map(|entry| (entry.kind, entry.actor)).collect();
        let wanted = [EntryKind::Delisted, EntryKind::Adjusted, EntryKind::Listed];
        assert_eq!(kinds, wanted.map(|kind| (kind, None)));
    }

    #[test]
    fn the_file_itself_refuses_negative_stock_and_a_new_id() {
        let mut file = Connection::open_in_memory().unwrap();
        run(&mut file, MIGRATIONS, |_| Ok(())).unwrap();
        file.execute("INSERT INTO book (id, title, topic, stock, price_cents) VALUES (1, 'A', 'b', 3, 100)", ())
            .unwrap();
        for sql in ["UPDATE book SET stock = -1", "UPDATE book SET id = 2", "UPDATE book SET price_cents = -1"] {
            assert!(file.execute(sql, ()).is_err(), "{sql}");
        }
    }
}
