//! The tables, and migrations of older databases.
//!
//! Every row belongs to a book, whose id is part of each primary key, and no statement locks anything shared by all
//! books. Log numbers come from a sequence: a transaction draws them after locking its books, so they rise within each
//! book in the order of commits; across books a later one may be committed first, and some are never used.

use tokio_postgres::{Client, error::SqlState};

use super::{
    super::sums::Sums,
    errors::{PostgresError, reason},
    rows::{insert, sums},
};
use crate::{domain::NewBook, sample};

/// Channel of the trigger's notifications of other programs' changes.
pub(super) const CHANNEL: &str = "quire_book";

/// Channel of servers' [`Announcement`](super::announcements::Announcement). Any role may notify on any channel, so its
/// name is a secret: only those who may read the tables know it.
pub(super) const ANNOUNCEMENT_CHANNEL: &str = "SELECT news_channel FROM quire_schema";

/// Two numbers unlikely to be used by other programs' locks ("Quir", and the schema).
const LOCK: &str = "SELECT pg_advisory_xact_lock(1366649202, 1)";

/// Numbers per value of the sequence, from it on: drawing each separately would cost a quarter of its row's cost.
pub(super) const NUMBERS_A_VALUE: i64 = 32;

/// Each step migrates from the version equal to its index to the next. A released step is never changed.
const MIGRATIONS: &[&str] = &[V1, V2, V3, V4, V5, V6];

/// A book's row is updated in place (HOT) by most sales, so its page has room for versions.
const V1: &str = r#"
CREATE TABLE book (
    id          integer PRIMARY KEY CHECK (id >= 1),
    title       text    NOT NULL CHECK (title <> ''),
    topic       text    NOT NULL CHECK (topic <> ''),
    stock       integer NOT NULL CHECK (stock >= 0),
    price_cents bigint  NOT NULL CHECK (price_cents BETWEEN 0 AND 100000000000)
) WITH (fillfactor = 60);
CREATE INDEX book_topic ON book (topic, id);

CREATE SEQUENCE entry_number;
CREATE TABLE entry (
    number          bigint   NOT NULL DEFAULT nextval('entry_number'),
    book_id         integer  NOT NULL,
    time_ms         bigint   NOT NULL,
    kind            smallint NOT NULL CHECK (kind BETWEEN 1 AND 8),
    quantity        integer,
    "before"        bigint,
    "after"         bigint,
    idempotency_key bytea,
    PRIMARY KEY (number, book_id)
);
CREATE UNIQUE INDEX entry_key ON entry (idempotency_key) WHERE idempotency_key IS NOT NULL;

-- A row for each writing connection: the last batch that it committed, and whether it may commit another.
CREATE TABLE ledger_session (
    id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    batch bigint NOT NULL,
    ended boolean NOT NULL DEFAULT false,
    since timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 20);

CREATE TABLE quire_schema (version integer NOT NULL);
INSERT INTO quire_schema VALUES (0);
"#;

/// [`NUMBERS_A_VALUE`].
const V2: &str = "ALTER SEQUENCE entry_number INCREMENT 32;\n";

/// [`ANNOUNCEMENT_CHANNEL`].
const V3: &str = "ALTER TABLE quire_schema \
    ADD news_channel text NOT NULL DEFAULT 'quire_' || replace(gen_random_uuid()::text, '-', '');\n";

/// Keys have owners; see [`KeyOwner`](crate::domain::KeyOwner).
const V4: &str = "ALTER TABLE entry ADD key_owner bigint NOT NULL DEFAULT 0; DROP INDEX entry_key; \
    CREATE UNIQUE INDEX entry_key ON entry (idempotency_key, key_owner) WHERE idempotency_key IS NOT NULL;\n";

/// Operators' entries have an actor, and books can be delisted.
const V5: &str = "ALTER TABLE entry ADD actor text; ALTER TABLE book ADD listed boolean NOT NULL DEFAULT true;\n";

/// Reservations: an entry has the end of a reservation's time, and a key may have a second entry, which ends the
/// reservation. The index has this as its second column, where most keys leave a byte. The open ones are rows of
/// `hold`; each change of them is under the lock of the book's row, whose `held` is the sum of their copies. A book
/// that comes back after its removal gets that by the trigger.
const V6: &str = r#"
ALTER TABLE entry ADD until_ms bigint;
DROP INDEX entry_key;
CREATE UNIQUE INDEX entry_key ON entry (idempotency_key,
    (kind = 6 AND ("before" > "after") IS NOT TRUE OR kind = 2 AND ("before" = "after") IS TRUE), key_owner)
    WHERE idempotency_key IS NOT NULL;
