//! The check of a log against its head when a process opens the file, before anything is written; and what follows: a
//! head for a log without one, or the loss that an operator accepts.

use std::{fs, io, ops::RangeInclusive, path::Path};

use rusqlite::{Connection, Error, Transaction, TransactionBehavior};

use super::{
    super::{
        errors::{HeadFailure, OpenError},
        wal::rewrite_log,
    },
    head::{Head, LogId, Record, Records, head_path},
    loss::Loss,
    numbers::impossible_numbers,
    tree::{BASE_EVERY, Gaps, LogTree, delete_bases, delete_meta, meta, set_meta},
};
use crate::domain::EntryKind;

/// Name of the row of `meta` that names the log.
const META_ID: &str = "log_id";

/// Name of the row of `meta` that names the log of the last head that was given up.
const META_LEFT: &str = "log_left";

/// Snapshots of a file in use that are compared with its head before the difference is a loss.
const SNAPSHOT_TRIES: u32 = 3;

/// Result of a check that lets the process go on.
pub(crate) enum Checked {
    /// The log has no head yet.
    New,
    /// The log holds what its head says.
    Fits(LogId),
    /// It does not, and the operator accepts that.
    Accepted(Loss),
}

/// Checks that the log holds what its head says. `accepted` is the number of lost entries that the operator accepts.
pub(crate) fn check(file: &Connection, path: &Path, accepted: Option<u64>) -> Result<Checked, OpenError> {
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
pub(crate) fn check_absent(path: &Path, accepted: Option<u64>) -> Result<(), OpenError> {
    match orphan(path, read_head(path)?) {
        Found::Lost(loss) if accepted != Some(loss.lost) => Err(OpenError::Lost(loss)),
        Found::Lost(_) | Found::New | Found::Fits(_) => Ok(()),
    }
}

/// Begins to read the file as it is now, and checks that it holds what its head says; servers may go on selling.
pub(crate) fn checked_snapshot<'c>(file: &'c Connection, path: &Path) -> Result<Transaction<'c>, OpenError> {
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
pub(crate) fn check_frozen(file: &Connection, path: &Path) -> Result<(), OpenError> {
    refuse_loss(file, path, read_head(path)?)
}

fn refuse_loss(file: &Connection, path: &Path, head: Option<Records>) -> Result<(), OpenError> {
    match compare(file, path, head)? {
        Found::Lost(loss) => Err(OpenError::Lost(loss)),
        Found::New | Found::Fits(_) => Ok(()),
    }
}

/// Result of a comparison of a log with its head.
pub(crate) enum Found {
    New,
    Fits(LogId),
    Lost(Loss),
}

pub(crate) fn read_head(path: &Path) -> Result<Option<Records>, OpenError> {
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
    match sought(file, path, head)? {
        Sought::Found(found) => Ok(found),
        Sought::Slots(slots, id) => {
            let lost = slots.compare(file, path).map_err(|reason| OpenError::from_sqlite(path, &reason))?;
            Ok(lost.map_or(Found::Fits(id), Found::Lost))
        }
    }
}

/// Records that the log must fit, or the result if there are none.
pub(crate) enum Sought {
    Found(Found),
    Slots(Box<Slots>, LogId),
}

/// Finds the records of a store's head that the log must fit.
pub(crate) fn sought(file: &Connection, path: &Path, head: Option<Records>) -> Result<Sought, OpenError> {
    let failed = |reason: Error| OpenError::from_sqlite(path, &reason);
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name IN ('entry', 'meta')";
    let tables: i64 = file.query_row(tables, (), |row| row.get(0)).map_err(failed)?;
    if tables == 0 {
        return Ok(Sought::Found(orphan(path, head)));
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
        let Some(records) = head else { return Ok(Sought::Found(Found::New)) };
        let others = records.all().filter(|record| Some(record.id) != left);
        return Ok(Sought::Found(nameless(path, others, last)));
    };
    let unknown = |what| Ok(Sought::Found(Found::Lost(Loss::unknown(what, 0, 0))));
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
    Ok(Sought::Slots(Box::new(slots), id))
}

fn last_number(file: &Connection) -> rusqlite::Result<i64> {
    file.query_row("SELECT coalesce(max(number), 0) FROM entry", (), |row| row.get(0))
}

/// Records of a head, ordered by how certainly the log holds them.
pub(crate) struct Slots {
    /// Certainly committed: the mark, or else the older slot.
    pub(crate) committed: Record,
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
        let mut sizes: Vec<Record> = self.all().collect();
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
        let holds = self.holds(|record| fitting.contains(&record));
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

    pub(crate) fn all(&self) -> impl Iterator<Item = Record> {
        [Some(self.newest), self.before, self.mark].into_iter().flatten()
    }

    /// True if the log holds what was committed, given the records that it fits.
    pub(crate) fn holds(&self, fits: impl Fn(Record) -> bool) -> bool {
        self.mark.is_none_or(&fits) && (fits(self.newest) || self.before.is_some_and(&fits))
    }

