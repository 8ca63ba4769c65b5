//! One pass over the log that compares it with its head, with the books' stock and with the index of keys; after each
//! start, and for `quire verify`.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::RangeInclusive,
    path::Path,
};

use rusqlite::{Connection, OptionalExtension as _};
use serde::Serialize;
use siphasher::sip::SipHasher13;

use super::{
    super::{
        super::{interface::code, leaf::Leaf},
        copy::{CopyError, immutable, reader},
        errors::OpenError,
        keys::key_hash,
        schema::{HOLDS_SINCE, identity},
    },
    check::{Found, Sought, read_head, sought},
    head::Record,
    loss::{Loss, in_words},
    tree::{Gaps, LogTree, bases, each_row, meta},
};
use crate::{
    domain::{EntryKind, KeyOwner},
    settings::Settings,
};

/// Entries between two reports of progress.
const REPORT_EVERY: u64 = 1 << 14;

/// Most numbers or books in a message.
const NAMED: usize = 5;

/// Result of a verification.
#[derive(Clone, Debug, Serialize)]
pub struct Verified {
    /// Entries in the log.
    pub entries: u64,
    /// Number of the newest.
    pub last: i64,
    /// SHA-256 at the root of the tree over the log, in hexadecimal.
    pub root: String,
    /// Numbers recorded as without an entry: their loss was accepted, or is older than the head.
    pub known_missing: u64,
    /// Entries that the head covers; `None` for a store without one, such as a backup's.
    pub covered: Option<u64>,
    /// Entries that other programs made.
    pub other_programs: u64,
    /// The newest of them.
    pub other_newest: Vec<i64>,
    /// Books in the catalogue.
    pub books: u64,
    /// Open reservations.
    pub reservations: u64,
    /// Keys in the index.
    pub keys: u64,
    /// Problems found; empty for an intact store.
    pub problems: Vec<Problem>,
}

/// A difference between the parts of a store.
#[derive(Clone, Debug, Serialize)]
pub struct Problem {
    /// The part.
    pub part: Part,
    /// One sentence with what is wrong and what to do.
    pub message: String,
}

/// A part of a store that is compared with the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Entries are missing or changed.
    Log,
    /// The head is missing, damaged or of another log.
    Head,
    /// The stock of books.
    Stock,
    /// The index of keys.
    Keys,
    /// The table of open reservations.
    Reservations,
}

