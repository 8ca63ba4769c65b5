//! The ledger's connection to the file, and its transactions: each catches up with other processes, reads facts, writes,
//! commits and publishes.

use std::{
    collections::{BTreeSet, HashMap},
    mem,
    sync::{MutexGuard, PoisonError},
    time::Instant,
};

use commit::{FileIdentity, Moved};

use super::{
    super::{
        facts::{BookFacts, Facts, Wanted},
        interface::{Broken, Changes, LedgerConnection, LedgerTransaction, TransactionError, TransactionId},
    },
    durability::{self, Checkpoints},
    errors::{before_commit, head, head_before_commit, in_doubt, not_begun},
    keys::Slice,
    log::{
        check::prepare,
        head::Head,
        numbers::NUMBER_MAX,
        tree::{BASE_EVERY, LogTree},
    },
    state::{Shared, State},
    wal::log_path,
    writer::Writer,
};
use crate::{
    catalogue::Book,
    domain::{BookId, EntryKind, Holder, IdempotencyKey, NewBook},
    fault::{Fault, Unavailable},
    money::Cents,
};

/// Books read at once after another process has changed them.
const FOREIGN_CHUNK: usize = 1 << 16;

/// Books that a slice of a restock reads per book that it may raise.
const LOOKED_AT_PER_RAISED: usize = 16;

/// A connection that makes transactions.
pub(super) struct SqliteConnection<'a> {
    shared: &'a Shared,
    writer: Writer,
    /// The WAL that the connection writes to.
    wal: Option<FileIdentity>,
    version_seen: Option<i64>,
    checkpoints: Checkpoints,
}

impl LedgerConnection for SqliteConnection<'_> {
    fn begin(&mut self) -> Result<Box<dyn LedgerTransaction + '_>, TransactionError> {
        // SQLite's own wait for the write lock is unfair: a thread could lose to the others until its timeout.
        let asked = Instant::now();
        let turn = self.shared.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if turn.is_some_and(|gave_up| gave_up > asked) {
            // Another thread has just waited for the full timeout.
            return Err(TransactionError::Refused(Fault::Unavailable(Unavailable::Locked)));
        }
        Ok(Box::new(SqliteTransaction { connection: self, turn, state: None, next: None, is_stale: false }))
    }

    fn read_back(&mut self) -> Result<(), Broken> {
        durability::repair(self.shared, &self.writer)?;
        durability::read_back(self.shared, &self.writer)
    }

    fn settle(&mut self, _: &TransactionId) -> Result<Option<bool>, Broken> {
        Ok(None)
    }

    fn has_overdue_holds(&mut self) -> bool {
        self.state().holds.has_overdue(self.shared.clock.now_ms())
    }

    fn tend(&mut self, is_idle: bool) -> Result<(), Broken> {
        if is_idle {
            self.check_files()?;
            self.catch_up_readers()?;
            self.head().settle().map_err(|error| head(&error))?;
        }
        Ok(self.checkpoints.make_if_due(self.shared, &self.writer)?)
    }

    fn close(self: Box<Self>) -> Result<(), Broken> {
        // SQLite deletes the WAL by its name, which may be that of another file now.
        self.check_files()?;
        let mut settled = self.head();
        settled.settle().and_then(|()| settled.join()).map_err(|error| head(&error))?;
        drop(settled);
        // Its snapshot would keep the WAL from being emptied.
        self.shared.audit.stop();
        durability::empty_log(self.shared, &self.writer);
        Ok(())
    }
}

impl<'a> SqliteConnection<'a> {
    pub(super) fn new(shared: &'a Shared, writer: Writer) -> Self {
        let wal = FileIdentity::of(log_path(&shared.path)).ok();
        Self { shared, writer, wal, version_seen: None, checkpoints: Checkpoints::new() }
    }

    fn check_files(&self) -> Result<(), Moved> {
        self.shared.check(self.wal.as_ref())
    }

