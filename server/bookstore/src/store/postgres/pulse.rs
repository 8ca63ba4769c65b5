//! When the primary last answered, on any connection. So a primary that has fallen silent is found out as early when it is
//! asked late, and one that answers elsewhere is not given up. Must not know what it was asked.

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
    /// How long the primary may be silent.
    patience: Duration,
}

impl Pulse {
    pub(super) fn new(patience: Duration) -> Self {
        Self { begun: Instant::now(), answered_ms: AtomicU64::new(0), patience }
    }

    /// The primary has answered.
    pub(super) fn beat(&self) {
        self.answered_ms.store(u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    fn silence(&self) -> Duration {
        self.begun.elapsed().saturating_sub(Duration::from_millis(self.answered_ms.load(Relaxed)))
    }

    /// Whether to ask it now: later, an answer could not be waited for long enough.
    pub(super) fn is_due(&self) -> bool {
        self.silence() >= self.patience / 2
    }

    /// How long an answer may take to what is asked now.
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
        // A process that stood still has heard nothing meanwhile, and asks.
        assert_eq!(seconds(&silent_for(60)), (true, 5));
    }
}