    fn smallest(&self) -> u64 {
        self.all().map(|record| record.size).min().unwrap_or_default()
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

/// After the check and the migration: brings the head up to the log, or makes one, and returns it with the tree. What
/// takes long with a long log is done before the write lock is taken, because others may sell from the file.
pub(crate) fn establish(file: &mut Connection, path: &Path, checked: Checked) -> Result<(Head, LogTree), OpenError> {
    let failed = |reason: Error| OpenError::from_sqlite(path, &reason);
    let written = |reason| OpenError::Head { path: head_path(path), reason };
    let (id, gives_up) = match checked {
        Checked::Fits(id) => (Some(id), false),
        Checked::New => (None, false),
        Checked::Accepted(loss) => (accept(file, path, &loss)?, true),
    };
    let mut tree = read_log(file).map_err(failed)?;
    // First the gaps, so that no head counts a number as missing which the file does not.
    let transaction = Transaction::new(file, TransactionBehavior::Immediate).map_err(failed)?;
    catch_up(&mut tree, &transaction).map_err(failed)?;
    tree.write_gaps(&transaction).map_err(failed)?;
    let base = LogTree::at_base(&transaction, u64::MAX).map_err(failed)?;
    if tree.frontier().size() - base.frontier().size() >= BASE_EVERY {
        tree.write_base(&transaction).map_err(failed)?;
    }
    transaction.commit().map_err(failed)?;
    tree.gaps_committed();
    let transaction = Transaction::new(file, TransactionBehavior::Immediate).map_err(failed)?;
    // Another process may have named the log meanwhile.
    let id = id.or(meta(&transaction, META_ID).map_err(failed)?);
    catch_up(&mut tree, &transaction).map_err(failed)?;
    let head = if let Some(id) = id {
        let mut head = Head::open(path, id).map_err(written)?;
        bring_up(&mut head, &transaction, path, &tree).map_err(|failure| failure.of(path))?;
        head
    } else {
        if gives_up {
            // So that a server which still uses the old one notices.
            remove_head(path).map_err(written)?;
        }
        let id: LogId = transaction.query_row("SELECT randomblob(16)", (), |row| row.get(0)).map_err(failed)?;
        rewrite_log(path).map_err(|reason| OpenError::Log { path: path.to_owned(), reason })?;
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
pub(crate) fn log_id(file: &Connection) -> rusqlite::Result<Option<LogId>> {
    meta(file, META_ID)
}

fn remove_head(path: &Path) -> io::Result<()> {
    match fs::remove_file(head_path(path)) {
        Err(reason) if reason.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The tree over the log of now, read without the write lock.
fn read_log(file: &Connection) -> rusqlite::Result<LogTree> {
    let snapshot = file.unchecked_transaction()?;
    whole(&snapshot)
}

/// Under the write lock: adds what others have logged since the tree was read.
fn catch_up(tree: &mut LogTree, file: &Connection) -> rusqlite::Result<()> {
    if tree.has_gaps_of(file)? {
        return tree.extend(file, i64::MAX);
    }
    *tree = whole(file)?;
    Ok(())
}

/// Makes a copy of the file a log without a head.
pub(crate) fn forget_head(copy: &Connection) -> rusqlite::Result<()> {
    delete_meta(copy, META_ID)
}

/// The tree over the whole log.
pub(crate) fn whole(file: &Connection) -> rusqlite::Result<LogTree> {
    let mut tree = LogTree::at_base(file, u64::MAX)?;
    tree.extend(file, i64::MAX)?;
    // A number in the index is not reused, even if its row is missing.
    let indexed: Option<i64> = meta(file, "keys_indexed_up_to")?;
    tree.skip_to(indexed.unwrap_or_default());
    Ok(tree)
}

/// Before a write of the head, under the write lock; `tree` is over the whole log.
pub(crate) fn prepare(head: &mut Head, file: &Connection, tree: &LogTree) -> Result<(), HeadFailure> {
    head.prepare(|record| Ok::<_, HeadFailure>(tree.root_at(file, record.size)? == Some(record.root)))
}

/// Writes the log to the disk and then its head, under the write lock. Other programs may not have flushed their entries.
pub(crate) fn bring_up(head: &mut Head, file: &Connection, path: &Path, tree: &LogTree) -> Result<(), HeadFailure> {
    prepare(head, file, tree)?;
    rewrite_log(path).map_err(HeadFailure::Log)?;
    Ok(head.write_now(tree)?)
}

/// Accepts a loss, unless another process has done so since it was found; then returns the log's new name, if it has one.
fn accept(file: &mut Connection, path: &Path, loss: &Loss) -> Result<Option<LogId>, OpenError> {
    let failed = |reason: Error| OpenError::from_sqlite(path, &reason);
    let transaction = Transaction::new(file, TransactionBehavior::Immediate).map_err(failed)?;
    let head = read_head(path)?;
    let left = head.and_then(|records| records.all().max_by_key(|record| record.size)).map(|record| record.id);
    match compare(&transaction, path, head)? {
        Found::New => return Ok(None),
        Found::Fits(id) => return Ok(Some(id)),
        // Fewer if the file was gone and this process has made another.
        Found::Lost(now) if now.lost > loss.lost || now.missing != loss.missing => return Err(OpenError::Lost(now)),
        Found::Lost(_) => {}
    }
    note_loss(&transaction, loss, left).map_err(failed)?;
    transaction.commit().map_err(failed)?;
    tracing::warn!(lost = loss.lost, path = %path.display(), "accepted: {}", loss.what);
    Ok(None)
}

/// Notes in the file that a loss was accepted: the numbers stay empty, and an entry behind them, with this as its actor,
/// keeps them from being given again.
fn note_loss(transaction: &Connection, loss: &Loss, left: Option<LogId>) -> rusqlite::Result<()> {
    let mut gaps = LogTree::at_base(transaction, 0)?.gaps().clone();
    loss.missing.iter().for_each(|numbers| gaps.add(numbers.clone()));
    gaps.write(transaction)?;
    delete_bases(transaction)?;
    // If this process ends before the new head is there, the next start gives up the old one as well.
    if let Some(left) = left {
        set_meta(transaction, META_LEFT, &left)?;
    }
    delete_meta(transaction, META_ID)?;
    let mark = "INSERT INTO entry (number, time_ms, kind, book_id, actor)
                SELECT max(coalesce(max(number), 0), ?1) + 1,
                    CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER), ?2, (SELECT coalesce(min(id), 1) FROM book), ?3
                FROM entry";
    let actor = match loss.lost {
        0 => "accepted a log without its head".to_owned(),
        lost => format!("accepted the loss of {lost} entries up to number {}", loss.last),
    };
    transaction.execute(mark, (loss.last, super::super::super::interface::code(EntryKind::Edited), actor)).map(drop)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::PathBuf};

    use rusqlite::Connection;
    use tempfile::TempDir;

    use super::{
        super::{
            super::{
                open::{OpenFile, Role, open},
                wal::log_path,
            },
            tree::BASE_EVERY,
        },
        Checked, LogId, LogTree, META_ID, OpenError, check, establish, meta, read_head,
    };
    use crate::settings::Settings;

    fn store() -> (TempDir, PathBuf, OpenFile) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let opened = open(&path, Role::Owner, &Settings::default()).unwrap();
        (folder, path, opened)
    }

    #[test]
    fn two_processes_that_accept_the_same_loss_accept_it_once() {
        let (_folder, path, first) = store();
        first.connection.execute("DELETE FROM entry WHERE number = 3", ()).unwrap();
        drop(first);
        let mut both = [(); 2].map(|()| Connection::open(&path).unwrap());
        let checked = [0, 1].map(|place: usize| check(&both[place], &path, Some(1)).unwrap());
        let made: Vec<LogTree> = checked
            .into_iter()
            .zip(&mut both)
            .map(|(checked, file)| {
                assert!(matches!(checked, Checked::Accepted(_)));
                establish(file, &path, checked).unwrap().1
            })
            .collect();
        assert_eq!(made[0].last(), made[1].last(), "the second adds nothing");
        let id: LogId = meta(&both[0], META_ID).unwrap().unwrap();
        assert!(read_head(&path).unwrap().unwrap().all().all(|record| record.id == id));
        assert!(matches!(check(&both[0], &path, None), Ok(Checked::Fits(_))));
    }

    #[test]
    fn no_head_is_written_before_the_log_is_on_disk() {
        let (_folder, path, opened) = store();
        let mut file = opened.connection;
        let checked = check(&file, &path, None).unwrap();
        let wal = log_path(&path);
        fs::rename(&wal, path.with_extension("away")).unwrap();
        // Can be written, but not flushed.
        symlink("/dev/full", &wal).unwrap();
        let error = establish(&mut file, &path, checked).map(drop).unwrap_err();
        assert!(matches!(error, OpenError::Log { .. }), "{error}");
    }

    #[test]
    fn a_long_log_without_a_head_gets_a_base_with_it() {
        let (_folder, path, opened) = store();
        let mut file = opened.connection;
        let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
                   INSERT INTO entry (time_ms, kind, book_id) SELECT 0, 8, 1 FROM n";
        file.execute(sql, (BASE_EVERY.cast_signed(),)).unwrap();
        file.execute("DELETE FROM meta WHERE name LIKE 'log_%'", ()).unwrap();
        fs::remove_file(super::head_path(&path)).unwrap();
        let checked = check(&file, &path, None).unwrap();
        let (_, tree) = establish(&mut file, &path, checked).unwrap();
        let base = LogTree::at_base(&file, u64::MAX).unwrap();
        assert_eq!(base.frontier(), tree.frontier());
        assert!(matches!(check(&file, &path, None), Ok(Checked::Fits(_))));
    }
}
