//! Judges objectives against runs.
//!
//! With several runs the interval is Student's over runs, no narrower than what the number of requests allows. A single
//! run has only the latter: order statistics for a quantile, Wilson's interval for errors, the histogram's spread for
//! the mean, batch means over time for the rate. That is the least uncertainty; the next run may differ by more.

use super::objective::{CONFIDENCE, Judged, Measure, Objective, Outcome};
use crate::measurement::{Distribution, Run};
use crate::report::figures::merged;
use crate::report::units::float as count;
use crate::stats::interval::{Interval, geometric_mean_interval, mean_interval, student_t};
use crate::stats::metric::Metric;
use crate::stats::share;

/// Minimum and maximum batches of a run's time (Schmeiser, "Batch size effects in the analysis of simulation output",
/// Operations Research 1982: beyond about 30 batches little is gained, and the longer a batch the less it depends on
/// the one before).
const BATCHES_MIN: usize = 4;
const BATCHES_MAX: usize = 20;

/// Judges every objective over all runs together.
pub(crate) fn judge(objectives: &[Objective], runs: &[Run]) -> Vec<Judged> {
    let doubt = doubt(runs);
    objectives.iter().map(|objective| judge_one(objective, runs, doubt)).collect()
}

/// Reason that the figures of these runs decide nothing.
fn doubt(runs: &[Run]) -> Option<&'static str> {
    if runs.iter().all(|run| run.requests == 0) {
        Some("no request was measured")
    } else if runs.iter().any(|run| !run.verdict.is_valid()) {
        Some("a run was INVALID")
    } else if runs.iter().any(|run| run.interrupted) {
        Some("a run was interrupted")
    } else {
        None
    }
}

/// Value of a measure in the runs.
struct Seen {
    value: f64,
    /// `None` if the value is exact.
    interval: Option<Interval>,
}

impl From<Interval> for Seen {
    fn from(interval: Interval) -> Self {
        Self { value: interval.estimate, interval: Some(interval) }
    }
}

fn judge_one(objective: &Objective, runs: &[Run], doubt: Option<&'static str>) -> Judged {
    let seen = seen(objective, runs);
    let (outcome, reason) = match (&seen, doubt) {
        (_, Some(doubt)) => (Outcome::Inconclusive, Some(doubt)),
        (None, None) => (Outcome::Inconclusive, Some("no request was measured")),
        (Some(seen), None) => decide(objective, seen),
    };
    let interval = seen.as_ref().and_then(|seen| seen.interval);
    Judged { objective: objective.clone(), seen: seen.map(|seen| seen.value), interval, outcome, reason }
}

fn decide(objective: &Objective, seen: &Seen) -> (Outcome, Option<&'static str>) {
    let holds = |value| objective.relation.holds(value, objective.bound);
    let interval = seen.interval.unwrap_or(Interval { estimate: seen.value, low: seen.value, high: seen.value });
    match (holds(interval.low), holds(interval.high)) {
        (true, true) => (Outcome::Pass, None),
        (false, false) => (Outcome::Fail, None),
        _ if interval.high.is_infinite() => (Outcome::Inconclusive, Some("too few requests to tell")),
        _ => (Outcome::Inconclusive, Some("the interval crosses the bound")),
    }
}

fn seen(objective: &Objective, runs: &[Run]) -> Option<Seen> {
    let measured: Vec<&Run> = runs.iter().filter(|run| run.requests > 0).collect();
    match objective.measure {
        Measure::Quantile(share) => {
            let within = share::quantile_us(&merged(runs, |run| &run.response).histogram, share, CONFIDENCE)?;
            Some(over_runs(&measured, |run| run.response.quantile_us(share), within).into())
        }
        Measure::Mean => {
            let within = mean_within(&merged(runs, |run| &run.response))?;
            Some(over_runs(&measured, |run| run.response.mean_us(), within).into())
        }
        Measure::Max => {
            let longest = measured.iter().filter(|run| run.response.count() > 0).map(|run| run.response.max_us());
            longest.reduce(f64::max).map(|value| Seen { value, interval: None })
        }
        Measure::Errors => errors(&measured, objective.bound),
        Measure::Rate => rate(&measured).map(Seen::from),
    }
}

/// The interval over several runs, no narrower than the one within them.
fn over_runs(runs: &[&Run], value: impl Fn(&Run) -> f64, within: Interval) -> Interval {
    let values: Vec<f64> = runs.iter().map(|run| value(run)).collect();
    geometric_mean_interval(&values, CONFIDENCE).map_or(within, |over| over.hull(within))
}

fn mean_within(times: &Distribution) -> Option<Interval> {
    let requests = count(times.count());
    if requests < 2.0 {
        return None;
    }
    let error = times.histogram.stdev() / 1e3 / requests.sqrt();
    let half = student_t(CONFIDENCE, requests - 1.0) * error;
    let estimate = times.mean_us();
    Some(Interval { estimate, low: estimate - half, high: estimate + half })
}

fn errors(runs: &[&Run], bound: f64) -> Option<Seen> {
    let (errors, requests) = runs.iter().fold((0, 0), |sum, run| (sum.0 + run.errors, sum.1 + run.requests));
    let within = share::wilson(errors, requests, CONFIDENCE)?;
    // A bound of 0 is about the requests seen: no number of them proves that an error cannot happen.
    if bound == 0.0 {
        return Some(Seen { value: within.estimate, interval: None });
    }
    let shares: Vec<f64> = runs.iter().filter_map(|run| Metric::Errors.of(run)).collect();
    let over = mean_interval(&shares, CONFIDENCE).map_or(within, |over| over.hull(within));
    Some(Interval { estimate: within.estimate, low: over.low.max(0.0), high: over.high.min(1.0) }.into())
}

fn rate(runs: &[&Run]) -> Option<Interval> {
    let [run] = runs else {
        let rates: Vec<f64> = runs.iter().map(|run| run.rate).collect();
        return geometric_mean_interval(&rates, CONFIDENCE).or_else(|| mean_interval(&rates, CONFIDENCE));
    };
    let batches = batch_rates(run);
    let half = if batches.len() < BATCHES_MIN {
        // As if requests were independent of each other: their count is then Poisson-distributed.
        share::normal_z(CONFIDENCE) * run.rate / count(run.requests).sqrt()
    } else {
        let interval = mean_interval(&batches, CONFIDENCE)?;
        interval.high - interval.estimate
    };
    Some(Interval { estimate: run.rate, low: (run.rate - half).max(0.0), high: run.rate + half })
}

/// Rates of equal batches of a run.
fn batch_rates(run: &Run) -> Vec<f64> {
    let parts = run.series.len().div_ceil(BATCHES_MAX).max(1);
    let rate = |parts: &[crate::measurement::Interval]| {
        let seconds: f64 = parts.iter().map(|part| part.seconds).sum();
        parts.iter().map(|part| count(part.requests)).sum::<f64>() / seconds
    };
    run.series.chunks_exact(parts).map(rate).filter(|rate| rate.is_finite()).collect()
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
