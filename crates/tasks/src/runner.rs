//! Decides when a task runs: at once, after an equal task, or after everything before it. Must not know how requests
//! arrive and replies leave.

use tokio::{runtime::Handle, sync::Semaphore};

use crate::{
    cache::Cache,
    cpu::{self, Cpu},
    fault::Stopped,
    metrics::{Metrics, Outcome},
    places::Places,
    settings::{Concurrency, Limits, Settings},
    task::{Io, Kind, Task},
};

/// Runs the tasks of all connections.
#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) limits: Limits,
    pub(crate) metrics: Metrics,
    /// Requests of one connection that may wait for their reply.
    pub(crate) in_flight_max: usize,
    /// Room for the requests that wait, of all connections.
    pub(crate) places: Places,
    cache: Option<Cache>,
    cpu: Cpu,
    /// The only turn, if one task runs after another.
    turn: Option<Semaphore>,
}

impl Runner {
    pub(crate) fn new(settings: &Settings, metrics: Metrics, cpu_threads: Handle) -> Self {
        let limits = settings.limits;
        let each = settings.concurrency == Concurrency::Task;
        Self {
            cpu: Cpu::new(cpu_threads, limits.cpu_tasks, metrics.cpu().clone(), cpu::run),
            limits,
            metrics,
            in_flight_max: if each { limits.in_flight } else { 1 },
            places: Places::new(limits.waiting),
            cache: settings.cache.then(|| Cache::new(limits.cache_entries)),
            turn: (settings.concurrency == Concurrency::None).then(|| Semaphore::new(1)),
        }
    }

    /// A cached result.
    pub(crate) fn known(&self, task: Task) -> Option<u8> {
        let result = self.cache.as_ref()?.get(task)?;
        self.metrics.answered(task.kind, Outcome::Cached);
        Some(result)
    }

    pub(crate) async fn run(&self, task: Task) -> Result<u8, Stopped> {
        let request = self.metrics.request(task.kind);
        // Before the cache: a request that waited for a turn while others wait for its result would block them all.
        let _turn = match &self.turn {
            Some(turn) => Some(turn.acquire().await.map_err(|_| Stopped)?),
            None => None,
        };
        let mut outcome = Outcome::Shared;
        let compute = async {
            outcome = Outcome::Computed;
            self.compute(task).await
        };
        let result = match &self.cache {
            Some(cache) => cache.get_or_compute(task, compute).await,
            None => compute.await,
        }?;
        request.end(outcome);
        Ok(result)
    }

    async fn compute(&self, task: Task) -> Result<u8, Stopped> {
        match task.kind {
            Kind::Cpu => self.cpu.run(task.seed).await,
            Kind::Io => {
                let Io { wait, result } = Io::new(task.seed);
                tokio::time::sleep(wait).await;
                Ok(result)
            }
        }
    }
}
