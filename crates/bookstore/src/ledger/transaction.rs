//! One transaction: it catches up with other processes, lets the caller decide, writes, commits and publishes. Must not
//! know what is decided, nor who asked.

use std::{
    collections::BTreeSet,
    sync::{MutexGuard, PoisonError},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use super::{
    batch::Batch,
    state::{Shared, State},
    trouble::{Failure, Trouble},
};
use crate::{
    domain::BookId,
    fault::{Fault, Unavailable},
    store::{self, Writer},
};

/// Books that are read at once after another process has changed them.
const FOREIGN_CHUNK: usize = 1 << 16;

/// A connection that makes transactions.
pub(super) struct Transactions<'a, 'c> {
    pub(super) shared: &'a Shared,
    pub(super) writer: Writer<'c>,
    version_seen: Option<i64>,
}

impl<'a, 'c> Transactions<'a, 'c> {
    pub(super) fn new(shared: &'a Shared, writer: Writer<'c>) -> Self {
        Self { shared, writer, version_seen: None }
    }

    fn state(&self) -> MutexGuard<'a, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `decide` against the file's newest state under its write lock, writes and commits what it decided,
    /// and shows it to readers.
    pub(super) fn run<R>(
        &mut self,
        decide: impl Fn(&mut Batch<'_>, &mut Writer<'_>) -> Result<R, Trouble>,
    ) -> Result<R, Failure> {
        // SQLite's own wait for the write lock is not fair: a thread could lose to the others until its timeout.
        let asked = Instant::now();
        let mut turn = self.shared.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if turn.is_some_and(|gave_up| gave_up > asked) {
            // Another thread has just waited as long as this one may wait.
            return Err(Failure::Refused(Fault::Unavailable(Unavailable::Locked)));
        }
        let mut reload = false;
        // The second try is for a file that was changed without a trace in the log.
        for _ in 0..2 {
            if let Err(error) = self.writer.begin() {
                let failure = Failure::not_begun(error);
                if matches!(failure, Failure::Refused(_)) {
                    *turn = Some(Instant::now());
                }
                return Err(failure);
            }
            match self.attempt(&decide, reload) {
                Err(Trouble::Stale) => {
                    tracing::warn!("books were changed without a log entry; reading them all again");
                    self.writer.rollback().map_err(Failure::before_commit)?;
                    reload = true;
                }
                Err(Trouble::LogFull) => {
                    self.writer.rollback().map_err(Failure::before_commit)?;
                    let reason = "its log is at the last number there is; start with a new file";
                    return Err(Failure::Refused(Fault::Failed(reason.to_owned())));
                }
                Err(Trouble::Sqlite(error)) => return Err(Failure::before_commit(error)),
                Err(Trouble::Commit(error)) => return Err(Failure::Unknown(error.into())),
                Ok(result) => return Ok(result),
            }
        }
        Err(Failure::Refused(Fault::Failed("the books keep changing behind the log".to_owned())))
    }

    fn attempt<R>(
        &mut self,
        decide: impl Fn(&mut Batch<'_>, &mut Writer<'_>) -> Result<R, Trouble>,
        reload: bool,
    ) -> Result<R, Trouble> {
        let shared = self.shared;
        let mut state = self.state();
        if reload {
            *state = State::load(&mut self.writer, &shared.shelf, &shared.settings)?;
        } else {
            self.catch_up(&mut state)?;
        }
        if state.last_number >= store::NUMBER_MAX {
            return Err(Trouble::LogFull);
        }
        let catalogue = shared.shelf.load();
        let mut batch = Batch::new(&catalogue, &state.keys, state.last_number, now_ms());
        let result = decide(&mut batch, &mut self.writer)?;
        if batch.is_empty() {
            self.writer.rollback()?;
            return Ok(result);
        }
        batch.write(&mut self.writer)?;
        let (rows, new_keys, committed) = (batch.len(), batch.new_keys(), batch.into_committed());
        let last_number = state.last_number;
        let slice = state.keys.write_slice(&mut self.writer, new_keys, last_number)?;
        let start = Instant::now();
        self.writer.commit().map_err(Trouble::Commit)?;
        shared.metrics.committed(rows, start.elapsed());
        state.keys.slice_committed(&slice);
        for (key, number) in &committed.keys {
            state.keys.insert(key, *number);
        }
        state.last_number = committed.last_number;
        committed.publish();
        shared.last_number.send_replace(committed.last_number);
        Ok(result)
    }

    /// Takes over what other processes committed. Inside a transaction; under the write lock it is final.
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

    /// Shows readers what other processes have committed; for an idle worker.
    pub(super) fn catch_up_readers(&mut self) -> rusqlite::Result<()> {
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

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