ALTER TABLE book ADD held integer NOT NULL DEFAULT 0 CHECK (held >= 0), ADD CHECK (stock <= 2147483647 - held);
CREATE TABLE hold (
    book_id  integer NOT NULL,
    number   bigint  NOT NULL,
    quantity integer NOT NULL,
    until_ms bigint  NOT NULL,
    holder   bigint  NOT NULL,
    PRIMARY KEY (book_id, number)
);
CREATE INDEX hold_until ON hold (until_ms);
CREATE FUNCTION book_held() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE book SET held = s.copies FROM (SELECT book_id, sum(quantity) AS copies FROM
        (SELECT book_id, quantity FROM hold JOIN added ON added.id = book_id FOR UPDATE OF hold) h GROUP BY book_id) s
    WHERE book.id = s.book_id;
    RETURN NULL;
END $$;
CREATE TRIGGER book_held AFTER INSERT ON book REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION book_held();
"#;

/// Logs changes by other programs; a server's sessions set `quire.ledger` and write the log themselves. Made if
/// missing.
const TRIGGER: &str = r#"
CREATE OR REPLACE FUNCTION book_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    now_ms bigint := extract(epoch FROM clock_timestamp()) * 1000;
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO entry (book_id, time_ms, kind, "before", "after") VALUES (NEW.id, now_ms, 1, 0, NEW.stock);
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO entry (book_id, time_ms, kind, "before", "after") VALUES (OLD.id, now_ms, 7, OLD.stock, 0);
    ELSE
        IF OLD.id <> NEW.id THEN
            RAISE EXCEPTION 'a book keeps its id: delete it and add another';
        END IF;
        IF OLD.stock <> NEW.stock THEN
            INSERT INTO entry (book_id, time_ms, kind, "before", "after")
            VALUES (NEW.id, now_ms, 6, OLD.stock, NEW.stock);
        END IF;
        IF OLD.price_cents <> NEW.price_cents THEN
            INSERT INTO entry (book_id, time_ms, kind, "before", "after")
            VALUES (NEW.id, now_ms, 5, OLD.price_cents, NEW.price_cents);
        END IF;
        IF OLD.title <> NEW.title OR OLD.topic <> NEW.topic THEN
            INSERT INTO entry (book_id, time_ms, kind) VALUES (NEW.id, now_ms, 8);
        END IF;
        IF OLD.listed <> NEW.listed THEN
            INSERT INTO entry (book_id, time_ms, kind, "before", "after")
            VALUES (NEW.id, now_ms, 8, OLD.listed::integer, NEW.listed::integer);
        END IF;
    END IF;
    PERFORM pg_notify('quire_book', '');
    RETURN NULL;
END $$;
DROP TRIGGER IF EXISTS book_changed ON book;
CREATE TRIGGER book_changed AFTER INSERT OR UPDATE OR DELETE ON book FOR EACH ROW
    WHEN (coalesce(current_setting('quire.ledger', true), '') <> 'on') EXECUTE FUNCTION book_changed();
"#;

/// True if the trigger exists and is enabled.
const TRIGGER_THERE: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_trigger \
    WHERE tgrelid = to_regclass('book') AND tgname = 'book_changed' AND tgenabled <> 'D')";

/// Reason why the tables cannot be used. Each message names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// No permission to create or change them.
    #[error(
        "the user of ledger.url may not create or change tables ({reason}); let someone who may run this, and grant the user all \
         rights on the tables and the sequences:\n{sql}"
    )]
    Rights {
        /// The database's message.
        reason: String,
        /// The statements to run.
        sql: String,
    },
    /// Written by a later release.
    #[error(
        "the database has schema version {found}, and this program knows versions up to {known}; use a newer quire, or restore a \
         backup from before"
    )]
    Newer {
        /// Its version.
        found: usize,
        /// This program's version.
        known: usize,
    },
    /// The primary became unreachable; nothing was done.
    #[error("cannot prepare the tables: {0}")]
    Away(String),
    /// Anything else.
    #[error("cannot prepare the tables: {0}")]
    Other(String),
}

impl From<PostgresError> for SchemaError {
    fn from(error: PostgresError) -> Self {
        if error.is_away() { Self::Away(error.reason()) } else { Self::Other(error.reason()) }
    }
}

impl From<tokio_postgres::Error> for SchemaError {
    fn from(error: tokio_postgres::Error) -> Self {
        PostgresError::from(error).into()
    }
}

