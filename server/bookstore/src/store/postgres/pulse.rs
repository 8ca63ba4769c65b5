//! Time of the primary's last answer, on any connection. Silence counts from there: a silent primary is noticed in time
//! even if it is asked late, and one that answers on another connection is not given up.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// The time of the last answer.
#[derive(Debug)]
pub(super) struct Pulse {
    begun: Instant,
    /// In milliseconds after `begun`.
    answered_ms: AtomicU64,
    /// Longest silence of the primary.
    patience: Duration,
}

impl Pulse {
    pub(super) fn new(patience: Duration) -> Self {
        Self { begun: Instant::now(), answered_ms: AtomicU64::new(0), patience }
    }

    /// Notes an answer of the primary.
    pub(super) fn beat(&self) {
        self.answered_ms.store(u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    fn silence(&self) -> Duration {
        self.begun.elapsed().saturating_sub(Duration::from_millis(self.answered_ms.load(Relaxed)))
    }

    /// True if it must be asked now: later, too little time would be left for its answer.
    pub(super) fn is_due(&self) -> bool {
        self.silence() >= self.patience / 2
    }

    /// Time limit for the answer to a question asked now.
    pub(super) fn wait(&self) -> Duration {
        self.patience.saturating_sub(self.silence()).max(self.patience / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_primary_that_has_been_silent_is_waited_for_no_longer_than_one_that_falls_silent_now() {
        let silent_for = |time| {
            let begun = Instant::now().checked_sub(Duration::from_secs(time)).expect("the machine is up for long");
            Pulse { begun, answered_ms: AtomicU64::new(0), patience: Duration::from_secs(10) }
        };
        let seconds = |pulse: &Pulse| (pulse.is_due(), pulse.wait().as_millis().div_ceil(1000));
        assert_eq!([0, 3, 6].map(|time| seconds(&silent_for(time))), [(false, 10), (false, 7), (true, 5)]);
        let pulse = silent_for(6);
        pulse.beat();
        assert_eq!(seconds(&pulse), (false, 10));
        // A process that stood still received nothing meanwhile, and asks.
        assert_eq!(seconds(&silent_for(60)), (true, 5));
    }
}
