//! Reads from the file: the log, and the catalogue with [`Reads::Database`](crate::settings::Reads::Database).

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use rusqlite::{Connection, OptionalExtension, Row};
use tokio::sync::Semaphore;

use super::{
    super::{
        interface::{Found, Page, SalesSums, TooMany, Which},
        range::{Halving, LOOKED_AT, Line, ROWS_MAX, Tally, conditions},
    },
    errors::reason,
    open::{Role, open},
    rows::{BOOK_COLUMNS, ENTRY_COLUMNS, book, book_id, entry},
};
use crate::{
    catalogue::{Book, Books},
    domain::{BookId, Entry, LogFilter, SalesQuery},
    fault::{Fault, Unavailable},
    settings::Settings,
};

/// A bounded pool of reading connections, used on blocking threads.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    settings: Settings,
    turns: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    /// Creates the pool without connections.
    pub(super) fn new(path: PathBuf, settings: Settings) -> Self {
        let turns = Arc::new(Semaphore::new(settings.read_pool.max(1)));
        Self { path, settings, turns, idle: Mutex::default() }
    }

    /// Up to `count` log entries.
    pub(super) async fn log(self: &Arc<Self>, page: Page, count: usize) -> Result<Vec<Entry>, Fault> {
        self.with(move |file| {
            let (number, condition) = match page {
                Page::Before(number) => (number, "< ?1 ORDER BY number DESC"),
                Page::After(number) => (number, "> ?1 ORDER BY number"),
            };
            let sql = format!("SELECT {ENTRY_COLUMNS} FROM entry WHERE number {condition} LIMIT ?2");
            file.prepare_cached(&sql)?.query_map((number, to_i64(count)), entry)?.collect()
        })
        .await
    }

    /// Up to `count` of the chosen entries before `before`, newest first.
    pub(super) async fn find(self: &Arc<Self>, before: i64, filter: LogFilter, count: usize) -> Result<Found, Fault> {
        self.with(move |file| {
            let file = file.unchecked_transaction()?;
            let (first, end) = numbers(&file, filter.from_ms, filter.to_ms)?;
            let before = before.min(end);
            let floor = first.max(before.saturating_sub(LOOKED_AT));
            let sql = format!(
                "SELECT {ENTRY_COLUMNS} FROM entry WHERE number < ?1 AND number >= ?2{} ORDER BY number DESC LIMIT ?3",
                conditions(&filter)
            );
            let found =
                file.prepare(&sql)?.query_map((before, floor, to_i64(count)), entry)?.collect::<Result<_, _>>()?;
            Ok(Found::of(found, count, floor, first))
        })
        .await
    }

    /// Sums of sales, of one moment.
    pub(super) async fn sales(self: &Arc<Self>, query: SalesQuery) -> Result<SalesSums, Fault> {
        self.with(move |file| {
            let file = file.unchecked_transaction()?;
            let (first, end) = numbers(&file, query.from_ms, query.to_ms)?;
            let mut prices = file.prepare_cached("SELECT id, price_cents FROM book")?;
            let prices = prices.query_map((), |row| Ok((book_id(row, 0)?, row.get(1)?)))?;
            let mut tally = Tally::new(query, prices.collect::<Result<HashMap<_, _>, _>>()?);
            let mut lines = file.prepare(&Line::query(&query, first, end))?;
            let mut rows = lines.query(())?;
            while let Some(row) = rows.next()? {
                let line = Line::of(row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?);
                if !line.is_none_or(|line| tally.take(line)) {
                    return Ok(Err(TooMany(ROWS_MAX)));
                }
            }
            Ok(Ok(tally.finish()))
        })
        .await
    }

    /// One listed book, from the file.
    pub(super) async fn book(self: &Arc<Self>, id: BookId) -> Result<Option<Arc<Book>>, Fault> {
        self.with(move |file| {
            let sql = format!("SELECT {BOOK_COLUMNS} FROM book WHERE id = ?1 AND listed");
            let found = file.prepare_cached(&sql)?.query_row((id.get(),), book).optional()?;
            Ok(found.map(|book| Arc::new(book.into())))
        })
        .await
    }

    /// Up to `count` of the chosen books with ids above `after`.
    pub(super) async fn books(
        self: &Arc<Self>,
        which: Which,
        after: Option<BookId>,
        count: usize,
    ) -> Result<Books, Fault> {
        self.with(move |file| {
            let condition = match &which {
                Which::All => "",
                Which::Listed => "AND listed",
                Which::Topic(_) => "AND topic = ?3 AND listed",
            };
            let sql = format!("SELECT {BOOK_COLUMNS} FROM book WHERE id > ?1 {condition} ORDER BY id LIMIT ?2");
            let mut query = file.prepare_cached(&sql)?;
            let (after, count) = (after.map_or(0, BookId::get), to_i64(count));
            let found = |row: &Row<'_>| Ok(Arc::new(book(row)?.into()));
            match &which {
                Which::Topic(topic) => query.query_map((after, count, topic), found)?.collect(),
                Which::All | Which::Listed => query.query_map((after, count), found)?.collect(),
            }
        })
        .await
    }

    /// Runs a query on a blocking thread.
    pub(super) async fn with<T: Send + 'static>(
        self: &Arc<Self>,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Fault> {
        let turn =
            Arc::clone(&self.turns).acquire_owned().await.map_err(|_| Fault::Unavailable(Unavailable::Closing))?;
        let pool = Arc::clone(self);
        let answer = tokio::task::spawn_blocking(move || {
            // Held until the query ends, so that a dropped caller does not let an excess connection open.
            let _turn = turn;
            let connection = match pool.take() {
                Some(connection) => connection,
                None => open(&pool.path, Role::Reader, &pool.settings).map_err(|error| error.to_string())?.connection,
            };
            // A connection whose query failed is dropped: the file may have been replaced.
            let answer = query(&connection).map_err(|error| reason(&error))?;
            pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            Ok(answer)
        });
        answer.await.map_err(|_| Fault::Failed("a read was given up".to_owned()))?.map_err(|error: String| {
            tracing::error!(%error, "a read from the database failed");
            Fault::Failed("the database could not be read".to_owned())
        })
    }

    fn take(&self) -> Option<Connection> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

/// The numbers among which the entries of a time are: from the first to before the second.
fn numbers(file: &Connection, from_ms: Option<i64>, to_ms: Option<i64>) -> rusqlite::Result<(i64, i64)> {
    let last: i64 = file.query_row("SELECT coalesce(max(number), 0) FROM entry", (), |row| row.get(0))?;
    let mut time = file.prepare_cached("SELECT time_ms FROM entry WHERE number >= ?1 ORDER BY number LIMIT 1")?;
    let mut find = |mut halving: Halving| {
        while let Some(number) = halving.probe() {
            halving.answer(time.query_row((number,), |row| row.get(0)).optional()?);
        }
        Ok::<_, rusqlite::Error>(halving.found())
    };
    let first = from_ms.map_or(Ok(1), |from| find(Halving::first_from(from, last)))?;
    let end = to_ms.map_or(Ok(last + 1), |to| find(Halving::first_behind(to, last)))?;
    Ok((first, end))
}

fn to_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
