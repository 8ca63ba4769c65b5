//! One transaction: catches up with other processes, lets the ledger decide, writes, commits and publishes.

use std::{
    collections::BTreeSet,
    sync::{MutexGuard, PoisonError},
    time::Instant,
};

use commit::{Moved, Place};

use super::{
    super::interface::{Attempt, Broken, Changes, Facts, Failure, Session, Wanted, Work},
    checkpoints::{self, Checkpoints},
    inspect::NUMBER_MAX,
    keys::Keys,
    mend,
    state::{Shared, State},
    trouble::{Trouble, before_commit, not_begun},
    write::Writer,
};
use crate::{
    catalogue::Catalogue,
    domain::{BookId, Entry, IdempotencyKey},
    fault::{Fault, Unavailable},
    money::Cents,
};

/// Books read at once after another process has changed them.
const FOREIGN_CHUNK: usize = 1 << 16;

/// Books that a slice of a restock reads per book that it may raise.
const LOOKED_AT_PER_RAISED: usize = 16;

/// A connection that makes transactions.
pub(super) struct Transactions<'a, 'c> {
    shared: &'a Shared,
    writer: Writer<'c>,
    /// The WAL that the connection writes to.
    log: Option<Place>,
    version_seen: Option<i64>,
    checkpoints: Checkpoints,
}

impl Session for Transactions<'_, '_> {
    fn transact(&mut self, work: &mut dyn Work) -> Result<(), Failure> {
        self.run(work)
    }

    fn read_back(&mut self) -> Result<(), Broken> {
        checkpoints::repair(self.shared, &mut self.writer)?;
        Ok(checkpoints::read_back(self.shared, &mut self.writer)?)
    }

    fn settle(&mut self, _: &Attempt) -> Result<bool, Broken> {
        Err(Broken("a file has no attempts to settle".to_owned()))
    }

    fn tend(&mut self, is_idle: bool) -> Result<(), Broken> {
        if is_idle {
            self.check_places()?;
            self.catch_up_readers()?;
        }
        Ok(self.checkpoints.make_if_due(self.shared, &mut self.writer)?)
    }
}

impl<'a, 'c> Transactions<'a, 'c> {
    pub(super) fn new(shared: &'a Shared, writer: Writer<'c>) -> Self {
        let log = Place::of(mend::log_path(&shared.path)).ok();
        Self { shared, writer, log, version_seen: None, checkpoints: Checkpoints::new() }
    }

    /// Ends the work before the connection is closed.
    pub(super) fn close(mut self) -> Result<(), Broken> {
        // SQLite deletes the WAL by its name, which may be that of another file now.
        self.check_places()?;
        checkpoints::empty_log(self.shared, &mut self.writer);
        Ok(())
    }

    fn check_places(&self) -> Result<(), Moved> {
        self.shared.check(self.log.as_ref())
    }

