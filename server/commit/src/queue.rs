//! The workers' queue, bounded by length, and in a backlog by time ([`Admission`]).
//!
//! A caller pays one short lock. A worker takes all waiting jobs under one lock and is woken only when asleep, so
//! callers make no system call under load.

use std::{
    collections::VecDeque,
    mem,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tokio::sync::watch;

use crate::{
    admission::Admission,
    answers::{Failure, Pending},
};

/// Of so many jobs, the time of one in the queue is wanted: each costs two readings of the clock.
const TIMED_ONE_IN: u32 = 16;

/// Properties of a job that the queue needs.
pub(crate) trait Waiting {
    /// Time when its caller gives up.
    fn deadline(&self) -> Option<Instant>;

    /// True if its caller has given up, or will have by `due`.
    fn is_late(&self, due: Instant) -> bool;

    /// Notes when it was queued, as its time in the queue is wanted.
    fn timed(&mut self, _now: Instant) {}
}

impl<J, A> Waiting for Pending<J, A> {
    fn deadline(&self) -> Option<Instant> {
        self.deadline()
    }

    fn is_late(&self, due: Instant) -> bool {
        self.is_abandoned() || self.deadline().is_some_and(|deadline| deadline <= due)
    }

    fn timed(&mut self, now: Instant) {
        self.set_queued_at(now);
    }
}

/// Result of taking jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// At least one job.
    Jobs,
    /// No job came in time.
    Nothing,
    /// The queue is closed and empty.
    Closed,
}

pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    jobs_max: usize,
    bytes_of: fn(&T) -> usize,
    clock: fn() -> Instant,
    /// False while the queue is suspended.
    healthy: watch::Sender<bool>,
}

struct State<T> {
    jobs: VecDeque<T>,
    bytes: usize,
    sleepers: usize,
    suspensions: usize,
    closed: bool,
    admission: Admission,
    /// Jobs that were queued, in all.
    queued: u32,
}

