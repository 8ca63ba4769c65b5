//! Stalls at known times: the thread sleeps, and everything on it stops.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Longer than any run, and within the range of a clock.
const WAIT_MAX: Duration = Duration::from_hours(24 * 365);

/// Times at which a server's threads stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stalls {
    /// Length of a stall.
    pub(super) length: Duration,
    /// From the start of one to the start of the next.
    pub(super) every: Duration,
    /// Start of the first, in milliseconds since 1970; by default `every` after the start of the server. If past, the
    /// first is a whole number of periods later.
    pub(super) first_unix_ms: Option<u64>,
}

/// Stalls with a fixed start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    stalls: Stalls,
    first: Instant,
    pub(super) first_unix_ms: u64,
}

impl Stalls {
    pub(super) fn begin(self) -> Begun {
        let (now, unix_now) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let first_unix = match self.first_unix_ms.map(Duration::from_millis) {
            None => unix_now.saturating_add(self.every),
            Some(first) if first >= unix_now => first,
            Some(first) => unix_now.saturating_add(until_next(unix_now.saturating_sub(first), self.every)),
        };
        let wait = first_unix.saturating_sub(unix_now).min(WAIT_MAX);
        let first_unix_ms = u64::try_from(first_unix.as_millis()).unwrap_or(u64::MAX);
        Begun { stalls: self, first: now.checked_add(wait).unwrap_or(now), first_unix_ms }
    }
}

/// Rest of the current period, when `passed` has elapsed since the start of some period.
fn until_next(passed: Duration, every: Duration) -> Duration {
    let into_it = passed.as_nanos().checked_rem(every.as_nanos()).unwrap_or_default();
    every.saturating_sub(Duration::from_nanos(u64::try_from(into_it).unwrap_or_default()))
}

impl Begun {
    /// Blocks the calling thread during each stall. A stall that begins late, because the timer counts in milliseconds
    /// or the thread was busy, still ends on time.
    pub(super) async fn keep_to(self) {
        let mut begins = self.first;
        loop {
            tokio::time::sleep_until(begins).await;
            let left = (begins + self.stalls.length).saturating_duration_since(Instant::now());
            std::thread::sleep(left);
            begins += self.stalls.every;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn first_unix_ms(given: Option<u64>) -> u64 {
        Stalls { length: SECOND / 2, every: 100 * SECOND, first_unix_ms: given }.begin().first_unix_ms
    }

    #[test]
    fn the_first_stall_is_where_it_was_asked_for_or_a_whole_number_of_periods_later() {
        let before = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
        assert!(first_unix_ms(None) >= before + 100_000);
        for later in [60_000, 3_600_000] {
            assert_eq!(first_unix_ms(Some(before + later)), before + later);
        }
        let past = first_unix_ms(Some(123));
        assert!(past >= before && past % 100_000 == 123, "{past}");
    }
}
