//! Copies foreign rows with their numbers into empty tables: by COPY, in one transaction.

use std::pin::Pin;

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{
    binary_copy::BinaryCopyInWriter,
    types::{ToSql, Type},
};

use super::{
    super::{code::code, sums::Sums},
    database::{DatabaseError, prepared},
    link::Link,
    rows::{BOOK_COLUMNS, ENTRY_COLUMNS},
    schema::{CHANNEL, First},
    target::Target,
    trouble::Trouble,
};
use crate::{
    domain::{Entry, IdempotencyKey, NewBook},
    settings::Settings,
};

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

fn told(error: tokio_postgres::Error) -> String {
    Trouble::from(error).reason()
}

impl Copier {
    /// Prepares the tables, and locks them against servers' writes.
    pub(crate) fn begin(url: &str, settings: &Settings) -> Result<Self, DatabaseError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(DatabaseError::Threads)?;
        let target = Target::new(url, settings.database_ca.as_deref(), settings.database_timeout)?;
        let link = runtime.block_on(async {
            let link = prepared(&target, First::Nothing).await?;
            let begun = link.client.batch_execute("BEGIN; LOCK TABLE book, entry IN SHARE ROW EXCLUSIVE MODE").await;
            begun.map_err(|error| DatabaseError::Unreachable { name: target.name.clone(), reason: told(error) })?;
            Ok::<_, DatabaseError>(link)
        })?;
        Ok(Self { runtime, link })
    }

    pub(crate) fn sums(&self) -> Result<Sums, String> {
        let row = self.runtime.block_on(self.link.client.query_one(Sums::QUERY, &[])).map_err(told)?;
        let number = |column: usize| row.try_get::<_, i64>(column).map_err(told);
        Ok(Sums {
            books: number(0)?,
            copies: number(1)?,
            cents: number(2)?,
            entries: number(3)?,
            last_number: number(4)?,
            sold: number(5)?,
            keys: number(6)?,
        })
    }

    /// Begins the rows of the catalogue.
    pub(crate) fn books(&self) -> Result<Rows<'_>, String> {
        self.rows("book", BOOK_COLUMNS, &[Type::INT4, Type::TEXT, Type::TEXT, Type::INT4, Type::INT8])
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
        ];
        self.rows("entry", ENTRY_COLUMNS, &types)
    }

    fn rows(&self, table: &str, columns: &str, types: &[Type]) -> Result<Rows<'_>, String> {
        let sql = format!("COPY {table} ({columns}) FROM STDIN BINARY");
        let sink = self.runtime.block_on(self.link.client.copy_in(&sql)).map_err(told)?;
        Ok(Rows { runtime: &self.runtime, into: Box::pin(BinaryCopyInWriter::new(sink, types)) })
    }

    /// Commits; new numbers continue above `last_number`, and servers are notified.
    pub(crate) fn commit(self, last_number: i64) -> Result<(), String> {
        let client = &self.link.client;
        let committed: Result<(), Trouble> = self.runtime.block_on(async {
            let next = "SELECT setval('entry_number', greatest($1::bigint, 1), $1::bigint > 0)";
            client.query_one(next, &[&last_number]).await?;
            self.link.said.durably(client.batch_execute(&format!("NOTIFY {CHANNEL}; COMMIT"))).await?;
            Ok(client.batch_execute("ANALYZE book; ANALYZE entry").await?)
        });
        committed.map_err(|trouble| trouble.reason())
    }
}

impl Rows<'_> {
    fn write(&mut self, values: &[&(dyn ToSql + Sync)]) -> Result<(), String> {
        self.runtime.block_on(self.into.as_mut().write(values)).map_err(told)
    }

    pub(crate) fn add_book(&mut self, book: &NewBook) -> Result<(), String> {
        let (id, stock, cents) = (book.id.get(), book.stock.cast_signed(), book.price.get());
        self.write(&[&id, &book.title, &book.topic, &stock, &cents])
    }

    pub(crate) fn add_entry(&mut self, entry: &Entry) -> Result<(), String> {
        let kind = i16::try_from(code(entry.kind)).unwrap_or_default();
        let quantity = entry.quantity.map(u32::cast_signed);
        let (book, key) = (entry.book.get(), entry.key.as_ref().map(IdempotencyKey::as_bytes));
        let owner = entry.key.as_ref().map(IdempotencyKey::owner).unwrap_or_default().stored();
        self.write(&[&entry.number, &entry.time_ms, &kind, &book, &quantity, &entry.before, &entry.after, &key, &owner])
    }

    /// Ends the rows.
    pub(crate) fn finish(mut self) -> Result<(), String> {
        self.runtime.block_on(self.into.as_mut().finish()).map(drop).map_err(told)
    }
}
