//! Means and Student-t intervals over runs; intervals of a share and of a quantile within one run.
//!
//! The latter two assume independent requests, which those of one run are not quite: they are the lower bound of the
//! uncertainty, used where there is nothing better, or beside the interval over runs.

use hdrhistogram::Histogram;
use serde::Serialize;
use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, Normal, StudentsT};

use crate::report::units::{float, real};

/// An estimate and its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[must_use]
pub struct Interval {
    pub estimate: f64,
    pub low: f64,
    pub high: f64,
}

impl Interval {
    pub fn contains(self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Exponentiates each part: from logarithms back to ratios.
    pub fn exp(self) -> Self {
        Self { estimate: self.estimate.exp(), low: self.low.exp(), high: self.high.exp() }
    }

    /// Moves both ends outwards by `margin`.
    pub fn widened(self, margin: f64) -> Self {
        Self { low: self.low - margin, high: self.high + margin, ..self }
    }

    /// From the lower of both lower ends to the higher of both upper ends.
    pub fn hull(self, other: Self) -> Self {
        Self { estimate: self.estimate, low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    pub(crate) fn around(estimate: f64, half_width: f64) -> Self {
        Self { estimate, low: estimate - half_width, high: estimate + half_width }
    }
}

/// Arithmetic mean; NaN for no values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / real(values.len())
}

/// Geometric mean, for ratios; NaN unless every value is above 0.
pub fn geometric_mean(values: &[f64]) -> f64 {
    logarithms(values).map_or(f64::NAN, |values| mean(&values).exp())
}

/// Median, or the mean of the middle two; NaN for no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Sample variance (divided by n − 1).
pub fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (real(values.len()) - 1.0)
}

/// Standard errors to each side that hold the true mean with this confidence (0 to 1): the two-sided quantile of
/// Student's distribution.
pub fn student_t(confidence: f64, degrees_of_freedom: f64) -> f64 {
    let student = StudentsT::new(0.0, 1.0, degrees_of_freedom).expect("degrees of freedom are above 0");
    student.inverse_cdf(f64::midpoint(1.0, confidence))
}

/// Student's interval of a mean ("The probable error of a mean", Biometrika 1908); `None` for fewer than two values.
pub fn mean_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    if values.len() < 2 {
        return None;
    }
    let error = (variance(values) / real(values.len())).sqrt();
    Some(Interval::around(mean(values), student_t(confidence, real(values.len()) - 1.0) * error))
}

/// Interval of a geometric mean, from logarithms; `None` if a value is 0 or less.
pub fn geometric_mean_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    mean_interval(&logarithms(values)?, confidence).map(Interval::exp)
}

/// Mean of `b` minus mean of `a`, for unequal variances and counts: Welch ("The generalization of Student's problem
/// when several different population variances are involved", Biometrika 1947), with the degrees of freedom of
/// Satterthwaite (Biometrics 1946). `None` for fewer than two values on a side.
pub fn mean_difference(a: &[f64], b: &[f64], confidence: f64) -> Option<Interval> {
    if a.len() < 2 || b.len() < 2 {
        return None;
    }
    let [error_a, error_b] = [a, b].map(|values| variance(values) / real(values.len()));
    let squared = error_a + error_b;
    let difference = mean(b) - mean(a);
    // Without any variance the degrees of freedom are 0/0, and the interval has no width.
    if squared == 0.0 {
        return Some(Interval::around(difference, 0.0));
    }
    let degrees = squared.powi(2) / (error_a.powi(2) / (real(a.len()) - 1.0) + error_b.powi(2) / (real(b.len()) - 1.0));
    Some(Interval::around(difference, student_t(confidence, degrees) * squared.sqrt()))
}

/// Mean of the differences `b` minus `a`, round by round: changes between rounds affect both sides alike and cancel.
/// `None` for fewer than two rounds or sides of different length.
pub fn paired_difference(a: &[f64], b: &[f64], confidence: f64) -> Option<Interval> {
    if a.len() != b.len() {
        return None;
    }
    let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| b - a).collect();
    mean_interval(&differences, confidence)
}

/// Logarithms; `None` unless every value is above 0 and finite.
pub fn logarithms(values: &[f64]) -> Option<Vec<f64>> {
    values.iter().map(|value| (*value > 0.0 && value.is_finite()).then(|| value.ln())).collect()
}

/// Geometric mean of `b` over that of `a`, by [`mean_difference`] of logarithms: times and rates are positive and their
/// noise multiplies, so logarithms are nearly symmetric.
pub fn ratio(a: &[f64], b: &[f64], confidence: f64) -> Option<Interval> {
    mean_difference(&logarithms(a)?, &logarithms(b)?, confidence).map(Interval::exp)
}