    fn head(&self) -> MutexGuard<'a, Head> {
        self.shared.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'a, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn facts(&self, state: &State, wanted: &Wanted) -> rusqlite::Result<Facts> {
        let catalogue = self.shared.shelf.load();
        let numbers = vec![state.last_number + 1..=i64::MAX].into_iter().flatten();
        let mut facts = Facts { numbers, ..Facts::default() };
        match wanted {
            Wanted::Named { books, keys, holders, .. } => {
                let found = books.iter().filter_map(|id| catalogue.get_any(*id));
                facts.books = found.map(|book| (book.id(), facts_of(book))).collect();
                self.add_holds(state, keys, holders, &mut facts);
                let others = keys.iter().filter(|key| state.holds.get(key).is_none());
                let found = state.keys.find(&self.writer, others)?;
                let reserved = found.earlier.iter().filter(|(_, entry)| entry.kind == EntryKind::Reserved);
                let keys = reserved.map(|(key, _)| *key);
                facts.lost_ends = keys.filter(|key| !found.ends.contains_key(key)).collect();
                facts.earlier.extend(found.earlier);
                facts.ends = found.ends;
                let earlier = facts.earlier.values().chain(&facts.overdue);
                let reserved = earlier.filter(|entry| entry.kind == EntryKind::Reserved);
                let found = reserved.filter_map(|entry| catalogue.get_any(entry.book));
                facts.books.extend(found.map(|book| (book.id(), facts_of(book))));
            }
            Wanted::Whole { books, highest, .. } => {
                let found = books.iter().filter_map(|id| catalogue.get_any(*id));
                facts.whole.0 = found.map(|book| (book.id(), NewBook::from(&**book))).collect();
                facts.whole.1 = catalogue.highest().max(state.holds.highest()).filter(|_| *highest);
                let held = books.iter().map(|id| (*id, state.holds.copies(*id)));
                facts.held = held.filter(|(_, copies)| *copies > 0).collect();
            }
            Wanted::Below { amount, after, most } => {
                // Bounds the books read as well, so that purchases do not wait for the whole catalogue.
                for book in catalogue.after(*after).take(most.saturating_mul(LOOKED_AT_PER_RAISED)) {
                    if book.stock() < *amount {
                        facts.books.insert(book.id(), facts_of(book));
                        facts.below.0.push(book.id());
                    }
                    facts.below.1 = Some(book.id());
                    if facts.below.0.len() == *most {
                        break;
                    }
                }
            }
        }
        Ok(facts)
    }

    /// Adds the facts about reservations.
    fn add_holds(&self, state: &State, keys: &[IdempotencyKey], holders: &[Holder], facts: &mut Facts) {
        let Shared { clock, settings, .. } = self.shared;
        facts.holds_ms = clock.now_ms();
        let most = settings.limits.reservations.get();
        facts.holds_max = most;
        let mut open: HashMap<_, _> = holders.iter().map(|holder| (*holder, state.holds.of_holder(*holder))).collect();
        for overdue in state.holds.overdue(facts.holds_ms) {
            facts.overdue.push(overdue.reserved.clone());
            if let Some(count) = overdue.holder.and_then(|holder| open.get_mut(&holder)) {
                *count -= 1;
            }
        }
        facts.holds_left = most.saturating_sub(state.holds.len() - facts.overdue.len());
        // One holder leaves half of them to others.
        let left = |(holder, count)| (holder, most.div_ceil(2).saturating_sub(count));
        facts.holds_left_to = open.into_iter().map(left).collect();
        facts.earlier = keys.iter().filter_map(|key| Some((*key, state.holds.get(key)?.clone()))).collect();
    }

    /// Applies other processes' commits. Call it in a transaction; under the write lock the result is final.
    fn catch_up(&mut self, state: &mut State) -> rusqlite::Result<()> {
        let version = self.writer.data_version()?;
        if self.version_seen == Some(version) {
            return Ok(());
        }
        let mut touched = BTreeSet::new();
        let (mut last, keys) = (state.last_number, &mut state.keys);
        self.writer.each_entry_after(state.last_number, |number, book, key| {
            touched.insert(book);
            last = number;
            if let Some(key) = key {
                keys.insert(&key, number);
            }
        })?;
        let touched: Vec<BookId> = touched.into_iter().collect();
        for ids in touched.chunks(FOREIGN_CHUNK) {
            let read = |id: &BookId| Ok((*id, self.writer.book(*id)?.map(|book| (book, state.holds.copies(*id)))));
            let books: rusqlite::Result<Vec<_>> = ids.iter().map(read).collect();
            self.shared.shelf.apply(books?);
        }
        if last > state.last_number {
            self.catch_up_holds(state)?;
            state.tree.extend(self.writer.file(), i64::MAX)?;
            self.shared.metrics.foreign_entries(last - state.last_number);
            state.last_number = last;
            self.shared.last_number.send_replace(last);
        }
        self.version_seen = Some(version);
        Ok(())
    }

    /// Applies the reservations that other processes began and ended.
    fn catch_up_holds(&self, state: &mut State) -> rusqlite::Result<()> {
        let catalogue = self.shared.shelf.load();
        for entry in self.writer.reservations_after(state.last_number)? {
            if entry.kind == EntryKind::Reserved {
                state.holds.begin(&entry, None, &catalogue);
            } else if let Some(key) = &entry.key {
                state.holds.end(key, &catalogue);
            }
        }
        Ok(())
    }

    /// Publishes other processes' commits; for an idle worker.
    fn catch_up_readers(&mut self) -> rusqlite::Result<()> {
        if self.version_seen == Some(self.writer.data_version()?) {
            return Ok(());
        }
        self.writer.begin_read()?;
        let mut state = self.state();
        let seen = self.catch_up(&mut state);
        drop(state);
        self.writer.rollback()?;
        seen
    }
}