/// Verifies a store that a server may have open. `progress` gets the number of the entry reached, and of the last.
pub fn verify(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Verified, CopyError> {
    Ok(verify_open(&reader(path, &Settings::default())?, path, progress)?)
}

/// The same, over a connection that another thread may interrupt.
pub(crate) fn verify_open(
    file: &Connection,
    path: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Verified, OpenError> {
    // Before the snapshot: what it says is committed is there.
    let head = read_head(path)?;
    let failed = |reason| OpenError::from_sqlite(path, &reason);
    let snapshot = file.unchecked_transaction().map_err(failed)?;
    let sought = sought(&snapshot, path, head)?;
    run(&snapshot, path, sought, progress).map_err(failed)
}

/// Verifies a backup's copy of a store, which has no head.
pub fn verify_copy(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Verified, CopyError> {
    let file = immutable(path)?;
    let sought = sought(&file, path, None)?;
    run(&file, path, sought, progress).map_err(|reason| CopyError::Open(OpenError::from_sqlite(path, &reason)))
}

fn run(
    file: &Connection,
    path: &Path,
    sought: Sought,
    progress: &mut dyn FnMut(u64, u64),
) -> rusqlite::Result<Verified> {
    let mut pass = Pass::begin(file, &sought)?;
    let last: i64 = file.query_row("SELECT coalesce(max(number), 0) FROM entry", (), |row| row.get(0))?;
    each_row(file, (0, last), |leaf| {
        pass.entry(leaf);
        if pass.entries % REPORT_EVERY == 0 {
            progress(leaf.number.unsigned_abs(), last.unsigned_abs());
        }
    })?;
    let committed = match &sought {
        Sought::Slots(slots, _) => i64::try_from(slots.committed.size).unwrap_or(i64::MAX),
        Sought::Found(_) => 0,
    };
    pass.end(committed.max(last));
    let mut problems = Vec::new();
    let covered = pass.judge_log(path, sought, &mut problems);
    let books = pass.judge_stock(file, &mut problems)?;
    let keys = pass.judge_keys(file, &mut problems)?;
    let reservations = pass.judge_holds(file, &mut problems)?;
    let root = pass.tree.frontier().root().to_string();
    let known_missing = pass.known.count() - pass.put_back;
    let Pass { entries, other_programs, other_newest, .. } = pass;
    let other_newest = other_newest.into_iter().collect();
    Ok(Verified {
        entries,
        last,
        root,
        known_missing,
        covered,
        other_programs,
        other_newest,
        books,
        reservations,
        keys,
        problems,
    })
}

/// A size at which the root is known.
struct Point {
    size: u64,
    root: tlog::Hash,
    fits: bool,
}

/// Stock of a book by the log.
#[derive(Clone, Copy, Default)]
struct Stock {
    sold: i64,
    /// Everything else: copies at the start, restocked, or set by other programs.
    other: i64,
}

/// Stocks in 24 bytes a book, so that the pass after a start takes little memory.
struct Stocks {
    /// Ids of the catalogue's books, ascending.
    ids: Vec<i64>,
    /// Their stocks, in the same order.
    listed: Vec<Stock>,
    /// Stocks of books that are not in the catalogue.
    others: BTreeMap<i64, Stock>,
}

impl Stocks {
    fn of_catalogue(file: &Connection) -> rusqlite::Result<Self> {
        let mut query = file.prepare("SELECT id FROM book ORDER BY id")?;
        let ids: Vec<i64> = query.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?;
        Ok(Self { listed: vec![Stock::default(); ids.len()], ids, others: BTreeMap::new() })
    }

    fn of(&mut self, id: i64) -> &mut Stock {
        match self.ids.binary_search(&id) {
            Ok(place) => &mut self.listed[place],
            Err(_) => self.others.entry(id).or_default(),
        }
    }
}

/// A reservation.
struct Held {
    number: i64,
    book: i64,
    quantity: i64,
}

/// Position of a move of keys into the index.
struct Index {
    hasher: SipHasher13,
    up_to: i64,
    moving: Option<(i64, i64)>,
}

impl Index {
    fn read(file: &Connection) -> rusqlite::Result<Self> {
        let seed: Option<[u8; 16]> = meta(file, "key_hash_seed")?;
        let hasher = SipHasher13::new_with_key(&seed.ok_or(rusqlite::Error::QueryReturnedNoRows)?);
        let up_to = meta(file, "keys_indexed_up_to")?.unwrap_or_default();
        let moving: Option<i64> = meta(file, "keys_moving_up_to")?;
        Ok(Self { hasher, up_to, moving: moving.zip(meta(file, "keys_moved_through")?) })
    }

    /// The hash of an entry's key, if it must be in the index.
    fn hash(&self, number: i64, key: Option<&[u8]>, owner: i64) -> Option<i64> {
        let hash = key_hash(self.hasher, key?, KeyOwner::from_stored(owner));
        let is_moved = |(up_to, through): (i64, i64)| number <= up_to && hash <= through;
        (number <= self.up_to || self.moving.is_some_and(is_moved)).then_some(hash)
    }
}

/// Number and sum of rows of the index, in any order.
#[derive(Default, PartialEq, Eq)]
struct Sum(u64, u64);

impl Sum {
    fn add(&mut self, hash: i64, number: i64) {
        let mixed = (hash ^ number.rotate_left(32)).cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        *self = Self(self.0 + 1, self.1.wrapping_add((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)));
    }
}

struct Pass {
    tree: LogTree,
    space: Vec<u8>,
    /// By size; those before `next` were reached.
    points: Vec<Point>,
    next: usize,
    missing: Vec<RangeInclusive<i64>>,
    /// Recorded gaps, and the number of entries in them, which an operator put back.
    known: Gaps,
    put_back: u64,
    entries: u64,
    stocks: Stocks,
    index: Index,
    indexed: Sum,
    /// Reservations that no entry has ended yet, by owner and key.
    holds: HashMap<(i64, Vec<u8>), Held>,
    other_programs: u64,
    other_newest: VecDeque<i64>,
}

impl Pass {
    fn begin(file: &Connection, sought: &Sought) -> rusqlite::Result<Self> {
        let mut points: Vec<_> = bases(file)?.iter().map(|base| (base.size(), base.root())).collect();
        if let Sought::Slots(slots, _) = sought {
            points.extend(slots.all().map(|record| (record.size, record.root)));
        }
        points.sort_unstable();
        points.dedup();
        Ok(Self {
            tree: LogTree::at_base(file, 0)?,
            known: Gaps::read(file)?,
            put_back: 0,
            space: Vec::new(),
            points: points.into_iter().map(|(size, root)| Point { size, root, fits: false }).collect(),
            next: 0,
            missing: Vec::new(),
            entries: 0,
            stocks: Stocks::of_catalogue(file)?,
            index: Index::read(file)?,
            indexed: Sum::default(),
            holds: HashMap::new(),
            other_programs: 0,
            other_newest: VecDeque::new(),
        })
    }

    fn entry(&mut self, leaf: &Leaf<'_>) {
        self.skip(leaf.number - 1);
        self.tree.append(leaf, &mut self.space);
        self.entries += 1;
        self.put_back += u64::from(self.known.contains(leaf.number));
        let (before, after) = (leaf.before.unwrap_or_default(), leaf.after.unwrap_or_default());
        let change = change_of(leaf.kind, before, after);
        if change != 0 {
            let stock = self.stocks.of(leaf.book);
            // Saturating: a damaged row may hold any number.
            if leaf.kind == code(EntryKind::Purchase) {
                stock.sold = stock.sold.saturating_sub(change);
            } else {
                stock.other = stock.other.saturating_add(change);
            }
        }
        if let Some((key, quantity)) = leaf.key.zip(leaf.quantity) {
            self.hold(leaf, key, quantity);
        }
        if let Some(hash) = self.index.hash(leaf.number, leaf.key, leaf.key_owner) {
            self.indexed.add(hash, leaf.number);
        }
        let kinds = [EntryKind::Price, EntryKind::Adjusted, EntryKind::Removed, EntryKind::Edited].map(code);
        if leaf.actor.is_none() && leaf.key.is_none() && kinds.contains(&leaf.kind) {
            self.other_programs += 1;
            if self.other_newest.len() == NAMED {
                self.other_newest.pop_front();
            }
            self.other_newest.push_back(leaf.number);
        }
    }

    /// Follows an entry with a key, which may begin or end a reservation.
    fn hold(&mut self, leaf: &Leaf<'_>, key: &[u8], quantity: i64) {
        let begins = leaf.kind == code(EntryKind::Reserved) && leaf.before > leaf.after;
        let is_sold = leaf.kind == code(EntryKind::Purchase) && leaf.before == leaf.after;
        if is_sold {
            // Counted as returned and sold, so that `sold` includes it.
            let stock = self.stocks.of(leaf.book);
            (stock.sold, stock.other) = (stock.sold.saturating_add(quantity), stock.other.saturating_add(quantity));
        }
        if begins {
            let held = Held { number: leaf.number, book: leaf.book, quantity };
            self.holds.insert((leaf.key_owner, key.to_vec()), held);
        } else if is_sold || leaf.kind == code(EntryKind::Released) {
            self.holds.remove(&(leaf.key_owner, key.to_vec()));
        }
    }

    /// Passes numbers up to `last` that have no entry.
    fn skip(&mut self, last: i64) {
        self.reach(last);
        if last > self.tree.last() {
            self.missing.extend(self.tree.gaps().without(&(self.tree.last() + 1..=last)));
        }
    }

    /// Compares the roots at sizes up to `last`.
    fn reach(&mut self, last: i64) {
        while let Some(point) = self.points.get_mut(self.next) {
            let size = i64::try_from(point.size).unwrap_or(i64::MAX);
            if size > last {
                break;
            }
            self.tree.skip_known_to(size);
            point.fits = self.tree.frontier().size() == point.size && self.tree.frontier().root() == point.root;
            self.next += 1;
        }
    }

    /// After the last entry; the head covers numbers up to `last`.
    fn end(&mut self, last: i64) {
        self.skip(last);
        self.reach(i64::MAX);
    }

    /// Compares the tree with the head and the bases; returns the entries that the head covers.
    fn judge_log(&self, path: &Path, sought: Sought, problems: &mut Vec<Problem>) -> Option<u64> {
        let mut add = |part, message| problems.push(Problem { part, message });
        let fits = |size| self.points.iter().any(|point| point.size == size && point.fits);
        let (covered, holds, last) = match sought {
            Sought::Slots(slots, _) => {
                let at = |record: Record| fits(record.size);
                let newest = slots.all().filter(|record| at(*record)).map(|record| record.size).max();
                let last = i64::try_from(slots.committed.size).unwrap_or(i64::MAX);
                (Some(newest.unwrap_or(slots.committed.size)), slots.holds(at), last)
            }
            Sought::Found(Found::Lost(loss)) => {
                add(Part::Head, loss.to_string());
                (None, true, self.tree.last())
            }
            Sought::Found(_) => (None, true, self.tree.last()),
        };
        let missing: Vec<_> = self.missing.iter().filter(|numbers| *numbers.start() <= last).cloned().collect();
        if !missing.is_empty() {
            let has_head = covered.is_some();
            let loss =
                if has_head { Loss::missing(path, missing, last).to_string() } else { without_head(path, &missing) };
            add(Part::Log, loss);
            return covered;
        }
        let wrong = self.points.iter().position(|point| !point.fits && (point.size <= self.last_fitting() || !holds));
        if let Some(place) = wrong {
            let from = self.points[..place].iter().rev().find(|point| point.fits).map_or(0, |point| point.size);
            add(Part::Log, changed(path, from + 1, self.points[place].size));
        }
        covered
    }

    fn last_fitting(&self) -> u64 {
        self.points.iter().filter(|point| point.fits).map(|point| point.size).max().unwrap_or(u64::MAX)
    }

    /// Compares the books' stock with the log; returns the number of books.
    fn judge_stock(&self, file: &Connection, problems: &mut Vec<Problem>) -> rusqlite::Result<u64> {
        let (mut wrong, mut held) = (Vec::new(), HashMap::<i64, i64>::new());
        for hold in self.holds.values() {
            let copies = held.entry(hold.book).or_default();
            *copies = copies.saturating_add(hold.quantity);
        }
        let mut query = file.prepare("SELECT id, stock FROM book ORDER BY id")?;
        let (mut rows, mut stocks) = (query.query(())?, self.stocks.listed.iter());
        while let (Some(row), Some(Stock { sold, other })) = (rows.next()?, stocks.next()) {
            let (id, stock): (i64, i64) = (row.get(0)?, row.get(1)?);
            let by_log = other.saturating_sub(*sold);
            if stock != by_log && wrong.len() <= NAMED {
                let held = held.get(&id).copied().unwrap_or_default();
                let came = other.saturating_add(held);
                let held = if held > 0 { format!(", {held} are held") } else { String::new() };
                wrong.push(format!(
                    "book {id} has {stock} copies, and by the log {by_log} ({came} came and {sold} were sold{held})"
                ));
            }
        }
        for (id, Stock { sold, other }) in
            self.stocks.others.iter().filter(|(_, stock)| stock.other != stock.sold).take(NAMED + 1)
        {
            let by_log = other.saturating_sub(*sold);
            wrong.push(format!("book {id} is not in the catalogue, and by the log it has {by_log} copies"));
        }
        if !wrong.is_empty() {
            let message = format!(
                "the log does not lead to the books' stock: {}. Rows are missing from the log, or another program changed \
                 books with triggers off. The server sells the stock as it is: compare it with a backup, and set it by \
                 `quire import --update`",
                listed(&wrong)
            );
            problems.push(Problem { part: Part::Stock, message });
        }
        Ok(self.stocks.ids.len() as u64)
    }

    /// Compares the index of keys with the log; returns the number of keys in it.
    fn judge_keys(&self, file: &Connection, problems: &mut Vec<Problem>) -> rusqlite::Result<u64> {
        let (mut found, mut keys) = (Sum::default(), 0);
        let mut query = file.prepare("SELECT hash, number FROM key_index")?;
        let mut rows = query.query(())?;
        while let Some(row) = rows.next()? {
            let (hash, number) = (row.get(0)?, row.get(1)?);
            keys += 1;
            found.add(hash, number);
        }
        if found != self.indexed {
            let (absent, wrong) = self.differences(file)?;
            let named = |numbers: &[i64]| listed(&numbers.iter().map(i64::to_string).collect::<Vec<_>>());
            let mut what = Vec::new();
            if !absent.is_empty() {
                let numbers = named(&absent);
                what.push(format!(
                    "it lacks the keys of entries {numbers}, so that a retry of one may be charged again"
                ));
            }
            if !wrong.is_empty() {
                what.push(format!("it has rows that are not in the log, for the numbers {}", named(&wrong)));
            }
            let message = format!(
                "the index of keys differs from the log: {}. Have the next start make it from the log: stop the server, \
                 and run sqlite3 bookstore.db \"DELETE FROM key_index; DELETE FROM meta WHERE name LIKE 'keys_mov%'; \
                 UPDATE meta SET value = 0 WHERE name = 'keys_indexed_up_to'\"",
                what.join("; ")
            );
            problems.push(Problem { part: Part::Keys, message });
        }
        Ok(keys)
    }

    /// Compares the table of open reservations with the log; returns the number of its rows.
    fn judge_holds(&self, file: &Connection, problems: &mut Vec<Problem>) -> rusqlite::Result<u64> {
        if identity(file)?.version < HOLDS_SINCE {
            return Ok(0);
        }
        let mut by_log: Vec<i64> = self.holds.values().map(|held| held.number).collect();
        by_log.sort_unstable();
        let mut query = file.prepare("SELECT number FROM hold ORDER BY number")?;
        let there: Vec<i64> = query.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?;
        let without = |all: &[i64], others: &[i64]| -> Vec<String> {
            let lone = all.iter().filter(|number| others.binary_search(number).is_err());
            lone.map(i64::to_string).take(NAMED + 1).collect()
        };
        let (absent, wrong) = (without(&by_log, &there), without(&there, &by_log));
        let mut what = Vec::new();
        if !absent.is_empty() {
            what.push(format!("it lacks those of entries {}, whose copies would not be given back", listed(&absent)));
        }
        if !wrong.is_empty() {
            what.push(format!("it has some that are not open by the log, for the numbers {}", listed(&wrong)));
        }
        if !what.is_empty() {
            let is_whole = self.missing.is_empty() && self.known.count() == self.put_back;
            let remedy = if is_whole {
                "Make it from the log: stop the server, and run sqlite3 bookstore.db \"DELETE FROM hold; INSERT INTO hold \
                 SELECT number FROM entry WHERE kind = 6 AND quantity > 0 AND [before] > [after] AND (idempotency_key, \
                 key_owner) NOT IN (SELECT idempotency_key, key_owner FROM entry WHERE idempotency_key IS NOT NULL AND (kind = \
                 2 OR kind = 6 AND ([before] IS NULL OR [before] <= [after])))\""
            } else {
                "The log lacks entries, which may have ended them: put those back first, and verify again"
            };
            let message = format!("the table of open reservations differs from the log: {}. {remedy}", what.join("; "));
            problems.push(Problem { part: Part::Reservations, message });
        }
        Ok(there.len() as u64)
    }

    /// Numbers of entries that are not in the index, and of rows of the index that are not in the log; some of each.
    fn differences(&self, file: &Connection) -> rusqlite::Result<(Vec<i64>, Vec<i64>)> {
        let (mut absent, mut wrong) = (Vec::new(), Vec::new());
        let mut there = file.prepare("SELECT count(*) FROM key_index WHERE hash = ?1 AND number = ?2")?;
        let mut failure = Ok(());
        each_row(file, (0, i64::MAX), |leaf| {
            let Some(hash) = self.index.hash(leaf.number, leaf.key, leaf.key_owner) else { return };
            match there.query_row((hash, leaf.number), |row| row.get::<_, i64>(0)) {
                Ok(0) if absent.len() <= NAMED => absent.push(leaf.number),
                Ok(_) => {}
                Err(error) => failure = Err(error),
            }
        })?;
        failure?;
        let mut entry = file.prepare("SELECT idempotency_key, key_owner FROM entry WHERE number = ?1")?;
        let mut query = file.prepare("SELECT hash, number FROM key_index ORDER BY number")?;
        let mut rows = query.query(())?;
        while let Some(row) = rows.next()?
            && wrong.len() <= NAMED
        {
            let (hash, number): (i64, i64) = (row.get(0)?, row.get(1)?);
            let indexed = entry.query_row((number,), |row| {
                Ok(self.index.hash(number, row.get_ref(0)?.as_blob_or_null()?, row.get(1)?))
            });
            if indexed.optional()?.flatten() != Some(hash) {
                wrong.push(number);
            }
        }
        Ok((absent, wrong))
    }
}

/// Change of a book's stock by an entry; the kinds left out are prices and texts.
fn change_of(kind: i64, before: i64, after: i64) -> i64 {
    if matches!(kind, 5 | 8) { 0 } else { after.saturating_sub(before) }
}

fn listed(all: &[String]) -> String {
    let rest = if all.len() > NAMED { " and more" } else { "" };
    format!("{}{rest}", all[..all.len().min(NAMED)].join(", "))
}

fn without_head(path: &Path, missing: &[RangeInclusive<i64>]) -> String {
    let named: Vec<String> = missing.iter().take(NAMED + 1).map(in_words).collect();
    format!(
        "entries are missing from the log of {}: {}. Put them back from a backup that has them, before or after the \
         restore: sqlite3 bookstore.db \"ATTACH 'backup.db' AS b; INSERT OR IGNORE INTO entry SELECT * FROM b.entry\"",
        path.display(),
        listed(&named)
    )
}

fn changed(path: &Path, from: u64, to: u64) -> String {
    format!(
        "among the entries {from} to {to} of {} at least one was changed or damaged since it was acknowledged. Keep this \
         store, and restore a backup into a new folder with `quire restore`",
        path.display()
    )
}
