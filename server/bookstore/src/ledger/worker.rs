//! The ledger's worker: commits batches of jobs, keeps jobs for locked books aside, runs slices of restocks and writes of
//! whole books between batches, and settles the outcome of a COMMIT that failed.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use commit::{Batches, OnTaken, Worker};

use super::{
    rules::{Decision, Job, JobResult, PendingJob},
    transaction::{Sale, count, restock_slice, write_books},
};
use crate::{
    domain::{Actor, BookId, Restocked},
    fault::{Fault, Limit, Unavailable},
    metrics::Metrics,
    settings::Settings,
    store::{Broken, LedgerConnection, Store, TransactionError, TransactionId},
};

/// Longest time a batch's callers wait for its outcome after a failed COMMIT.
const SETTLE: Duration = Duration::from_secs(15);

/// State shared by the workers.
pub(super) struct Shared {
    pub(super) store: Arc<dyn Store>,
    pub(super) settings: Settings,
    pub(super) metrics: Arc<Metrics>,
    /// Reason why the store accepts nothing; `None` while it does.
    pub(super) trouble: Mutex<Option<String>>,
    /// Jobs that the workers have put aside: restocks, writes of whole books, and jobs for locked books.
    pub(super) aside: AtomicUsize,
}

pub(super) struct LedgerWorker {
    shared: Arc<Shared>,
    /// The batch whose COMMIT failed.
    unsettled: Option<Unsettled>,
    /// Begin of the time in which the store accepts nothing, and its failures since.
    outage: (Instant, u32),
}

/// A batch whose commit is in doubt.
struct Unsettled {
    transaction: TransactionId,
    since: Instant,
    decided: Vec<(PendingJob, Option<JobResult>)>,
}

impl LedgerWorker {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, unsettled: None, outage: (Instant::now(), 0) }
    }
}

impl Worker for LedgerWorker {
    type Job = Job;
    type Answer = JobResult;
    type Error = Broken;

    fn run(&mut self, batches: &mut Batches<'_, Self>) -> Result<(), Broken> {
        let shared = Arc::clone(&self.shared);
        let mut connection = shared.store.connect()?;
        let mut settled = Vec::new();
        batches.recover(|| -> Result<(), Broken> {
            connection.read_back()?;
            settled = self.settle(&mut *connection)?;
            self.end_outage();
            Ok(())
        })?;
        for (job, result) in settled {
            batches.answer(job, result);
        }
        let mut serving = Serving {
            shared: &shared,
            connection,
            restocks: VecDeque::new(),
            writes: VecDeque::new(),
            locked: LockedBooks::default(),
            counted: 0,
            tried: Instant::now(),
            has_sold: false,
            unsettled: &mut self.unsettled,
        };
        if let Err(broken) = serving.serve(batches) {
            batches.suspend();
            return Err(broken);
        }
        serving.connection.close()
    }

    fn failed(&mut self, Broken(reason): &Broken, failures: u32) {
        // Their callers get an unknown outcome.
        drop(self.unsettled.take_if(|unsettled| unsettled.since.elapsed() > SETTLE));
        *self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.clone());
        let store = self.shared.store.name();
        // Failed reconnections do not count as new failures.
        if failures == 1 {
            self.outage.0 = Instant::now();
            self.shared.metrics.store_failed();
            tracing::error!(%reason, %store, "the store failed; it takes nothing until it has been read back");
        } else {
            tracing::debug!(%reason, %store, failures, "the store cannot be read back yet");
        }
        self.outage.1 = failures;
    }

    fn pause(&self, failures: u32) -> Duration {
        self.shared.store.reopen_pause().unwrap_or_else(|| commit::backoff(failures))
    }

    fn deadline(job: &Job) -> Option<Instant> {
        match job {
            Job::Purchase(purchase) => purchase.deadline,
            Job::Hold(hold) => hold.deadline,
            Job::EndHold(end) => end.deadline,
            Job::SetPrice(..) | Job::RestockBook(..) | Job::Restock(..) | Job::Write(..) => None,
        }
    }

    fn on_taken(&self) -> OnTaken {
        self.shared.metrics.on_taken()
    }
}

