//! The thread that writes: takes jobs, runs a transaction, answers. Must not know what a job does to a book;
//! [`super::batch`] does.

use std::{
    collections::VecDeque,
    sync::{PoisonError, atomic::Ordering::Relaxed},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rusqlite::ErrorCode;

use super::{Decision, Job, Shared, State, Task, Trouble, batch::Batch, queue::Taken};
use crate::{
    domain::{BookId, Restocked},
    fault::{Fault, Unavailable},
    store::{self, Role, Writer},
};

/// How long to wait before the file is opened again after a failure, and after many.
const REOPEN_PAUSE: Duration = Duration::from_millis(200);
const REOPEN_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Books that a look at what another process did reads at once.
const FOREIGN_CHUNK: usize = 1 << 16;

/// Books that one slice of a restock looks at for each that it may raise.
const LOOKED_AT_PER_RAISED: usize = 16;

/// Works until the queue is closed and empty. A failing file is closed, opened again and read back before more
/// is taken on.
pub(super) fn run(shared: &Shared) {
    let (mut broken, mut pause) = (false, REOPEN_PAUSE);
    loop {
        match work_on_file(shared, &mut broken) {
            Ok(()) => return,
            Err(reason) => {
                shared.metrics.store_failed();
                tracing::error!(%reason, path = %shared.path.display(), "the store failed; it takes nothing until it has been read back");
            }
        }
        if broken {
            pause = (pause * 2).min(REOPEN_PAUSE_MAX);
        } else {
            (broken, pause) = (true, REOPEN_PAUSE);
            shared.sound.send_replace(false);
            for job in shared.queue.suspend() {
                job.task.answer(Err(Fault::Unavailable(Unavailable::Recovering)));
            }
        }
        if shared.queue.closed_within(pause) {
            return;
        }
    }
}

/// From opening the file to closing it. An error means that the connection cannot be trusted any more.
fn work_on_file(shared: &Shared, broken: &mut bool) -> Result<(), String> {
    let opened = store::open(&shared.path, Role::Ledger, &shared.settings).map_err(|error| error.to_string())?;
    let sqlite = |error: rusqlite::Error| store::reason(&error);
    let writer = Writer::new(&opened.connection).map_err(sqlite)?;
    let mut worker =
        Worker { shared, writer, version_seen: None, restocks: VecDeque::new(), checkpoint_at: store::WAL_PAGES };
    if *broken {
        worker.mend()?;
        worker.read_back().map_err(sqlite)?;
        *broken = false;
        if shared.queue.resume() {
            shared.sound.send_replace(true);
        }
        tracing::info!(path = %shared.path.display(), "the store was read back and takes purchases again");
    }
    worker.work().map_err(sqlite)?;
    // What is in the WAL is as durable as what is in the file; a checkpoint only makes the next start shorter. After
    // one that failed the WAL stays, and the next start copies all of it.
    if !shared.lost_pages.load(Relaxed)
        && let Err(error) = worker.writer.empty_log()
    {
        shared.lost_pages.store(true, Relaxed);
        tracing::warn!(reason = store::reason(&error), "the WAL was not emptied; the next start does it");
    }
    Ok(())
}

pub(super) struct Worker<'a, 'c> {
    pub(super) shared: &'a Shared,
    pub(super) writer: Writer<'c>,
    version_seen: Option<i64>,
    restocks: VecDeque<Restocking>,
    /// The WAL's length in pages at which it is copied back.
    pub(super) checkpoint_at: i64,
}

/// A restock under way.
struct Restocking {
    amount: u32,
    after: Option<BookId>,
    raised: u64,
    job: Job,
}

/// A transaction that did not happen, or of which nobody knows.
struct Failure {
    fault: Fault,
    /// Set when the connection cannot be used any more.
    broken: Option<Box<rusqlite::Error>>,
}

impl Worker<'_, '_> {
    fn work(&mut self) -> rusqlite::Result<()> {
        let settings = &self.shared.settings;
        let mut jobs = VecDeque::new();
        loop {
            let patience = if self.restocks.is_empty() { settings.poll_interval } else { Duration::ZERO };
            let taken = self.shared.queue.take(&mut jobs, self.jobs_max(), patience);
            let done = match taken {
                Taken::Jobs => self.run_jobs(&mut jobs),
                Taken::Nothing => self.look_around(),
                Taken::Closed if self.restocks.is_empty() => return Ok(()),
                Taken::Closed => Ok(()),
            };
            let done = done.and_then(|()| self.continue_restock()).and_then(|()| self.checkpoint_if_due());
            if let Err(error) = done {
                for restock in self.restocks.drain(..) {
                    restock.job.task.answer(Err(Fault::OutcomeUnknown));
                }
                return Err(error);
            }
        }
    }

    fn jobs_max(&self) -> usize {
        match self.shared.settings.commit {
            crate::settings::Commit::Group => self.shared.settings.batch_max.max(1),
            crate::settings::Commit::Each => 1,
        }
    }

    fn run_jobs(&mut self, taken: &mut VecDeque<Job>) -> rusqlite::Result<()> {
        let mut jobs = Vec::with_capacity(taken.len());
        for job in taken.drain(..) {
            match &job.task {
                task if task.is_abandoned() => {}
                Task::Restock(amount, _) => {
                    self.restocks.push_back(Restocking { amount: *amount, after: None, raised: 0, job });
                }
                _ => jobs.push(job),
            }
        }
        if jobs.is_empty() {
            return Ok(());
        }
        let decided: Result<Vec<Decision>, _> =
            self.transaction(|batch, writer| jobs.iter().map(|job| decide(batch, writer, &job.task)).collect());
        match decided {
            Ok(decisions) => {
                self.shared.metrics.decided(decisions.iter().filter_map(|decision| match decision {
                    Decision::Purchase(Ok(receipt)) => Some(receipt),
                    _ => None,
                }));
                self.shared.couriers.deliver(jobs.into_iter().zip(decisions.into_iter().map(Ok)));
                Ok(())
            }
            Err(failure) => {
                self.shared.couriers.deliver(jobs.into_iter().map(|job| (job, Err(failure.fault.clone()))));
                failure.broken.map_or(Ok(()), |error| Err(*error))
            }
        }
    }

    /// One slice of the oldest restock.
    fn continue_restock(&mut self) -> rusqlite::Result<()> {
        let Some(mut restock) = self.restocks.pop_front() else { return Ok(()) };
        let slice = self.shared.settings.restock_slice.max(1);
        let (amount, after) = (restock.amount, restock.after);
        let done = self.transaction(|batch, _| {
            let books = batch.books_after(after, slice.saturating_mul(LOOKED_AT_PER_RAISED));
            let (mut raised, mut last) = (0, None);
            for id in books {
                raised += usize::from(batch.raise_stock(id, amount));
                last = Some(id);
                if raised == slice {
                    break;
                }
            }
            Ok((raised, last))
        });
        match done {
            Ok((raised, last)) => {
                restock.raised += u64::try_from(raised).unwrap_or(u64::MAX);
                restock.after = last;
                if last.is_some() {
                    self.restocks.push_front(restock);
                } else {
                    let done = Restocked { books_raised: restock.raised };
                    self.shared.couriers.deliver([(restock.job, Ok(Decision::Restocked(done)))].into_iter());
                }
                Ok(())
            }
            Err(failure) => {
                let fault = match failure.fault {
                    Fault::OutcomeUnknown => Fault::OutcomeUnknown,
                    _ if restock.raised > 0 => Fault::Stopped(restock.raised),
                    fault => fault,
                };
                self.shared.couriers.deliver([(restock.job, Err(fault))].into_iter());
                failure.broken.map_or(Ok(()), |error| Err(*error))
            }
        }
    }

    /// Runs `decide` against the file's newest state under its write lock, writes and commits what it decided,
    /// and shows it to readers.
    fn transaction<R>(
        &mut self,
        decide: impl Fn(&mut Batch<'_>, &mut Writer<'_>) -> Result<R, Trouble>,
    ) -> Result<R, Failure> {
        // SQLite's own wait for the write lock is not fair: a thread could lose to the others until its patience ends.
        let shared = self.shared;
        let asked = Instant::now();
        let mut turn = shared.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if turn.is_some_and(|in_vain| in_vain > asked) {
            // Another thread has just waited as long as this one may.
            return Err(Failure { fault: Fault::Unavailable(Unavailable::Locked), broken: None });
        }
        let mut reload = false;
        // The second try is for a file that was changed without a trace in the log.
        for _ in 0..2 {
            if let Err(error) = self.writer.begin() {
                let failure = not_begun(error);
                if failure.broken.is_none() {
                    *turn = Some(Instant::now());
                }
                return Err(failure);
            }
            match self.attempt(&decide, reload) {
                Err(AttemptError::Trouble(Trouble::Stale)) => {
                    tracing::warn!("books were changed without a log entry; reading them all again");
                    self.writer.rollback().map_err(not_done)?;
                    reload = true;
                }
                Err(AttemptError::Trouble(Trouble::LogFull)) => {
                    self.writer.rollback().map_err(not_done)?;
                    let fault =
                        Fault::Failed("its log is at the last number there is; start with a new file".to_owned());
                    return Err(Failure { fault, broken: None });
                }
                Err(AttemptError::Trouble(Trouble::Sqlite(error))) => return Err(not_done(error)),
                Err(AttemptError::Commit(error)) => {
                    return Err(Failure { fault: Fault::OutcomeUnknown, broken: Some(error.into()) });
                }
                Ok(result) => return Ok(result),
            }
        }
        Err(Failure { fault: Fault::Failed("the books keep changing behind the log".to_owned()), broken: None })
    }

    fn attempt<R>(
        &mut self,
        decide: impl Fn(&mut Batch<'_>, &mut Writer<'_>) -> Result<R, Trouble>,
        reload: bool,
    ) -> Result<R, AttemptError> {
        let shared = self.shared;
        let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        if reload {
            *state = State::load(&mut self.writer, &shared.shelf, &shared.settings)?;
        } else {
            self.catch_up(&mut state)?;
        }
        if state.last_number >= store::NUMBER_MAX {
            return Err(AttemptError::Trouble(Trouble::LogFull));
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
        self.writer.commit().map_err(AttemptError::Commit)?;
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
        let mut touched = std::collections::BTreeSet::new();
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

    /// What an idle worker does, so that readers see what other processes commit.
    fn look_around(&mut self) -> rusqlite::Result<()> {
        if self.version_seen == Some(self.writer.data_version()?) {
            return Ok(());
        }
        self.writer.begin_read()?;
        let shared = self.shared;
        let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = self.catch_up(&mut state);
        drop(state);
        self.writer.rollback()?;
        seen
    }
}

enum AttemptError {
    Trouble(Trouble),
    Commit(rusqlite::Error),
}

impl<E: Into<Trouble>> From<E> for AttemptError {
    fn from(error: E) -> Self {
        Self::Trouble(error.into())
    }
}

fn decide(batch: &mut Batch<'_>, writer: &mut Writer<'_>, task: &Task) -> Result<Decision, Trouble> {
    Ok(match task {
        // It may have taken long to get the file's write lock.
        task if task.is_abandoned() => Decision::Abandoned,
        Task::Purchase(purchase, _) => Decision::Purchase(batch.purchase(writer, purchase)?),
        Task::SetPrice(book, price, _) => Decision::Price(batch.set_price(*book, *price)),
        // Restocks run in transactions of their own.
        Task::Restock(..) => Decision::Price(None),
    })
}

fn not_begun(error: rusqlite::Error) -> Failure {
    if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) {
        return Failure { fault: Fault::Unavailable(Unavailable::Locked), broken: None };
    }
    not_done(error)
}

/// Before COMMIT nothing is done; the connection is given up all the same, which also rolls back.
fn not_done(error: rusqlite::Error) -> Failure {
    let reason = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "the disk is full",
        Some(ErrorCode::SystemIoFailure) => "the disk cannot be written",
        Some(ErrorCode::DatabaseCorrupt) => "the database is damaged",
        _ => "the database could not be written",
    };
    Failure { fault: Fault::Failed(reason.to_owned()), broken: Some(error.into()) }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
