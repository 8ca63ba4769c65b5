//! Time slices: a connection yields to the other tasks of its thread.
//!
//! Time is measured, not estimated from bytes or frames: 142 compressed bytes may hold four megabytes, and a handler's
//! cost is unknown.
//!
//! Implements: RFC 9113 section 10.5 (denial-of-service considerations).

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Longer than all calls of a read usually take, and short enough that callers beside many such connections hardly
/// wait.
const TURN: Duration = Duration::from_millis(1);

/// Events between two checks of the clock.
const CHECK_EVENTS: u32 = 8;

thread_local! {
    /// End of the current task's time slice.
    static ENDS_AT: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Begins a connection's time slice, at each poll of its task.
pub(crate) fn begin() {
    ENDS_AT.set(Instant::now().checked_add(TURN));
}

/// True if the task should yield.
pub(crate) fn is_over() -> bool {
    ENDS_AT.get().is_some_and(|ends_at| Instant::now() >= ends_at)
}

/// Polls the task again after the thread's other tasks, including those whose sockets became readable meanwhile. A task
/// that wakes itself would run up to sixty times before tokio checks the sockets.
pub(crate) fn yield_now(cx: &mut Context<'_>) {
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

/// Yields until the next time slice if this one is used up; may be called any number of times.
pub(crate) fn poll_next(cx: &mut Context<'_>) -> Poll<()> {
    if !is_over() {
        return Poll::Ready(());
    }
    yield_now(cx);
    Poll::Pending
}

/// Clock check in a loop over a connection's events.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Events since the last check.
    events: u32,
    /// Frames already read wait for the next time slice.
    pub(crate) is_interrupted: bool,
}

impl Pace {
    /// Counts an event; true if the time slice is found to be over.
    #[inline]
    pub(crate) fn is_slice_over(&mut self) -> bool {
        self.events += 1;
        if self.events < CHECK_EVENTS {
            return false;
        }
        self.events = 0;
        is_over()
    }

    /// Checks the clock soon: the current event may cost far more than its bytes.
    pub(crate) fn check_soon(&mut self) {
        self.events = CHECK_EVENTS;
    }
}
