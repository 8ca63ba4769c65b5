//! Checks a file's log when a server starts: missing rows, and books that differ from the log.
//!
//! A server that comes to this check starts: the loss was accepted, or is from before the log had a head. Only the books
//! determine what may be sold, so a missing row causes no wrong sale, and rows can be restored from a backup while the
//! server runs. Until then the proof of those purchases is missing, and so are their keys: a retry of one may be charged
//! again.

use rusqlite::Connection;

/// The last log entry number, well below `SQLite`'s, which then begins to choose numbers at random. It leaves room for
/// more transactions than there will be.
pub(crate) const NUMBER_MAX: i64 = i64::MAX - (1 << 32);

/// Most gaps, or books, in a message.
const NAMED: usize = 5;

/// A number in the log after which no entry can follow.
pub(super) fn impossible_numbers(file: &Connection) -> rusqlite::Result<Option<i64>> {
    let mut ends = file.prepare("SELECT min(number) FROM entry UNION ALL SELECT max(number) FROM entry")?;
    let ends: Vec<Option<i64>> = ends.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(ends.into_iter().flatten().find(|number| !(1..=NUMBER_MAX).contains(number)))
}

/// The problems, a sentence each; empty for an intact file. One pass over the log, and more only if something is wrong.
pub(crate) fn inspect(file: &Connection) -> rusqlite::Result<Vec<String>> {
    let sums = format!("SELECT count(*), coalesce(max(number), 0), total({STOCK_CHANGE}) FROM entry");
    let (rows, last, by_log): (i64, i64, f64) =
        file.query_row(&sums, (), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let by_books: f64 = file.query_row("SELECT total(stock) FROM book", (), |row| row.get(0))?;
    let mut wrong = Vec::new();
    if rows != last {
        let missing = if last - rows == 1 { "1 row is".to_owned() } else { format!("{} rows are", last - rows) };
        wrong.push(format!(
            "{missing} missing from the log: {}. Put them back from a backup, also while the server runs: \
             sqlite3 bookstore.db \"ATTACH 'backup.db' AS b; INSERT OR IGNORE INTO entry SELECT * FROM b.entry\". \
             Until then a retry of a purchase among them may be charged again",
            gaps(file)?
        ));
    }
    // Exact: both are whole numbers far below 2^53.
    #[expect(clippy::float_cmp, reason = "sums of whole numbers")]
    let differ = by_log != by_books;
    if differ {
        wrong.push(format!(
            "the log does not lead to the books' stock: {}. Rows are missing from the log, or another program changed \
             books with triggers off. The stock is taken as it is; compare it with a backup",
            books(file)?
        ));
    }
    Ok(wrong)
}

/// Change of a book's stock by an entry; the kinds left out are prices and texts.
const STOCK_CHANGE: &str = r#"CASE WHEN kind IN (5, 8) THEN 0 ELSE coalesce("after", 0) - coalesce("before", 0) END"#;

/// The same for a kind's code.
pub(super) fn change_of(kind: i64, before: i64, after: i64) -> i64 {
    if matches!(kind, 5 | 8) { 0 } else { after.saturating_sub(before) }
}

fn gaps(file: &Connection) -> rusqlite::Result<String> {
    let sql = format!(
        "SELECT previous + 1, number - 1
         FROM (SELECT number, lag(number, 1, 0) OVER (ORDER BY number) AS previous FROM entry)
         WHERE number > previous + 1 LIMIT {}",
        NAMED + 1
    );
    let mut query = file.prepare(&sql)?;
    let gaps = query.query_map((), |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
    let gaps = gaps.map(|gap| {
        gap.map(|(from, to)| if from == to { format!("number {from}") } else { format!("numbers {from} to {to}") })
    });
    Ok(listed(&gaps.collect::<Result<Vec<_>, _>>()?))
}

fn books(file: &Connection) -> rusqlite::Result<String> {
    let sql = format!(
        "SELECT id, stock, coalesce(logged, 0) FROM book
         LEFT JOIN (SELECT book_id, CAST(total({STOCK_CHANGE}) AS INTEGER) AS logged FROM entry GROUP BY book_id) ON book_id = id
         WHERE stock <> coalesce(logged, 0) LIMIT {}",
        NAMED + 1
    );
    let mut query = file.prepare(&sql)?;
    let books = query.query_map((), |row| {
        let (id, stock, logged): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(format!("book {id} has {stock} copies and by the log {logged}"))
    })?;
    let books = books.collect::<Result<Vec<_>, _>>()?;
    Ok(if books.is_empty() { "books were removed without an entry".to_owned() } else { listed(&books) })
}

pub(super) fn listed(all: &[String]) -> String {
    let rest = if all.len() > NAMED { " and more" } else { "" };
    format!("{}{rest}", all[..all.len().min(NAMED)].join(", "))
}

#[cfg(test)]
mod tests {
    use super::{super::schema, NUMBER_MAX, impossible_numbers, inspect};
    use rusqlite::Connection;

    fn file() -> Connection {
        let mut file = Connection::open_in_memory().unwrap();
        schema::migrate(&mut file, |_| Ok(())).unwrap();
        for id in 1..=9 {
            let sql = "INSERT INTO book (id, title, topic, stock, price_cents) VALUES (?1, 'A', 'b', 3, 100)";
            file.execute(sql, (id,)).unwrap();
            file.execute("UPDATE book SET stock = 5, price_cents = 7, title = 'C' WHERE id = ?1", (id,)).unwrap();
        }
        file
    }

    #[test]
    fn an_intact_log_has_nothing_wrong() {
        let file = file();
        file.execute("DELETE FROM book WHERE id = 4", ()).unwrap();
        file.execute("UPDATE book SET listed = 0 WHERE id = 5", ()).unwrap();
        assert_eq!(inspect(&file).unwrap(), Vec::<String>::new());
        assert_eq!(impossible_numbers(&file).unwrap(), None);
    }

    #[test]
    fn missing_rows_are_named_wherever_they_are() {
        for (condition, part) in [
            ("number = 1", "1 row is missing from the log: number 1."),
            ("number BETWEEN 10 AND 12", "3 rows are missing from the log: numbers 10 to 12."),
            ("number % 2 = 0 AND number < 36", "number 2, number 4, number 6, number 8, number 10 and more."),
        ] {
            let file = file();
            file.execute(&format!("DELETE FROM entry WHERE {condition}"), ()).unwrap();
            let wrong = inspect(&file).unwrap();
            assert!(wrong[0].contains(part), "{wrong:?}");
        }
    }

    #[test]
    fn rows_that_are_missing_at_the_end_show_in_the_stock() {
        let file = file();
        let sql = "INSERT INTO book (id, title, topic, stock, price_cents) VALUES (77, 'A', 'b', 30, 100)";
        file.execute(sql, ()).unwrap();
        file.execute("DELETE FROM entry WHERE book_id = 77", ()).unwrap();
        let wrong = inspect(&file).unwrap();
        assert!(wrong[0].contains("book 77 has 30 copies and by the log 0"), "{wrong:?}");
    }

    #[test]
    fn numbers_that_no_entry_can_follow_are_found() {
        for number in [i64::MIN, -5, 0, NUMBER_MAX + 1, i64::MAX] {
            let file = file();
            file.execute("UPDATE entry SET number = ?1 WHERE number = 3", (number,)).unwrap();
            assert_eq!(impossible_numbers(&file).unwrap(), Some(number));
        }
    }
}
