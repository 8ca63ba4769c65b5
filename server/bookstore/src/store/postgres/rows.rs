//! Conversion between table rows and domain types.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio_postgres::{GenericClient, Row};

use super::{
    super::{
        facts::BookFacts,
        interface::{code, kind},
        sums::Sums,
    },
    errors::PostgresError,
};
use crate::{
    domain::{Actor, BookId, Entry, EntryKind, IdempotencyKey, KeyOwner, NewBook},
    money::Cents,
};

pub(super) const BOOK_COLUMNS: &str = "id, title, topic, stock, price_cents, listed, held";
pub(super) const ENTRY_COLUMNS: &str =
    "number, time_ms, kind, book_id, quantity, \"before\", \"after\", idempotency_key, key_owner, actor, until_ms";

/// Inserts many log entries per statement from the arrays of [`Columns`]. A function in FROM would materialize each
/// array.
pub(super) const APPEND: &str = "INSERT INTO entry \
    (number, time_ms, kind, book_id, quantity, \"before\", \"after\", idempotency_key, key_owner) \
    SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::smallint[]), unnest($4::integer[]), \
    unnest($5::integer[]), unnest($6::bigint[]), unnest($7::bigint[]), unnest($8::bytea[]), \
    unnest($9::bigint[])";

/// As [`APPEND`], with the last columns, which most entries lack.
pub(super) const APPEND_WHOLE: &str = "INSERT INTO entry \
    (number, time_ms, kind, book_id, quantity, \"before\", \"after\", idempotency_key, key_owner, actor, until_ms) \
    SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::smallint[]), unnest($4::integer[]), \
    unnest($5::integer[]), unnest($6::bigint[]), unnest($7::bigint[]), unnest($8::bytea[]), \
    unnest($9::bigint[]), unnest($10::text[]), unnest($11::bigint[])";

/// The row of [`Sums::QUERY`].
pub(super) fn sums(row: &Row) -> Result<Sums, tokio_postgres::Error> {
    let number = |column: usize| row.try_get::<_, i64>(column);
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

fn wrong(column: &str, value: impl std::fmt::Display) -> PostgresError {
    PostgresError::Contents(format!("it holds {value} as {column}, where no store has it; correct that row"))
}

pub(super) fn book_id(id: i32) -> Result<BookId, PostgresError> {
    BookId::new(id).ok_or_else(|| wrong("a book's id", id))
}

/// State of a book, from four columns from `column` on.
pub(super) fn book_facts(row: &Row, column: usize) -> Result<BookFacts, PostgresError> {
    let (stock, cents): (i32, i64) = (row.try_get(column)?, row.try_get(column + 1)?);
    let stock = copies(stock)?;
    let price = Cents::new(cents).ok_or_else(|| wrong("a price", cents))?;
    Ok(BookFacts { stock, price, listed: row.try_get(column + 2)?, held: copies(row.try_get(column + 3)?)? })
}

fn copies(count: i32) -> Result<u32, PostgresError> {
    u32::try_from(count).map_err(|_| wrong("a stock", count))
}

/// A book and its held copies from the columns of [`BOOK_COLUMNS`], which begin at `column`.
pub(super) fn book(row: &Row, column: usize) -> Result<(NewBook, u32), PostgresError> {
    let BookFacts { stock, price, listed, held } = book_facts(row, column + 3)?;
    let id = book_id(row.try_get(column)?)?;
    Ok((NewBook { id, title: row.try_get(column + 1)?, topic: row.try_get(column + 2)?, stock, price, listed }, held))
}

/// A log entry from the columns of [`ENTRY_COLUMNS`].
pub(super) fn entry(row: &Row) -> Result<Entry, PostgresError> {
    let (found, before, after): (i16, Option<i64>, Option<i64>) = (row.try_get(2)?, row.try_get(5)?, row.try_get(6)?);
    let (quantity, key): (Option<i32>, Option<&[u8]>) = (row.try_get(4)?, row.try_get(7)?);
    let owner = KeyOwner::from_stored(row.try_get(8)?);
    let key = IdempotencyKey::from_wire(key.unwrap_or_default()).map(|key| key.map(|key| key.of(owner)));
    Ok(Entry {
        number: row.try_get(0)?,
        time_ms: row.try_get(1)?,
        kind: kind(found.into(), quantity.map(i64::from), before, after).ok_or_else(|| wrong("a kind", found))?,
        book: book_id(row.try_get(3)?)?,
        quantity: quantity.map(|copies| u32::try_from(copies).map_err(|_| wrong("a quantity", copies))).transpose()?,
        before,
        after,
        key: key.map_err(|fault| PostgresError::Contents(fault.to_string()))?,
        actor: row.try_get::<_, Option<&str>>(9)?.map(Actor::named),
        until_ms: row.try_get(10)?,
    })
}

/// Entries column by column, for [`APPEND`].
#[derive(Default)]
pub(super) struct Columns<'e> {
    pub(super) numbers: Vec<i64>,
    pub(super) times: Vec<i64>,
    pub(super) kinds: Vec<i16>,
    pub(super) books: Vec<i32>,
    pub(super) quantities: Vec<Option<i32>>,
    pub(super) befores: Vec<Option<i64>>,
    pub(super) afters: Vec<Option<i64>>,
    pub(super) keys: Vec<Option<&'e [u8]>>,
    pub(super) owners: Vec<i64>,
    /// For [`APPEND_WHOLE`]; empty if no entry has one of them.
    pub(super) actors: Vec<Option<&'e str>>,
    pub(super) untils: Vec<Option<i64>>,
}

