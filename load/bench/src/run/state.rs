//! State shared by the threads of a run, and by the tasks of one worker.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::watch;

use crate::plan::{End, Plan};
use crate::recorder::{CUT, Recorder, Scheduled, TIMED_OUT, Window};
use crate::report::csv::RowSink;
use crate::template::Turn;
use crate::workload::{Answer, Session};

/// Stage of a run, set by the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
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
    pub(super) async fn make<S: Session>(
        &self,
        session: &S,
        slot: usize,
        scheduled: Scheduled,
        asked_at: Instant,
    ) -> Instant {
        let turn = Turn { number: scheduled.number, client: scheduled.client, worker: self.worker };
        let until = asked_at + self.shared.plan.timeout;
        let until = self.gives_up_at.map_or(until, |last| until.min(last));
        let given_up = || Answer::failed(asked_at, if self.timeouts.is_cut() { CUT } else { TIMED_OUT });
        let answer = self.timeouts.within(slot, until, session.request(turn)).await.unwrap_or_else(given_up);
        if self.recorder.borrow_mut().record(scheduled, &answer) {
            session.measured(scheduled.number, &answer);
        }
        answer.done_at
    }

    /// Waits for `wake`, or until the run is stopped.
    pub(super) async fn wait(&self, wake: impl Future<Output = io::Result<()>>) -> anyhow::Result<()> {
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

/// Ticks per timeout: a wait ends at most a fiftieth of the timeout after its deadline.
const TICKS: u32 = 50;

#[derive(Default)]
struct Waiting {
    /// End of the wait, if a request waits in this slot.
    until: Option<Instant>,
    waker: Option<Waker>,
}

/// Waits of one worker, one per slot, checked by one tick: a timer per request would cost more than some requests do.
pub(super) struct Timeouts {
    /// Time of the last tick.
    now: Cell<Instant>,
    is_cut: Cell<bool>,
    slots: RefCell<Vec<Waiting>>,
    tick_length: Duration,
}

impl Timeouts {
    pub(super) fn new(timeout: Duration, slots: usize) -> Self {
        let slots = std::iter::repeat_with(Waiting::default).take(slots).collect();
        Self {
            now: Cell::new(Instant::now()),
            is_cut: Cell::new(false),
            slots: RefCell::new(slots),
            tick_length: (timeout / TICKS).max(Duration::from_millis(1)),
        }
    }

    /// Runs as long as the worker, and ends the waits that have timed out.
    pub(super) async fn keep(&self) {
        let mut ticks = tokio::time::interval(self.tick_length);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            self.now.set(Instant::now());
            self.wake();
        }
    }

    /// Ends every wait, and each later one as soon as it would have to wait.
    pub(super) fn cut(&self) {
        self.is_cut.set(true);
        self.wake();
    }

    pub(super) fn is_cut(&self) -> bool {
        self.is_cut.get()
    }

    fn wake(&self) {
        let mut slots = self.slots.borrow_mut();
        let over = slots.iter_mut().filter(|slot| slot.until.is_some_and(|until| self.is_over(until)));
        over.filter_map(|slot| slot.waker.take()).for_each(Waker::wake);
    }

    fn is_over(&self, until: Instant) -> bool {
        self.is_cut.get() || self.now.get() >= until
    }

    /// Waits for `future` in a slot that no other wait uses; drops it and returns `None` if `until` comes first.
    pub(super) async fn within<F: Future>(&self, slot: usize, until: Instant, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        self.slots.borrow_mut()[slot].until = Some(until);
        let answer = std::future::poll_fn(|cx| {
            if let Poll::Ready(answer) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(answer));
            }
            if self.is_over(until) {
                return Poll::Ready(None);
            }
            let waiting = &mut self.slots.borrow_mut()[slot];
            match &mut waiting.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await;
        self.slots.borrow_mut()[slot].until = None;
        answer
    }
}

/// A kernel timer that this thread's runtime watches.
///
/// To the runtime it is the reading end of a pipe: a descriptor that becomes readable and is then read.
#[derive(Debug)]
pub(super) struct Timer {
    fd: OwnedFd,
    fired: Receiver,
}

impl Timer {
    pub(super) fn new() -> io::Result<Self> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Self { fired: Receiver::from_owned_fd_unchecked(fd.try_clone()?)?, fd })
    }

    /// Waits until `at`; returns at once if that is past.
    pub(super) async fn until(&self, at: Instant) -> io::Result<()> {
        loop {
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let once = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
            timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: zero, it_value: once })?;
            self.fired.readable().await?;
            // The number of expirations does not matter; the read makes the descriptor quiet again.
            let _ = self.fired.try_read(&mut [0_u8; 8]);
        }
    }
}
