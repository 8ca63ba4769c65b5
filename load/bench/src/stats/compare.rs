//! Compares two sides, metric by metric: whether they differ, and by how much.
//!
//! Several metrics are tested at once, and each adds a chance of a false difference. The confidence is therefore that
//! of the whole comparison, with Bonferroni's correction: each of m metrics is tested at 1 − (1 − confidence) / m.
//! Holm's correction finds a little more, but its verdicts have no intervals of the same strength; here a metric is
//! different exactly if the interval shown excludes equality.

use serde::Serialize;

use super::interval::{self, Interval};
use super::metric::{Metric, Scale};
use crate::report::units::real;

/// Default confidence of a whole comparison: equal sides are called different once in a hundred comparisons, which
/// leaves room for runs that are not quite normal.
pub(crate) const CONFIDENCE: f64 = 0.99;

/// Minimum runs of a side for a known spread.
pub(crate) const RUNS_MIN: usize = 2;

/// Values of a metric on both sides, one per run.
#[derive(Clone, Debug)]
pub(crate) struct Sides {
    pub(crate) metric: Metric,
    pub(crate) a: Vec<f64>,
    pub(crate) b: Vec<f64>,
}

/// Relation between the runs of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Design {
    /// Runs of both sides are unrelated: Welch's interval.
    Independent,
    /// Runs with the same index were made one after the other: Student's interval of the differences in each round.
    Paired,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// The interval excludes equality.
    Different,
    /// The interval includes equality: any difference is too small to be seen.
    NoDifferenceSeen,
    /// Fewer than two runs on a side, so the spread is unknown.
    TooFewRuns,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Effect {
    pub(crate) metric: Metric,
    /// Mean of the first side: geometric for a ratio, arithmetic for a difference.
    pub(crate) a: f64,
    pub(crate) b: f64,
    pub(crate) runs_a: usize,
    pub(crate) runs_b: usize,
    /// Scale of `change` and of the interval.
    pub(crate) scale: Scale,
    /// Second side over the first, or minus the first.
    pub(crate) change: f64,
    pub(crate) low: Option<f64>,
    pub(crate) high: Option<f64>,
    /// Confidence of this interval, corrected for the number of metrics.
    pub(crate) confidence: f64,
    pub(crate) verdict: Verdict,
}

impl Effect {
    pub(crate) fn interval(&self) -> Option<Interval> {
        Some(Interval { estimate: self.change, low: self.low?, high: self.high? })
    }
}

/// Compares all metrics at once; `confidence` (0 to 1) is that of all verdicts together.
pub(crate) fn compare(metrics: &[Sides], design: Design, confidence: f64) -> Vec<Effect> {
    let each = 1.0 - (1.0 - confidence) / real(metrics.len().max(1));
    metrics.iter().map(|sides| effect(sides, design, each)).collect()
}

