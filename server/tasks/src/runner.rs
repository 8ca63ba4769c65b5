//! Schedules tasks: at once, in their client's turn, after an equal task, or strictly one after another.

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
};

use futures_util::poll;
use hosting::Client;
use quick_cache::sync::Cache;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
};

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
    pub(crate) slots: Slots,
    /// Results by task. Keys are hashed with a secret, because callers choose them.
    cache: Option<Cache<Task, u8>>,
    cpu: Cpu,
    turns: Turns,
    /// Permit to run, if tasks run one after another.
    alone: Option<Semaphore>,
}

impl Runner {
    pub(crate) fn new(settings: &Settings, metrics: Metrics, cpu_threads: Handle) -> Self {
        let limits = &settings.limits;
        let each = settings.concurrency == Concurrency::Task;
        Self {
            cpu: Cpu::new(cpu_threads, metrics.cpu().clone(), cpu::run),
            turns: Turns::new(limits.cpu_tasks),
            limits: limits.clone(),
            metrics,
            in_flight_max: if each { limits.in_flight } else { 1 },
            slots: Slots::new(limits.waiting),
            cache: settings.cache.then(|| Cache::new(limits.cache_entries)),
            alone: (settings.concurrency == Concurrency::None).then(|| Semaphore::new(1)),
        }
    }

    /// Returns a cached result.
    pub(crate) fn known(&self, task: Task) -> Option<u8> {
        let result = self.cache.as_ref()?.get(&task)?;
        self.metrics.answered(task.kind, Outcome::Cached);
        self.metrics.note(task, result, Outcome::Cached);
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
                // An equal task in flight is waited for; if its caller gives up, one that waits takes over.
                let mut computed = pin!(cache.get_or_insert_async(&task, compute));
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
        self.metrics.note(task, result, outcome);
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

/// Slots for waiting requests.
#[derive(Debug)]
pub(crate) struct Slots(Arc<Semaphore>);

/// Slot of a waiting request, released on drop; empty for the connection's own slot.
#[derive(Debug)]
pub(crate) struct Slot {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Slot {
    /// The connection's own slot.
    pub(crate) const OWN: Self = Self { _permit: None };
}

impl Slots {
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Semaphore::new(most)))
    }

    /// True if a connection may have another waiting request; `is_first` if it has none yet.
    pub(crate) fn has_room(&self, is_first: bool) -> bool {
        is_first || self.0.available_permits() > 0
    }

    /// Takes a slot, if there is one.
    pub(crate) fn take(&self, is_first: bool) -> Option<Slot> {
        if is_first {
            return Some(Slot::OWN);
        }
        Arc::clone(&self.0).try_acquire_owned().ok().map(|permit| Slot { _permit: Some(permit) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_always_has_a_slot_and_others_have_so_many_and_no_more() {
        let slots = Slots::new(2);
        let taken: Vec<Slot> = [true, false, true, false].into_iter().filter_map(|first| slots.take(first)).collect();
        assert_eq!(taken.len(), 4);
        assert!(slots.take(false).is_none() && !slots.has_room(false));
        assert!(slots.take(true).is_some() && slots.has_room(true));
        drop(taken);
        assert!(slots.take(false).is_some() && slots.has_room(false));
    }
}
