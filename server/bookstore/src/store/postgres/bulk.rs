//! Bulk transactions of commands: an import that adds books and reads them by id, and a copy that fills empty tables with
//! foreign rows and their numbers by COPY.

use std::pin::{Pin, pin};

use futures_util::TryStreamExt as _;
use tokio::runtime::Runtime;
use tokio_postgres::{
    binary_copy::BinaryCopyInWriter,
    types::{ToSql, Type},
};

use super::{
    super::{
        interface::code,
        sums::{Count, Sums},
    },
    errors::PostgresError,
    link::Link,
    rows::{BOOK_COLUMNS, ENTRY_COLUMNS, book, insert, sums},
    schema::{CHANNEL, First},
    store::{DatabaseError, look, prepared, runtime},
    target::Target,
};
use crate::{
    domain::{Actor, Entry, IdempotencyKey, NewBook},
    settings::Settings,
};

fn error_text(error: tokio_postgres::Error) -> String {
    PostgresError::from(error).reason()
}

/// A command's connection; each call blocks for its answer.
pub(crate) struct Importer {
    runtime: Runtime,
    link: Link,
}

impl Importer {
    /// Prepares the tables, with the sample catalogue in new ones if `sample`, and begins a transaction.
    pub(crate) fn begin(url: &str, settings: &Settings, sample: bool) -> Result<Self, DatabaseError> {
        let runtime = runtime().map_err(DatabaseError::Threads)?;
        let target = Target::new(url, settings.database_ca.as_deref(), settings.database_timeout)?;
        let away = |reason| DatabaseError::Unreachable { name: target.name.clone(), reason };
        let first = if sample { First::Sample } else { First::Nothing };
        let link = runtime.block_on(async {
            let link = prepared(&target, first).await?;
            link.client.batch_execute("BEGIN").await.map_err(|error| away(error_text(error)))?;
            Ok::<_, DatabaseError>(link)
        })?;
        Ok(Self { runtime, link })
    }

    /// Adds books with unused ids. Returns which were added.
    pub(crate) fn add(&mut self, books: &[NewBook]) -> Result<Vec<bool>, String> {
        let added = self.runtime.block_on(insert(&self.link.client, books));
        let added = added.map_err(error_text)?;
        let mut free: std::collections::HashSet<i32> = added.into_iter().collect();
        // Of two rows with the same id the first was added.
        Ok(books.iter().map(|book| free.remove(&book.id.get())).collect())
    }

    /// Commits, and notifies servers.
    pub(crate) fn commit(self) -> Result<(), String> {
        let sql = format!("NOTIFY {CHANNEL}; COMMIT");
        let done = self.runtime.block_on(self.link.notices.durably(self.link.client.batch_execute(&sql)));
        done.map_err(|error| error.reason())
    }

    /// Visits every book by id in one snapshot; first their number.
    pub(crate) fn each_book<E: From<String>>(
        &self,
        count: impl FnOnce(Count),
        mut show: impl FnMut(NewBook) -> Result<(), E>,
    ) -> Result<(), E> {
        let failed = |error: PostgresError| E::from(error.reason());
        let sql = |error: tokio_postgres::Error| failed(error.into());
        self.runtime.block_on(async {
            let client = &self.link.client;
            client.batch_execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").await.map_err(sql)?;
            let books = "SELECT count(*), coalesce(NOT bool_and(listed), false) FROM book";
            let books = client.query_one(books, &[]).await.map_err(sql)?;
            let delisted = books.try_get(1).map_err(sql)?;
            count(Count { books: books.try_get::<_, i64>(0).map_err(sql)?.unsigned_abs(), delisted });
            let all = format!("SELECT {BOOK_COLUMNS} FROM book ORDER BY id");
            let mut rows = pin!(client.query_raw(&all, Vec::<i32>::new()).await.map_err(sql)?);
            while let Some(row) = rows.try_next().await.map_err(sql)? {
                show(book(&row, 0).map_err(failed)?.0)?;
            }
            Ok(())
        })
    }
}

/// A transaction that fills the tables; rolled back on drop.
pub(crate) struct Copier {
    runtime: Runtime,
    link: Link,
}

/// Writer of rows into a table.
pub(crate) struct Rows<'c> {
    runtime: &'c Runtime,
    into: Pin<Box<BinaryCopyInWriter>>,
}

impl Copier {
    /// Prepares the tables, and locks them against servers' writes.
    pub(crate) fn begin(url: &str, settings: &Settings) -> Result<Self, DatabaseError> {
        let runtime = runtime().map_err(DatabaseError::Threads)?;
        let target = Target::new(url, settings.database_ca.as_deref(), settings.database_timeout)?;
        let link = runtime.block_on(async {
            let link = prepared(&target, First::Nothing).await?;
            let begun = link.client.batch_execute("BEGIN; LOCK TABLE book, entry IN SHARE ROW EXCLUSIVE MODE").await;
            begun
                .map_err(|error| DatabaseError::Unreachable { name: target.name.clone(), reason: error_text(error) })?;
            Ok::<_, DatabaseError>(link)
        })?;
        Ok(Self { runtime, link })
    }