impl LedgerWorker {
    /// Determines the outcome of the batch whose COMMIT failed; returns the answers of its jobs.
    fn settle(&mut self, connection: &mut dyn LedgerConnection) -> Result<Vec<(PendingJob, JobResult)>, Broken> {
        let Some(Unsettled { transaction, .. }) = &self.unsettled else { return Ok(Vec::new()) };
        let outcome = connection.settle(transaction)?;
        let Some(Unsettled { decided, .. }) = self.unsettled.take() else { return Ok(Vec::new()) };
        let Some(is_done) = outcome else {
            tracing::warn!(requests = decided.len(), "the outcome of a commit that had failed is not known any more");
            return Ok(Vec::new());
        };
        tracing::info!(is_done, requests = decided.len(), "a commit that had failed was settled");
        if is_done {
            count(&self.shared.metrics, decided.iter().filter_map(|(_, result)| result.as_ref()));
        }
        let undone = || Err(Fault::Unavailable(self.shared.store.while_failed()));
        let settled =
            decided.into_iter().filter_map(|(job, result)| Some((job, if is_done { result? } else { undone() })));
        Ok(settled.collect())
    }

    fn end_outage(&self) {
        *self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let (since, failures) = self.outage;
        let (seconds, store) = (since.elapsed().as_secs_f64(), self.shared.store.name());
        tracing::info!(%store, failures, seconds, "the store was read back and takes purchases again");
    }
}

/// A worker with its open connection.
struct Serving<'a> {
    shared: &'a Shared,
    connection: Box<dyn LedgerConnection + 'a>,
    restocks: VecDeque<Restock>,
    /// Writes of whole books, and the time at which each came.
    writes: VecDeque<(PendingJob, Instant)>,
    locked: LockedBooks,
    /// This worker's part of [`Shared::aside`].
    counted: usize,
    /// Time of the last retry of `locked`.
    tried: Instant,
    /// True if jobs for other books have come since that.
    has_sold: bool,
    unsettled: &'a mut Option<Unsettled>,
}

/// A restock in progress.
struct Restock {
    job: PendingJob,
    amount: u32,
    actor: Actor,
    after: Option<BookId>,
    raised: u64,
    /// Time of its last progress.
    moved: Instant,
}

