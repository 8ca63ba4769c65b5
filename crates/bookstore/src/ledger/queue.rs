//! The bounded queue in front of the ledger. Must not know what a job does.
//!
//! A producer pays one short lock; the consumer takes all that waits under one lock, and is woken only when it
//! sleeps, so that under load no producer makes a system call.

use std::{
    collections::VecDeque,
    mem,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

/// Why the queue takes nothing now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It holds as many jobs as it may.
    Full,
    /// [`Queue::suspend`] was called.
    Suspended,
    /// [`Queue::close`] was called.
    Closed,
}

/// What a consumer gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// At least one job.
    Jobs,
    /// Nothing came for the time it was ready to wait.
    Nothing,
    /// Closed and empty.
    Closed,
}

pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    arrived: Condvar,
    capacity: usize,
}

struct State<T> {
    jobs: VecDeque<T>,
    sleepers: usize,
    suspensions: usize,
    closed: bool,
}

impl<T> Queue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        let state = State { jobs: VecDeque::new(), sleepers: 0, suspensions: 0, closed: false };
        Self { state: Mutex::new(state), arrived: Condvar::new(), capacity }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing under this lock can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands the job back when it is refused.
    pub(crate) fn push(&self, job: T) -> Result<(), (Refusal, T)> {
        let mut state = self.lock();
        let refusal = if state.closed {
            Refusal::Closed
        } else if state.suspensions > 0 {
            Refusal::Suspended
        } else if state.jobs.len() >= self.capacity {
            Refusal::Full
        } else {
            state.jobs.push_back(job);
            let wake = state.sleepers > 0;
            drop(state);
            if wake {
                self.arrived.notify_one();
            }
            return Ok(());
        };
        Err((refusal, job))
    }

    /// Moves up to `most` jobs into `into`, after waiting up to `patience` for the first.
    pub(crate) fn take(&self, into: &mut VecDeque<T>, most: usize, patience: Duration) -> Taken {
        let mut state = self.lock();
        if state.jobs.is_empty() && !state.closed && !patience.is_zero() {
            state.sleepers += 1;
            let waited = self.arrived.wait_timeout_while(state, patience, |now| now.jobs.is_empty() && !now.closed);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.sleepers -= 1;
            if !state.jobs.is_empty() && most > 1 {
                // Jobs come in bursts. On a core that it shares, whoever was woken by the first of a burst has
                // pushed the producer aside; this lets it finish, and costs nothing where it has a core.
                drop(state);
                thread::yield_now();
                state = self.lock();
            }
        }
        if state.jobs.is_empty() {
            return if state.closed { Taken::Closed } else { Taken::Nothing };
        }
        if into.is_empty() && state.jobs.len() <= most {
            mem::swap(into, &mut state.jobs);
        } else {
            let count = most.min(state.jobs.len());
            into.extend(state.jobs.drain(..count));
        }
        Taken::Jobs
    }

    /// Refuses jobs until [`Queue::resume`] was called as often, and hands over those that wait.
    pub(crate) fn suspend(&self) -> VecDeque<T> {
        let mut state = self.lock();
        state.suspensions += 1;
        mem::take(&mut state.jobs)
    }

    /// True when the queue takes jobs again.
    pub(crate) fn resume(&self) -> bool {
        let mut state = self.lock();
        state.suspensions = state.suspensions.saturating_sub(1);
        state.suspensions == 0
    }

    /// Takes no more jobs; those that wait can still be taken.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }

    /// Waits until the queue is closed or `patience` is over; true when it is closed.
    pub(crate) fn closed_within(&self, patience: Duration) -> bool {
        let waited = self.arrived.wait_timeout_while(self.lock(), patience, |now| !now.closed);
        waited.unwrap_or_else(PoisonError::into_inner).0.closed
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().jobs.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Queue, Refusal, Taken};
    use std::{collections::VecDeque, time::Duration};

    #[test]
    fn a_full_a_suspended_and_a_closed_queue_refuse_by_name() {
        let queue = Queue::new(2);
        assert!(queue.push(1).is_ok() && queue.push(2).is_ok());
        assert_eq!(queue.push(3), Err((Refusal::Full, 3)));
        assert_eq!(queue.suspend(), [1, 2]);
        assert_eq!(queue.push(4), Err((Refusal::Suspended, 4)));
        assert!(queue.resume());
        assert!(queue.push(5).is_ok());
        queue.close();
        assert_eq!(queue.push(6), Err((Refusal::Closed, 6)));
        let mut taken = VecDeque::new();
        assert_eq!(queue.take(&mut taken, 9, Duration::ZERO), Taken::Jobs);
        assert_eq!(taken, [5]);
        assert_eq!(queue.take(&mut taken, 9, Duration::ZERO), Taken::Closed);
    }

    #[test]
    fn no_more_than_asked_for_is_taken_and_in_order() {
        let queue = Queue::new(9);
        for job in 0..5 {
            queue.push(job).unwrap();
        }
        let mut taken = VecDeque::new();
        assert_eq!(queue.take(&mut taken, 3, Duration::ZERO), Taken::Jobs);
        assert_eq!((taken.clone().into(), queue.len()), (vec![0, 1, 2], 2));
        assert_eq!(queue.take(&mut taken, 3, Duration::ZERO), Taken::Jobs);
        assert_eq!(taken, [0, 1, 2, 3, 4]);
        assert_eq!(queue.take(&mut taken, 3, Duration::ZERO), Taken::Nothing);
    }
}
