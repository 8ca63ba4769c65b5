//! Books in a SQLite file behind a connection pool, and the transaction log in memory.
//!
//! Every setting of SQLite is its default: a rollback journal that is deleted, `synchronous` FULL; and so is rusqlite's
//! wait of 5 s for a file that another connection has locked.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use r2d2::{ManageConnection, Pool};
use rusqlite::{Connection, OptionalExtension as _, Row, TransactionBehavior, params};

/// Connections in the pool: r2d2's default.
const CONNECTIONS: u32 = 10;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS book (
    id          INTEGER PRIMARY KEY,
    title       TEXT    NOT NULL,
    topic       TEXT    NOT NULL,
    stock       INTEGER NOT NULL,
    price_cents INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS book_topic ON book (topic);";

/// The sample catalogue: id, title, topic, price in cents.
const SAMPLE: [(i32, &str, &str, i64); 4] = [
    (12365, "Surviving College", "college life", 2999),
    (12498, "Cooking for the Impatient Undergraduate", "college life", 1850),
    (53477, "Achieving Less Bugs with More Hugs in CSCI 339", "distributed systems", 5995),
    (53573, "Distributed Systems for Dummies", "distributed systems", 3900),
];

/// A row of the table.
#[derive(Clone, Debug)]
pub struct Book {
    pub id: i32,
    pub title: String,
    pub topic: String,
    pub stock: i32,
    pub price_cents: i64,
}

impl Book {
    const COLUMNS: &str = "id, title, topic, stock, price_cents";

    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            title: row.get(1)?,
            topic: row.get(2)?,
            stock: row.get(3)?,
            price_cents: row.get(4)?,
        })
    }
}

/// Outcome of a purchase, with the number of copies left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purchase {
    Bought { stock_left: i32, number: i64 },
    TooFew { stock_left: i32 },
    NoSuchBook,
}

/// Kind of change to a book.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Purchase { quantity: i32 },
    Restock,
    Price,
}

/// An entry of the log; its number is its position, from 1.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub time_ms: i64,
    pub kind: Kind,
    pub book: i32,
    pub before: i64,
    pub after: i64,
}

/// Like `r2d2_sqlite`, checks a connection (`SELECT 1`) each time it is taken. That crate has no release for this
/// release of rusqlite.
#[derive(Debug)]
struct Manager(PathBuf);

impl ManageConnection for Manager {
    type Connection = Connection;
    type Error = rusqlite::Error;

    fn connect(&self) -> rusqlite::Result<Connection> {
        Connection::open(&self.0)
    }

    fn is_valid(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        connection.execute_batch("SELECT 1;")
    }

    fn has_broken(&self, _: &mut Connection) -> bool {
        false
    }
}

/// The store; every method blocks on a connection, on the file's lock and on the disk.
#[derive(Debug)]
pub struct Store {
    pool: Pool<Manager>,
    /// Grows as long as the server runs, as such logs do.
    log: Mutex<Vec<Entry>>,
}

