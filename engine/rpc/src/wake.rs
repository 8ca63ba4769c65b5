//! Set of a connection's calls that must be polled.
//!
//! Each call has a waker that sets its bit and wakes the connection's task; a hundred calls that become ready together
//! wake the task once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};

use atomic_waker::AtomicWaker;

#[derive(Debug)]
pub(crate) struct WakeSet {
    words: Box<[AtomicU64]>,
    task: AtomicWaker,
}

impl WakeSet {
    pub(crate) fn new(calls_max: usize) -> Arc<Self> {
        let words = (0..calls_max.div_ceil(64).max(1)).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { words, task: AtomicWaker::new() })
    }

    /// Registers the task to wake; must precede [`WakeSet::take`] in every poll.
    pub(crate) fn register(&self, task: &Waker) {
        self.task.register(task);
    }

    /// Makes wakes only mark, until a task is registered again.
    #[cfg(feature = "http1")]
    pub(crate) fn unregister(&self) {
        self.task.take();
    }

    /// Creates the waker of slot `index`.
    pub(crate) fn waker(self: &Arc<Self>, index: usize) -> Waker {
        Waker::from(Arc::new(CallWaker { set: Arc::clone(self), index }))
    }

    /// Marks a slot from within the connection's task, which needs no waking.
    pub(crate) fn mark(&self, index: usize) {
        if let Some(word) = self.words.get(index / 64) {
            word.fetch_or(1 << (index % 64), Ordering::Release);
        }
    }

    /// Calls `poll` with each marked slot, after unmarking it.
    pub(crate) fn take(&self, mut poll: impl FnMut(usize)) {
        for (number, word) in self.words.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::Acquire);
            while bits != 0 {
                let bit = bits.trailing_zeros() as usize;
                bits &= bits - 1;
                poll(number * 64 + bit);
            }
        }
    }
}

struct CallWaker {
    set: Arc<WakeSet>,
    index: usize,
}

impl Wake for CallWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.set.mark(self.index);
        self.set.task.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_taken_once_and_in_order() {
        let set = WakeSet::new(130);
        for index in [129, 0, 64, 0] {
            set.waker(index).wake();
        }
        let mut seen = Vec::new();
        set.take(|index| seen.push(index));
        set.take(|index| seen.push(index));
        assert_eq!(seen, [0, 64, 129]);
    }
}
