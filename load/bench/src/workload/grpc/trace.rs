//! `traceparent` of calls, and the slowest sampled ones.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quire_rpc::TraceContext;

/// Calls that are kept.
const SLOWEST: usize = 5;

/// Makes a call's context of its number; clones keep the slowest calls together.
#[derive(Clone, Debug)]
pub struct Traces {
    /// First half of the ids of a connection's traces.
    prefix: u64,
    share: f64,
    slowest: Arc<Mutex<Vec<(Duration, u128)>>>,
}

impl Traces {
    /// Traces of which this share is sampled.
    pub fn new(share: f64) -> Self {
        Self { prefix: RandomState::new().hash_one(()), share, slowest: Arc::default() }
    }

    /// Traces of another connection, as numbers are repeated in each run.
    pub(super) fn of_connection(&self) -> Self {
        Self { slowest: Arc::clone(&self.slowest), ..Self::new(self.share) }
    }

    fn id(&self, number: u64) -> u128 {
        u128::from(self.prefix) << 64 | u128::from(number + 1)
    }

    /// The call's context.
    pub(super) fn context(&self, number: u64) -> TraceContext {
        let mut context = TraceContext::new(self.id(number).to_be_bytes(), (number + 1).to_be_bytes());
        context.is_sampled = self.is_sampled(number);
        context
    }

    /// Spreads the sampled calls evenly: multiples of the golden ratio fill an interval so.
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more")]
    fn is_sampled(&self, number: u64) -> bool {
        (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) as f64) < self.share * 2f64.powi(64)
    }

    /// Keeps a measured call if it is one of the slowest of those sampled.
    pub(super) fn note(&self, number: u64, time: Duration) {
        if !self.is_sampled(number) {
            return;
        }
        let mut slowest = self.slowest.lock().unwrap_or_else(PoisonError::into_inner);
        if slowest.len() < SLOWEST || slowest.last().is_some_and(|(fastest, _)| time > *fastest) {
            slowest.push((time, self.id(number)));
            slowest.sort_unstable_by(|a, b| b.cmp(a));
            slowest.truncate(SLOWEST);
        }
    }

    /// Trace ids of the slowest sampled calls, the slowest first.
    pub fn slowest(&self) -> Vec<(Duration, String)> {
        let slowest = self.slowest.lock().unwrap_or_else(PoisonError::into_inner);
        slowest.iter().map(|(time, id)| (*time, format!("{id:032x}"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_calls_is_sampled_and_the_slowest_of_them_are_kept() {
        for (share, expected) in [(0.0, 0..=0), (0.01, 95..=105), (1.0, 10_000..=10_000)] {
            let traces = Traces::new(share);
            let sampled = (0..10_000).filter(|number| traces.context(*number).is_sampled).count();
            assert!(expected.contains(&sampled), "{sampled} of {share}");
            (0..10_000).for_each(|number| traces.note(number, Duration::from_nanos(number)));
            assert_eq!(traces.slowest().len(), sampled.min(SLOWEST));
        }
        let traces = Traces::new(1.0);
        for number in [3, 9, 1, 7, 5, 8, 2] {
            traces.note(number, Duration::from_secs(number));
        }
        let kept: Vec<_> = traces.slowest().into_iter().map(|(time, _)| time.as_secs()).collect();
        assert_eq!(kept, [9, 8, 7, 5, 3]);
        let id = &traces.slowest()[0].1;
        assert_eq!(traces.context(9).traceparent(), format!("00-{id}-000000000000000a-01"));
    }
}
