//! The longest time a request may take, kept by one clock tick for all requests of a worker: a timer a request would
//! cost more than some requests do.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Duration;

/// Ticks that a timeout lasts: it is kept to within a fiftieth.
const TICKS: u64 = 50;

#[derive(Default)]
struct Waiting {
    /// The tick in which the request began; none: there is no request.
    since: Option<u64>,
    waker: Option<Waker>,
}

/// The requests of one worker that are under way.
pub(super) struct Patience {
    tick: Cell<u64>,
    slots: RefCell<Vec<Waiting>>,
    tick_length: Duration,
}

impl Patience {
    pub(super) fn new(timeout: Duration, slots: usize) -> Self {
        let ticks = u32::try_from(TICKS).expect("few");
        let slots = std::iter::repeat_with(Waiting::default).take(slots).collect();
        Self {
            tick: Cell::new(0),
            slots: RefCell::new(slots),
            tick_length: (timeout / ticks).max(Duration::from_millis(1)),
        }
    }

    /// Runs as long as the worker does, and wakes requests whose time is over.
    pub(super) async fn keep(&self) {
        let mut ticks = tokio::time::interval(self.tick_length);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            self.tick.set(self.tick.get() + 1);
            let mut slots = self.slots.borrow_mut();
            let impatient = slots.iter_mut().filter(|slot| slot.since.is_some_and(|since| self.is_over(since)));
            impatient.filter_map(|slot| slot.waker.take()).for_each(Waker::wake);
        }
    }

    fn is_over(&self, since: u64) -> bool {
        self.tick.get() > since + TICKS
    }

    /// Runs a request in a slot that no other is in; none if its time was over first, and then it is dropped.
    pub(super) async fn within<F: Future>(&self, slot: usize, request: F) -> Option<F::Output> {
        let mut request = pin!(request);
        self.slots.borrow_mut()[slot].since = Some(self.tick.get());
        let answer = std::future::poll_fn(|cx| {
            if let Poll::Ready(answer) = request.as_mut().poll(cx) {
                return Poll::Ready(Some(answer));
            }
            let waiting = &mut self.slots.borrow_mut()[slot];
            if waiting.since.is_some_and(|since| self.is_over(since)) {
                return Poll::Ready(None);
            }
            match &mut waiting.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await;
        self.slots.borrow_mut()[slot].since = None;
        answer
    }
}
