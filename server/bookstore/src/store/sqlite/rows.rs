//! Conversion between table rows and domain types.

use rusqlite::{Row, types::Type};

use super::super::{interface::kind, sums::Count};
use crate::{
    domain::{Actor, BookId, Entry, IdempotencyKey, KeyOwner, NewBook},
    money::Cents,
};

/// Inserts books in the caller's transaction; the file's own triggers log them.
pub(crate) fn insert_books(
    connection: &rusqlite::Connection,
    books: impl IntoIterator<Item = NewBook>,
) -> rusqlite::Result<()> {
    let mut insert =
        connection.prepare_cached(&format!("INSERT INTO book ({BOOK_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6)"))?;
    for book in books {
        insert.execute((book.id.get(), book.title, book.topic, book.stock, book.price.get(), book.listed))?;
    }
    Ok(())
}

/// Visits every book by id in one snapshot; first their number. The file may be of an older release.
pub(crate) fn each_book<E: From<rusqlite::Error>>(
    connection: &rusqlite::Connection,
    count: impl FnOnce(Count),
    mut show: impl FnMut(NewBook) -> Result<(), E>,
) -> Result<(), E> {
    let moment = connection.unchecked_transaction()?;
    let columns: i64 =
        moment
            .query_row("SELECT count(*) FROM pragma_table_info('book') WHERE name = 'listed'", (), |row| row.get(0))?;
    let table = if columns == 0 { "(SELECT *, 1 AS listed FROM book)" } else { "book" };
    let sql = format!("SELECT count(*), count(*) > total(listed) FROM {table}");
    let (books, delisted): (i64, bool) = moment.query_row(&sql, (), |row| Ok((row.get(0)?, row.get(1)?)))?;
    count(Count { books: books.unsigned_abs(), delisted });
    let mut query = moment.prepare(&format!("SELECT {BOOK_COLUMNS} FROM {table} ORDER BY id"))?;
    let mut rows = query.query(())?;
    while let Some(row) = rows.next()? {
        show(book(row)?)?;
    }
    Ok(())
}

pub(super) const BOOK_COLUMNS: &str = "id, title, topic, stock, price_cents, listed";
pub(super) const ENTRY_COLUMNS: &str =
    "number, time_ms, kind, book_id, quantity, \"before\", \"after\", idempotency_key, key_owner, actor, until_ms";

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
        listed: row.get(5)?,
    })
}

/// A log entry from the columns of [`ENTRY_COLUMNS`].
pub(super) fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    let (code, before, after) = (row.get(2)?, row.get(5)?, row.get(6)?);
    Ok(Entry {
        number: row.get(0)?,
        time_ms: row.get(1)?,
        kind: kind(code, row.get(4)?, before, after).ok_or_else(|| out_of_range(2, code))?,
        book: book_id(row, 3)?,
        quantity: row.get(4)?,
        before,
        after,
        key: key(row, 7)?,
        actor: row.get::<_, Option<String>>(9)?.map(Actor::named),
        until_ms: row.get(10)?,
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
