//! Work that would hold up an I/O thread, on threads for it, a bounded number at once. Must not know what the work is.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::Semaphore;

use crate::fault::Fault;

/// The bounds.
#[derive(Debug)]
pub(crate) struct Pool {
    permits: Semaphore,
    waiting: AtomicUsize,
    waiting_max: usize,
}

/// A place in the queue; given back when it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Pool {
    pub(crate) fn new(jobs: usize, waiting_max: usize) -> Self {
        Self { permits: Semaphore::new(jobs), waiting: AtomicUsize::new(0), waiting_max }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Does `job` when it is its turn. A caller that gives up leaves the queue.
    pub(crate) async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
        let permit = if let Ok(permit) = self.permits.try_acquire() {
            permit
        } else {
            let busy = Fault::Busy { at: self.waiting_max };
            let place = |waiting| (waiting < self.waiting_max).then_some(waiting + 1);
            if self.waiting.fetch_update(Relaxed, Relaxed, place).is_err() {
                return Err(busy);
            }
            let _place = Waiting(&self.waiting);
            self.permits.acquire().await.map_err(|_| busy)?
        };
        let done = tokio::task::spawn_blocking(job).await;
        drop(permit);
        done.map_err(|error| {
            tracing::error!(%error, "a worker of the records failed");
            Fault::Failed
        })
    }
}
