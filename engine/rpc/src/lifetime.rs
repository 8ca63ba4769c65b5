//! Age and idle time at which a connection ends, spread at random: connections that began together, as after a restart,
//! would otherwise end and reconnect together.

use std::time::Duration;

/// Limits of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    pub(crate) age_max: Option<Duration>,
    pub(crate) idle_max: Option<Duration>,
}

impl Lifetime {
    /// Draws a connection's limits, each within `jitter` (a part of it) of the given one.
    pub(crate) fn draw(age_max: Option<Duration>, idle_max: Option<Duration>, jitter: f64) -> Self {
        let draw = |limit: Duration| spread(limit, jitter, fastrand::f64());
        Self { age_max: age_max.map(draw), idle_max: idle_max.map(draw) }
    }
}

/// `limit`, shorter or longer by up to `jitter` of it; `random` is from 0 to 1.
fn spread(limit: Duration, jitter: f64, random: f64) -> Duration {
    let factor = 1.0 + jitter.clamp(0.0, 1.0) * (2.0 * random - 1.0);
    Duration::try_from_secs_f64(limit.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_spread_to_both_sides_and_never_overflows() {
        let second = |random| spread(Duration::from_secs(1), 0.1, random).as_millis();
        assert_eq!([second(0.0), second(0.5), second(1.0)], [900, 1000, 1100]);
        assert_eq!(spread(Duration::from_secs(1), 0.0, 1.0), Duration::from_secs(1));
        assert_eq!(spread(Duration::from_secs(1), 7.0, 0.0), Duration::ZERO);
        assert_eq!(spread(Duration::MAX, 0.1, 1.0), Duration::MAX);
    }
}
