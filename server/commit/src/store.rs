//! The store interface, and the worker that drives it: batch after batch, and recovery after a failure.

use std::{
    collections::VecDeque,
    thread,
    time::{Duration, Instant},
};

use crate::{
    admission::RETRY_AFTER_MIN,
    failure::Failure,
    pending::{Answers, Pending},
    queue::{Queue, Taken, Waiting as _},
};

/// Pause before the store is reopened after its first failure, and the longest pause.
const REOPEN_PAUSE: Duration = Duration::from_millis(200);
const REOPEN_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Pause after this many failures of a store, longer after each.
pub fn backoff(failures: u32) -> Duration {
    REOPEN_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(REOPEN_PAUSE_MAX)
}

/// Limits of a group.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of queued jobs.
    pub queued: usize,
    /// Maximum number of jobs in a batch; at least 1.
    pub batch: usize,
    /// Bytes at which a batch accepts no further job; see [`Store::bytes`].
    pub batch_bytes: usize,
    /// Time without a job after which a worker calls [`Opened::tend`]; [`Duration::MAX`] for never.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { queued: 16_384, batch: 1024, batch_bytes: usize::MAX, idle: Duration::MAX }
    }
}

/// Jobs to commit together: at least one, none abandoned.
pub type Batch<S> = Vec<Pending<<S as Store>::Job, <S as Store>::Answer>>;

/// A store that a worker can open.
pub trait Store: Sized + Send + 'static {
    /// Something to commit.
    type Job: Send + 'static;
    /// Result of a committed job; may also be a refusal decided by the store.
    type Answer: Send + 'static;
    /// Error after which the store cannot be trusted.
    type Error;

    /// Opens the store, lets the session serve it, and closes it. Called again after each failure.
    fn open(&mut self, session: &mut Session<'_, Self>) -> Result<(), Self::Error>;

    /// Reports an error of [`Store::open`]; `failures` counts those since the store last accepted jobs, including this
    /// one.
    fn failed(&mut self, error: &Self::Error, failures: u32);

    /// Pause before the store is opened again, after this many failures.
    fn pause(&self, failures: u32) -> Duration {
        backoff(failures)
    }

    /// Approximate bytes that a job adds to a batch.
    fn bytes(_job: &Self::Job) -> usize {
        0
    }

    /// Time when the job's caller gives up. A job known to miss it is refused.
    fn deadline(_job: &Self::Job) -> Option<Instant> {
        None
    }
}

/// An open store. After an error it is discarded and opened again.
pub trait Opened<S: Store> {
    /// Called after a failure: verifies that the store is writable, and reads what it holds.
    fn read_back(&mut self) -> Result<(), S::Error>;

    /// Commits a batch, and answers the jobs whose outcome is certain. Jobs dropped unanswered get
    /// [`Failure::OutcomeUnknown`].
    fn commit(&mut self, batch: Batch<S>, answers: &mut Answers<S::Answer>) -> Result<(), S::Error>;

    /// Background work, called after each batch once its callers have their answers, and after [`Limits::idle`] without
    /// a job. True if there is more to do at once.
    fn tend(&mut self, _is_idle: bool, _answers: &mut Answers<S::Answer>) -> Result<bool, S::Error> {
        Ok(false)
    }
}

/// State shared by callers and workers.
pub(crate) struct Shared<S: Store> {
    pub(crate) queue: Queue<Pending<S::Job, S::Answer>>,
    limits: Limits,
}

impl<S: Store> Shared<S> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { queue: Queue::new(limits.queued, |pending| S::bytes(&pending.job), Instant::now), limits }
    }
}

/// The queued jobs, for a store that extends a batch while working on it.
pub struct Queued<'a, S: Store> {
    shared: &'a Shared<S>,
}

impl<S: Store> std::fmt::Debug for Queued<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queued").field("jobs", &self.len()).finish()
    }
}

