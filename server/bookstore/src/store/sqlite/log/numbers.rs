//! Numbers that entries of the log may have.

use rusqlite::Connection;

/// The last log entry number, well below `SQLite`'s, which then begins to choose numbers at random. It leaves room for
/// more transactions than there will be.
pub(crate) const NUMBER_MAX: i64 = i64::MAX - (1 << 32);

/// A number in the log after which no entry can follow.
pub(crate) fn impossible_numbers(file: &Connection) -> rusqlite::Result<Option<i64>> {
    let mut ends = file.prepare("SELECT min(number) FROM entry UNION ALL SELECT max(number) FROM entry")?;
    let ends: Vec<Option<i64>> = ends.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(ends.into_iter().flatten().find(|number| !(1..=NUMBER_MAX).contains(number)))
}

#[cfg(test)]
mod tests {
    use super::{super::super::schema, NUMBER_MAX, impossible_numbers};
    use rusqlite::Connection;

    #[test]
    fn numbers_that_no_entry_can_follow_are_found() {
        for number in [i64::MIN, -5, 0, NUMBER_MAX + 1, i64::MAX] {
            let mut file = Connection::open_in_memory().unwrap();
            schema::migrate(&mut file, |_| Ok(())).unwrap();
            file.execute("INSERT INTO book (id, title, topic, stock, price_cents) VALUES (1, 'A', 'b', 3, 100)", ())
                .unwrap();
            assert_eq!(impossible_numbers(&file).unwrap(), None);
            file.execute("UPDATE entry SET number = ?1", (number,)).unwrap();
            assert_eq!(impossible_numbers(&file).unwrap(), Some(number));
        }
    }
}
