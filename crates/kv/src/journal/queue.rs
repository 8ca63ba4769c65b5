//! Writes on their way to the journal's thread: bounded, and closed while the disk is in trouble.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use crate::{
    entry::Key,
    fault::{Fault, Limit},
    write::{Action, Outcome},
};

/// A write, and who waits for it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) key: Key,
    pub(super) action: Action,
    pub(super) reply: oneshot::Sender<Result<Outcome, Fault>>,
}

impl Job {
    /// Bytes it brings to the disk, about.
    fn bytes(&self) -> usize {
        self.key.len() + self.action.value().map_or(0, |(value, _)| value.bytes().len())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Open,
    /// The disk failed and is not read back yet.
    Suspended,
    Closed,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    mode: Mode,
}

#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    jobs_max: usize,
}

impl Queue {
    pub(super) fn new(jobs_max: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), jobs_max }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    pub(super) fn push(&self, job: Job) -> Result<(), Fault> {
        let mut state = self.lock();
        match state.mode {
            Mode::Suspended => return Err(Fault::Unavailable("recovering from a disk that failed")),
            Mode::Closed => return Err(Fault::Unavailable("stopping")),
            Mode::Open if state.jobs.len() >= self.jobs_max => {
                return Err(Fault::Limit { limit: Limit::WritesQueued, at: self.jobs_max });
            }
            Mode::Open => state.jobs.push_back(job),
        }
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for jobs and takes them, at least one and not many more bytes than `bytes_max`; false when the queue is
    /// closed and empty.
    pub(super) fn take(&self, into: &mut Vec<Job>, jobs_max: usize, bytes_max: usize) -> bool {
        let mut state = self.lock();
        while state.jobs.is_empty() {
            if state.mode == Mode::Closed {
                return false;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let mut bytes = 0;
        while into.len() < jobs_max
            && bytes < bytes_max
            && let Some(job) = state.jobs.pop_front()
        {
            bytes += job.bytes();
            into.push(job);
        }
        true
    }

    /// Takes no more until [`Queue::resume`]; returns what waited.
    pub(super) fn suspend(&self) -> VecDeque<Job> {
        let mut state = self.lock();
        if state.mode == Mode::Open {
            state.mode = Mode::Suspended;
        }
        std::mem::take(&mut state.jobs)
    }

    pub(super) fn resume(&self) {
        let mut state = self.lock();
        if state.mode == Mode::Suspended {
            state.mode = Mode::Open;
        }
    }

    pub(super) fn close(&self) {
        self.lock().mode = Mode::Closed;
        self.changed.notify_all();
    }

    /// Whether the queue is closed, or comes to be within that time.
    pub(super) fn closed_within(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), time, |state| state.mode != Mode::Closed);
        waited.unwrap_or_else(PoisonError::into_inner).0.mode == Mode::Closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> (Job, oneshot::Receiver<Result<Outcome, Fault>>) {
        let (reply, answer) = oneshot::channel();
        (Job { key: Key::from(&b"key"[..]), action: Action::Delete { expected: None }, reply }, answer)
    }

    #[test]
    fn full_queue_refuses_and_names_its_limit() {
        let queue = Queue::new(2);
        let (mut waiting, mut taken) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let (job, answer) = job();
            queue.push(job).unwrap();
            waiting.push(answer);
        }
        assert_eq!(queue.push(job().0), Err(Fault::Limit { limit: Limit::WritesQueued, at: 2 }));
        assert!(queue.take(&mut taken, 1, usize::MAX));
        assert_eq!((taken.len(), queue.len()), (1, 1));
        assert_eq!(queue.push(job().0), Ok(()));
    }

    #[test]
    fn nothing_is_taken_on_while_the_disk_is_in_trouble_or_the_end_has_come() {
        let queue = Queue::new(9);
        queue.push(job().0).unwrap();
        assert_eq!(queue.suspend().len(), 1);
        assert!(matches!(queue.push(job().0), Err(Fault::Unavailable(why)) if why.contains("disk")));
        queue.resume();
        queue.push(job().0).unwrap();
        queue.close();
        assert_eq!(queue.push(job().0), Err(Fault::Unavailable("stopping")));
        let mut taken = Vec::new();
        assert!(queue.take(&mut taken, 9, usize::MAX), "what was taken on is done");
        assert!(!queue.take(&mut taken, 9, usize::MAX));
    }
}
