//! Reads from the database: the log, and the catalogue with [`Reads::Database`](crate::settings::Reads::Database).

use std::{
    collections::HashMap,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::TryStreamExt as _;
use tokio::{runtime::Handle, sync::Semaphore};
use tokio_postgres::Client;

use super::{
    super::{
        interface::{Found, Page, SalesSums, TooMany, Which},
        range::{Halving, LOOKED_AT, Line, ROWS_MAX, Tally, conditions},
    },
    errors::PostgresError,
    link::{Link, connect, timed},
    rows::{BOOK_COLUMNS, ENTRY_COLUMNS, book, book_id, entry},
    target::Target,
    visible::Visible,
};
use crate::{
    catalogue::{Book, Books},
    domain::{BookId, Entry, LogFilter, SalesQuery},
    fault::{Fault, Unavailable},
};

/// A pending answer of the database.
type Asked<'c, T> = Pin<Box<dyn Future<Output = Result<T, PostgresError>> + Send + 'c>>;

/// Time limit of a read that may pass through the whole log.
const LONG: Duration = Duration::from_mins(1);

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

    /// Up to `count` of the chosen entries before `before`, newest first.
    pub(super) async fn find(&self, before: i64, filter: LogFilter, count: usize) -> Result<Found, Fault> {
        self.with(move |client| {
            Box::pin(async move {
                let (first, end) = numbers(client, filter.from_ms, filter.to_ms).await?;
                let before = before.min(end);
                let floor = first.max(before.saturating_sub(LOOKED_AT));
                let sql = format!(
                    "SELECT {ENTRY_COLUMNS} FROM entry WHERE number < $1 AND number >= $2{} \
                     ORDER BY number DESC LIMIT $3",
                    conditions(&filter)
                );
                let rows = client.query(&sql, &[&before, &floor, &to_i64(count)]).await?;
                let found = rows.iter().map(entry).collect::<Result<_, _>>()?;
                Ok(Found::of(found, count, floor, first))
            })
        })
        .await
    }

    /// Sums of sales, of one moment.
    pub(super) async fn sales(&self, query: SalesQuery) -> Result<SalesSums, Fault> {
        self.with_time(Some(LONG), move |client| {
            Box::pin(async move {
                client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
                let sums = sales(client, query).await?;
                client.batch_execute("COMMIT").await?;
                Ok(sums)
            })
        })
        .await
    }

    /// One listed book.
    pub(super) async fn book(&self, id: BookId) -> Result<Option<Arc<Book>>, Fault> {
        self.with(move |client| {
            Box::pin(async move {
                let sql = format!("SELECT {BOOK_COLUMNS} FROM book WHERE id = $1 AND listed");
                let found = client.query_opt(&sql, &[&id.get()]).await?;
                found.map(|row| Ok(Arc::new(book(&row, 0)?.into()))).transpose()
            })
        })
        .await
    }

    /// Up to `count` of the chosen books with ids above `after`.
    pub(super) async fn books(&self, which: Which, after: Option<BookId>, count: usize) -> Result<Books, Fault> {
        self.with(move |client| {
            Box::pin(async move {
                let (after, count) = (after.map_or(0, BookId::get), to_i64(count));
                let condition = match &which {
                    Which::All => "",
                    Which::Listed => "AND listed",
                    Which::Topic(_) => "AND topic = $3 AND listed",
                };
                let sql = format!("SELECT {BOOK_COLUMNS} FROM book WHERE id > $1 {condition} ORDER BY id LIMIT $2");
                let rows = match &which {
                    Which::Topic(topic) => client.query(&sql, &[&after, &count, topic]).await?,
                    Which::All | Which::Listed => client.query(&sql, &[&after, &count]).await?,
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
        self.with_time(None, query).await
    }

    /// Reads within a time, by default that of the database.
    async fn with_time<T: Send + 'static>(
        &self,
        time: Option<Duration>,
        query: impl for<'c> FnOnce(&'c Client) -> Asked<'c, T> + Send + 'static,
    ) -> Result<T, Fault> {
        let inner = Arc::clone(&self.inner);
        let answer = self.inner.runtime.spawn(async move {
            let Ok(_turn) = inner.turns.acquire().await else { return Err(Fault::Unavailable(Unavailable::Closing)) };
            let answer = inner.ask(time.unwrap_or(inner.target.timeout), query).await;
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

    async fn ask<T>(
        &self,
        time: Duration,
        query: impl for<'c> FnOnce(&'c Client) -> Asked<'c, T>,
    ) -> Result<T, PostgresError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let link = match idle.filter(|link| !link.client.is_closed()) {
            Some(link) => link,
            None => connect(&self.target).await?,
        };
        // A connection whose query failed is dropped.
        let answer = timed(time, query(&link.client)).await?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(link);
        Ok(answer)
    }
}

/// Sums sales in the caller's transaction.
async fn sales(client: &Client, query: SalesQuery) -> Result<SalesSums, PostgresError> {
    let (first, end) = numbers(client, query.from_ms, query.to_ms).await?;
    let no_values = || Vec::<i32>::new();
    let mut prices = HashMap::new();
    let mut rows = pin!(client.query_raw("SELECT id, price_cents FROM book", no_values()).await?);
    while let Some(row) = rows.try_next().await? {
        prices.insert(book_id(row.try_get(0)?)?, row.try_get(1)?);
    }
    let mut tally = Tally::new(query, prices);
    let mut lines = pin!(client.query_raw(&Line::query(&query, first, end), no_values()).await?);
    let mut is_in_bounds = true;
    while let Some(row) = lines.try_next().await? {
        let (kind, quantity): (i16, Option<i32>) = (row.try_get(1)?, row.try_get(3)?);
        let line = Line::of(row.try_get(0)?, kind.into(), row.try_get(2)?, quantity.map(Into::into), row.try_get(4)?);
        // The rest is read all the same, so that the connection can be used again.
        is_in_bounds = is_in_bounds && line.is_none_or(|line| tally.take(line));
    }
    Ok(if is_in_bounds { Ok(tally.finish()) } else { Err(TooMany(ROWS_MAX)) })
}

/// The numbers among which the entries of a time are: from the first to before the second.
async fn numbers(client: &Client, from_ms: Option<i64>, to_ms: Option<i64>) -> Result<(i64, i64), PostgresError> {
    let last = "SELECT coalesce(max(number), 0) FROM entry";
    let last: i64 = client.query_one(last, &[]).await?.try_get(0)?;
    let from = from_ms.map(|from| Halving::first_from(from, last));
    let to = to_ms.map(|to| Halving::first_behind(to, last));
    Ok((found(client, from).await?.unwrap_or(1), found(client, to).await?.unwrap_or(last + 1)))
}

async fn found(client: &Client, halving: Option<Halving>) -> Result<Option<i64>, PostgresError> {
    let Some(mut halving) = halving else { return Ok(None) };
    let time = client.prepare("SELECT time_ms FROM entry WHERE number >= $1 ORDER BY number LIMIT 1").await?;
    while let Some(number) = halving.probe() {
        let row = client.query_opt(&time, &[&number]).await?;
        halving.answer(row.map(|row| row.try_get(0)).transpose()?);
    }
    Ok(Some(halving.found()))
}

fn to_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