/// Migrates the database to the current schema, one program at a time; `first` fills an empty database in the same
/// transaction. True if it was empty.
pub(super) async fn migrate(client: &mut Client, first: First) -> Result<bool, SchemaError> {
    let transaction = client.transaction().await?;
    let found = version(&transaction).await?;
    let is_logged: bool = transaction.query_one(TRIGGER_THERE, &[]).await?.try_get(0)?;
    if found == Some(MIGRATIONS.len()) && is_logged {
        return Ok(false);
    }
    transaction.execute(LOCK, &[]).await?;
    // Reread under the lock: another program may have been first.
    let found = version(&transaction).await?;
    let done = found.unwrap_or(0);
    if done > MIGRATIONS.len() {
        return Err(SchemaError::Newer { found: done, known: MIGRATIONS.len() });
    }
    let is_logged: bool = transaction.query_one(TRIGGER_THERE, &[]).await?.try_get(0)?;
    if !is_logged && found.is_some() {
        tracing::warn!(
            "the trigger of the books was gone and is made again; what other programs changed meanwhile is not in the log"
        );
    }
    if let Some(sql) = steps(done, is_logged) {
        transaction.batch_execute(&sql).await.map_err(|error| match error.code() {
            Some(&SqlState::INSUFFICIENT_PRIVILEGE) => SchemaError::Rights { reason: reason(&error), sql },
            _ => error.into(),
        })?;
    }
    let is_new = found.is_none();
    if is_new && first == First::Sample {
        let books: Vec<NewBook> = sample::books().collect();
        insert(&transaction, &books).await?;
    }
    transaction.commit().await?;
    Ok(is_new)
}

/// Statements that bring a database from this version to the current one; `None` if there is nothing to do.
fn steps(version: usize, is_logged: bool) -> Option<String> {
    let steps = MIGRATIONS[version..].concat();
    // Each version has a trigger of its own.
    let sql = format!("{steps}{TRIGGER}UPDATE quire_schema SET version = {};\n", MIGRATIONS.len());
    (!steps.is_empty() || !is_logged).then_some(sql)
}

/// Sums of a database that can be migrated, without a change; `None` if it has no tables.
pub(super) async fn look(client: &mut Client) -> Result<Option<Sums>, SchemaError> {
    let transaction = client.build_transaction().read_only(true).start().await?;
    let found = version(&transaction).await?;
    let done = found.unwrap_or(0);
    if done > MIGRATIONS.len() {
        return Err(SchemaError::Newer { found: done, known: MIGRATIONS.len() });
    }
    let is_logged = transaction.query_one(TRIGGER_THERE, &[]).await?.try_get(0)?;
    if let Some(sql) = steps(done, is_logged)
        && let Some(reason) = transaction.query_one(MISSING_RIGHTS, &[]).await?.try_get(0)?
    {
        return Err(SchemaError::Rights { reason, sql });
    }
    if found.is_none() {
        return Ok(None);
    }
    Ok(Some(sums(&transaction.query_one(Sums::QUERY, &[]).await?)?))
}

/// Rights that [`steps`] need and the user does not have, as one text or NULL. Only an owner may alter a table.
const MISSING_RIGHTS: &str = "SELECT string_agg(missing, ', ' ORDER BY missing) FROM (\
    SELECT 'no right to create in the schema' WHERE NOT coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) \
    UNION ALL SELECT 'not the owner of ' || relname FROM pg_catalog.pg_class WHERE relname IN \
    ('book', 'entry', 'entry_number', 'quire_schema') AND pg_table_is_visible(oid) AND NOT pg_has_role(relowner, 'USAGE') \
    UNION ALL SELECT 'not the owner of ' || proname FROM pg_catalog.pg_proc WHERE proname = 'book_changed' \
    AND pg_function_is_visible(oid) AND NOT pg_has_role(proowner, 'USAGE')) AS rights (missing)";

/// Initial contents of a new database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    /// The sample catalogue.
    Sample,
    /// No books.
    Nothing,
}

/// Reads the system catalogue itself: functions' knowledge of names may be older than the lock.
const THERE: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_class \
    WHERE relname = 'quire_schema' AND pg_catalog.pg_table_is_visible(oid))";

async fn version(transaction: &tokio_postgres::Transaction<'_>) -> Result<Option<usize>, SchemaError> {
    let there: bool = transaction.query_one(THERE, &[]).await?.try_get(0)?;
    if !there {
        return Ok(None);
    }
    let version: i32 = transaction.query_one("SELECT version FROM quire_schema", &[]).await?.try_get(0)?;
    Ok(usize::try_from(version).ok())
}
