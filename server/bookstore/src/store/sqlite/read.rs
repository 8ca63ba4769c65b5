//! Reads from the file: the log, and the catalogue with [`Reads::Database`](crate::settings::Reads::Database).

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use rusqlite::{Connection, OptionalExtension, Row};
use tokio::sync::Semaphore;

use super::{
    super::interface::Page,
    errors::reason,
    open::{Role, open},
    rows::{BOOK_COLUMNS, ENTRY_COLUMNS, book, entry},
};
use crate::{
    catalogue::{Book, Books},
    domain::{BookId, Entry},
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

    /// One book, from the file.
    pub(super) async fn book(self: &Arc<Self>, id: BookId) -> Result<Option<Arc<Book>>, Fault> {
        self.with(move |file| {
            let sql = format!("SELECT {BOOK_COLUMNS} FROM book WHERE id = ?1");
            let found = file.prepare_cached(&sql)?.query_row((id.get(),), book).optional()?;
            Ok(found.map(|book| Arc::new(book.into())))
        })
        .await
    }

    /// Up to `count` books with ids above `after`, only of this topic if given.
    pub(super) async fn books(
        self: &Arc<Self>,
        topic: Option<String>,
        after: Option<BookId>,
        count: usize,
    ) -> Result<Books, Fault> {
        self.with(move |file| {
            let of_topic = if topic.is_some() { "AND topic = ?3" } else { "" };
            let sql = format!("SELECT {BOOK_COLUMNS} FROM book WHERE id > ?1 {of_topic} ORDER BY id LIMIT ?2");
            let mut query = file.prepare_cached(&sql)?;
            let (after, count) = (after.map_or(0, BookId::get), to_i64(count));
            let found = |row: &Row<'_>| Ok(Arc::new(book(row)?.into()));
            match &topic {
                Some(topic) => query.query_map((after, count, topic), found)?.collect(),
                None => query.query_map((after, count), found)?.collect(),
            }
        })
        .await
    }

    async fn with<T: Send + 'static>(
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

fn to_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
