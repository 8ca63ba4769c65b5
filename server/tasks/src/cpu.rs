//! CPU-bound tasks on separate threads.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::runtime::Handle;

use crate::{fault::Fault, turns::Turn, work::Workspace};

thread_local! {
    /// Reused across tasks; freed with the thread, which ends after being idle for a while.
    static WORKSPACE: RefCell<Workspace> = RefCell::default();
}

/// Computes the task with this seed, in the thread's workspace.
pub(crate) fn run(seed: u64) -> u8 {
    WORKSPACE.with_borrow_mut(|workspace| workspace.run(seed))
}

/// Threads of a runtime's pool for blocking work.
#[derive(Debug)]
pub(crate) struct Cpu {
    threads: Handle,
    load: Arc<Load>,
    work: fn(u64) -> u8,
}

/// Number of CPU tasks running.
#[derive(Debug, Default)]
pub(crate) struct Load {
    now: AtomicU64,
    peak: AtomicU64,
}

impl Load {
    /// Current number.
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Peak number.
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
    /// `work` is the computation of a task.
    pub(crate) const fn new(threads: Handle, load: Arc<Load>, work: fn(u64) -> u8) -> Self {
        Self { threads, load, work }
    }

    /// Runs a task and awaits its result. The turn travels with the work, so the pool never holds more tasks than may
    /// run.
    pub(crate) async fn run(&self, turn: Turn, seed: u64) -> Result<u8, Fault> {
        let (load, work) = (Arc::clone(&self.load), self.work);
        let work = move || {
            load.begin();
            let result = work(seed);
            load.end();
            drop(turn);
            result
        };
        self.threads.spawn_blocking(work).await.map_err(|_| Fault::Stopped)
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
    use hosting::Client;

    use super::*;
    use crate::turns::Turns;

    /// The default limit.
    const TASKS_MAX: usize = 40;

    /// Threads of the tasks that have started.
    static CAME: Mutex<Vec<ThreadId>> = Mutex::new(Vec::new());
    static ALL_ARE_THERE: Condvar = Condvar::new();

    /// Returns once all permitted tasks run.
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
        let (cpu, turns) = (Cpu::new(Handle::current(), Arc::clone(&load), together), Turns::new(TASKS_MAX));
        let run = async |seed| cpu.run(turns.take(&Client::Unknown).await?, seed).await;
        let results = join_all((0..1000).map(run)).await;
        assert!(results.iter().all(|result| *result == Ok(1)), "{TASKS_MAX} never ran at once");
        assert_eq!((load.peak(), load.now()), (40, 0));
        let came = CAME.lock().expect("no task panicked");
        assert_eq!(came.len(), 1000);
        assert!(!came.contains(&thread::current().id()), "a task ran where connections are served");
    }
}
