//! The check of a log against its head when a process opens the file, before anything is written; and what follows: a
//! head for a log without one, or the loss that an operator accepts.

use std::{fs, io, ops::RangeInclusive, path::Path};

use rusqlite::{Connection, Error, Transaction, TransactionBehavior};

use super::{
    errors::{HeadFailure, OpenError},
    head::{Head, LogId, Record, Records, head_path},
    inspect::impossible_numbers,
    loss::Loss,
    tree::{Gaps, LogTree, delete_bases, delete_meta, meta, set_meta},
};
use crate::domain::EntryKind;

/// Name of the row of `meta` that names the log.
const META_ID: &str = "log_id";

/// Name of the row of `meta` that names the log of the last head that was given up.
const META_LEFT: &str = "log_left";

/// Snapshots of a file in use that are compared with its head before the difference is a loss.
const SNAPSHOT_TRIES: u32 = 3;

/// Result of a check that lets the process go on.
pub(super) enum Checked {
    /// The log has no head yet.
    New,
    /// The log holds what its head says.
    Fits(LogId),
    /// It does not, and the operator accepts that.
    Accepted(Loss),
}

/// Checks that the log holds what its head says. `accepted` is the number of lost entries that the operator accepts.
pub(super) fn check(file: &Connection, path: &Path, accepted: Option<u64>) -> Result<Checked, OpenError> {
    let mut found = compare_in(file, path, "BEGIN")?;
    if matches!(found, Found::Lost(_)) {
        // Under the write lock a transaction of another process is in the log and in the head, or in neither.
        found = compare_in(file, path, "BEGIN IMMEDIATE")?;
    }
    match found {
        Found::Fits(id) => {
            if let Some(count) = accepted {
                tracing::warn!(count, path = %path.display(), "no entry is lost; start the server without --accept-loss");
            }
            Ok(Checked::Fits(id))
        }
        Found::New => Ok(Checked::New),
        Found::Lost(loss) if accepted == Some(loss.lost) => Ok(Checked::Accepted(loss)),
        Found::Lost(loss) => Err(OpenError::Lost(loss)),
    }
}

/// Compares in a transaction that `begin` begins. The first read of the file comes after that of the head, so that what the
/// head says is committed is there.
fn compare_in(file: &Connection, path: &Path, begin: &str) -> Result<Found, OpenError> {
    let failed = |reason: Error| OpenError::from_sqlite(path, &reason);
    file.execute_batch(begin).map_err(failed)?;
    let found = read_head(path).and_then(|head| compare(file, path, head));
    file.execute_batch("ROLLBACK").map_err(failed)?;
    found
}

/// Refuses to make a new file beside the head of one that is gone.
pub(super) fn check_absent(path: &Path, accepted: Option<u64>) -> Result<(), OpenError> {
    match orphan(path, read_head(path)?) {
        Found::Lost(loss) if accepted != Some(loss.lost) => Err(OpenError::Lost(loss)),
        Found::Lost(_) | Found::New | Found::Fits(_) => Ok(()),
    }
}

/// Begins to read the file as it is now, and checks that it holds what its head says; servers may go on selling.
pub(super) fn checked_snapshot<'c>(file: &'c Connection, path: &Path) -> Result<Transaction<'c>, OpenError> {
    let failed = |reason: Error| OpenError::from_sqlite(path, &reason);
    let mut tries = SNAPSHOT_TRIES;
    loop {
        // Before the snapshot: what it says is committed is there.
        let head = read_head(path)?;
        let snapshot = file.unchecked_transaction().map_err(failed)?;
        snapshot.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(())).map_err(failed)?;
        tries -= 1;
        match refuse_loss(&snapshot, path, head) {
            // The head was made, or read in the middle of a write.
            Err(OpenError::Lost(_)) if tries > 0 => {}
            checked => return checked.map(|()| snapshot),
        }
    }
}

/// Checks a file that no other program can change.
pub(super) fn check_frozen(file: &Connection, path: &Path) -> Result<(), OpenError> {
    refuse_loss(file, path, read_head(path)?)
}

