//! The callers' interface: submit a job, await its answer after the commit.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    failure::Failure,
    pending::Pending,
    store::{Limits, Session, Shared, Store},
};

/// Workers and their shared queue. Closing or dropping it ends them once the queued jobs are done.
pub struct Group<S: Store> {
    shared: Arc<Shared<S>>,
    /// Disconnected when all workers have ended.
    ended: Mutex<mpsc::Receiver<()>>,
}

impl<S: Store> std::fmt::Debug for Group<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").finish_non_exhaustive()
    }
}

impl<S: Store> Group<S> {
    /// Starts a worker for each store, on threads named `name` and a number.
    pub fn start(name: &str, limits: Limits, stores: impl IntoIterator<Item = S>) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(limits));
        let (ending, ended) = mpsc::channel();
        let group = Self { shared, ended: Mutex::new(ended) };
        for (number, store) in stores.into_iter().enumerate() {
            let (shared, ending): (_, mpsc::Sender<()>) = (Arc::clone(&group.shared), ending.clone());
            let work = move || {
                Session::run(&shared, store);
                drop(ending);
            };
            thread::Builder::new().name(format!("{name}-{number}")).spawn(work)?;
        }
        Ok(group)
    }

    /// Queues a job at once, or refuses it; the answer follows its commit. Dropping the future cancels the job unless
    /// its commit has begun.
    pub fn commit(&self, job: S::Job) -> impl Future<Output = Result<S::Answer, Failure>> + Send + use<S> {
        let deadline = S::deadline(&job);
        let (pending, answer) = Pending::new(job, deadline);
        let queued = self.shared.queue.push(pending);
        async move {
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

impl<S: Store> Drop for Group<S> {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}
