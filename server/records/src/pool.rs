//! Thread pool for work that would block I/O threads, with bounded concurrency. Its queue is bounded by length, and in
//! a backlog by time ([`Admission`]).

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use commit::Admission;
use tokio::sync::Semaphore;

use crate::fault::Fault;

/// The limits.
#[derive(Debug)]
pub(crate) struct Pool {
    permits: Arc<Semaphore>,
    queue: Semaphore,
    waiting_max: usize,
    admission: Mutex<Admission>,
}

impl Pool {
    pub(crate) fn new(jobs: usize, waiting_max: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(jobs)),
            queue: Semaphore::new(waiting_max),
            waiting_max,
            admission: Mutex::default(),
        }
    }

    fn admission(&self) -> MutexGuard<'_, Admission> {
        self.admission.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting_max - self.queue.available_permits()
    }

    /// Runs `job` in its turn. A caller that gives up leaves the queue; one whose turn would come after its `deadline`
    /// is refused.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        deadline: Option<Instant>,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let permit = if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            permit
        } else {
            let busy = || Fault::Busy { at: self.waiting_max };
            let _place = self.queue.try_acquire().map_err(|_| busy())?;
            let admitted = self.admission().admit(now(), self.waiting() - 1, false, deadline);
            admitted.map_err(|retry_after| Fault::Overloaded { retry_after })?;
            Arc::clone(&self.permits).acquire_owned().await.map_err(|_| busy())?
        };
        self.begin(deadline)?;
        let work = move || {
            // Held by the job, because it continues if its caller leaves.
            let _permit = permit;
            job()
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| {
            tracing::error!(%error, "a worker of the records failed");
            Fault::Failed
        })
    }

    /// Records that a job's turn has come; refuses a job that has missed its deadline.
    fn begin(&self, deadline: Option<Instant>) -> Result<(), Fault> {
        let (now, mut admission) = (now(), self.admission());
        let is_past = |time| deadline.is_some_and(|deadline| deadline <= time);
        let begun = match admission.due(now) {
            _ if is_past(now) => Err(Fault::Late),
            due if is_past(due) => Err(Fault::Overloaded { retry_after: commit::RETRY_AFTER_MIN }),
            _ => Ok(()),
        };
        admission.taken(now, usize::from(begun.is_ok()), self.waiting());
        begun
    }
}

/// Tokio's time, which tests can pause.
fn now() -> Instant {
    tokio::time::Instant::now().into()
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, sync::mpsc, task::Context, time::Duration};

    use super::*;

    #[tokio::test]
    async fn work_whose_caller_has_gone_still_counts() {
        let pool = Pool::new(1, 0);
        let (end, ended) = mpsc::channel::<()>();
        let mut abandoned = Box::pin(pool.run(None, move || ended.recv()));
        assert!(abandoned.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
        drop(abandoned);
        assert_eq!(pool.run(None, || ()).await, Err(Fault::Busy { at: 0 }));
        drop(end);
        let freed = pool.permits.acquire().await.unwrap();
        drop(freed);
        assert_eq!(pool.run(None, || 7).await, Ok(7));
    }

    #[tokio::test]
    async fn a_caller_who_gives_up_leaves_the_queue() {
        let pool = Pool::new(0, 1);
        let mut waiting = Box::pin(pool.run(None, || ()));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
        assert_eq!(pool.waiting(), 1);
        assert_eq!(pool.run(None, || ()).await, Err(Fault::Busy { at: 1 }));
        drop(waiting);
        assert_eq!(pool.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_query_whose_deadline_is_over_is_no_sign_of_overload() {
        let pool = Pool::new(1, 0);
        assert_eq!(pool.run(Some(now()), || ()).await, Err(Fault::Late));
        assert_eq!(pool.run(Some(now() + Duration::from_nanos(1)), || 7).await, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_query_whose_turn_would_come_after_its_deadline_is_refused_before_it_waits() {
        let pool = Arc::new(Pool::new(1, 1000));
        let run = |deadline| {
            let (pool, (end, ended)) = (Arc::clone(&pool), mpsc::channel::<()>());
            (end, tokio::spawn(async move { pool.run(deadline, move || ended.recv().is_err()).await }))
        };
        let soon = || Some(now() + Duration::from_secs(1));
        let mut queries: VecDeque<_> = (0..60).map(|_| run(None)).collect();
        for _ in 0..10 {
            // Before a rate is known nothing is refused; then it is 20 queries per second, so half a second is ten of
            // them.
            tokio::time::advance(Duration::from_millis(50)).await;
            let (end, query) = queries.pop_front().unwrap();
            drop(end);
            assert_eq!(query.await.unwrap(), Ok(true));
        }
        let (_end, refused) = run(soon());
        let Err(Fault::Overloaded { retry_after }) = refused.await.unwrap() else { panic!("49 wait before it") };
        assert!((Duration::from_secs(1)..Duration::from_secs(3)).contains(&retry_after), "{retry_after:?}");
        for (end, query) in queries {
            drop(end);
            assert_eq!(query.await.unwrap(), Ok(true));
        }
        tokio::time::advance(Duration::from_millis(200)).await;
        for (end, query) in (0..60).map(|_| run(soon())).collect::<Vec<_>>() {
            drop(end);
            assert_eq!(query.await.unwrap(), Ok(true), "the backlog is gone");
        }
    }
}
