//! Timeouts of all requests of a worker, checked by one tick: a timer per request would cost more than some requests
//! do.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::net::unix::pipe::Receiver;

/// Ticks per timeout: a wait ends at most a fiftieth of the timeout after its deadline.
const TICKS: u32 = 50;

#[derive(Default)]
struct Waiting {
    /// End of the wait, if a request waits in this slot.
    until: Option<Instant>,
    waker: Option<Waker>,
}

/// Waits of one worker, one per slot.
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
