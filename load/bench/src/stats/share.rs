//! Intervals of a share and of a quantile within one run.
//!
//! Both assume independent requests, which those of one run are not quite: they are the lower bound of the uncertainty,
//! used where there is nothing better, or beside the interval over runs.

use hdrhistogram::Histogram;
use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, Normal};

use super::interval::Interval;
use crate::report::units::float as number;

/// Standard deviations to each side that hold a normal variable with this confidence.
pub(crate) fn normal_z(confidence: f64) -> f64 {
    Normal::standard().inverse_cdf(f64::midpoint(1.0, confidence))
}

/// Wilson's score interval of a share ("Probable inference, the law of succession, and statistical inference", JASA
/// 1927): unlike the textbook's it stays within 0 to 1 and is right for a count of 0, and unlike Clopper's and
/// Pearson's it is a closed form at any count. `None` out of 0.
pub(crate) fn wilson(count: u64, of: u64, confidence: f64) -> Option<Interval> {
    if of == 0 {
        return None;
    }
    let (n, z) = (number(of), normal_z(confidence));
    let share = number(count) / n;
    let scale = 1.0 + z * z / n;
    let middle = (share + z * z / (2.0 * n)) / scale;
    let half = z / scale * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    // At 0 and at 1 the formula is exact, but rounding may miss it.
    let low = if count == 0 { 0.0 } else { (middle - half).max(0.0) };
    let high = if count == of { 1.0 } else { (middle + half).min(1.0) };
    Some(Interval { estimate: share, low, high })
}

/// Interval of the quantile at `share` in microseconds, from order statistics: the number of requests above the true
/// quantile is binomial, so the sorted times at two ranks enclose it (David and Nagaraja, "Order Statistics", 7.1). If
/// the upper rank lies beyond the last request, the upper end is infinite: there are too few requests. `None` if empty.
pub(crate) fn quantile_us(histogram: &Histogram<u64>, share: f64, confidence: f64) -> Option<Interval> {
    if histogram.is_empty() {
        return None;
    }
    let count = histogram.len();
    let micros = |nanos: u64| number(nanos) / 1e3;
    // The histogram is queried by rank; half a rank less avoids rounding at the edge between two.
    let at_rank = |rank: u64| micros(histogram.value_at_quantile((number(rank) - 0.5) / number(count)));
    let (least, most) = binomial_range(count, 1.0 - share, confidence);
    // With `most` requests above the quantile it is at or above the rank below them.
    let low = if most >= count { 0.0 } else { at_rank(count - most) };
    let high = if least == 0 { f64::INFINITY } else { at_rank(count - least + 1) };
    Some(Interval { estimate: micros(histogram.value_at_quantile(share)), low, high })
}

/// Range that holds a binomial count with at least this confidence.
fn binomial_range(count: u64, probability: f64, confidence: f64) -> (u64, u64) {
    let binomial = Binomial::new(probability, count).expect("a share is from 0 to 1");
    let tail = (1.0 - confidence) / 2.0;
    (binomial.inverse_cdf(tail), binomial.inverse_cdf(1.0 - tail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::histogram;
    use crate::stats::order::Orders;

    #[test]
    fn wilson_agrees_with_published_figures() {
        // scipy.stats.binomtest(k, n).proportion_ci(0.95, method="wilson")
        let check = |count, of, low: f64, high: f64| {
            let interval = wilson(count, of, 0.95).expect("of something");
            assert!((interval.low - low).abs() < 1e-6 && (interval.high - high).abs() < 1e-6, "{interval:?}");
        };
        check(0, 10, 0.0, 0.277_532_80);
        check(10, 10, 1.0 - 0.277_532_80, 1.0);
        check(3, 20, 0.052_368_75, 0.360_418_86);
        check(7, 100_000, 0.000_033_909, 0.000_144_499);
        assert_eq!(wilson(0, 0, 0.95), None);
    }

    #[test]
    fn the_range_of_binomial_counts_is_the_published_one() {
        // scipy.stats.binom(n, p).ppf of both tails
        assert_eq!(binomial_range(1_000, 0.01, 0.99), (3, 19));
        assert_eq!(binomial_range(100, 0.5, 0.95), (40, 60));
        assert_eq!(binomial_range(100_000, 0.001, 0.99), (75, 127));
        assert_eq!(binomial_range(50, 0.1, 0.99), (0, 11));
        assert_eq!(binomial_range(400, 0.99, 0.95), (392, 399));
        assert_eq!(binomial_range(10_000_000, 0.01, 0.95), (99_384, 100_617));
    }

    #[test]
    fn a_quantile_has_no_upper_end_until_enough_was_seen() {
        let mut times = histogram();
        for nanos in 1..=100 {
            times.record(nanos * 1_000).expect("within bounds");
        }
        // 0.99^100 = 0.37: often none of 100 is above the true p99.
        let p99 = quantile_us(&times, 0.99, 0.95).expect("recorded");
        assert!(p99.high.is_infinite() && p99.low > 90.0, "{p99:?}");
        let p50 = quantile_us(&times, 0.5, 0.95).expect("recorded");
        // Ranks 40 and 61 enclose the median of 100 (David and Nagaraja, table 7.1).
        assert!((p50.low - 40.0).abs() < 0.1 && (p50.high - 61.0).abs() < 0.1, "{p50:?}");
        assert_eq!(quantile_us(&histogram(), 0.5, 0.95), None);
    }

    #[test]
    fn intervals_of_a_quantile_hold_it_as_often_as_said() {
        let mut random = Orders::new(11);
        let held = (0..2_000)
            .filter(|_| {
                let mut times = histogram();
                for _ in 0..800 {
                    // Exponential of mean 1 ms: its p90 is 2.302585 ms.
                    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and small")]
                    times.record((-random.uniform().ln() * 1e6) as u64 + 1).expect("within bounds");
                }
                quantile_us(&times, 0.9, 0.95).expect("recorded").contains(2_302.585)
            })
            .count();
        // At least 0.95 of 2,000, four deviations (39) allowed; ranks are whole, so it is a little more.
        assert!((1_861..=1_960).contains(&held), "{held}");
    }
}
