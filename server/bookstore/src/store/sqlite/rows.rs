//! Conversion between table rows and domain types.

use rusqlite::{Row, types::Type};

use super::super::interface::kind;
use crate::{
    domain::{BookId, Entry, IdempotencyKey, KeyOwner, NewBook},
    money::Cents,
};

/// Inserts books in the caller's transaction; the file's own triggers log them.
pub(crate) fn insert_books(
    connection: &rusqlite::Connection,
    books: impl IntoIterator<Item = NewBook>,
) -> rusqlite::Result<()> {
    let mut insert = connection
        .prepare_cached("INSERT INTO book (id, title, topic, stock, price_cents) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    for book in books {
        insert.execute((book.id.get(), book.title, book.topic, book.stock, book.price.get()))?;
    }
    Ok(())
}

/// Visits every book by id in one snapshot; first their number.
pub(crate) fn each_book<E: From<rusqlite::Error>>(
    connection: &rusqlite::Connection,
    count: impl FnOnce(u64),
    mut show: impl FnMut(NewBook) -> Result<(), E>,
) -> Result<(), E> {
    let moment = connection.unchecked_transaction()?;
    let books: i64 = moment.query_row("SELECT count(*) FROM book", (), |row| row.get(0))?;
    count(books.unsigned_abs());
    let mut query = moment.prepare(&format!("SELECT {BOOK_COLUMNS} FROM book ORDER BY id"))?;
    let mut rows = query.query(())?;
    while let Some(row) = rows.next()? {
        show(book(row)?)?;
    }
    Ok(())
}

pub(super) const BOOK_COLUMNS: &str = "id, title, topic, stock, price_cents";
pub(super) const ENTRY_COLUMNS: &str =
    "number, time_ms, kind, book_id, quantity, \"before\", \"after\", idempotency_key, key_owner";

fn out_of_range(column: usize, value: i64) -> rusqlite::Error {
    rusqlite::Error::IntegralValueOutOfRange(column, value)
}

pub(super) fn book_id(row: &Row<'_>, column: usize) -> rusqlite::Result<BookId> {
    let id = row.get(column)?;
    BookId::new(id).ok_or_else(|| out_of_range(column, id.into()))
}

/// A book from the columns of [`BOOK_COLUMNS`].
pub(super) fn book(row: &Row<'_>) -> rusqlite::Result<NewBook> {
    let cents = row.get(4)?;
    Ok(NewBook {
        id: book_id(row, 0)?,
        title: row.get(1)?,
        topic: row.get(2)?,
        stock: row.get(3)?,
        price: Cents::new(cents).ok_or_else(|| out_of_range(4, cents))?,
    })
}

/// A log entry from the columns of [`ENTRY_COLUMNS`].
pub(super) fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    let code = row.get(2)?;
    Ok(Entry {
        number: row.get(0)?,
        time_ms: row.get(1)?,
        kind: kind(code).ok_or_else(|| out_of_range(2, code))?,
        book: book_id(row, 3)?,
        quantity: row.get(4)?,
        before: row.get(5)?,
        after: row.get(6)?,
        key: key(row, 7)?,
    })
}

/// A key and, in the next column, its owner.
pub(super) fn key(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<IdempotencyKey>> {
    let owner = KeyOwner::from_stored(row.get(column + 1)?);
    let bytes = row.get_ref(column)?.as_blob_or_null()?.unwrap_or_default();
    IdempotencyKey::from_wire(bytes)
        .map(|key| key.map(|key| key.of(owner)))
        .map_err(|fault| rusqlite::Error::FromSqlConversionFailure(column, Type::Blob, Box::new(fault)))
}
