//! Retries (gRPC's "Retry Design"): by policy, and only where a second attempt is harmless.

use std::time::Duration;

use crate::status::{Code, Status};

/// Retry policy for calls that are safe to repeat: codes, attempts and pauses.
#[derive(Clone, Debug)]
pub struct RetryPolicy {
    /// Attempts in all, including the first; 1 disables retries.
    pub attempts_max: u32,
    /// Pause before the second attempt.
    pub backoff_first: Duration,
    /// Longest pause.
    pub backoff_max: Duration,
    /// Retryable codes.
    pub codes: Vec<Code>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts_max: 3,
            backoff_first: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
            codes: vec![Code::Unavailable],
        }
    }
}

impl RetryPolicy {
    /// Pause before attempt number `attempt` (2 is the first retry); `None` if there must be no further attempt.
    ///
    /// The server may choose the pause with `grpc-retry-pushback-ms`; a negative number forbids the retry.
    pub(crate) fn pause(&self, attempt: u32, status: &Status) -> Option<Duration> {
        if attempt > self.attempts_max || !self.codes.contains(&status.code()) {
            return None;
        }
        if let Some(pushback) = status.metadata().get("grpc-retry-pushback-ms") {
            return pushback.parse().ok().map(Duration::from_millis);
        }
        Some(jitter(exponential(self.backoff_first, self.backoff_max, attempt.saturating_sub(2))))
    }
}

/// `first` doubled `doublings` times, at most `max`.
pub(crate) fn exponential(first: Duration, max: Duration, doublings: u32) -> Duration {
    first.saturating_mul(2u32.saturating_pow(doublings.min(20))).min(max)
}

/// Random pause from half to all of `pause`, so that clients that failed together do not all return at once.
pub(crate) fn jitter(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_limit_and_tries_end() {
        let policy = RetryPolicy { attempts_max: 5, backoff_max: Duration::from_millis(100), ..RetryPolicy::default() };
        let failure = Status::unavailable("");
        for (attempt, limit_ms) in [(2, 50), (3, 100), (4, 100), (5, 100)] {
            let pause = policy.pause(attempt, &failure).unwrap().as_millis();
            assert!((limit_ms / 2..=limit_ms).contains(&pause), "{attempt}: {pause}");
        }
        assert_eq!(policy.pause(6, &failure), None);
        assert_eq!(policy.pause(2, &Status::internal("")), None);
    }

    #[test]
    fn a_server_says_when_to_come_back_or_not_to() {
        let pushed = |pause: &str| {
            let mut status = Status::unavailable("");
            status.metadata_mut().insert("grpc-retry-pushback-ms", pause).unwrap();
            RetryPolicy::default().pause(2, &status)
        };
        assert_eq!((pushed("1500"), pushed("-1")), (Some(Duration::from_millis(1500)), None));
    }
}