    /// Sums of the database, which is not changed; `None` if it has no tables.
    pub(crate) fn look(url: &str, settings: &Settings) -> Result<Option<Sums>, DatabaseError> {
        let runtime = runtime().map_err(DatabaseError::Threads)?;
        let target = Target::new(url, settings.database_ca.as_deref(), settings.database_timeout)?;
        runtime.block_on(look(&target))
    }

    pub(crate) fn sums(&self) -> Result<Sums, String> {
        let row = self.runtime.block_on(self.link.client.query_one(Sums::QUERY, &[])).map_err(error_text)?;
        sums(&row).map_err(error_text)
    }

    /// Begins the rows of the catalogue.
    pub(crate) fn books(&self) -> Result<Rows<'_>, String> {
        let columns = BOOK_COLUMNS.trim_end_matches(", held");
        self.rows("book", columns, &[Type::INT4, Type::TEXT, Type::TEXT, Type::INT4, Type::INT8, Type::BOOL])
    }

    /// Begins the rows of the log.
    pub(crate) fn entries(&self) -> Result<Rows<'_>, String> {
        let types = [
            Type::INT8,
            Type::INT8,
            Type::INT2,
            Type::INT4,
            Type::INT4,
            Type::INT8,
            Type::INT8,
            Type::BYTEA,
            Type::INT8,
            Type::TEXT,
            Type::INT8,
        ];
        self.rows("entry", ENTRY_COLUMNS, &types)
    }

    fn rows(&self, table: &str, columns: &str, types: &[Type]) -> Result<Rows<'_>, String> {
        let sql = format!("COPY {table} ({columns}) FROM STDIN BINARY");
        let sink = self.runtime.block_on(self.link.client.copy_in(&sql)).map_err(error_text)?;
        Ok(Rows { runtime: &self.runtime, into: Box::pin(BinaryCopyInWriter::new(sink, types)) })
    }

    /// Opens the reservations that began with the entries of these numbers. Returns how many there are.
    pub(crate) fn hold(&self, numbers: &[i64]) -> Result<i64, String> {
        // Their holders are known as far as their keys have owners.
        let sql = "WITH begun AS (INSERT INTO hold (book_id, number, quantity, until_ms, holder) \
            SELECT book_id, number, quantity, until_ms, key_owner FROM entry WHERE number = ANY($1::bigint[]) \
            AND idempotency_key IS NOT NULL AND quantity IS NOT NULL AND until_ms IS NOT NULL RETURNING book_id, quantity), \
            shown AS (UPDATE book SET held = s.copies FROM \
            (SELECT book_id, sum(quantity) AS copies FROM begun GROUP BY book_id) s WHERE id = s.book_id) \
            SELECT count(*) FROM begun";
        let row = self.runtime.block_on(self.link.client.query_one(sql, &[&numbers])).map_err(error_text)?;
        row.try_get(0).map_err(error_text)
    }

    /// Commits; new numbers continue above `last_number`, and servers are notified.
    pub(crate) fn commit(self, last_number: i64) -> Result<(), String> {
        let client = &self.link.client;
        let committed: Result<(), PostgresError> = self.runtime.block_on(async {
            let next = "SELECT setval('entry_number', greatest($1::bigint, 1), $1::bigint > 0)";
            client.query_one(next, &[&last_number]).await?;
            self.link.notices.durably(client.batch_execute(&format!("NOTIFY {CHANNEL}; COMMIT"))).await?;
            Ok(client.batch_execute("ANALYZE book; ANALYZE entry").await?)
        });
        committed.map_err(|error| error.reason())
    }
}

impl Rows<'_> {
    fn write(&mut self, values: &[&(dyn ToSql + Sync)]) -> Result<(), String> {
        self.runtime.block_on(self.into.as_mut().write(values)).map_err(error_text)
    }

    pub(crate) fn add_book(&mut self, book: &NewBook) -> Result<(), String> {
        let (id, stock, cents) = (book.id.get(), book.stock.cast_signed(), book.price.get());
        self.write(&[&id, &book.title, &book.topic, &stock, &cents, &book.listed])
    }

    pub(crate) fn add_entry(&mut self, entry: &Entry) -> Result<(), String> {
        let kind = i16::try_from(code(entry.kind)).unwrap_or_default();
        let quantity = entry.quantity.map(u32::cast_signed);
        let (book, key) = (entry.book.get(), entry.key.as_ref().map(IdempotencyKey::as_bytes));
        let owner = entry.key.as_ref().map(IdempotencyKey::owner).unwrap_or_default().stored();
        let actor = entry.actor.as_ref().map(Actor::as_str);
        let Entry { number, time_ms, before, after, until_ms, .. } = entry;
        self.write(&[number, time_ms, &kind, &book, &quantity, before, after, &key, &owner, &actor, until_ms])
    }

    /// Ends the rows.
    pub(crate) fn finish(mut self) -> Result<(), String> {
        self.runtime.block_on(self.into.as_mut().finish()).map(drop).map_err(error_text)
    }
}
