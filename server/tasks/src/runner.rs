//! Schedules tasks: at once, in their client's turn, after an equal task, or strictly one after another.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

use futures_util::poll;
use hosting::Client;
use tokio::{runtime::Handle, sync::Semaphore};

use crate::{
    cpu::{self, Cpu},
    fault::Fault,
    metrics::{Metrics, Outcome},
    settings::{Concurrency, Limits, Settings},
    task::{Io, Kind, Task},
    turns::{Turn, Turns},
};

/// Runs the tasks of all connections.
#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) limits: Limits,
    pub(crate) metrics: Metrics,
    /// Limit of unanswered requests on one connection.
    pub(crate) in_flight_max: usize,
    /// Slots for waiting requests of all connections.
    pub(crate) places: Places,
    cache: Option<Cache>,
    cpu: Cpu,
    turns: Turns,
    /// Permit to run, if tasks run one after another.
    alone: Option<Semaphore>,
}

impl Runner {
    pub(crate) fn new(settings: &Settings, metrics: Metrics, cpu_threads: Handle) -> Self {
        let limits = settings.limits;
        let each = settings.concurrency == Concurrency::Task;
        Self {
            cpu: Cpu::new(cpu_threads, metrics.cpu().clone(), cpu::run),
            turns: Turns::new(limits.cpu_tasks),
            limits,
            metrics,
            in_flight_max: if each { limits.in_flight } else { 1 },
            places: Places::new(limits.waiting),
            cache: settings.cache.then(|| Cache::new(limits.cache_entries)),
            alone: (settings.concurrency == Concurrency::None).then(|| Semaphore::new(1)),
        }
    }

    /// Returns a cached result.
    pub(crate) fn known(&self, task: Task) -> Option<u8> {
        let result = self.cache.as_ref()?.get(task)?;
        self.metrics.answered(task.kind, Outcome::Cached);
        Some(result)
    }

    /// Runs a task in its client's turn. With `refusing`, a CPU task whose turn would come too late is refused.
    pub(crate) async fn run(&self, task: Task, client: &Client, refusing: bool) -> Result<u8, Fault> {
        let mut request = self.metrics.request(task.kind);
        if refusing && task.kind == Kind::Cpu {
            self.turns.admit(client).map_err(Fault::Overloaded).inspect_err(|_| request.outcome = Outcome::Refused)?;
        }
        // Acquired before the cache: a request that waited for others while others waited for its result would deadlock
        // them.
        let _alone = match &self.alone {
            Some(alone) => Some(alone.acquire().await.map_err(|_| Fault::Stopped)?),
            None => None,
        };
        // Before the cache as well: otherwise the result would come in another client's turn, which may have many
        // before it.
        let turn = if task.kind == Kind::Cpu { Some(self.turns.take(client).await?) } else { None };
        let turn = Mutex::new(turn);
        let taken = || turn.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut outcome = Outcome::Shared;
        let compute = async {
            outcome = Outcome::Computed;
            self.compute(task, client, taken()).await
        };
        let result = match &self.cache {
            Some(cache) => {
                let mut computed = std::pin::pin!(cache.get_or_compute(task, compute));
                match poll!(&mut computed) {
                    Poll::Ready(result) => result,
                    Poll::Pending => {
                        // An equal task already runs: another one can use this turn.
                        drop(taken());
                        computed.await
                    }
                }
            }
            None => compute.await,
        }?;
        request.outcome = outcome;
        Ok(result)
    }

    async fn compute(&self, task: Task, client: &Client, turn: Option<Turn>) -> Result<u8, Fault> {
        match (task.kind, turn) {
            (Kind::Cpu, Some(turn)) => self.cpu.run(turn, task.seed).await,
            (Kind::Cpu, None) => self.cpu.run(self.turns.take(client).await?, task.seed).await,
            (Kind::Io, _) => {
                let Io { wait, result } = Io::new(task.seed);
                tokio::time::sleep(wait).await;
                Ok(result)
            }
        }
    }
}

/// Cached results.
///
/// Keys are hashed with a secret, because callers choose them.
#[derive(Debug)]
pub(crate) struct Cache(quick_cache::sync::Cache<Task, u8>);

impl Cache {
    pub(crate) fn new(entries_max: usize) -> Self {
        Self(quick_cache::sync::Cache::new(entries_max))
    }

    pub(crate) fn get(&self, task: Task) -> Option<u8> {
        self.0.get(&task)
    }

    /// Returns the cached result, or that of an equal task in flight once it is ready, or else that of `compute`. If
    /// the computing caller gives up, a waiting one takes over.
    pub(crate) async fn get_or_compute(
        &self,
        task: Task,
        compute: impl Future<Output = Result<u8, Fault>>,
    ) -> Result<u8, Fault> {
        self.0.get_or_insert_async(&task, compute).await
    }
}

/// The shared pool of slots.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    taken: Arc<AtomicUsize>,
    most: usize,
}

/// Slot of a waiting request; released on drop.
#[derive(Debug)]
pub(crate) struct Place {
    /// `None` for the connection's own slot.
    shared: Option<Arc<AtomicUsize>>,
}

impl Place {
    /// The connection's own slot.
    pub(crate) const OWN: Self = Self { shared: None };
}

impl Places {
    pub(crate) fn new(most: usize) -> Self {
        Self { taken: Arc::default(), most }
    }

    /// True if a connection may have another waiting request; `is_first` if it has none yet.
    pub(crate) fn has_room(&self, is_first: bool) -> bool {
        is_first || self.taken.load(Ordering::Relaxed) < self.most
    }

    /// Takes a slot, if there is one.
    pub(crate) fn take(&self, is_first: bool) -> Option<Place> {
        if is_first {
            return Some(Place::OWN);
        }
        // Relaxed, since the count guards no other memory.
        let more = |taken: usize| (taken < self.most).then_some(taken + 1);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Place { shared: Some(Arc::clone(&self.taken)) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(taken) = &self.shared {
            taken.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_always_has_a_place_and_others_have_so_many_and_no_more() {
        let places = Places::new(2);
        let taken: Vec<Place> = [true, false, true, false].into_iter().filter_map(|first| places.take(first)).collect();
        assert_eq!(taken.len(), 4);
        assert!(places.take(false).is_none() && !places.has_room(false));
        assert!(places.take(true).is_some() && places.has_room(true));
        drop(taken);
        assert!(places.take(false).is_some() && places.has_room(false));
    }
}