fn refuse_loss(file: &Connection, path: &Path, head: Option<Records>) -> Result<(), OpenError> {
    match compare(file, path, head)? {
        Found::Lost(loss) => Err(OpenError::Lost(loss)),
        Found::New | Found::Fits(_) => Ok(()),
    }
}

enum Found {
    New,
    Fits(LogId),
    Lost(Loss),
}

fn read_head(path: &Path) -> Result<Option<Records>, OpenError> {
    let head = head_path(path);
    Records::read(&head).map_err(|reason| OpenError::Head { path: head, reason })
}

/// A head beside a file without a log, or without the name of one.
fn orphan(path: &Path, head: Option<Records>) -> Found {
    head.map_or(Found::New, |records| nameless(path, records.all(), 0))
}

/// A head whose log has no name. One that was never written to was made by a process that ended before it named the log.
fn nameless(path: &Path, records: impl Iterator<Item = Record>, last: i64) -> Found {
    let Some(newest) = records.filter(|record| record.sequence > 1).max_by_key(|record| record.size) else {
        return Found::New;
    };
    let size = i64::try_from(newest.size).unwrap_or(i64::MAX);
    let what = format!(
        "{} says that {} had {size} entries, and that file is gone, empty or another one",
        head_path(path).display(),
        path.display()
    );
    Found::Lost(Loss::unknown(what, size.saturating_sub(last).max(0).unsigned_abs(), size))
}

/// Compares a store's log with its head.
fn compare(file: &Connection, path: &Path, head: Option<Records>) -> Result<Found, OpenError> {
    let failed = |reason: Error| OpenError::from_sqlite(path, &reason);
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name IN ('entry', 'meta')";
    let tables: i64 = file.query_row(tables, (), |row| row.get(0)).map_err(failed)?;
    if tables == 0 {
        return Ok(orphan(path, head));
    }
    if let Some(number) = impossible_numbers(file).map_err(failed)? {
        return Err(OpenError::Numbers { path: path.to_owned(), number });
    }
    let seed: Option<Vec<u8>> = meta(file, "key_hash_seed").map_err(failed)?;
    seed.ok_or_else(|| failed(Error::QueryReturnedNoRows))?;
    let id: Option<LogId> = meta(file, META_ID).map_err(failed)?;
    let Some(id) = id else {
        let left: Option<LogId> = meta(file, META_LEFT).map_err(failed)?;
        let last = last_number(file).map_err(failed)?;
        let Some(records) = head else { return Ok(Found::New) };
        return Ok(nameless(path, records.all().filter(|record| Some(record.id) != left), last));
    };
    let unknown = |what| Ok(Found::Lost(Loss::unknown(what, 0, 0)));
    let (records, head) = (head, head_path(path));
    let Some(records) = records else {
        let (path, head) = (path.display(), head.display());
        return unknown(format!(
            "{path} is without its head {head}, which shows whether entries of the log are lost: it was deleted, or {path} was copied without it"
        ));
    };
    let mine = |record: Option<Record>| record.filter(|record| record.id == id);
    let own = Records { slots: records.slots.map(mine), mark: mine(records.mark) };
    let Some(slots) = Slots::of(&own) else {
        let (path, head) = (path.display(), head.display());
        return unknown(if records.all().next().is_some() {
            format!("{head} is the head of another file than {path}, so that it cannot show whether entries are lost")
        } else {
            format!("{head} is damaged, so that it cannot show whether entries of {path} are lost")
        });
    };
    let lost = slots.compare(file, path).map_err(failed)?;
    Ok(lost.map_or(Found::Fits(id), Found::Lost))
}

fn last_number(file: &Connection) -> rusqlite::Result<i64> {
    file.query_row("SELECT coalesce(max(number), 0) FROM entry", (), |row| row.get(0))
}

/// Records of a head, ordered by how certainly the log holds them.
struct Slots {
    /// Certainly committed: the mark, or else the older slot.
    committed: Record,
    /// The newest slot, of a transaction that may not have been committed; and the one before, if that is another.
    newest: Record,
    before: Option<Record>,
    mark: Option<Record>,
}

