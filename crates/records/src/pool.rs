//! Runs work that would block an I/O thread on other threads, a bounded number at once. Must not know what the work is.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use tokio::sync::Semaphore;

use crate::fault::Fault;

/// The bounds.
#[derive(Debug)]
pub(crate) struct Pool {
    permits: Arc<Semaphore>,
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
        Self { permits: Arc::new(Semaphore::new(jobs)), waiting: AtomicUsize::new(0), waiting_max }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Runs `job` in its turn. A caller that gives up leaves the queue.
    pub(crate) async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
        let permit = if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            permit
        } else {
            let busy = Fault::Busy { at: self.waiting_max };
            let place = |waiting| (waiting < self.waiting_max).then_some(waiting + 1);
            if self.waiting.fetch_update(Relaxed, Relaxed, place).is_err() {
                return Err(busy);
            }
            let _place = Waiting(&self.waiting);
            Arc::clone(&self.permits).acquire_owned().await.map_err(|_| busy)?
        };
        let work = move || {
            // The work holds it, because it goes on if its caller leaves.
            let _permit = permit;
            job()
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| {
            tracing::error!(%error, "a worker of the records failed");
            Fault::Failed
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, task::Context};

    use super::*;

    #[tokio::test]
    async fn work_whose_caller_has_gone_still_counts() {
        let pool = Pool::new(1, 0);
        let (end, ended) = mpsc::channel::<()>();
        let mut abandoned = Box::pin(pool.run(move || ended.recv()));
        assert!(abandoned.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
        drop(abandoned);
        assert_eq!(pool.run(|| ()).await, Err(Fault::Busy { at: 0 }));
        drop(end);
        let freed = pool.permits.acquire().await.unwrap();
        drop(freed);
        assert_eq!(pool.run(|| 7).await, Ok(7));
    }

    #[tokio::test]
    async fn a_caller_who_gives_up_leaves_the_queue() {
        let pool = Pool::new(0, 1);
        let mut waiting = Box::pin(pool.run(|| ()));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
        assert_eq!(pool.waiting(), 1);
        assert_eq!(pool.run(|| ()).await, Err(Fault::Busy { at: 1 }));
        drop(waiting);
        assert_eq!(pool.waiting(), 0);
    }
}