    fn state(&self) -> MutexGuard<'a, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&mut self, work: &mut dyn Work) -> Result<(), Failure> {
        // SQLite's own wait for the write lock is unfair: a thread could lose to the others until its timeout.
        let asked = Instant::now();
        let mut turn = self.shared.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if turn.is_some_and(|gave_up| gave_up > asked) {
            // Another thread has just waited for the full timeout.
            return Err(Failure::Refused(Fault::Unavailable(Unavailable::Locked)));
        }
        let mut reload = false;
        // The second attempt is for a file that was changed without a log entry.
        for _ in 0..2 {
            if let Err(error) = self.writer.begin() {
                let failure = not_begun(error);
                if matches!(failure, Failure::Refused(_)) {
                    *turn = Some(Instant::now());
                }
                return Err(failure);
            }
            match self.attempt(work, reload) {
                Err(Trouble::Stale) => {
                    tracing::warn!("books were changed without a log entry; reading them all again");
                    self.writer.rollback().map_err(before_commit)?;
                    reload = true;
                }
                Err(Trouble::LogFull) => {
                    self.writer.rollback().map_err(before_commit)?;
                    let reason = "its log is at the last number there is; start with a new file";
                    return Err(Failure::Refused(Fault::Failed(reason.to_owned())));
                }
                Err(Trouble::Sqlite(error)) => return Err(before_commit(error)),
                Err(Trouble::Moved(moved)) => return Err(Failure::Unknown(moved.into(), None)),
                Err(Trouble::Commit(error)) => return Err(Failure::Unknown(error.into(), None)),
                Err(Trouble::Decided(failure)) => return Err(failure),
                Ok(()) => return Ok(()),
            }
        }
        Err(Failure::Refused(Fault::Failed("the books keep changing behind the log".to_owned())))
    }

    fn attempt(&mut self, work: &mut dyn Work, reload: bool) -> Result<(), Trouble> {
        let shared = self.shared;
        let mut state = self.state();
        if reload {
            *state = State::load(&mut self.writer, &shared.shelf, &shared.settings)?;
        } else {
            self.catch_up(&mut state)?;
        }
        if state.last_number >= NUMBER_MAX {
            return Err(Trouble::LogFull);
        }
        let catalogue = shared.shelf.load();
        let (keys, last_number) = (&state.keys, state.last_number);
        let wanted = work.wanted();
        let mut held = Held { catalogue: &catalogue, keys, writer: &mut self.writer, wanted, last_number };
        let changes = work.decide(&mut held).map_err(Trouble::Decided)?;
        let Some(last) = changes.entries.last() else {
            self.writer.rollback()?;
            return Ok(self.check_places()?);
        };
        self.write(&changes)?;
        let new_keys = || changes.entries.iter().filter_map(|entry| Some((entry.key.as_ref()?, entry.number)));
        let slice = state.keys.write_slice(&mut self.writer, new_keys().count(), last_number)?;
        let start = Instant::now();
        self.writer.commit().map_err(Trouble::Commit)?;
        self.check_places()?;
        shared.metrics.committed(changes.entries.len(), start.elapsed());
        state.keys.slice_committed(&slice);
        for (key, number) in new_keys() {
            state.keys.insert(key, number);
        }
        state.last_number = last.number;
        for change in &changes.books {
            if let Some((book, price)) = catalogue.get(change.id).zip(Cents::new(change.price_cents.1)) {
                book.publish(change.stock.1, price);
            }
        }
        shared.last_number.send_replace(last.number);
        Ok(())
    }

    /// Writes one UPDATE per book, and many log rows per statement.
    fn write(&mut self, changes: &Changes) -> Result<(), Trouble> {
        for change in &changes.books {
            if !self.writer.change_book(change)? {
                return Err(Trouble::Stale);
            }
        }
        Ok(self.writer.append(&changes.entries)?)
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
            let books: rusqlite::Result<Vec<_>> = ids.iter().map(|id| Ok((*id, self.writer.book(*id)?))).collect();
            self.shared.shelf.apply(books?);
        }
        if last > state.last_number {
            self.shared.metrics.foreign_entries(last - state.last_number);
            state.last_number = last;
            self.shared.last_number.send_replace(last);
        }
        self.version_seen = Some(version);
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

/// Facts from the file, under its write lock.
struct Held<'a, 'c> {
    catalogue: &'a Catalogue,
    keys: &'a Keys,
    writer: &'a mut Writer<'c>,
    wanted: Wanted,
    last_number: i64,
}

impl Facts for Held<'_, '_> {
    fn book(&mut self, id: BookId) -> Option<(u32, Cents)> {
        self.catalogue.get(id).map(|book| (book.stock(), book.price()))
    }

    fn earlier(&mut self, key: &IdempotencyKey) -> Result<Option<Entry>, Failure> {
        self.keys.find(self.writer, key).map_err(before_commit)
    }

    fn below(&mut self) -> (Vec<BookId>, Option<BookId>) {
        let Wanted::Below { amount, after, most } = self.wanted else { return (Vec::new(), None) };
        let (mut found, mut last) = (Vec::new(), None);
        // Bounds the books read as well, so that purchases do not wait for the whole catalogue.
        for book in self.catalogue.after(after).take(most.saturating_mul(LOOKED_AT_PER_RAISED)) {
            found.extend((book.stock() < amount).then(|| book.id()));
            last = Some(book.id());
            if found.len() == most {
                break;
            }
        }
        (found, last)
    }

    fn next_number(&mut self, _: BookId) -> i64 {
        self.last_number += 1;
        self.last_number
    }
}