impl Slots {
    fn of(own: &Records) -> Option<Self> {
        let mut slots: Vec<Record> = own.slots.into_iter().flatten().collect();
        slots.sort_by_key(|slot| (slot.sequence, slot.size));
        let newest = slots.pop().or(own.mark)?;
        let before = slots.pop().filter(|before| before.sequence < newest.sequence);
        let committed = own.mark.into_iter().chain([before.unwrap_or(newest)]).max_by_key(|record| record.size)?;
        Some(Self { committed, newest, before, mark: own.mark })
    }

    /// The loss, if the log does not hold what the head says. Entries behind the head's are those of other programs, or of
    /// a transaction whose head was torn.
    fn compare(&self, file: &Connection, path: &Path) -> rusqlite::Result<Option<Loss>> {
        let base = LogTree::at_base(file, self.smallest())?;
        let mut sizes: Vec<Record> = [Some(self.newest), self.before, self.mark].into_iter().flatten().collect();
        sizes.sort_by_key(|record| record.size);
        let (mut tree, mut fitting) = (base.clone(), Vec::new());
        for record in sizes {
            let last = i64::try_from(record.size).unwrap_or(i64::MAX);
            tree.extend(file, last)?;
            tree.skip_known_to(last);
            if tree.frontier().size() == record.size && tree.frontier().root() == record.root {
                fitting.push(record);
            }
        }
        let fits = |record: Record| fitting.contains(&record);
        let holds = self.mark.is_none_or(fits) && (fits(self.newest) || self.before.is_some_and(fits));
        let last = i64::try_from(self.committed.size).unwrap_or(i64::MAX);
        let whole = if holds { base.last() } else { last };
        if holds && rows_up_to(file, whole)? == whole {
            return Ok(None);
        }
        let missing = missing_up_to(file, whole, base.gaps())?;
        Ok(match missing.is_empty() {
            true if holds => None,
            true => Some(Loss::changed(path, base.last() + 1, last)),
            false => Some(Loss::missing(path, missing, last)),
        })
    }

    fn smallest(&self) -> u64 {
        let sizes = [Some(self.newest), self.before, self.mark].into_iter().flatten().map(|record| record.size);
        sizes.min().unwrap_or_default()
    }
}

/// Rows with numbers up to `last`.
fn rows_up_to(file: &Connection, last: i64) -> rusqlite::Result<i64> {
    file.query_row("SELECT count(*) FROM entry WHERE number <= ?1", (last,), |row| row.get(0))
}

/// The numbers up to `last` without a row, other than the known ones.
fn missing_up_to(file: &Connection, last: i64, known: &Gaps) -> rusqlite::Result<Vec<RangeInclusive<i64>>> {
    let sql = "SELECT previous + 1, number - 1
               FROM (SELECT number, lag(number, 1, 0) OVER (ORDER BY number) AS previous FROM entry WHERE number <= ?1
                     UNION ALL SELECT ?1 + 1, coalesce(max(number), 0) FROM entry WHERE number <= ?1)
               WHERE number > previous + 1 ORDER BY number";
    let mut query = file.prepare(sql)?;
    let gaps = query.query_map((last,), |row| Ok(row.get(0)?..=row.get(1)?))?;
    let gaps: Vec<RangeInclusive<i64>> = gaps.collect::<Result<_, _>>()?;
    Ok(gaps.iter().flat_map(|gap| known.without(gap)).collect())
}

