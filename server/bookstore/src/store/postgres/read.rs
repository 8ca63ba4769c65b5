//! Reads from the database: the log, and the catalogue with [`Reads::Database`](crate::settings::Reads::Database).

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tokio::{runtime::Handle, sync::Semaphore};
use tokio_postgres::Client;

use super::{
    super::interface::Page,
    errors::PostgresError,
    link::{Link, connect, timed},
    rows::{BOOK_COLUMNS, ENTRY_COLUMNS, book, entry},
    target::Target,
    visible::Visible,
};
use crate::{
    catalogue::{Book, Books},
    domain::{BookId, Entry},
    fault::{Fault, Unavailable},
};

/// A pending answer of the database.
type Asked<'c, T> = Pin<Box<dyn Future<Output = Result<T, PostgresError>> + Send + 'c>>;

/// A bounded pool of reading connections. They live on a runtime independent of callers'.
#[derive(Clone)]
pub(super) struct Readers {
    inner: Arc<Inner>,
}

struct Inner {
    target: Arc<Target>,
    visible: Arc<Visible>,
    runtime: Handle,
    turns: Semaphore,
    idle: Mutex<Vec<Link>>,
    /// Reads that failed since the last one that did not.
    failed: AtomicU64,
}

impl Readers {
    /// Creates the pool without connections.
    pub(super) fn new(target: Arc<Target>, visible: Arc<Visible>, runtime: Handle, count: usize) -> Self {
        let (turns, idle) = (Semaphore::new(count.max(1)), Mutex::default());
        Self { inner: Arc::new(Inner { target, visible, runtime, turns, idle, failed: AtomicU64::new(0) }) }
    }

    /// Up to `count` log entries; oldest first only those below which the log is final.
    pub(super) async fn log(&self, page: Page, count: usize) -> Result<Vec<Entry>, Fault> {
        let visible = Arc::clone(&self.inner.visible);
        self.with(move |client| {
            Box::pin(async move {
                let (condition, number, last) = match page {
                    Page::Before(number) => ("number < $1 AND number <= $2 ORDER BY number DESC", number, i64::MAX),
                    Page::After(number) => {
                        ("number > $1 AND number <= $2 ORDER BY number", number, *visible.newest().borrow())
                    }
                };
                let sql = format!("SELECT {ENTRY_COLUMNS} FROM entry WHERE {condition} LIMIT $3");
                client.query(&sql, &[&number, &last, &to_i64(count)]).await?.iter().map(entry).collect()
            })
        })
        .await
    }

    /// One book.
    pub(super) async fn book(&self, id: BookId) -> Result<Option<Arc<Book>>, Fault> {
        self.with(move |client| {
            Box::pin(async move {
                let sql = format!("SELECT {BOOK_COLUMNS} FROM book WHERE id = $1");
                let found = client.query_opt(&sql, &[&id.get()]).await?;
                found.map(|row| Ok(Arc::new(book(&row, 0)?.into()))).transpose()
            })
        })
        .await
    }

    /// Up to `count` books with ids above `after`, only of this topic if given.
    pub(super) async fn books(
        &self,
        topic: Option<String>,
        after: Option<BookId>,
        count: usize,
    ) -> Result<Books, Fault> {
        self.with(move |client| {
            Box::pin(async move {
                let (after, count) = (after.map_or(0, BookId::get), to_i64(count));
                let of_topic = if topic.is_some() { "AND topic = $3" } else { "" };
                let sql = format!("SELECT {BOOK_COLUMNS} FROM book WHERE id > $1 {of_topic} ORDER BY id LIMIT $2");
                let rows = match &topic {
                    Some(topic) => client.query(&sql, &[&after, &count, topic]).await?,
                    None => client.query(&sql, &[&after, &count]).await?,
                };
                rows.iter().map(|row| Ok(Arc::new(book(row, 0)?.into()))).collect()
            })
        })
        .await
    }

    async fn with<T: Send + 'static>(
        &self,
        query: impl for<'c> FnOnce(&'c Client) -> Asked<'c, T> + Send + 'static,
    ) -> Result<T, Fault> {
        let inner = Arc::clone(&self.inner);
        let answer = self.inner.runtime.spawn(async move {
            let Ok(_turn) = inner.turns.acquire().await else { return Err(Fault::Unavailable(Unavailable::Closing)) };
            let answer = inner.ask(query).await;
            inner.log(answer.as_ref().err());
            answer.map_err(|error| match error {
                PostgresError::Contents(_) => Fault::Failed("the database could not be read".to_owned()),
                _ => Fault::Unavailable(error.unavailable()),
            })
        });
        answer.await.unwrap_or(Err(Fault::Unavailable(Unavailable::Closing)))
    }
}

impl Inner {
    /// Logs the first of reads that fail, and how many there were.
    fn log(&self, error: Option<&PostgresError>) {
        let Some(error) = error else {
            if self.failed.load(Relaxed) > 0 {
                let count = self.failed.swap(0, Relaxed);
                tracing::info!(failed = count, "reads from the database succeed again");
            }
            return;
        };
        if self.failed.fetch_add(1, Relaxed) == 0 {
            tracing::error!(reason = error.reason(), "a read from the database failed");
        }
    }

    async fn ask<T>(&self, query: impl for<'c> FnOnce(&'c Client) -> Asked<'c, T>) -> Result<T, PostgresError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let link = match idle.filter(|link| !link.client.is_closed()) {
            Some(link) => link,
            None => connect(&self.target).await?,
        };
        // A connection whose query failed is dropped.
        let answer = timed(self.target.timeout, query(&link.client)).await?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(link);
        Ok(answer)
    }
}

fn to_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