impl<T: Waiting> Queue<T> {
    pub(crate) fn new(jobs_max: usize, bytes_of: fn(&T) -> usize, clock: fn() -> Instant) -> Self {
        let state = State {
            jobs: VecDeque::new(),
            bytes: 0,
            sleepers: 0,
            suspensions: 0,
            closed: false,
            admission: Admission::default(),
            queued: 0,
        };
        let healthy = watch::Sender::new(true);
        Self { state: Mutex::new(state), changed: Condvar::new(), jobs_max, bytes_of, clock, healthy }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing under this lock can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, mut job: T) -> Result<(), Failure> {
        let bytes = (self.bytes_of)(&job);
        let mut state = self.lock();
        if state.closed {
            return Err(Failure::Closing);
        }
        if state.suspensions > 0 {
            return Err(Failure::Recovering);
        }
        if state.jobs.len() >= self.jobs_max {
            return Err(Failure::Full);
        }
        if state.admission.is_standing() {
            let (now, waiting, is_idle) = ((self.clock)(), state.jobs.len(), state.sleepers > 0);
            let admitted = state.admission.admit(now, waiting, is_idle, job.deadline());
            admitted.map_err(|retry_after| Failure::Overloaded { retry_after })?;
        }
        if state.queued.is_multiple_of(TIMED_ONE_IN) {
            job.timed((self.clock)());
        }
        state.queued = state.queued.wrapping_add(1);
        state.jobs.push_back(job);
        state.bytes += bytes;
        let wake = state.sleepers > 0;
        drop(state);
        if wake {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Moves jobs into the empty `batch`, waiting up to `timeout` for the first: at most `jobs_max`, and none beyond
    /// `bytes_max` bytes. Jobs that are too late go into `late`.
    pub(crate) fn take(
        &self,
        batch: &mut VecDeque<T>,
        late: &mut Vec<T>,
        jobs_max: usize,
        bytes_max: usize,
        timeout: Duration,
    ) -> Taken {
        let mut state = self.lock();
        if state.jobs.is_empty() && !state.closed && !timeout.is_zero() {
            state.sleepers += 1;
            let waited = self.changed.wait_timeout_while(state, timeout, |now| now.jobs.is_empty() && !now.closed);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.sleepers -= 1;
            if !state.jobs.is_empty() && jobs_max > 1 {
                // Jobs come in bursts. On a shared core the worker, woken by a burst's first job, has taken the core
                // from the caller that sends the rest. Yielding lets the caller finish, and costs nothing on a core of
                // the worker's own.
                drop(state);
                thread::yield_now();
                state = self.lock();
            }
        }
        if state.jobs.is_empty() {
            return if state.closed { Taken::Closed } else { Taken::Nothing };
        }
        let now = (self.clock)();
        if state.jobs.len() <= jobs_max && state.bytes <= bytes_max {
            let due = state.admission.due(now);
            mem::swap(batch, &mut state.jobs);
            state.bytes = 0;
            state.admission.taken(now, batch.len(), 0);
            drop(state);
            if batch.iter().any(|job| job.is_late(due)) {
                let (in_time, too_late): (VecDeque<T>, _) = batch.drain(..).partition(|job| !job.is_late(due));
                *batch = in_time;
                late.extend(too_late);
            }
            return Taken::Jobs;
        }
        let left = self.pop(&mut state, now, (batch, late), (jobs_max, bytes_max));
        state.admission.taken(now, batch.len(), left);
        Taken::Jobs
    }

    /// Like [`Queue::take`], for jobs added to those taken last. Does not wait.
    pub(crate) fn take_more(&self, batch: &mut VecDeque<T>, late: &mut Vec<T>, jobs_max: usize, bytes_max: usize) {
        let (mut state, now) = (self.lock(), (self.clock)());
        let left = self.pop(&mut state, now, (batch, late), (jobs_max, bytes_max));
        state.admission.added(now, batch.len(), left);
    }

    /// Returns taken jobs to the front of the queue.
    pub(crate) fn put_back(&self, jobs: Vec<T>) {
        let mut state = self.lock();
        for job in jobs.into_iter().rev() {
            state.bytes += (self.bytes_of)(&job);
            state.jobs.push_front(job);
        }
    }

    /// Moves jobs one by one; returns the number left.
    fn pop(
        &self,
        state: &mut State<T>,
        now: Instant,
        (batch, late): (&mut VecDeque<T>, &mut Vec<T>),
        (jobs_max, bytes_max): (usize, usize),
    ) -> usize {
        let due = state.admission.due(now);
        let mut bytes = 0;
        while batch.len() < jobs_max
            && bytes < bytes_max
            && let Some(job) = state.jobs.pop_front()
        {
            let job_bytes = (self.bytes_of)(&job);
            state.bytes -= job_bytes;
            // Late jobs use up no room in the batch.
            if job.is_late(due) {
                late.push(job);
            } else {
                bytes += job_bytes;
                batch.push_back(job);
            }
        }
        state.jobs.len()
    }

    /// Refuses jobs until [`Queue::resume`] was called as often; returns the waiting ones.
    pub(crate) fn suspend(&self) -> VecDeque<T> {
        let mut state = self.lock();
        state.suspensions += 1;
        (state.bytes, state.admission) = (0, Admission::default());
        self.healthy.send_replace(false);
        mem::take(&mut state.jobs)
    }

    pub(crate) fn resume(&self) {
        let mut state = self.lock();
        state.suspensions = state.suspensions.saturating_sub(1);
        if state.suspensions == 0 {
            self.healthy.send_replace(true);
        }
    }

    /// Rejects new jobs; waiting ones can still be taken.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits until the queue is closed or `timeout` expires; true if it is closed.
    pub(crate) fn closed_within(&self, timeout: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, |now| !now.closed);
        waited.unwrap_or_else(PoisonError::into_inner).0.closed
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    pub(crate) fn healthy(&self) -> watch::Receiver<bool> {
        self.healthy.subscribe()
    }
}