/// After the check and the migration: brings the head up to the log, or makes one, and returns it with the tree.
pub(super) fn establish(file: &mut Connection, path: &Path, checked: Checked) -> Result<(Head, LogTree), OpenError> {
    let failed = |reason: Error| OpenError::from_sqlite(path, &reason);
    let written = |reason| OpenError::Head { path: head_path(path), reason };
    let id = match checked {
        Checked::Fits(id) => Some(id),
        Checked::New => None,
        Checked::Accepted(loss) => {
            let left = read_head(path)?.and_then(|records| records.all().max_by_key(|record| record.size));
            accept(file, path, &loss, left.map(|record| record.id)).map_err(failed)?;
            match fs::remove_file(head_path(path)) {
                Err(reason) if reason.kind() != io::ErrorKind::NotFound => return Err(written(reason)),
                _ => None,
            }
        }
    };
    // First the gaps, so that no head counts a number as missing which the file does not.
    let transaction = Transaction::new(file, TransactionBehavior::Immediate).map_err(failed)?;
    let mut tree = whole(&transaction).map_err(failed)?;
    tree.write_gaps(&transaction).map_err(failed)?;
    transaction.commit().map_err(failed)?;
    tree.gaps_committed();
    let transaction = Transaction::new(file, TransactionBehavior::Immediate).map_err(failed)?;
    // Another process may have named the log meanwhile.
    let id = id.or(meta(&transaction, META_ID).map_err(failed)?);
    let mut tree = whole(&transaction).map_err(failed)?;
    let head = if let Some(id) = id {
        let mut head = Head::open(path, id).map_err(written)?;
        bring_up(&mut head, &transaction, &tree).map_err(|failure| failure.of(path))?;
        head
    } else {
        let id: LogId = transaction.query_row("SELECT randomblob(16)", (), |row| row.get(0)).map_err(failed)?;
        let head = Head::make(path, id, tree.frontier()).map_err(written)?;
        set_meta(&transaction, META_ID, &id).map_err(failed)?;
        tracing::info!(entries = tree.last(), path = %head_path(path).display(), "made a head for the log");
        head
    };
    tree.write_gaps(&transaction).map_err(failed)?;
    transaction.commit().map_err(failed)?;
    tree.gaps_committed();
    Ok((head, tree))
}

/// The name of the log; `None` for a file without a head.
pub(super) fn log_id(file: &Connection) -> rusqlite::Result<Option<LogId>> {
    meta(file, META_ID)
}

/// Makes a copy of the file a log without a head.
pub(super) fn forget_head(copy: &Connection) -> rusqlite::Result<()> {
    delete_meta(copy, META_ID)
}

/// The tree over the whole log.
pub(super) fn whole(file: &Connection) -> rusqlite::Result<LogTree> {
    let mut tree = LogTree::at_base(file, u64::MAX)?;
    tree.extend(file, i64::MAX)?;
    // A number in the index is not reused, even if its row is missing.
    let indexed: Option<i64> = meta(file, "keys_indexed_up_to")?;
    tree.skip_to(indexed.unwrap_or_default());
    Ok(tree)
}

/// Before a write of the head, under the write lock; `tree` is over the whole log.
pub(super) fn prepare(head: &mut Head, file: &Connection, tree: &LogTree) -> Result<(), HeadFailure> {
    head.prepare(|record| Ok::<_, HeadFailure>(tree.root_at(file, record.size)? == Some(record.root)))
}

/// Writes the head of a log that is on disk, under the write lock.
pub(super) fn bring_up(head: &mut Head, file: &Connection, tree: &LogTree) -> Result<(), HeadFailure> {
    prepare(head, file, tree)?;
    Ok(head.write_now(tree.frontier())?)
}

/// Notes in the file that a loss was accepted: the numbers stay empty, and an entry behind them, with this as its actor,
/// keeps them from being given again.
fn accept(file: &mut Connection, path: &Path, loss: &Loss, left: Option<LogId>) -> rusqlite::Result<()> {
    let transaction = Transaction::new(file, TransactionBehavior::Immediate)?;
    let mut gaps = LogTree::at_base(&transaction, 0)?.gaps().clone();
    loss.missing.iter().for_each(|numbers| gaps.add(numbers.clone()));
    gaps.write(&transaction)?;
    delete_bases(&transaction)?;
    // If this process ends before the new head is there, the next start gives up the old one as well.
    if let Some(left) = left {
        set_meta(&transaction, META_LEFT, &left)?;
    }
    delete_meta(&transaction, META_ID)?;
    let mark = "INSERT INTO entry (number, time_ms, kind, book_id, actor)
                SELECT max(coalesce(max(number), 0), ?1) + 1,
                    CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER), ?2, (SELECT coalesce(min(id), 1) FROM book), ?3
                FROM entry";
    let actor = match loss.lost {
        0 => "accepted a log without its head".to_owned(),
        lost => format!("accepted the loss of {lost} entries up to number {}", loss.last),
    };
    transaction.execute(mark, (loss.last, super::super::interface::code(EntryKind::Edited), actor))?;
    transaction.commit()?;
    tracing::warn!(lost = loss.lost, path = %path.display(), "accepted: {}", loss.what);
    Ok(())
}
