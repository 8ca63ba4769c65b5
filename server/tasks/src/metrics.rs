//! Metrics of the task server.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use hosting::metrics::collect;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::{
    cpu::Load,
    line::BadLine,
    task::{Kind, Task},
};

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Computed.
    Computed,
    /// Shared with an equal request in flight.
    Shared,
    /// Served from the cache.
    Cached,
    /// Dropped: its client had gone.
    Dropped,
    /// Refused: its turn would have come too late.
    Refused,
}

impl Outcome {
    const NAMES: [&'static str; 5] = ["computed", "shared", "cached", "dropped", "refused"];
}

/// Reasons for closing a connection, as named in metrics and logs.
pub(crate) const CLOSED: [&str; 10] =
    ["finished", "bad line", "denied", "idle", "unread", "drained", "replaced", "broken", "cut", "stopped"];

type Labels = [(&'static str, &'static str); 1];

/// The server's counters, registered by [`Metrics::register`]. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Counters>);

/// Current usage, and requests so far.
#[derive(Clone, Debug)]
pub struct Levels {
    /// Open connections.
    pub connections: i64,
    /// Tasks that run or wait to run.
    pub in_flight: i64,
    /// CPU-bound tasks that run.
    pub cpu_running: u64,
    /// Most of them that ever ran at once.
    pub cpu_running_peak: u64,
    /// Requests by type and outcome.
    pub requests: Vec<(&'static str, &'static str, u64)>,
}

/// A task that was answered.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// Name of its type.
    pub kind: &'static str,
    /// Its argument.
    pub seed: u64,
    /// Its result.
    pub result: u8,
    /// Outcome, as named in metrics.
    pub outcome: &'static str,
    /// Time of the answer.
    pub at: SystemTime,
}

/// One counter for each combination of labels, so that counting needs no look-up.
#[derive(Debug)]
struct Counters {
    requests: [[Counter; Outcome::NAMES.len()]; Kind::ALL.len()],
    bad_lines: [Counter; BadLine::NAMES.len()],
    closed: [Counter; CLOSED.len()],
    refused: Counter,
    connections: Gauge,
    in_flight: Gauge,
    cpu: Arc<Load>,
    /// Tasks answered last, oldest first.
    recent: Mutex<VecDeque<Answered>>,
}

/// Tasks that are kept.
const RECENT_MAX: usize = 20;

impl Metrics {
    /// Registers all counters in `registry`; those at 0 are shown too.
    pub fn register(registry: &mut Registry) -> Self {
        let requests = Family::<[(&'static str, &'static str); 2], Counter>::default();
        let bad_lines = Family::<Labels, Counter>::default();
        let closed = Family::<Labels, Counter>::default();
        let request =
            |kind: Kind, outcome| requests.get_or_create_owned(&[("type", kind.name()), ("outcome", outcome)]);
        let counters = Counters {
            requests: Kind::ALL.map(|kind| Outcome::NAMES.map(|outcome| request(kind, outcome))),
            bad_lines: BadLine::NAMES.map(|reason| bad_lines.get_or_create_owned(&[("reason", reason)])),
            closed: CLOSED.map(|reason| closed.get_or_create_owned(&[("reason", reason)])),
            refused: Counter::default(),
            connections: Gauge::default(),
            in_flight: Gauge::default(),
            cpu: Arc::default(),
            recent: Mutex::default(),
        };
        let cpu = Arc::clone(&counters.cpu);
        collect(registry, move |page| {
            page.gauge("tasks_cpu_running", "CPU-bound tasks that run", cpu.now())?;
            page.gauge("tasks_cpu_running_peak", "The most CPU-bound tasks that ever ran at once", cpu.peak())
        });
        registry.register("tasks_requests", "Tasks asked for, by type and by how they ended", requests);
        registry.register("tasks_bad_lines", "Lines that are no task, by reason", bad_lines);
        registry.register("tasks_closed", "Connections of the task server that were closed, by reason", closed);
        registry.register(
            "tasks_refused",
            "Connections of the task server refused because there are too many",
            counters.refused.clone(),
        );
        registry.register("tasks_connections", "Open connections of the task server", counters.connections.clone());
        registry.register("tasks_in_flight", "Tasks that run or wait to run", counters.in_flight.clone());
        Self(Arc::new(counters))
    }

    /// Current usage, and requests so far.
    pub fn levels(&self) -> Levels {
        let requests = Kind::ALL.iter().flat_map(|kind| {
            let counters = &self.0.requests[kind.number()];
            Outcome::NAMES.iter().zip(counters).map(|(outcome, counter)| (kind.name(), *outcome, counter.get()))
        });
        Levels {
            connections: self.0.connections.get(),
            in_flight: self.0.in_flight.get(),
            cpu_running: self.0.cpu.now(),
            cpu_running_peak: self.0.cpu.peak(),
            requests: requests.collect(),
        }
    }

    /// The tasks answered last, newest first. Of those answered at the same moment by several threads, one is kept.
    pub fn recent(&self) -> Vec<Answered> {
        self.0.recent.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().copied().collect()
    }

    /// Keeps a task's result.
    pub(crate) fn note(&self, task: Task, result: u8, outcome: Outcome) {
        let Ok(mut recent) = self.0.recent.try_lock() else { return };
        if recent.len() >= RECENT_MAX {
            recent.pop_front();
        }
        let (kind, outcome) = (task.kind.name(), Outcome::NAMES[outcome as usize]);
        recent.push_back(Answered { kind, seed: task.seed, result, outcome, at: SystemTime::now() });
    }

    /// Load of the CPU threads.
    pub(crate) fn cpu(&self) -> &Arc<Load> {
        &self.0.cpu
    }

    pub(crate) fn answered(&self, kind: Kind, outcome: Outcome) {
        self.0.requests[kind.number()][outcome as usize].inc();
    }

    /// Counts a request as in flight until the returned value is dropped.
    pub(crate) fn request(&self, kind: Kind) -> Request<'_> {
        self.0.in_flight.inc();
        Request { metrics: self, kind, outcome: Outcome::Dropped }
    }

    pub(crate) fn bad_line(&self, bad: &BadLine) {
        self.0.bad_lines[bad.place()].inc();
    }

    /// Counts a connection as open until the returned value is closed or dropped.
    pub(crate) fn connection(&self) -> Open<'_> {
        self.0.connections.inc();
        Open { metrics: self, reason: "stopped" }
    }

    pub(crate) fn refused(&self) {
        self.0.refused.inc();
    }
}

/// A request in flight, and its outcome.
pub(crate) struct Request<'m> {
    metrics: &'m Metrics,
    kind: Kind,
    pub(crate) outcome: Outcome,
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.metrics.0.in_flight.dec();
        self.metrics.answered(self.kind, self.outcome);
    }
}

/// An open connection.
pub(crate) struct Open<'m> {
    metrics: &'m Metrics,
    reason: &'static str,
}

impl Open<'_> {
    pub(crate) fn close(mut self, reason: &'static str) {
        self.reason = reason;
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.metrics.0.connections.dec();
        if let Some(place) = CLOSED.iter().position(|name| *name == self.reason) {
            self.metrics.0.closed[place].inc();
        }
    }
}
