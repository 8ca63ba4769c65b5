//! The figures of a measurement: one list, so that the terminal and the page show the same.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::units;
use crate::measurement::{Distribution, Run, histogram};
use crate::stats::interval::median;
use crate::stats::metric::Metric;

pub(crate) struct Figure {
    pub(crate) key: &'static str,
    pub(crate) name: &'static str,
    /// Value, where the run has one.
    pub(crate) of: fn(&Run) -> Option<f64>,
    pub(crate) show: fn(f64) -> String,
}

/// All figures, the most important first.
pub(crate) const FIGURES: [Figure; 11] = [
    Figure { key: "rate", name: "rate", of: |run| Metric::Rate.of(run), show: units::rate },
    Figure { key: "p50_us", name: "p50", of: |run| Metric::P50.of(run), show: units::micros },
    Figure { key: "p90_us", name: "p90", of: |run| Metric::P90.of(run), show: units::micros },
    Figure { key: "p99_us", name: "p99", of: |run| Metric::P99.of(run), show: units::micros },
    Figure { key: "p999_us", name: "p99.9", of: |run| Metric::P999.of(run), show: units::micros },
    Figure { key: "max_us", name: "max", of: max_us, show: units::micros },
    Figure { key: "mean_us", name: "mean", of: |run| Metric::Mean.of(run), show: units::micros },
    Figure { key: "errors", name: "errors", of: |run| Some(units::float(run.errors)), show: whole },
    Figure {
        key: "client_cpu_us",
        name: "client CPU a request",
        of: |run| Metric::ClientCpu.of(run),
        show: units::micros,
    },
    Figure {
        key: "client_busy_max",
        name: "busiest worker",
        of: |run| Some(run.client_busy_max),
        show: units::percent,
    },
    Figure {
        key: "server_cpu_us",
        name: "server CPU a call",
        of: |run| Metric::ServerCpu.of(run),
        show: units::micros,
    },
];

/// A kind of time with a distribution in each run.
pub(crate) struct Times {
    pub(crate) key: &'static str,
    pub(crate) name: &'static str,
    /// Its beginning and end, as text.
    pub(crate) what: &'static str,
    /// Distribution; empty where the run has none.
    pub(crate) of: fn(&Run) -> &Distribution,
}

pub(crate) const TIMES: [Times; 4] = [
    Times { key: "response", name: "response", what: "due to done", of: |run| &run.response },
    Times { key: "service", name: "service", what: "sent to done", of: |run| &run.service },
    Times { key: "lag", name: "send lag", what: "due to sent", of: |run| &run.lag },
    Times { key: "first_byte", name: "first byte", what: "sent to first byte", of: |run| &run.first_byte },
];

/// A figure over several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    /// Median; for an even number of runs, the mean of the middle two.
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) runs: usize,
}

/// The figure over the runs that have it.
pub(crate) fn range(figure: &Figure, runs: &[Run]) -> Option<Range> {
    let values: Vec<f64> = runs.iter().filter_map(figure.of).collect();
    let (low, high) = (values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?);
    Some(Range { median: median(&values), low, high, runs: values.len() })
}

/// Merges all runs into one distribution: percentiles are never averaged.
pub(crate) fn merged(runs: &[Run], of: fn(&Run) -> &Distribution) -> Distribution {
    let mut all: Histogram<u64> = histogram();
    // Grows to fit every value.
    all.auto(true);
    for run in runs {
        all.add(&of(run).histogram).expect("a histogram that grows takes every value");
    }
    Distribution { histogram: all }
}

/// Endings with their counts and shares, the most frequent first; those beyond `shown_max` are counted together.
pub(crate) fn endings(runs: &[Run], shown_max: usize) -> Vec<(&str, u64, f64)> {
    let mut counts = BTreeMap::<&str, u64>::new();
    for (ending, count) in runs.iter().flat_map(|run| &run.endings) {
        let sum = counts.entry(ending).or_default();
        *sum = sum.saturating_add(*count);
    }
    let total = counts.values().sum();
    let mut counts: Vec<(&str, u64)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let others: u64 = counts.iter().skip(shown_max).map(|(_, count)| count).sum();
    counts.truncate(shown_max);
    counts.extend((others > 0).then_some(("(others)", others)));
    counts.into_iter().map(|(ending, count)| (ending, count, units::share(count, total))).collect()
}

/// Latencies counted by servers, over all runs: upper bounds in seconds and calls within each.
pub(crate) fn server_latency(runs: &[Run]) -> Vec<(f64, u64)> {
    let mut buckets: Vec<(f64, u64)> = Vec::new();
    for server in runs.iter().filter_map(|run| run.server.as_ref()) {
        for (index, &(bound, calls)) in server.latency.iter().enumerate() {
            if index == buckets.len() {
                buckets.push((bound, 0));
            }
            // Different buckets cannot be added; only the first server's are shown.
            if buckets[index].0.total_cmp(&bound).is_ne() {
                break;
            }
            buckets[index].1 = buckets[index].1.saturating_add(calls);
        }
    }
    buckets
}

/// `None` if no request ended.
fn max_us(run: &Run) -> Option<f64> {
    (run.response.count() > 0).then(|| run.response.max_us())
}

fn whole(value: f64) -> String {
    units::number(value).trim_end_matches(".00").trim_end_matches(".0").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(rate: f64) -> Run {
        Run { rate, ..Run::default() }
    }

    #[test]
    fn several_runs_come_down_to_their_median_and_their_ends() {
        let rates = |rates: &[f64]| range(&FIGURES[0], &rates.iter().map(|&rate| run(rate)).collect::<Vec<_>>());
        assert_eq!(rates(&[]), None);
        assert_eq!(rates(&[3.0, 9.0, 1.0]), Some(Range { median: 3.0, low: 1.0, high: 9.0, runs: 3 }));
        assert_eq!(rates(&[4.0, 2.0]), Some(Range { median: 3.0, low: 2.0, high: 4.0, runs: 2 }));
    }

    #[test]
    fn a_run_without_requests_has_no_times() {
        let missing: Vec<&str> =
            FIGURES.iter().filter(|figure| (figure.of)(&run(0.0)).is_none()).map(|figure| figure.key).collect();
        assert_eq!(
            missing,
            ["p50_us", "p90_us", "p99_us", "p999_us", "max_us", "mean_us", "client_cpu_us", "server_cpu_us"]
        );
    }

    #[test]
    fn runs_of_unequal_length_are_merged_by_their_requests() {
        let mut runs = [run(1.0), run(1.0)];
        for _ in 0..99 {
            runs[0].response.histogram.record(1_000_000).expect("in range");
        }
        runs[1].response.histogram.record(9_000_000).expect("in range");
        let all = merged(&runs, |run| &run.response);
        assert_eq!(all.count(), 100);
        assert!((all.quantile_us(0.98) - 1_000.0).abs() < 2.0);
        assert!((all.max_us() - 9_000.0).abs() < 20.0);
    }
}
