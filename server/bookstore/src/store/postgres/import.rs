//! Adds books in bulk in one transaction, and reads them by id: for commands on data.

use std::pin::pin;

use futures_util::TryStreamExt as _;
use tokio::runtime::{Builder, Runtime};

use super::{
    database::{DatabaseError, prepared},
    link::Link,
    rows::{BOOK_COLUMNS, book, insert},
    schema::{CHANNEL, First},
    target::Target,
    trouble::Trouble,
};
use crate::{domain::NewBook, settings::Settings};

/// A command's connection; each call blocks for its answer.
pub(crate) struct Importer {
    runtime: Runtime,
    link: Link,
}

impl Importer {
    /// Prepares the tables, with the sample catalogue in new ones if `sample`, and begins a transaction.
    pub(crate) fn begin(url: &str, settings: &Settings, sample: bool) -> Result<Self, DatabaseError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(DatabaseError::Threads)?;
        let target = Target::new(url, settings.database_ca.as_deref(), settings.database_timeout)?;
        let away = |reason| DatabaseError::Unreachable { name: target.name.clone(), reason };
        let first = if sample { First::Sample } else { First::Nothing };
        let link = runtime.block_on(async {
            let link = prepared(&target, first).await?;
            link.client.batch_execute("BEGIN").await.map_err(|error| away(Trouble::from(error).reason()))?;
            Ok::<_, DatabaseError>(link)
        })?;
        Ok(Self { runtime, link })
    }

    /// Adds books with unused ids. Returns which were added.
    pub(crate) fn add(&mut self, books: &[NewBook]) -> Result<Vec<bool>, String> {
        let added = self.runtime.block_on(insert(&self.link.client, books));
        let added = added.map_err(|error| Trouble::from(error).reason())?;
        let mut free: std::collections::HashSet<i32> = added.into_iter().collect();
        // Of two rows with the same id the first was added.
        Ok(books.iter().map(|book| free.remove(&book.id.get())).collect())
    }

    /// Commits, and notifies servers.
    pub(crate) fn commit(self) -> Result<(), String> {
        let sql = format!("NOTIFY {CHANNEL}; COMMIT");
        let done = self.runtime.block_on(self.link.said.durably(self.link.client.batch_execute(&sql)));
        done.map_err(|trouble| trouble.reason())
    }

    /// Visits every book by id in one snapshot; first their number.
    pub(crate) fn each_book<E: From<String>>(
        &self,
        count: impl FnOnce(u64),
        mut show: impl FnMut(NewBook) -> Result<(), E>,
    ) -> Result<(), E> {
        let failed = |trouble: Trouble| E::from(trouble.reason());
        let sql = |error: tokio_postgres::Error| failed(error.into());
        self.runtime.block_on(async {
            let client = &self.link.client;
            client.batch_execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").await.map_err(sql)?;
            let books = client.query_one("SELECT count(*) FROM book", &[]).await.map_err(sql)?;
            count(books.try_get::<_, i64>(0).map_err(sql)?.unsigned_abs());
            let all = format!("SELECT {BOOK_COLUMNS} FROM book ORDER BY id");
            let mut rows = pin!(client.query_raw(&all, Vec::<i32>::new()).await.map_err(sql)?);
            while let Some(row) = rows.try_next().await.map_err(sql)? {
                show(book(&row, 0).map_err(failed)?)?;
            }
            Ok(())
        })
    }
}