/// Writes what the tree needs of the file in the open transaction; returns the size of the newest base.
fn write_tree(state: &State, writer: &Writer) -> rusqlite::Result<u64> {
    let (file, size) = (writer.file(), state.tree.frontier().size());
    state.tree.write_gaps(file)?;
    if size - state.base < BASE_EVERY {
        return Ok(state.base);
    }
    state.tree.write_base(file)?;
    Ok(size)
}

fn facts_of(book: &Book) -> BookFacts {
    BookFacts { stock: book.stock(), price: book.price(), listed: book.is_listed(), held: book.held() }
}

/// Writes the rows of a transaction; `None` if a book differs from its copy in memory.
fn write_rows(state: &mut State, writer: &Writer, changes: &Changes) -> rusqlite::Result<Option<(Slice, u64)>> {
    // One UPDATE per book, and many log rows per statement.
    let is_current =
        writer.change_books(&changes.books)? && (changes.puts.is_empty() || writer.put_books(&changes.puts)?);
    let is_current = is_current && writer.change_holds(&changes.entries, &changes.ended)?;
    if !is_current {
        return Ok(None);
    }
    if changes.entries.is_empty() {
        // Without a change COMMIT does not flush what others have written.
        writer.probe()?;
    }
    writer.append(&changes.entries)?;
    let arrivals = changes.entries.iter().filter(|entry| entry.key.is_some()).count();
    let slice = state.keys.write_slice(writer, arrivals, state.last_number)?;
    Ok(Some((slice, write_tree(state, writer)?)))
}

/// A transaction under the file's write lock.
struct SqliteTransaction<'t, 'a> {
    connection: &'t mut SqliteConnection<'a>,
    turn: MutexGuard<'a, Option<Instant>>,
    /// Held from the reading of facts until they are published.
    state: Option<MutexGuard<'a, State>>,
    /// The tree with the entries of a commit, and the size of the newest base.
    next: Option<(LogTree, u64)>,
    /// True if the file was changed without a log entry, so that all books must be read again.
    is_stale: bool,
}

impl SqliteTransaction<'_, '_> {
    /// Rolls back what was decided on books that have changed.
    fn begin_anew(&mut self) -> Result<(), TransactionError> {
        tracing::warn!("books were changed without a log entry; reading them all again");
        self.connection.writer.rollback().map_err(before_commit)?;
        self.state = None;
        if mem::replace(&mut self.is_stale, true) {
            let reason = "the books keep changing behind the log";
            return Err(TransactionError::Refused(Fault::Failed(reason.to_owned())));
        }
        Err(TransactionError::Again)
    }
}

