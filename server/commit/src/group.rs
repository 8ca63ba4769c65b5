//! The callers' interface, which submits jobs and awaits their answers, and the workers that take the jobs batch by
//! batch and recover after a failure.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use tokio::sync::watch;

use crate::{
    admission::RETRY_AFTER_MIN,
    answers::{Answers, Failure, Pending},
    queue::{Queue, Taken},
    waits::Wait,
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
pub struct GroupLimits {
    /// Maximum number of queued jobs.
    pub queued: usize,
    /// Maximum number of jobs in a batch; at least 1.
    pub batch: usize,
    /// Bytes at which a batch accepts no further job; see [`Worker::bytes`].
    pub batch_bytes: usize,
    /// Time without a job after which [`Batches::next`] returns an empty batch; [`Duration::MAX`] for never.
    pub idle: Duration,
}

impl Default for GroupLimits {
    fn default() -> Self {
        Self { queued: 16_384, batch: 1024, batch_bytes: usize::MAX, idle: Duration::MAX }
    }
}

/// Jobs to commit together, none abandoned.
pub type Batch<W> = Vec<Pending<<W as Worker>::Job, <W as Worker>::Answer>>;

/// Commits batches to a store, on a thread of its own.
pub trait Worker: Sized + Send + 'static {
    /// Something to commit.
    type Job: Send + 'static;
    /// Result of a committed job; may also be a refusal decided by the store.
    type Answer: Send + 'static;
    /// Error after which the store cannot be trusted.
    type Error;

    /// Opens the store, calls [`Batches::recover`], commits what [`Batches::next`] returns until it returns `None`, and
    /// closes the store. Jobs that are dropped unanswered get [`Failure::OutcomeUnknown`]. Called again after an error.
    fn run(&mut self, batches: &mut Batches<'_, Self>) -> Result<(), Self::Error>;

    /// Reports an error of [`Worker::run`]; `failures` counts those since the store last accepted jobs, including this
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

    /// Returns a callback for the time in the queue of each 16th job, even if that is refused as late.
    fn on_taken(&self) -> OnTaken {
        Box::new(|_| {})
    }
}

/// Receives a job's time in the queue.
pub type OnTaken = Box<dyn Fn(Duration) + Send>;

/// State shared by callers and workers.
struct Shared<W: Worker> {
    queue: Queue<Pending<W::Job, W::Answer>>,
    limits: GroupLimits,
}

/// Workers and their shared queue. Closing or dropping it ends them once the queued jobs are done.
pub struct Group<W: Worker> {
    shared: Arc<Shared<W>>,
    /// Disconnected when all workers have ended.
    ended: Mutex<mpsc::Receiver<()>>,
}

impl<W: Worker> std::fmt::Debug for Group<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").finish_non_exhaustive()
    }
}

impl<W: Worker> Group<W> {
    /// Starts the workers, on threads named `name` and a number.
    pub fn start(name: &str, limits: GroupLimits, workers: impl IntoIterator<Item = W>) -> io::Result<Self> {
        let queue =
            Queue::new(limits.queued, |pending: &Pending<W::Job, W::Answer>| W::bytes(&pending.job), Instant::now);
        let shared = Arc::new(Shared { queue, limits });
        let (ending, ended) = mpsc::channel();
        let group = Self { shared, ended: Mutex::new(ended) };
        for (number, worker) in workers.into_iter().enumerate() {
            let (shared, ending): (_, mpsc::Sender<()>) = (Arc::clone(&group.shared), ending.clone());
            let work = move || {
                Batches::new(&shared, worker.on_taken()).serve(worker);
                drop(ending);
            };
            thread::Builder::new().name(format!("{name}-{number}")).spawn(work)?;
        }
        Ok(group)
    }

    /// Queues a job at once, or refuses it; the answer follows its commit. Dropping the future cancels the job unless
    /// its commit has begun.
    pub fn commit(&self, job: W::Job) -> impl Future<Output = Result<W::Answer, Failure>> + Send + use<W> {
        let deadline = W::deadline(&job);
        let (pending, answer) = Pending::new(job, deadline);
        let wait = Wait::begin();
        let queued = self.shared.queue.push(pending);
        async move {
            let _wait = wait;
            queued?;
            answer.await.unwrap_or(Err(Failure::OutcomeUnknown))
        }
    }

    /// Number of queued jobs.
    pub fn queued(&self) -> usize {
        self.shared.queue.len()
    }

    /// True while jobs are accepted: false from a failure until the store has been read back.
    pub fn healthy(&self) -> watch::Receiver<bool> {
        self.shared.queue.healthy()
    }

    /// Rejects new jobs, and waits until queued ones are committed and the stores are closed. False if that takes
    /// longer than `timeout`; jobs answered by then are committed. Blocks.
    pub fn close(&self, timeout: Duration) -> bool {
        self.shared.queue.close();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.recv_timeout(timeout) != Err(mpsc::RecvTimeoutError::Timeout)
    }
}

impl<W: Worker> Drop for Group<W> {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}

