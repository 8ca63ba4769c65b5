//! CPU-bound tasks on threads of their own, a bounded number at a time. Must not know what a cache is.

use std::{cell::RefCell, sync::Arc};

use tokio::{runtime::Handle, sync::Semaphore};

use crate::{runner::Stopped, work::Workspace};

thread_local! {
    /// Kept from task to task; freed with the thread, which ends when it has had nothing to do for a while.
    static WORKSPACE: RefCell<Workspace> = RefCell::default();
}

/// The threads, which belong to a runtime's pool for blocking work.
#[derive(Debug)]
pub(crate) struct Cpu {
    threads: Handle,
    permits: Arc<Semaphore>,
}

impl Cpu {
    pub(crate) fn new(threads: Handle, tasks_max: usize) -> Self {
        Self { threads, permits: Arc::new(Semaphore::new(tasks_max.min(Semaphore::MAX_PERMITS))) }
    }

    /// Waits for its turn, then for the result. Dropped while it waits for its turn it leaves no work behind, and
    /// the permit goes with the work, so that the pool never holds more than may run.
    pub(crate) async fn run(&self, seed: u64) -> Result<u8, Stopped> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| Stopped)?;
        let work = move || {
            let result = WORKSPACE.with_borrow_mut(|workspace| workspace.run(seed));
            drop(permit);
            result
        };
        self.threads.spawn_blocking(work).await.map_err(|_| Stopped)
    }
}