fn effect(Sides { metric, a, b }: &Sides, design: Design, confidence: f64) -> Effect {
    // A value of 0 has no logarithm, but a difference.
    let positive = a.iter().chain(b).all(|value| *value > 0.0);
    let scale = if positive { metric.scale() } else { Scale::Difference };
    let interval = match (design, scale) {
        (Design::Independent, Scale::Ratio) => interval::ratio(a, b, confidence),
        (Design::Independent, Scale::Difference) => interval::mean_difference(a, b, confidence),
        (Design::Paired, Scale::Ratio) => interval::paired_ratio(a, b, confidence),
        (Design::Paired, Scale::Difference) => interval::paired_difference(a, b, confidence),
    };
    let (mean_a, mean_b, change, same) = match scale {
        Scale::Ratio => {
            let [a, b] = [a, b].map(|values| interval::geometric_mean(values));
            (a, b, b / a, 1.0)
        }
        Scale::Difference => {
            let [a, b] = [a, b].map(|values| interval::mean(values));
            (a, b, b - a, 0.0)
        }
    };
    // Values closer than the resolution of the measurement count as equal.
    let interval = interval.map(|interval| match scale {
        Scale::Ratio => interval.widened(metric.resolution() * interval.estimate),
        Scale::Difference => interval,
    });
    let verdict = match interval {
        None => Verdict::TooFewRuns,
        Some(interval) if interval.contains(same) => Verdict::NoDifferenceSeen,
        Some(_) => Verdict::Different,
    };
    Effect {
        metric: *metric,
        a: mean_a,
        b: mean_b,
        runs_a: a.len(),
        runs_b: b.len(),
        scale,
        change,
        low: interval.map(|interval| interval.low),
        high: interval.map(|interval| interval.high),
        confidence,
        verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::order::Orders;

    fn verdicts(metric: Metric, a: &[f64], b: &[f64], design: Design) -> Effect {
        compare(&[Sides { metric, a: a.to_vec(), b: b.to_vec() }], design, CONFIDENCE).remove(0)
    }

    #[test]
    fn one_run_on_a_side_gives_the_ratio_and_no_interval() {
        let effect = verdicts(Metric::Rate, &[100.0], &[150.0, 150.0], Design::Independent);
        assert_eq!((effect.verdict, effect.low, effect.high), (Verdict::TooFewRuns, None, None));
        assert!((effect.change - 1.5).abs() < 1e-9);
        assert_eq!(verdicts(Metric::Rate, &[], &[], Design::Paired).verdict, Verdict::TooFewRuns);
    }

    #[test]
    fn errors_are_compared_by_difference_since_there_may_be_none() {
        let none = verdicts(Metric::Errors, &[0.0, 0.0], &[0.0, 0.0], Design::Independent);
        assert_eq!((none.verdict, none.scale), (Verdict::NoDifferenceSeen, Scale::Difference));
        let some = verdicts(Metric::Errors, &[0.0; 4], &[0.011, 0.010, 0.012, 0.011], Design::Independent);
        assert_eq!(some.verdict, Verdict::Different);
        assert!((some.change - 0.011).abs() < 1e-9);
    }

    #[test]
    fn a_run_in_which_nothing_happened_does_not_end_in_not_a_real() {
        let effect = verdicts(Metric::Rate, &[100.0, 100.0], &[0.0, 0.0], Design::Independent);
        assert_eq!((effect.scale, effect.verdict), (Scale::Difference, Verdict::Different));
        assert!((effect.change + 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_difference_below_the_resolution_of_histograms_is_none() {
        let (a, b) = ([100.0; 5], [100.09; 5]);
        assert_eq!(verdicts(Metric::P99, &a, &b, Design::Paired).verdict, Verdict::NoDifferenceSeen);
        assert_eq!(verdicts(Metric::Rate, &a, &b, Design::Paired).verdict, Verdict::Different);
    }

    #[test]
    fn more_metrics_at_once_want_more_of_each() {
        let sides = Sides { metric: Metric::Rate, a: vec![1.0, 1.1, 1.2], b: vec![2.0, 2.1, 2.2] };
        let width = |count: usize| {
            let effect = compare(&vec![sides.clone(); count], Design::Independent, 0.99).remove(0);
            assert!((effect.confidence - (1.0 - 0.01 / real(count))).abs() < 1e-12);
            effect.high.expect("three runs") - effect.low.expect("three runs")
        };
        assert!(width(1) < width(3) && width(3) < width(9));
    }

    /// A machine whose speed drifts: it gets slower by 10% over the session, in steps of 2% up and down, and runs
    /// differ by 1% more.
    struct Machine {
        random: Orders,
        wander: f64,
        turn: u32,
        turns: u32,
    }

    impl Machine {
        fn run(&mut self, effect: f64) -> [f64; 3] {
            self.turn += 1;
            self.wander += 0.02 * self.random.normal();
            let drift = self.wander - 0.1 * f64::from(self.turn) / f64::from(self.turns);
            // Rate, p50 and p99: two that move together and an independent one.
            let [rate, p50, p99] = [0.01, 0.01, 0.03].map(|noise| noise * self.random.normal());
            [
                1e5 * (drift + rate).exp() * effect,
                100.0 * (-drift - p50).exp() / effect,
                500.0 * (p99 - drift).exp() / effect,
            ]
        }
    }

    /// Three metrics of ten runs a side, each round in random order, or one side after the other.
    fn session(seed: u64, interleaved: bool, effect: f64) -> Vec<Sides> {
        let mut orders = Orders::new(seed);
        let mut machine = Machine { random: Orders::new(seed + 1_000_000), wander: 0.0, turn: 0, turns: 20 };
        let mut values = [const { Vec::new() }; 2];
        let turns: Vec<usize> =
            if interleaved { (0..10).flat_map(|_| orders.order(2)).collect() } else { [[0; 10], [1; 10]].concat() };
        for side in turns {
            values[side].push(machine.run(if side == 0 { 1.0 } else { effect }));
        }
        [Metric::Rate, Metric::P50, Metric::P99]
            .into_iter()
            .enumerate()
            .map(|(at, metric)| {
                let [a, b] = [&values[0], &values[1]].map(|runs| runs.iter().map(|run| run[at]).collect());
                Sides { metric, a, b }
            })
            .collect()
    }

    /// Number of sessions, of 1,000, in which any metric was called different.
    fn found(interleaved: bool, design: Design, effect: f64) -> usize {
        (0..1_000)
            .filter(|seed| {
                let effects = compare(&session(*seed, interleaved, effect), design, CONFIDENCE);
                effects.iter().any(|effect| effect.verdict == Verdict::Different)
            })
            .count()
    }

    #[test]
    fn the_same_thing_twice_on_a_drifting_machine_is_seldom_called_different() {
        // The confidence promises 1%; 2.5% must not be exceeded.
        let paired = found(true, Design::Paired, 1.0);
        assert!(paired <= 25, "{paired}");
        // With one side after the other, drift is taken for a difference.
        let blocks = found(false, Design::Independent, 1.0);
        assert!(blocks >= 500, "{blocks}");
    }

    #[test]
    fn pairing_finds_the_small_difference_that_drift_hides_from_a_comparison_of_means() {
        let [paired, means] = [Design::Paired, Design::Independent].map(|design| found(true, design, 1.04));
        assert!(paired >= 800 && means <= 200, "paired {paired}, means {means}");
    }
}