/// A worker's view of the queue: the batches that it takes and answers.
pub struct Batches<'a, W: Worker> {
    shared: &'a Shared<W>,
    answers: Answers<W::Answer>,
    taken: VecDeque<Pending<W::Job, W::Answer>>,
    late: Vec<Pending<W::Job, W::Answer>>,
    on_taken: OnTaken,
    /// Failures since the store last accepted jobs.
    failures: u32,
    suspended: bool,
}

impl<W: Worker> std::fmt::Debug for Batches<'_, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batches").field("failures", &self.failures).finish_non_exhaustive()
    }
}

impl<'a, W: Worker> Batches<'a, W> {
    fn new(shared: &'a Shared<W>, on_taken: OnTaken) -> Self {
        let (answers, taken, late) = (Answers::new(), VecDeque::new(), Vec::new());
        Self { shared, answers, taken, late, on_taken, failures: 0, suspended: false }
    }

    /// Runs the worker until the group is closed and all queued jobs are done.
    fn serve(mut self, mut worker: W) {
        while let Err(error) = worker.run(&mut self) {
            self.suspend();
            self.failures += 1;
            worker.failed(&error, self.failures);
            if self.shared.queue.closed_within(worker.pause(self.failures)) {
                return;
            }
        }
        self.answers.send();
    }

    /// After a failure: accepts jobs again once `read_back` has verified that the store is writable, and has read what
    /// it holds.
    pub fn recover<E>(&mut self, read_back: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        if self.suspended {
            read_back()?;
            (self.suspended, self.failures) = (false, 0);
            self.shared.queue.resume();
        }
        Ok(())
    }

    /// Waits for jobs, and takes them within the limits; empty if none came in time, or at once if `is_busy`. `None`
    /// once the group is closed and the worker is not busy.
    pub fn next(&mut self, is_busy: bool) -> Option<Batch<W>> {
        self.answers.send();
        let Shared { queue, limits } = self.shared;
        let timeout = if is_busy { Duration::ZERO } else { limits.idle };
        let found = queue.take(&mut self.taken, &mut self.late, limits.batch, limits.batch_bytes, timeout);
        if found == Taken::Closed && !is_busy {
            return None;
        }
        self.taken.iter_mut().chain(&mut self.late).filter_map(Pending::queued).for_each(&*self.on_taken);
        refuse_late(&mut self.late);
        let mut batch = Vec::with_capacity(self.taken.len());
        batch.extend(self.taken.drain(..));
        Some(batch)
    }

    /// Answers a job. Everything the answer reports must be on disk.
    pub fn answer(&mut self, pending: Pending<W::Job, W::Answer>, answer: W::Answer) {
        self.answers.add(pending, answer);
    }

    /// Sends the answers, before background work; [`Batches::next`] does so as well.
    pub fn send_answers(&mut self) {
        self.answers.send();
    }

    /// Number of queued jobs.
    pub fn queued(&self) -> usize {
        self.shared.queue.len()
    }

    /// Adds queued jobs to a batch, within the group's limits. Does not wait.
    pub fn extend(&self, batch: &mut Batch<W>) {
        let GroupLimits { batch: jobs_max, batch_bytes, .. } = self.shared.limits;
        let bytes: usize = batch.iter().map(|pending| W::bytes(&pending.job)).sum();
        let (mut taken, mut late) = (VecDeque::new(), Vec::new());
        let room = (jobs_max.saturating_sub(batch.len()), batch_bytes.saturating_sub(bytes));
        self.shared.queue.take_more(&mut taken, &mut late, room.0, room.1);
        taken.iter_mut().chain(&mut late).filter_map(Pending::queued).for_each(&*self.on_taken);
        refuse_late(&mut late);
        batch.extend(taken);
    }

    /// Returns jobs that do not fit this batch to the front of the queue.
    pub fn put_back(&self, jobs: Batch<W>) {
        self.shared.queue.put_back(jobs);
    }

    /// After a failure: sends the answers, and refuses jobs until [`Batches::recover`]. A worker calls it if it takes
    /// long to close the store; [`Worker::run`] is followed by it in any case.
    pub fn suspend(&mut self) {
        self.answers.send();
        if !self.suspended {
            self.suspended = true;
            for pending in self.shared.queue.suspend() {
                pending.refuse(Failure::Recovering);
            }
        }
    }
}

impl<W: Worker> Drop for Batches<'_, W> {
    fn drop(&mut self) {
        // Otherwise no one would serve the queue.
        if thread::panicking() {
            self.suspend();
        }
    }
}

/// Refuses jobs whose deadline has passed, and those of a backlog that would be committed after theirs.
fn refuse_late<J, A>(late: &mut Vec<Pending<J, A>>) {
    for pending in late.drain(..) {
        let is_over = pending.deadline().is_some_and(|deadline| deadline <= Instant::now());
        pending.refuse(if is_over { Failure::Late } else { Failure::Overloaded { retry_after: RETRY_AFTER_MIN } });
    }
}
