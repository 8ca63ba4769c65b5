//! How long a connection may work before the other tasks of its thread have their turn.
//!
//! Time is measured and not estimated from bytes or frames: 142 compressed bytes may hold four megabytes, and only a clock
//! knows what a handler cost. Must not know what the work is.
//!
//! Implements: RFC 9113 section 10.5 (denial-of-service considerations).

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Longer than all calls of a read take, unless they cost far more than their bytes; short enough that a caller beside
/// many such connections hardly waits.
const TURN: Duration = Duration::from_millis(1);

/// Events between two looks at the clock.
const LOOK_EVENTS: u32 = 8;

thread_local! {
    /// When the turn of the task that is polled now ends.
    static ENDS_AT: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Begins the turn of a connection, at each poll of its task.
pub(super) fn begin() {
    ENDS_AT.set(Instant::now().checked_add(TURN));
}

/// Whether the task should yield.
pub(super) fn is_over() -> bool {
    ENDS_AT.get().is_some_and(|ends_at| Instant::now() >= ends_at)
}

/// Has the task polled again when the thread's other tasks were, those included whose sockets became readable meanwhile.
/// A task that wakes itself would run up to sixty times before tokio looks at the sockets.
pub(super) fn give_way(cx: &mut Context<'_>) {
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

/// Waits for the next turn if this one is over, however often the task looks in this one.
pub(super) fn poll_next(cx: &mut Context<'_>) -> Poll<()> {
    if !is_over() {
        return Poll::Ready(());
    }
    give_way(cx);
    Poll::Pending
}

/// A loop over a connection's events, which looks at the clock now and then.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Since the last look.
    events: u32,
    /// Frames that were read wait for the connection's next turn.
    pub(super) is_interrupted: bool,
}

impl Pace {
    /// Counts an event, and tells whether the turn is seen to be over.
    #[inline]
    pub(super) fn is_turn_over(&mut self) -> bool {
        self.events += 1;
        if self.events < LOOK_EVENTS {
            return false;
        }
        self.events = 0;
        is_over()
    }

    /// The event that is handled now may cost far more than its bytes.
    pub(super) fn look_soon(&mut self) {
        self.events = LOOK_EVENTS;
    }
}
