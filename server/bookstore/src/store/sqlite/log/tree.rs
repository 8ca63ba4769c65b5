//! The Merkle tree over the log's entries, of which the right edge is kept.

use std::ops::RangeInclusive;

use rusqlite::{Connection, OptionalExtension, Row, types::Type};
use tlog::{Frontier, Hash};

use super::super::{
    super::leaf::{Leaf, MISSING, missing},
    schema::HOLDS_SINCE,
};
use crate::domain::Entry;

/// Entries between two bases, which bound the entries that a start reads.
pub(crate) const BASE_EVERY: u64 = 1 << 16;

/// Numbers of the log that are known to have no entry. Their leaves stay [`missing`] even if rows are put back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gaps(Vec<RangeInclusive<i64>>);

impl Gaps {
    /// Adds numbers; ranges that meet become one.
    pub(crate) fn add(&mut self, numbers: RangeInclusive<i64>) {
        if numbers.is_empty() {
            return;
        }
        self.0.push(numbers);
        self.0.sort_unstable_by_key(|gap| *gap.start());
        let mut merged: Vec<RangeInclusive<i64>> = Vec::with_capacity(self.0.len());
        for gap in self.0.drain(..) {
            match merged.last_mut().filter(|last| *gap.start() <= last.end().saturating_add(1)) {
                Some(last) => *last = *last.start()..=*last.end().max(gap.end()),
                None => merged.push(gap),
            }
        }
        self.0 = merged;
    }

    pub(crate) fn contains(&self, number: i64) -> bool {
        let after = self.0.partition_point(|gap| *gap.start() <= number);
        after > 0 && self.0[after - 1].contains(&number)
    }

    /// The parts of `numbers` that are not known to have no entry.
    pub(crate) fn without(&self, numbers: &RangeInclusive<i64>) -> Vec<RangeInclusive<i64>> {
        let (mut from, mut rest) = (*numbers.start(), Vec::new());
        for gap in self.0.iter().filter(|gap| gap.end() >= numbers.start() && gap.start() <= numbers.end()) {
            rest.push(from..=*gap.start() - 1);
            from = gap.end() + 1;
        }
        rest.push(from..=*numbers.end());
        rest.retain(|part| !part.is_empty());
        rest
    }

    /// Writes them in the open transaction, as `3-3 10-12`.
    pub(crate) fn write(&self, file: &Connection) -> rusqlite::Result<()> {
        let gaps = self.0.iter().map(|gap| format!("{}-{}", gap.start(), gap.end()));
        set_meta(file, META_GAPS, &gaps.collect::<Vec<_>>().join(" "))
    }

    /// Reads those of the file.
    pub(crate) fn read(file: &Connection) -> rusqlite::Result<Self> {
        let text: Option<String> = meta(file, META_GAPS)?;
        let gaps =
            text.map(|text| Self::from_text(&text).ok_or(rusqlite::Error::InvalidColumnType(0, text, Type::Text)));
        Ok(gaps.transpose()?.unwrap_or_default())
    }

    /// Numbers in all gaps.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|gap| gap.end().abs_diff(*gap.start()) + 1).sum()
    }

    fn from_text(text: &str) -> Option<Self> {
        let gap = |gap: &str| {
            let (from, to) = gap.split_once('-')?;
            Some(from.parse().ok()?..=to.parse().ok()?)
        };
        text.split_whitespace().map(gap).collect::<Option<_>>().map(Self)
    }
}

/// The tree over the entries from 1 to its size.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogTree {
    frontier: Frontier,
    gaps: Gaps,
    /// Those of them that the file is known to have.
    stored: Gaps,
}

/// Names of rows in `meta`.
const META_GAPS: &str = "log_gaps";
const META_BASES: [&str; 2] = ["log_base", "log_base_before"];

/// The columns of a leaf. Files of an earlier schema lack some, and keep their leaves when they get them.
fn leaf_columns(file: &Connection) -> rusqlite::Result<String> {
    let version: i64 = file.prepare_cached("PRAGMA user_version")?.query_row((), |row| row.get(0))?;
    let since = |first, column, before| if version < first { before } else { column };
    let (owner, actor) = (since(2, "key_owner", "0"), since(3, "actor", "NULL"));
    let until = since(HOLDS_SINCE, "until_ms", "NULL");
    Ok(format!(
        "number, time_ms, kind, book_id, quantity, \"before\", \"after\", idempotency_key, {owner}, {actor}, {until}"
    ))
}

