//! What a store must do, and the worker that serves it: batch after batch, and recovery after a failure. Must not know
//! callers.

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

/// How long to wait before the store is opened again: after the first failure, and at the most.
const REOPEN_PAUSE: Duration = Duration::from_millis(200);
const REOPEN_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Pause after this many failures of a store, longer after each.
pub fn backoff(failures: u32) -> Duration {
    REOPEN_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(REOPEN_PAUSE_MAX)
}

/// Bounds of a group.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Jobs that may wait.
    pub queued: usize,
    /// Jobs in one batch at the most; at least 1.
    pub batch: usize,
    /// Bytes at which a batch takes no further job; see [`Store::bytes`].
    pub batch_bytes: usize,
    /// How long a worker sleeps without a job before it looks after its store; [`Duration::MAX`]: as long as it takes.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { queued: 16_384, batch: 1024, batch_bytes: usize::MAX, idle: Duration::MAX }
    }
}

/// Jobs to commit together; none is abandoned, and at least one is there.
pub type Batch<S> = Vec<Pending<<S as Store>::Job, <S as Store>::Answer>>;

/// A store that a worker can open.
pub trait Store: Sized + Send + 'static {
    /// Something to commit.
    type Job: Send + 'static;
    /// What a caller gets when its job is committed; also a refusal that the store decided on.
    type Answer: Send + 'static;
    /// Why the store cannot be trusted any more.
    type Error;

    /// Opens the store, lets the session serve it, and closes it. Called again after each failure.
    fn open(&mut self, session: &mut Session<'_, Self>) -> Result<(), Self::Error>;

    /// Takes note of an error of [`Store::open`]; `failures` counts those since the store last took jobs, this one
    /// included.
    fn failed(&mut self, error: &Self::Error, failures: u32);

    /// How long to wait before the store is opened again, after this many failures.
    fn pause(&self, failures: u32) -> Duration {
        backoff(failures)
    }

    /// Bytes that a job brings to a batch, about.
    fn bytes(_job: &Self::Job) -> usize {
        0
    }

    /// When the job's caller gives up. A job that cannot be committed by then is refused, if the group knows.
    fn deadline(_job: &Self::Job) -> Option<Instant> {
        None
    }
}

/// A store that is open. After an error it is given up and opened again.
pub trait Opened<S: Store> {
    /// After a failure: makes sure that the store can be written, and finds out what it holds.
    fn read_back(&mut self) -> Result<(), S::Error>;

    /// Commits a batch, and answers those jobs whose outcome is certain. The callers of jobs that it drops are told that
    /// their outcome is unknown.
    fn commit(&mut self, batch: Batch<S>, answers: &mut Answers<S::Answer>) -> Result<(), S::Error>;

    /// What the store does beside batches: called after each batch, when its callers have their answers, and when no job
    /// came for [`Limits::idle`]. True if there is more to do at once.
    fn tend(&mut self, _is_idle: bool, _answers: &mut Answers<S::Answer>) -> Result<bool, S::Error> {
        Ok(false)
    }
}

/// What callers and workers share.
pub(crate) struct Shared<S: Store> {
    pub(crate) queue: Queue<Pending<S::Job, S::Answer>>,
    limits: Limits,
}

impl<S: Store> Shared<S> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { queue: Queue::new(limits.queued, |pending| S::bytes(&pending.job), Instant::now), limits }
    }
}

/// The jobs that wait, for a store that adds to a batch while it works on it.
pub struct Queued<'a, S: Store> {
    shared: &'a Shared<S>,
}

impl<S: Store> std::fmt::Debug for Queued<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queued").field("jobs", &self.len()).finish()
    }
}

impl<S: Store> Queued<'_, S> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.shared.queue.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds jobs to a batch, within the group's limits. Waits for nothing.
    pub fn take_into(&self, batch: &mut Batch<S>) {
        let Limits { batch: jobs_max, batch_bytes, .. } = self.shared.limits;
        let bytes: usize = batch.iter().map(|pending| S::bytes(&pending.job)).sum();
        let (mut taken, mut late) = (VecDeque::new(), Vec::new());
        let room = (jobs_max.saturating_sub(batch.len()), batch_bytes.saturating_sub(bytes));
        self.shared.queue.take_more(&mut taken, &mut late, room.0, room.1);
        refuse_late(&mut late);
        batch.extend(taken);
    }

    /// Puts jobs that cannot be done with this batch in front of those that wait.
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

/// A worker's turn with its store.
pub struct Session<'a, S: Store> {
    shared: &'a Shared<S>,
    /// Since the store last took jobs.
    failures: u32,
    suspended: bool,
}

impl<S: Store> std::fmt::Debug for Session<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("failures", &self.failures).finish_non_exhaustive()
    }
}

impl<'a, S: Store> Session<'a, S> {
    /// Works until the group is closed and all that was queued is done.
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

    /// What waits; the store is given what it is to commit.
    pub fn queued(&self) -> Queued<'a, S> {
        Queued { shared: self.shared }
    }

    /// Commits batch after batch until the group is closed, after a failure with reading back first. A store that is open
    /// calls it once.
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
        // No one would serve the queue.
        if thread::panicking() {
            self.suspend();
        }
    }
}