/// Like [`ratio`], by [`paired_difference`].
pub fn paired_ratio(a: &[f64], b: &[f64], confidence: f64) -> Option<Interval> {
    paired_difference(&logarithms(a)?, &logarithms(b)?, confidence).map(Interval::exp)
}

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
    let (n, z) = (float(of), normal_z(confidence));
    let share = float(count) / n;
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
    let micros = |nanos: u64| float(nanos) / 1e3;
    // The histogram is queried by rank; half a rank less avoids rounding at the edge between two.
    let at_rank = |rank: u64| micros(histogram.value_at_quantile((float(rank) - 0.5) / float(count)));
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
    use crate::stats::order::Orders;

    // The second example data of Wikipedia's "Welch's t-test"; the expected figures are scipy 1.17's ttest_ind(b, a,
    // equal_var=False) and ttest_rel(b, a), .confidence_interval(0.99), of the values and of their logarithms.
    const A: [f64; 15] = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4];
    const B: [f64; 15] = [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 30.5, 24.4];

    fn check(actual: Option<Interval>, low: f64, estimate: f64, high: f64) {
        let actual = actual.expect("enough values");
        let near = |actual: f64, expected: f64| (actual - expected).abs() < 1e-6 * expected.abs().max(1.0);
        assert!(
            near(actual.low, low) && near(actual.estimate, estimate) && near(actual.high, high),
            "{actual:?} is not {estimate} from {low} to {high}"
        );
    }

    #[test]
    fn student_quantiles_are_those_of_the_tables() {
        // scipy.stats.t.ppf((1 + confidence) / 2, degrees)
        for (confidence, degrees, expected) in [
            (0.95, 1.0, 12.706_204_7),
            (0.99, 2.0, 9.924_843_2),
            (0.99, 9.0, 3.249_835_5),
            (0.95, 30.0, 2.042_272_5),
            (0.9994, 9.0, 5.153_880_9),
            (0.998_89, 18.3, 3.863_192_0),
            (0.99, 3.7, 4.869_252_3),
        ] {
            let actual = student_t(confidence, degrees);
            assert!((actual - expected).abs() < 1e-6, "{confidence} {degrees}: {actual}");
        }
    }

    #[test]
    fn intervals_of_means_differences_and_ratios_agree_with_scipy() {
        check(mean_interval(&A, 0.95), 19.266_701_65, 20.82, 22.373_298_35);
        check(mean_difference(&A, &B, 0.99), 0.088_273_19, 2.833_333_33, 5.578_393_48);
        check(mean_difference(&A[..4], &B, 0.99), -8.351_742_56, 0.878_333_33, 10.108_409_23);
        check(paired_difference(&A, &B, 0.99), 0.213_314_42, 2.833_333_33, 5.453_352_25);
        check(ratio(&A, &B, 0.99), 1.009_280_24, 1.139_289_57, 1.286_045_92);
        check(paired_ratio(&A, &B, 0.99), 1.012_085_28, 1.139_289_57, 1.282_481_58);
    }

    #[test]
    fn means_and_medians_of_known_values() {
        assert!((geometric_mean(&A) - 20.649_521_92).abs() < 1e-8);
        assert!((geometric_mean(&[1.0, 100.0]) - 10.0).abs() < 1e-9);
        assert!((median(&A) - 21.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).is_nan() && mean(&[]).is_nan() && geometric_mean(&[1.0, 0.0]).is_nan());
    }

    #[test]
    fn there_is_no_interval_over_fewer_than_two_values_nor_a_ratio_to_zero() {
        assert_eq!(mean_interval(&[1.0], 0.99), None);
        assert_eq!(ratio(&[1.0], &[1.0, 2.0], 0.99), None);
        assert_eq!(paired_ratio(&[1.0, 2.0], &[1.0], 0.99), None);
        assert_eq!(ratio(&[0.0, 1.0], &[1.0, 2.0], 0.99), None);
        assert_eq!(ratio(&[1.0, 1.0], &[2.0, 2.0], 0.99), Some(Interval { estimate: 2.0, low: 2.0, high: 2.0 }));
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_said() {
        let tries = 2_000;
        let mut random = Orders::new(5);
        let mut sample = |count: usize, scale: f64, deviation: f64| -> Vec<f64> {
            (0..count).map(|_| scale * (deviation * random.normal()).exp()).collect()
        };
        let (mut mean_held, mut ratio_held, mut paired_held) = (0, 0, 0);
        for _ in 0..tries {
            let a = sample(6, 100.0, 0.05);
            mean_held += u32::from(geometric_mean_interval(&a, 0.95).expect("six values").contains(100.0));
            let b = sample(4, 120.0, 0.15);
            ratio_held += u32::from(ratio(&a, &b, 0.95).expect("both sides").contains(1.2));
            let c = sample(6, 120.0, 0.15);
            paired_held += u32::from(paired_ratio(&a, &c, 0.95).expect("six rounds").contains(1.2));
        }
        // Binomial(2000, 0.95): mean 1,900, deviation 9.7; four of them to each side, and Welch's degrees of freedom
        // are an approximation, so a little further.
        assert!((1_861..=1_939).contains(&mean_held), "{mean_held}");
        assert!((1_850..=1_950).contains(&ratio_held), "{ratio_held}");
        assert!((1_861..=1_939).contains(&paired_held), "{paired_held}");
    }
}

#[cfg(test)]
mod share_tests {
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
