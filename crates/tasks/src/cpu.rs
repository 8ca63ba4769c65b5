//! CPU-bound tasks on separate threads, a bounded number at a time. Must not know what a cache is.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{runtime::Handle, sync::Semaphore};

use crate::{fault::Stopped, work::Workspace};

thread_local! {
    /// Reused from task to task; freed with the thread, which ends when it has been idle for a while.
    static WORKSPACE: RefCell<Workspace> = RefCell::default();
}

/// The result of the task with this seed, in the memory of the thread.
pub(crate) fn run(seed: u64) -> u8 {
    WORKSPACE.with_borrow_mut(|workspace| workspace.run(seed))
}

/// The threads, which belong to a runtime's pool for blocking work.
#[derive(Debug)]
pub(crate) struct Cpu {
    threads: Handle,
    permits: Arc<Semaphore>,
    load: Arc<Load>,
    work: fn(u64) -> u8,
}

/// Tasks that run on the threads.
#[derive(Debug, Default)]
pub(crate) struct Load {
    now: AtomicU64,
    peak: AtomicU64,
}

impl Load {
    /// How many run.
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// How many ever ran at the same time.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    fn begin(&self) {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.peak.fetch_max(now, Ordering::Relaxed);
    }

    fn end(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Cpu {
    /// `work` is what a task does on its thread.
    pub(crate) fn new(threads: Handle, tasks_max: usize, load: Arc<Load>, work: fn(u64) -> u8) -> Self {
        let permits = Arc::new(Semaphore::new(tasks_max.min(Semaphore::MAX_PERMITS)));
        Self { threads, permits, load, work }
    }

    /// Waits for its turn, then for the result. If it is dropped while it waits for its turn, it leaves no work behind.
    /// The permit travels with the work, so that the pool never holds more than may run.
    pub(crate) async fn run(&self, seed: u64) -> Result<u8, Stopped> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| Stopped)?;
        let (load, work) = (Arc::clone(&self.load), self.work);
        let work = move || {
            load.begin();
            let result = work(seed);
            load.end();
            drop(permit);
            result
        };
        self.threads.spawn_blocking(work).await.map_err(|_| Stopped)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Condvar, Mutex},
        thread::{self, ThreadId},
        time::Duration,
    };

    use futures_util::future::join_all;

    use super::*;

    /// As many as may run, by the default setting.
    const TASKS_MAX: usize = 40;

    /// Tasks that have come, and their threads.
    static CAME: Mutex<Vec<ThreadId>> = Mutex::new(Vec::new());
    static ALL_ARE_THERE: Condvar = Condvar::new();

    /// Ends only when as many run as may.
    fn together(_: u64) -> u8 {
        let mut came = CAME.lock().expect("no task panics");
        came.push(thread::current().id());
        ALL_ARE_THERE.notify_all();
        let wait = ALL_ARE_THERE.wait_timeout_while(came, Duration::from_mins(1), |came| came.len() < TASKS_MAX);
        u8::from(!wait.expect("no task panics").1.timed_out())
    }

    #[tokio::test]
    async fn as_many_run_as_may_and_never_more_and_none_on_the_thread_that_waits_for_them() {
        assert_eq!(crate::Limits::default().cpu_tasks, TASKS_MAX);
        let load = Arc::new(Load::default());
        let cpu = Cpu::new(Handle::current(), TASKS_MAX, Arc::clone(&load), together);
        let results = join_all((0..1000).map(|seed| cpu.run(seed))).await;
        assert!(results.iter().all(|result| *result == Ok(1)), "{TASKS_MAX} never ran at once");
        assert_eq!((load.peak(), load.now()), (40, 0));
        let came = CAME.lock().expect("no task panicked");
        assert_eq!(came.len(), 1000);
        assert!(!came.contains(&thread::current().id()), "a task ran where connections are served");
    }
}