impl<S: Store> Queued<'_, S> {
    /// Number of queued jobs.
    pub fn len(&self) -> usize {
        self.shared.queue.len()
    }

    /// True if no job is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds jobs to a batch, within the group's limits. Does not wait.
    pub fn take_into(&self, batch: &mut Batch<S>) {
        let Limits { batch: jobs_max, batch_bytes, .. } = self.shared.limits;
        let bytes: usize = batch.iter().map(|pending| S::bytes(&pending.job)).sum();
        let (mut taken, mut late) = (VecDeque::new(), Vec::new());
        let room = (jobs_max.saturating_sub(batch.len()), batch_bytes.saturating_sub(bytes));
        self.shared.queue.take_more(&mut taken, &mut late, room.0, room.1);
        refuse_late(&mut late);
        batch.extend(taken);
    }

    /// Returns jobs that do not fit this batch to the front of the queue.
    pub fn put_back(&self, jobs: Batch<S>) {
        self.shared.queue.put_back(jobs);
    }
}

/// Refuses jobs whose deadline has passed, and those of a backlog that would be committed after theirs.
fn refuse_late<J, A>(late: &mut Vec<Pending<J, A>>) {
    for pending in late.drain(..) {
        let is_over = pending.deadline().is_some_and(|deadline| deadline <= Instant::now());
        pending.refuse(if is_over { Failure::Late } else { Failure::Overloaded { retry_after: RETRY_AFTER_MIN } });
    }
}

/// A worker's use of its open store.
pub struct Session<'a, S: Store> {
    shared: &'a Shared<S>,
    /// Failures since the store last accepted jobs.
    failures: u32,
    suspended: bool,
}

impl<S: Store> std::fmt::Debug for Session<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("failures", &self.failures).finish_non_exhaustive()
    }
}

impl<'a, S: Store> Session<'a, S> {
    /// Works until the group is closed and all queued jobs are done.
    pub(crate) fn run(shared: &'a Shared<S>, mut store: S) {
        let mut session = Self { shared, failures: 0, suspended: false };
        while let Err(error) = store.open(&mut session) {
            session.suspend();
            session.failures += 1;
            store.failed(&error, session.failures);
            if shared.queue.closed_within(store.pause(session.failures)) {
                return;
            }
        }
    }

    /// The queued jobs, for a store that takes more than it is given.
    pub fn queued(&self) -> Queued<'a, S> {
        Queued { shared: self.shared }
    }

    /// Commits batch after batch until the group is closed, after a failure reading back first. Called once by a store
    /// when it is open.
    pub fn serve(&mut self, store: &mut impl Opened<S>) -> Result<(), S::Error> {
        let served = self.read_back(store).and_then(|()| self.commit_batches(store));
        if served.is_err() {
            self.suspend();
        }
        served
    }

    fn read_back(&mut self, store: &mut impl Opened<S>) -> Result<(), S::Error> {
        if self.suspended {
            store.read_back()?;
            (self.suspended, self.failures) = (false, 0);
            self.shared.queue.resume();
        }
        Ok(())
    }

    fn commit_batches(&self, store: &mut impl Opened<S>) -> Result<(), S::Error> {
        let Shared { queue, limits } = self.shared;
        let (mut taken, mut late, mut answers, mut busy) = (VecDeque::new(), Vec::new(), Answers::new(), false);
        loop {
            let timeout = if busy { Duration::ZERO } else { limits.idle };
            let found = queue.take(&mut taken, &mut late, limits.batch, limits.batch_bytes, timeout);
            if found == Taken::Closed && !busy {
                return Ok(());
            }
            refuse_late(&mut late);
            let mut batch = Batch::<S>::with_capacity(taken.len());
            batch.extend(taken.drain(..));
            if !batch.is_empty() {
                let committed = store.commit(batch, &mut answers);
                answers.send();
                committed?;
            }
            let tended = store.tend(found != Taken::Jobs, &mut answers);
            answers.send();
            busy = tended?;
        }
    }

    fn suspend(&mut self) {
        if !self.suspended {
            self.suspended = true;
            for pending in self.shared.queue.suspend() {
                pending.refuse(Failure::Recovering);
            }
        }
    }
}

impl<S: Store> Drop for Session<'_, S> {
    fn drop(&mut self) {
        // Otherwise no one would serve the queue.
        if thread::panicking() {
            self.suspend();
        }
    }
}
