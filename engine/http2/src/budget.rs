//! Token bucket against floods: refilled by time and by useful traffic, drained by frames that cost us and carry
//! nothing.
//!
//! Implements: RFC 9113 section 10.5 (denial-of-service considerations).

use crate::config::Rate;

#[derive(Debug)]
pub(crate) struct Budget {
    rate: Rate,
    tokens: u32,
    refilled_at_ms: u64,
}

impl Budget {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, tokens: rate.burst_max, refilled_at_ms: 0 }
    }

    /// Takes one token; false if none is left.
    pub(crate) fn spend(&mut self, now_ms: u64) -> bool {
        if self.tokens == 0 {
            self.refill(now_ms);
        }
        match self.tokens.checked_sub(1) {
            Some(left) => {
                self.tokens = left;
                true
            }
            None => false,
        }
    }

    #[inline]
    pub(crate) fn earn(&mut self, tokens: u32) {
        self.tokens = self.tokens.saturating_add(tokens).min(self.rate.burst_max);
    }

    fn refill(&mut self, now_ms: u64) {
        let elapsed_ms = now_ms.saturating_sub(self.refilled_at_ms);
        let due = u64::from(self.rate.per_second_max).saturating_mul(elapsed_ms) / 1000;
        if due > 0 {
            self.refilled_at_ms = now_ms;
            self.earn(u32::try_from(due).unwrap_or(u32::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empties_refills_with_time_and_never_overflows() {
        let mut budget = Budget::new(Rate { burst_max: 3, per_second_max: 2 });
        assert!((0..3).all(|_| budget.spend(0)));
        assert!(!budget.spend(499));
        assert!(budget.spend(500) && !budget.spend(500));
        budget.earn(u32::MAX);
        assert!((0..3).all(|_| budget.spend(500)));
        assert!(!budget.spend(500));
    }
}
