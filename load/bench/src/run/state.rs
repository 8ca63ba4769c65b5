//! State shared by the threads of a run, and by the tasks of one worker.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::waits::Timeouts;
use crate::plan::{End, Plan};
use crate::recorder::{Asked, CUT, Recorder, TIMED_OUT, Window};
use crate::report::csv::RowSink;
use crate::template::Turn;
use crate::workload::{Answer, Session};

/// Stage of a run, set by the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Connections are being opened.
    Opening,
    /// Requests are made; the instant is the beginning, warm-up included.
    Running(Instant),
    /// No further requests; those in flight may still end.
    Stopping,
    /// Requests in flight are given up.
    Cut,
}

/// State shared by all workers of a run.
pub(super) struct Shared {
    pub(super) plan: Plan,
    /// Length of an interval.
    pub(super) interval: Duration,
    pub(super) stage: watch::Sender<Stage>,
    /// Set together with [`Stage::Stopping`], for the hot path.
    pub(super) stop: AtomicBool,
    /// Number of the next request, where numbers are dense.
    pub(super) next_number: AtomicU64,
    /// Number of the first request that is not made.
    pub(super) number_end: AtomicU64,
    /// Sink for a row per request, if rows are written.
    pub(super) rows: Option<RowSink>,
}

/// State shared by the tasks of a worker.
pub(super) struct WorkerState {
    pub(super) shared: Arc<Shared>,
    pub(super) recorder: RefCell<Recorder>,
    pub(super) timeouts: Timeouts,
    pub(super) window: Window,
    /// Time at which the last request in flight is given up: by then, every request due in the window has timed out.
    gives_up_at: Option<Instant>,
    worker: u32,
    /// Requests this worker made, for numbers that need not be dense.
    made: Cell<u64>,
}

impl WorkerState {
    /// `slots` is the maximum number of requests in flight.
    pub(super) fn new(shared: &Arc<Shared>, worker: u32, window: Window, slots: usize) -> Self {
        let timeout = shared.plan.timeout;
        Self {
            shared: Arc::clone(shared),
            recorder: RefCell::new(Recorder::new(window, shared.rows.clone())),
            // One slot more, for the wait for a free place.
            timeouts: Timeouts::new(timeout, slots + 1),
            window,
            gives_up_at: window.end.map(|end| end + timeout),
            worker,
            made: Cell::new(0),
        }
    }

    /// True if no more requests are to be made.
    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// Number of the next request; `None` once the run's count is reached.
    #[inline]
    pub(super) fn next_number(&self) -> Option<u64> {
        if let End::Count(_) = self.shared.plan.end {
            let number = self.shared.next_number.fetch_add(1, Ordering::Relaxed);
            return (number < self.shared.number_end.load(Ordering::Relaxed)).then_some(number);
        }
        let made = self.made.get();
        self.made.set(made + 1);
        Some(made * self.shared.plan.workers as u64 + u64::from(self.worker))
    }

    /// Makes a request and records it; returns the time of its end.
    #[inline]
    pub(super) async fn make<S: Session>(&self, session: &S, slot: usize, asked: Asked, asked_at: Instant) -> Instant {
        let turn = Turn { number: asked.number, client: asked.client, worker: self.worker };
        let until = asked_at + self.shared.plan.timeout;
        let until = self.gives_up_at.map_or(until, |last| until.min(last));
        let given_up = || Answer::failed(asked_at, if self.timeouts.is_cut() { CUT } else { TIMED_OUT });
        let answer = self.timeouts.within(slot, until, session.request(turn)).await.unwrap_or_else(given_up);
        self.recorder.borrow_mut().record(asked, &answer);
        answer.done_at
    }

    /// Waits for `wake`, or until the run is stopped.
    pub(super) async fn wait(&self, wake: impl Future<Output = std::io::Result<()>>) -> anyhow::Result<()> {
        let mut stage = self.shared.stage.subscribe();
        tokio::select! {
            biased;
            woken = wake => woken?,
            stopping = stage.wait_for(|stage| !matches!(stage, Stage::Running(_))) => drop(stopping),
        }
        Ok(())
    }
}

/// Waits until `at`; forever if `None`.
pub(super) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