impl<'e> Columns<'e> {
    pub(super) fn push(&mut self, entry: &'e Entry) {
        self.numbers.push(entry.number);
        self.times.push(entry.time_ms);
        self.kinds.push(i16::try_from(code(entry.kind)).unwrap_or_default());
        self.books.push(entry.book.get());
        // Fits, because no purchase exceeds a book's largest stock.
        self.quantities.push(entry.quantity.map(u32::cast_signed));
        self.befores.push(entry.before);
        self.afters.push(entry.after);
        self.keys.push(entry.key.as_ref().map(IdempotencyKey::as_bytes));
        self.owners.push(entry.key.as_ref().map(IdempotencyKey::owner).unwrap_or_default().stored());
    }
}

/// Adds books and logs that, in the caller's transaction and session, with triggers off. Returns the ids added; books
/// with used ids stay unchanged.
pub(super) async fn insert(client: &impl GenericClient, books: &[NewBook]) -> Result<Vec<i32>, tokio_postgres::Error> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    let ids: Vec<i32> = books.iter().map(|book| book.id.get()).collect();
    let titles: Vec<&str> = books.iter().map(|book| &*book.title).collect();
    let topics: Vec<&str> = books.iter().map(|book| &*book.topic).collect();
    let stocks: Vec<i32> = books.iter().map(|book| book.stock.cast_signed()).collect();
    let prices: Vec<i64> = books.iter().map(|book| book.price.get()).collect();
    let kind = i16::try_from(code(EntryKind::Added)).unwrap_or_default();
    let listed: Vec<bool> = books.iter().map(|book| book.listed).collect();
    let sql = "WITH added AS (INSERT INTO book (id, title, topic, stock, price_cents, listed) \
         SELECT * FROM unnest($1::integer[], $2::text[], $3::text[], $4::integer[], $5::bigint[], $8::boolean[]) \
         ON CONFLICT (id) DO NOTHING RETURNING id, stock) \
         INSERT INTO entry (book_id, time_ms, kind, \"before\", \"after\") \
         SELECT id, $6::bigint, $7::smallint, 0, stock FROM added RETURNING book_id";
    let added = client.query(sql, &[&ids, &titles, &topics, &stocks, &prices, &time_ms, &kind, &listed]).await?;
    added.iter().map(|row| row.try_get(0)).collect()
}
