//! A bound on events a second.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::time::Instant;

/// Count of the events of the current second, for any number of threads.
#[derive(Debug)]
pub struct PerSecond {
    start: Instant,
    /// The newest second since the start, above the number of its events.
    state: AtomicU64,
}

impl Default for PerSecond {
    fn default() -> Self {
        Self { start: Instant::now(), state: AtomicU64::new(0) }
    }
}

impl PerSecond {
    /// Counts an event; false, and not counted, if this second has had `most`.
    pub fn take(&self, most: u32) -> bool {
        self.take_at(self.start.elapsed().as_secs(), most)
    }

    fn take_at(&self, second: u64, most: u32) -> bool {
        let take = |state: u64| {
            // A thread that has read the clock too early counts in the newer second.
            let state = state.max(second << 32);
            (state & u64::from(u32::MAX) < u64::from(most)).then(|| state + 1)
        };
        self.state.fetch_update(Relaxed, Relaxed, take).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_many_events_and_the_next_has_as_many() {
        let events = PerSecond::default();
        for second in [0, 1, 2, 7] {
            let taken = std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..4).map(|_| scope.spawn(|| (0..10).filter(|_| events.take_at(second, 3)).count())).collect();
                threads.into_iter().map(|thread| thread.join().expect("a count")).sum::<usize>()
            });
            assert_eq!(taken, 3, "in second {second}");
            assert!(!events.take_at(second.saturating_sub(1), 3), "a late thread begins no second anew");
            assert!(!events.take_at(second, 3));
        }
    }
}