impl Serving<'_> {
    fn serve(&mut self, batches: &mut Batches<'_, LedgerWorker>) -> Result<(), Broken> {
        let mut is_busy = false;
        while let Some(batch) = batches.next(is_busy) {
            let done = self.serve_batch(batch, batches);
            if done.is_err() {
                self.give_up(batches);
            }
            is_busy = done?;
        }
        Ok(())
    }

    /// Answers the jobs that wait beside the queue when the store has failed.
    fn give_up(&mut self, batches: &mut Batches<'_, LedgerWorker>) {
        let not_begun = || Err(Fault::Unavailable(self.shared.store.while_failed()));
        let writes = self.writes.drain(..).map(|(job, _)| job);
        for job in self.locked.expired(Duration::ZERO).into_iter().chain(writes) {
            batches.answer(job, not_begun());
        }
        for Restock { job, raised, .. } in self.restocks.drain(..) {
            batches.answer(job, if raised > 0 { Err(Fault::Stopped(raised)) } else { not_begun() });
        }
        self.count_aside();
    }

    /// Shows how many jobs wait beside the queue.
    fn count_aside(&mut self) {
        let now = self.restocks.len() + self.writes.len() + self.locked.len();
        let before = mem::replace(&mut self.counted, now);
        // Wraps around where the number falls.
        self.shared.aside.fetch_add(now.wrapping_sub(before), Relaxed);
    }

    /// Puts restocks and writes of whole books aside, up to the limit, and refuses the others.
    fn put_aside(&mut self, job: PendingJob, batches: &mut Batches<'_, LedgerWorker>) {
        let (at, waiting) = (self.shared.settings.limits.purchases_queued, self.restocks.len() + self.writes.len());
        if waiting >= at {
            self.shared.metrics.refused(Limit::PurchasesQueued);
            let at = u64::try_from(at).unwrap_or(u64::MAX);
            return batches.answer(job, Err(Fault::Limit { limit: Limit::PurchasesQueued, at }));
        }
        let (after, raised, moved) = (None, 0, Instant::now());
        match &job.job {
            Job::Restock(amount, actor) => {
                let (amount, actor) = (*amount, actor.clone());
                self.restocks.push_back(Restock { job, amount, actor, after, raised, moved });
            }
            _ => self.writes.push_back((job, moved)),
        }
    }

    /// Commits and answers a batch, and then does background work. True if there is more of that to do at once.
    fn serve_batch(
        &mut self,
        mut batch: Vec<PendingJob>,
        batches: &mut Batches<'_, LedgerWorker>,
    ) -> Result<bool, Broken> {
        let is_idle = batch.is_empty();
        for job in batch.extract_if(.., |pending| !pending.job.is_shared()) {
            self.put_aside(job, batches);
        }
        self.count_aside();
        let is_locked = |pending: &mut PendingJob| pending.job.book().is_some_and(|book| self.locked.has(book));
        let locked = batch.extract_if(.., is_locked).filter_map(|pending| Some((pending.job.book()?, pending)));
        self.keep_aside(locked.collect(), batches);
        if !batch.is_empty() {
            self.has_sold = true;
            self.sell(batch, true, batches)?;
        } else if self.connection.has_overdue_holds() {
            // Each transaction that sells ends them.
            self.sell(Vec::new(), true, batches)?;
        }
        batches.send_answers();
        self.try_locked(batches)?;
        self.continue_restock(batches)?;
        self.write_next(batches)?;
        self.count_aside();
        self.connection.tend(is_idle)?;
        Ok(!self.restocks.is_empty() || !self.writes.is_empty() || !self.locked.is_empty())
    }

    /// Carries out purchases, restocks of one book and price changes. Returns the books that are locked, and keeps their jobs aside.
    fn sell(
        &mut self,
        jobs: Vec<PendingJob>,
        waits: bool,
        batches: &mut Batches<'_, LedgerWorker>,
    ) -> Result<BTreeSet<BookId>, Broken> {
        let mut sale = Sale::new(jobs, waits, self.shared.store.locks_books());
        let done = sale.carry_out(&mut *self.connection, batches, &self.shared.metrics);
        let Sale { jobs, results, locked: aside, .. } = sale;
        let locked = aside.iter().map(|(book, _)| *book).collect();
        self.keep_aside(aside, batches);
        match done {
            Ok(()) => Ok(locked),
            Err(TransactionError::Unknown(broken, Some(transaction))) => {
                let decided = jobs.into_iter().zip(results).collect();
                *self.unsettled = Some(Unsettled { transaction, since: Instant::now(), decided });
                Err(broken)
            }
            Err(error) => answer_error(error, jobs, batches, |fault| fault).map(|()| locked),
        }
    }

    /// Keeps jobs for locked books aside, up to the limit, and refuses the others.
    fn keep_aside(&mut self, jobs: Vec<(BookId, PendingJob)>, batches: &mut Batches<'_, LedgerWorker>) {
        for (book, job) in jobs {
            if self.locked.len() < self.shared.settings.limits.purchases_queued {
                self.locked.add(book, job);
            } else {
                batches.answer(job, Err(Fault::Unavailable(Unavailable::BookLocked)));
            }
        }
    }

    /// Retries jobs for locked books. Waits for the locks if there is nothing else to do.
    fn try_locked(&mut self, batches: &mut Batches<'_, LedgerWorker>) -> Result<(), Broken> {
        let has_sold = mem::take(&mut self.has_sold);
        let is_early = has_sold && self.tried.elapsed() < self.shared.settings.poll_interval;
        if self.locked.is_empty() || is_early {
            return Ok(());
        }
        self.tried = Instant::now();
        let (mut books, jobs) = self.locked.take(self.shared.settings.batch_max);
        let locked = self.sell(jobs, !has_sold, batches)?;
        books.retain(|book| !locked.contains(book));
        batches.put_back(self.locked.unlock(&books));
        for job in self.locked.expired(self.shared.settings.busy_timeout) {
            batches.answer(job, Err(Fault::Unavailable(Unavailable::BookLocked)));
        }
        Ok(())
    }

    /// Runs one slice of the oldest restock.
    fn continue_restock(&mut self, batches: &mut Batches<'_, LedgerWorker>) -> Result<(), Broken> {
        let Some(mut restock) = self.restocks.pop_front() else { return Ok(()) };
        let most = self.shared.settings.restock_slice.max(1);
        match restock_slice(&mut *self.connection, (restock.amount, &restock.actor), restock.after, most) {
            Ok((raised, after)) => {
                restock.raised += u64::try_from(raised).unwrap_or(u64::MAX);
                (restock.after, restock.moved) = (after, Instant::now());
                if after.is_some() {
                    self.restocks.push_front(restock);
                } else {
                    let done = Restocked { books_raised: restock.raised };
                    batches.answer(restock.job, Ok(Decision::Restocked(done)));
                }
                Ok(())
            }
            Err(TransactionError::Refused(Fault::Unavailable(Unavailable::BookLocked)))
                if restock.moved.elapsed() < self.shared.settings.busy_timeout =>
            {
                self.restocks.push_back(restock);
                Ok(())
            }
            Err(error) => {
                let raised = restock.raised;
                let stopped = |fault| if raised > 0 { Fault::Stopped(raised) } else { fault };
                answer_error(error, [restock.job], batches, stopped)
            }
        }
    }

    /// Carries out the oldest write of whole books.
    fn write_next(&mut self, batches: &mut Batches<'_, LedgerWorker>) -> Result<(), Broken> {
        let Some((job, since)) = self.writes.pop_front() else { return Ok(()) };
        let Job::Write(writes, actor) = &job.job else { return Ok(()) };
        if job.is_abandoned() {
            return Ok(());
        }
        let mut written = Vec::new();
        match write_books(&mut *self.connection, writes, actor, &mut written) {
            Ok(()) => {
                batches.answer(job, Ok(Decision::Written(written)));
                Ok(())
            }
            Err(TransactionError::Refused(Fault::Unavailable(Unavailable::BookLocked)))
                if since.elapsed() < self.shared.settings.busy_timeout =>
            {
                self.writes.push_back((job, since));
                Ok(())
            }
            Err(TransactionError::Unknown(broken, Some(transaction))) => {
                let decided = vec![(job, Some(Ok(Decision::Written(written))))];
                *self.unsettled = Some(Unsettled { transaction, since: Instant::now(), decided });
                Err(broken)
            }
            Err(error) => answer_error(error, [job], batches, |fault| fault),
        }
    }
}