impl LedgerTransaction for SqliteTransaction<'_, '_> {
    fn read(&mut self, wanted: &Wanted) -> Result<Facts, TransactionError> {
        let SqliteConnection { shared, writer, .. } = &*self.connection;
        if let Err(error) = writer.begin() {
            let error = not_begun(error);
            if matches!(error, TransactionError::Refused(_)) {
                *self.turn = Some(Instant::now());
            }
            return Err(error);
        }
        let mut state = self.connection.state();
        if self.is_stale {
            let tree = state.tree.clone();
            *state = State::load(writer, &shared.shelf, &shared.settings, &shared.clock, shared.longest_ms, tree)
                .map_err(before_commit)?;
        } else {
            self.connection.catch_up(&mut state).map_err(before_commit)?;
        }
        if state.last_number >= NUMBER_MAX {
            self.connection.writer.rollback().map_err(before_commit)?;
            let reason = "its log is at the last number there is; start with a new file";
            return Err(TransactionError::Refused(Fault::Failed(reason.to_owned())));
        }
        let facts = self.connection.facts(&state, wanted).map_err(before_commit);
        self.state = Some(state);
        facts
    }

    fn read_more(&mut self, first: &Wanted, more: &Wanted, facts: &mut Facts) -> Result<(), TransactionError> {
        if let Some(state) = &self.state {
            facts.add(first, more, self.connection.facts(state, more).map_err(before_commit)?);
        }
        Ok(())
    }

    fn commit(&mut self, changes: &Changes) -> Result<(), TransactionError> {
        let SqliteConnection { shared, writer, .. } = &*self.connection;
        let mut headed = self.connection.head();
        let Some(state) = self.state.as_mut().filter(|_| !changes.is_empty()) else {
            writer.rollback().map_err(before_commit)?;
            return self.connection.check_files().map_err(in_doubt);
        };
        prepare(&mut headed, writer.file(), &state.tree).map_err(head_before_commit)?;
        // Another server's entry is in the log, but its head may not be.
        if changes.entries.is_empty() && headed.covered() >= state.tree.frontier().size() {
            writer.rollback().map_err(before_commit)?;
            return self.connection.check_files().map_err(in_doubt);
        }
        // Before the rows, so that it is on its way to the disk meanwhile; nothing is acknowledged before both are there.
        let mut tree = state.tree.clone();
        tree.append_entries(&changes.entries);
        headed.write(tree).map_err(|error| head_before_commit(error.into()))?;
        let rows = write_rows(state, writer, changes).map_err(before_commit)?;
        let Some((slice, base)) = rows else { return self.begin_anew() };
        let start = Instant::now();
        let committed = writer.commit();
        let flushed = headed.join();
        committed.map_err(in_doubt)?;
        let tree = flushed.and_then(|()| headed.committed()).map_err(|error| in_doubt(head(&error)))?;
        drop(headed);
        self.connection.check_files().map_err(in_doubt)?;
        self.next = tree.map(|mut tree| {
            tree.gaps_committed();
            (tree, base)
        });
        shared.metrics.committed(changes.entries.len(), start.elapsed());
        state.keys.slice_committed(&slice);
        Ok(())
    }

    fn publish(&mut self, changes: &Changes) {
        let Some(mut state) = self.state.take() else { return };
        if let Some((tree, base)) = self.next.take() {
            (state.tree, state.base) = (tree, base);
        }
        let Some(last) = changes.entries.last() else { return };
        let shared = self.connection.shared;
        let catalogue = shared.shelf.load();
        let mut holders = changes.holders.iter().copied();
        for entry in &changes.entries {
            if let Some(key) = &entry.key {
                state.keys.insert(key, entry.number);
            }
            if entry.kind == EntryKind::Reserved {
                state.holds.begin(entry, holders.next(), &catalogue);
            }
        }
        for key in changes.ended.iter().filter_map(|reserved| reserved.key.as_ref()) {
            state.holds.end(key, &catalogue);
        }
        state.last_number = last.number;
        for change in &changes.books {
            if let Some((book, price)) = catalogue.get_any(change.id).zip(Cents::new(change.price_cents.1)) {
                book.publish(change.stock.1, price);
            }
        }
        if !changes.puts.is_empty() {
            shared.shelf.apply(changes.puts.iter().map(|put| (put.after.id, Some((put.after.clone(), put.held)))));
        }
        shared.last_number.send_replace(last.number);
    }
}