fn leaf<'r>(row: &'r Row<'_>) -> rusqlite::Result<Leaf<'r>> {
    Ok(Leaf {
        number: row.get(0)?,
        time_ms: row.get(1)?,
        kind: row.get(2)?,
        book: row.get(3)?,
        quantity: row.get(4)?,
        before: row.get(5)?,
        after: row.get(6)?,
        key: row.get_ref(7)?.as_blob_or_null()?,
        key_owner: row.get(8)?,
        actor: row.get_ref(9)?.as_bytes_or_null()?,
        until_ms: row.get(10)?,
    })
}

/// Visits the columns of entries with numbers above the first and up to the second.
pub(crate) fn each_row(
    file: &Connection,
    (after, last): (i64, i64),
    mut visit: impl FnMut(&Leaf<'_>),
) -> rusqlite::Result<()> {
    let columns = leaf_columns(file)?;
    let sql = format!("SELECT {columns} FROM entry WHERE number > ?1 AND number <= ?2 ORDER BY number");
    let mut query = file.prepare_cached(&sql)?;
    let mut rows = query.query((after, last))?;
    while let Some(row) = rows.next()? {
        visit(&leaf(row)?);
    }
    Ok(())
}

/// The bases that the file has and that can be read.
pub(crate) fn bases(file: &Connection) -> rusqlite::Result<Vec<Frontier>> {
    let mut bases = Vec::new();
    for name in META_BASES {
        let bytes: Option<Vec<u8>> = meta(file, name)?;
        bases.extend(bytes.and_then(|bytes| Frontier::from_bytes(&bytes).ok()));
    }
    Ok(bases)
}

impl LogTree {
    /// The tree at the newest base with at most `most` entries, or else the empty tree, with the gaps of the file.
    pub(crate) fn at_base(file: &Connection, most: u64) -> rusqlite::Result<Self> {
        let newest = bases(file)?.into_iter().filter(|base| base.size() <= most).max_by_key(Frontier::size);
        let newest = newest.unwrap_or_default();
        let gaps = Gaps::read(file)?;
        Ok(Self { frontier: newest, gaps: gaps.clone(), stored: gaps })
    }

    /// The tree over the log as the file has it now, with the same gaps.
    pub(crate) fn again(&self, file: &Connection) -> rusqlite::Result<Self> {
        let (gaps, stored) = (self.gaps.clone(), self.stored.clone());
        let mut tree = Self { gaps, stored, ..Self::at_base(file, u64::MAX)? };
        tree.extend(file, i64::MAX)?;
        tree.skip_known_to(self.last());
        Ok(tree)
    }

    pub(crate) fn has_new_gaps(&self) -> bool {
        self.gaps != self.stored
    }

    /// True if no other process has stored gaps in the file.
    pub(crate) fn has_gaps_of(&self, file: &Connection) -> rusqlite::Result<bool> {
        Ok(self.stored == Gaps::read(file)?)
    }

    pub(crate) fn frontier(&self) -> &Frontier {
        &self.frontier
    }

    /// Number of the last entry.
    pub(crate) fn last(&self) -> i64 {
        i64::try_from(self.frontier.size()).unwrap_or(i64::MAX)
    }

    pub(crate) fn gaps(&self) -> &Gaps {
        &self.gaps
    }

    pub(crate) fn append(&mut self, leaf: &Leaf<'_>, space: &mut Vec<u8>) {
        self.skip_to(leaf.number - 1);
        let is_known_missing = self.gaps.contains(leaf.number);
        self.frontier.append(if is_known_missing { missing() } else { leaf.hash(space) });
    }

    /// Appends the ledger's entries.
    pub(crate) fn append_entries(&mut self, entries: &[Entry]) {
        let mut space = Vec::new();
        for entry in entries {
            self.append(&Leaf::of(entry), &mut space);
        }
    }

    /// Appends the numbers up to `last` as missing.
    pub(crate) fn skip_to(&mut self, last: i64) {
        let Some(count) = last.checked_sub(self.last()).filter(|count| *count > 0) else { return };
        let numbers = self.last() + 1..=last;
        self.gaps.add(numbers);
        self.frontier.append_run(missing(), count.unsigned_abs());
    }

    /// Appends the numbers up to `last`, if all of them are known to have no entry.
    pub(crate) fn skip_known_to(&mut self, last: i64) {
        if last > self.last() && self.gaps.without(&(self.last() + 1..=last)).is_empty() {
            self.skip_to(last);
        }
    }

    /// Appends the file's entries up to the number `last`. If the log ends before, the tree is as long as the log.
    pub(crate) fn extend(&mut self, file: &Connection, last: i64) -> rusqlite::Result<()> {
        let mut space = Vec::new();
        each_row(file, (self.last(), last), |leaf| self.append(leaf, &mut space))
    }

    /// The root over the file's first `size` entries; `None` if the log is shorter.
    pub(crate) fn root_at(&self, file: &Connection, size: u64) -> rusqlite::Result<Option<Hash>> {
        if size == self.frontier.size() {
            return Ok(Some(self.frontier.root()));
        }
        if size > self.frontier.size() {
            return Ok(None);
        }
        let mut tree = Self::at_base(file, size)?;
        tree.gaps = self.gaps.clone();
        let last = i64::try_from(size).unwrap_or(i64::MAX);
        tree.extend(file, last)?;
        tree.skip_to(last);
        Ok(Some(tree.frontier.root()))
    }

    /// Writes new gaps in the open transaction.
    pub(crate) fn write_gaps(&self, file: &Connection) -> rusqlite::Result<()> {
        if self.has_new_gaps() { self.gaps.write(file) } else { Ok(()) }
    }

    /// Notes that the transaction of [`Self::write_gaps`] is on disk.
    pub(crate) fn gaps_committed(&mut self) {
        self.stored.clone_from(&self.gaps);
    }

    /// Writes the tree as a base in the open transaction. The one before stays, because a head may be older than this
    /// transaction.
    pub(crate) fn write_base(&self, file: &Connection) -> rusqlite::Result<()> {
        let [newest, before] = META_BASES;
        let sql = "INSERT OR REPLACE INTO meta SELECT ?2, value FROM meta WHERE name = ?1";
        file.prepare_cached(sql)?.execute((newest, before))?;
        set_meta(file, newest, &self.frontier.to_bytes())
    }
}

/// Hands over the bytes of each leaf of `numbers`, in order.
pub(crate) fn each_leaf<E: From<rusqlite::Error>>(
    file: &Connection,
    gaps: &Gaps,
    numbers: RangeInclusive<i64>,
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let columns = leaf_columns(file)?;
    let sql = format!("SELECT {columns} FROM entry WHERE number >= ?1 AND number <= ?2 ORDER BY number");
    let mut query = file.prepare_cached(&sql)?;
    let (mut rows, mut space) = (query.query((numbers.start(), numbers.end()))?, Vec::new());
    let mut next = *numbers.start();
    while let Some(row) = rows.next()? {
        let leaf = leaf(row)?;
        (next..leaf.number).try_for_each(|_| take(MISSING))?;
        next = leaf.number + 1;
        if gaps.contains(leaf.number) {
            take(MISSING)?;
        } else {
            leaf.encode(&mut space);
            take(&space)?;
        }
    }
    (next..=*numbers.end()).try_for_each(|_| take(MISSING))
}

/// Deletes the bases in the open transaction, so that the next tree is made from the first entry on.
pub(crate) fn delete_bases(file: &Connection) -> rusqlite::Result<()> {
    META_BASES.iter().try_for_each(|name| delete_meta(file, name))
}

/// A value of `meta`.
pub(crate) fn meta<T: rusqlite::types::FromSql>(file: &Connection, name: &str) -> rusqlite::Result<Option<T>> {
    file.prepare_cached("SELECT value FROM meta WHERE name = ?1")?.query_row((name,), |row| row.get(0)).optional()
}

pub(crate) fn set_meta(file: &Connection, name: &str, value: &dyn rusqlite::ToSql) -> rusqlite::Result<()> {
    file.prepare_cached("INSERT OR REPLACE INTO meta VALUES (?1, ?2)")?.execute((name, value)).map(drop)
}

pub(crate) fn delete_meta(file: &Connection, name: &str) -> rusqlite::Result<()> {
    file.prepare_cached("DELETE FROM meta WHERE name = ?1")?.execute((name,)).map(drop)
}