/// Answers callers after an error; fails if the connection is broken.
fn answer_error(
    error: TransactionError,
    jobs: impl IntoIterator<Item = PendingJob>,
    batches: &mut Batches<'_, LedgerWorker>,
    convert: impl Fn(Fault) -> Fault,
) -> Result<(), Broken> {
    let (fault, broken) = match error {
        TransactionError::Again => (Fault::Failed("the books keep changing".to_owned()), Ok(())),
        TransactionError::Refused(fault) => (fault, Ok(())),
        TransactionError::Undone(fault, broken) => (fault, Err(broken)),
        // A dropped job has an unknown outcome.
        TransactionError::Unknown(broken, _) => return Err(broken),
    };
    for job in jobs {
        batches.answer(job, Err(convert(fault.clone())));
    }
    broken
}

/// Jobs for books that another transaction has locked, kept aside by book so that jobs for other books go on.
#[derive(Default)]
pub(super) struct LockedBooks {
    books: BTreeMap<BookId, KeptAside>,
    count: usize,
}

struct KeptAside {
    /// Time at which the lock was first met.
    since: Instant,
    jobs: Vec<PendingJob>,
}

impl LockedBooks {
    pub(super) fn is_empty(&self) -> bool {
        self.books.is_empty()
    }

    /// Number of jobs.
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    pub(super) fn has(&self, book: BookId) -> bool {
        self.books.contains_key(&book)
    }

    /// Keeps a job for a book that is locked.
    pub(super) fn add(&mut self, book: BookId, job: PendingJob) {
        let waiting = self.books.entry(book);
        waiting.or_insert_with(|| KeptAside { since: Instant::now(), jobs: Vec::new() }).jobs.push(job);
        self.count += 1;
    }

    /// Takes up to `most` jobs to try them again. Their books stay marked as locked.
    pub(super) fn take(&mut self, most: usize) -> (BTreeSet<BookId>, Vec<PendingJob>) {
        let (mut books, mut taken) = (BTreeSet::new(), Vec::new());
        for (book, waiting) in &mut self.books {
            let count = waiting.jobs.len().min(most - taken.len());
            if count > 0 {
                books.insert(*book);
                taken.extend(waiting.jobs.drain(..count));
            }
        }
        self.count -= taken.len();
        (books, taken)
    }

    /// Forgets books that are no longer locked; returns their remaining jobs.
    pub(super) fn unlock(&mut self, books: &BTreeSet<BookId>) -> Vec<PendingJob> {
        self.remove(|book, _| books.contains(book))
    }

    /// Gives up books that have been locked for that long; returns their jobs.
    pub(super) fn expired(&mut self, after: Duration) -> Vec<PendingJob> {
        self.remove(|_, waiting| waiting.since.elapsed() >= after)
    }

    fn remove(&mut self, which: impl Fn(&BookId, &KeptAside) -> bool) -> Vec<PendingJob> {
        let removed = self.books.extract_if(.., |book, waiting| which(book, waiting));
        let jobs: Vec<PendingJob> = removed.flat_map(|(_, waiting)| waiting.jobs).collect();
        self.count -= jobs.len();
        jobs
    }
}