impl Store {
    /// Opens `bookstore.db` in `folder`, creating both if missing, and sets `stock` copies of each book.
    pub fn open(folder: &Path, stock: i32) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let pool = Pool::builder().max_size(CONNECTIONS).build(Manager(folder.join("bookstore.db")))?;
        let mut connection = pool.get()?;
        let transaction = connection.transaction()?;
        transaction.execute_batch(SCHEMA)?;
        for (id, title, topic, cents) in SAMPLE {
            let row = params![id, title, topic, stock, cents];
            transaction.execute("INSERT OR REPLACE INTO book VALUES (?, ?, ?, ?, ?)", row)?;
        }
        transaction.commit()?;
        drop(connection);
        Ok(Self { pool, log: Mutex::default() })
    }

    pub fn lookup(&self, id: i32) -> anyhow::Result<Option<Book>> {
        let connection = self.pool.get()?;
        let sql = format!("SELECT {} FROM book WHERE id = ?", Book::COLUMNS);
        Ok(connection.prepare_cached(&sql)?.query_row([id], Book::from_row).optional()?)
    }

    pub fn search(&self, topic: &str) -> anyhow::Result<Vec<Book>> {
        let connection = self.pool.get()?;
        let sql = format!("SELECT {} FROM book WHERE topic = ? ORDER BY id", Book::COLUMNS);
        let books = connection.prepare_cached(&sql)?.query_map([topic], Book::from_row)?.collect::<Result<_, _>>()?;
        Ok(books)
    }

    /// At most `count` books with ids above `after`.
    pub fn list(&self, after: i32, count: i64) -> anyhow::Result<Vec<Book>> {
        let connection = self.pool.get()?;
        let sql = format!("SELECT {} FROM book WHERE id > ? ORDER BY id LIMIT ?", Book::COLUMNS);
        let mut statement = connection.prepare_cached(&sql)?;
        let books = statement.query_map(params![after, count], Book::from_row)?.collect::<Result<_, _>>()?;
        Ok(books)
    }

    /// One transaction per purchase. IMMEDIATE, so that no other changes the stock between the SELECT and the UPDATE.
    pub fn buy(&self, id: i32, quantity: i32) -> anyhow::Result<Purchase> {
        let mut connection = self.pool.get()?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let stock: Option<i32> = transaction
            .prepare_cached("SELECT stock FROM book WHERE id = ?")?
            .query_row([id], |row| row.get(0))
            .optional()?;
        let Some(stock) = stock else { return Ok(Purchase::NoSuchBook) };
        if stock < quantity {
            return Ok(Purchase::TooFew { stock_left: stock });
        }
        transaction.prepare_cached("UPDATE book SET stock = stock - ? WHERE id = ?")?.execute([quantity, id])?;
        transaction.commit()?;
        let stock_left = stock - quantity;
        let number = self.note(Kind::Purchase { quantity }, id, stock.into(), stock_left.into());
        Ok(Purchase::Bought { stock_left, number })
    }

    /// Raises every book with fewer copies to `amount`; returns the number of such books.
    pub fn restock(&self, amount: i32) -> anyhow::Result<usize> {
        let mut connection = self.pool.get()?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let low: Vec<(i32, i32)> = transaction
            .prepare_cached("SELECT id, stock FROM book WHERE stock < ? ORDER BY id")?
            .query_map([amount], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        transaction.execute("UPDATE book SET stock = ?1 WHERE stock < ?1", [amount])?;
        transaction.commit()?;
        for (id, before) in &low {
            self.note(Kind::Restock, *id, (*before).into(), amount.into());
        }
        Ok(low.len())
    }

    /// Returns the previous price and the entry's number; none if there is no such book.
    pub fn update_price(&self, id: i32, cents: i64) -> anyhow::Result<Option<(i64, i64)>> {
        let mut connection = self.pool.get()?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let select = "SELECT price_cents FROM book WHERE id = ?";
        let Some(before) = transaction.query_row(select, [id], |row| row.get(0)).optional()? else { return Ok(None) };
        transaction.execute("UPDATE book SET price_cents = ? WHERE id = ?", params![cents, id])?;
        transaction.commit()?;
        Ok(Some((before, self.note(Kind::Price, id, before, cents))))
    }

    /// At most `count` entries with numbers below `before`, newest first.
    pub fn log(&self, before: i64, count: usize) -> Vec<(i64, Entry)> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let numbered = (1..).zip(log.iter().copied());
        let end = usize::try_from(before - 1).unwrap_or(0).min(log.len());
        numbered.take(end).skip(end.saturating_sub(count)).collect::<Vec<_>>().into_iter().rev().collect()
    }

    /// Appends an entry and returns its number. After COMMIT, so purchases may be logged in another order than in the
    /// file.
    fn note(&self, kind: Kind, book: i32, before: i64, after: i64) -> i64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let time_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(Entry { time_ms, kind, book, before, after });
        i64::try_from(log.len()).unwrap_or(i64::MAX)
    }
}
