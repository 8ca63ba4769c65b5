//! Objectives such as `p99<5ms,errors<0.1%,rate>1000`, judged against runs.
//!
//! An objective passes if the whole interval of its value meets it, fails if the whole interval misses it, and is
//! inconclusive otherwise: luck alone does not pass.

use anyhow::{Context as _, bail, ensure};

use crate::measurement::{Distribution, Run};
use crate::report::figures::merged;
use crate::report::units::float as count;
use crate::stats::interval::{self, Interval, geometric_mean_interval, mean_interval, student_t};
use crate::stats::metric::Metric;

/// Confidence of an objective's interval.
pub(crate) const CONFIDENCE: f64 = 0.99;

/// The bounded figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Measure {
    /// Response-time percentile: the time that this share (0 to 1, ends excluded) of the requests needed at most.
    Quantile(f64),
    Mean,
    /// Longest response time seen.
    Max,
    /// Share of the requests that ended as errors.
    Errors,
    Rate,
}

/// Comparison with the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Below,
    AtMost,
    Above,
    AtLeast,
}

impl Relation {
    fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Self::Below => value < bound,
            Self::AtMost => value <= bound,
            Self::Above => value > bound,
            Self::AtLeast => value >= bound,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Objective {
    pub(crate) text: String,
    pub(crate) measure: Measure,
    pub(crate) relation: Relation,
    /// Microseconds for times, 0 to 1 for errors, requests a second for the rate.
    pub(crate) bound: f64,
}

/// Outcome of an objective, or of all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Pass,
    /// The interval allows both.
    Inconclusive,
    Fail,
}

/// An objective with its result.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) objective: Objective,
    /// Value in the unit of the bound; `None` if nothing was measured.
    pub(crate) seen: Option<f64>,
    /// Interval of the value; its upper end may be infinite. `None` if the value is exact.
    pub(crate) interval: Option<Interval>,
    pub(crate) outcome: Outcome,
    /// Reason, if inconclusive.
    pub(crate) reason: Option<&'static str>,
}

/// Fail if any failed, else inconclusive if any is, else pass.
pub(crate) fn outcome(judged: &[Judged]) -> Outcome {
    judged.iter().map(|judged| judged.outcome).max().unwrap_or(Outcome::Pass)
}

/// Maximum objectives in a list.
const OBJECTIVES_MAX: usize = 32;

const A_TIME: &str = "a time, as in 500us, 5ms or 1.5s";
const A_SHARE: &str = "a share from 0% to 100%, as in 0.1%";
const A_RATE: &str = "a number of requests a second, as in 1000";

/// Parses a comma-separated list of objectives.
pub(crate) fn parse(list: &str) -> anyhow::Result<Vec<Objective>> {
    ensure!(
        list.split(',').nth(OBJECTIVES_MAX).is_none(),
        "there are more than {OBJECTIVES_MAX} objectives: leave some out"
    );
    list.split(',').map(|part| objective(part.trim())).collect()
}

fn objective(part: &str) -> anyhow::Result<Objective> {
    ensure!(!part.is_empty(), "an objective is empty: write a list, as p99<5ms,errors<0.1%,rate>1000");
    let no_relation =
        || format!("{part:?} compares nothing: write one of < <= > >= between a measure and a bound, as in `p99<5ms`");
    let at = part.find(['<', '>']).with_context(no_relation)?;
    let (name, rest) = (part[..at].trim(), &part[at..]);
    let (relation, bound) =
        [("<=", Relation::AtMost), (">=", Relation::AtLeast), ("<", Relation::Below), (">", Relation::Above)]
            .into_iter()
            .find_map(|(sign, relation)| Some((relation, rest.strip_prefix(sign)?.trim())))
            .filter(|(_, bound)| !bound.contains(['<', '>', '=']))
            .with_context(no_relation)?;
    let measure = measure(part, name)?;
    let (value, want) = match measure {
        Measure::Quantile(_) | Measure::Mean | Measure::Max => (time_us(bound), A_TIME),
        Measure::Errors => (share(bound), A_SHARE),
        Measure::Rate => (positive(bound.strip_suffix("/s").unwrap_or(bound)), A_RATE),
    };
    let Some(value) = value else {
        if want == A_TIME && positive(bound).is_some() {
            bail!("{name} needs a unit: write `{part}ms` or another of ns, us, ms and s");
        }
        bail!("{name} cannot be compared with {bound:?}: it is {want}");
    };
    ensure!(
        relation != Relation::Below || value > 0.0,
        "{part:?} can never hold, because nothing is below 0: write `{name}<=0` to allow none"
    );
    Ok(Objective { text: part.to_owned(), measure, relation, bound: value })
}

fn measure(part: &str, name: &str) -> anyhow::Result<Measure> {
    match name {
        "mean" => Ok(Measure::Mean),
        "max" => Ok(Measure::Max),
        "errors" => Ok(Measure::Errors),
        "rate" => Ok(Measure::Rate),
        _ => {
            let unknown = || {
                format!(
                    "{part:?} measures something unknown, {name:?}: write p50, p99, p99.9 or another percentile, mean, \
                     max, errors or rate"
                )
            };
            let percent = name.strip_prefix('p').filter(|percent| positive(percent).is_some()).with_context(unknown)?;
            // Shifting the point in the text rounds once: 99.9 / 100 is not the number nearest to 0.999.
            let share: f64 = format!("{percent}e-2").parse().with_context(unknown)?;
            ensure!(
                share > 0.0 && share < 1.0,
                "{part:?} is not a percentile: it must be above 0 and below 100; for the longest time write `max`"
            );
            Ok(Measure::Quantile(share))
        }
    }
}

/// Parses a number of 0 or more in plain digits.
fn positive(text: &str) -> Option<f64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    plain.then(|| text.parse().ok()).flatten().filter(|value: &f64| value.is_finite())
}

fn time_us(text: &str) -> Option<f64> {
    // Units that end in s come before s itself.
    [("ns", 1e-3), ("us", 1.0), ("µs", 1.0), ("ms", 1e3), ("s", 1e6)]
        .into_iter()
        .find_map(|(unit, micros)| Some((text.strip_suffix(unit)?, micros)))
        .and_then(|(value, micros)| Some(positive(value.trim_end())? * micros))
}

fn share(text: &str) -> Option<f64> {
    let share = match text.strip_suffix('%') {
        Some(percent) => positive(percent.trim_end())? / 100.0,
        None => positive(text)?,
    };
    (share <= 1.0).then_some(share)
}

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

/// Value of a measure in the runs, with its interval unless it is exact.
type Seen = (f64, Option<Interval>);

fn judge_one(objective: &Objective, runs: &[Run], doubt: Option<&'static str>) -> Judged {
    let seen = seen(objective, runs);
    let (outcome, reason) = match (seen, doubt) {
        (_, Some(doubt)) => (Outcome::Inconclusive, Some(doubt)),
        (None, None) => (Outcome::Inconclusive, Some("no request was measured")),
        (Some(seen), None) => decide(objective, seen),
    };
    let (seen, interval) = seen.map_or((None, None), |(value, interval)| (Some(value), interval));
    Judged { objective: objective.clone(), seen, interval, outcome, reason }
}

fn decide(objective: &Objective, (value, interval): Seen) -> (Outcome, Option<&'static str>) {
    let holds = |value| objective.relation.holds(value, objective.bound);
    let interval = interval.unwrap_or(Interval::around(value, 0.0));
    match (holds(interval.low), holds(interval.high)) {
        (true, true) => (Outcome::Pass, None),
        (false, false) => (Outcome::Fail, None),
        _ if interval.high.is_infinite() => (Outcome::Inconclusive, Some("too few requests to tell")),
        _ => (Outcome::Inconclusive, Some("the interval crosses the bound")),
    }
}

fn seen(objective: &Objective, runs: &[Run]) -> Option<Seen> {
    let measured: Vec<&Run> = runs.iter().filter(|run| run.requests > 0).collect();
    let ranged = |interval: Interval| (interval.estimate, Some(interval));
    match objective.measure {
        Measure::Quantile(share) => {
            let within = interval::quantile_us(&merged(runs, |run| &run.response).histogram, share, CONFIDENCE)?;
            Some(ranged(over_runs(&measured, |run| run.response.quantile_us(share), within)))
        }
        Measure::Mean => {
            let within = mean_within(&merged(runs, |run| &run.response))?;
            Some(ranged(over_runs(&measured, |run| run.response.mean_us(), within)))
        }
        Measure::Max => {
            let longest = measured.iter().filter(|run| run.response.count() > 0).map(|run| run.response.max_us());
            longest.reduce(f64::max).map(|value| (value, None))
        }
        Measure::Errors => errors(&measured, objective.bound),
        Measure::Rate => rate(&measured).map(ranged),
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
    Some(Interval::around(times.mean_us(), student_t(CONFIDENCE, requests - 1.0) * error))
}

fn errors(runs: &[&Run], bound: f64) -> Option<Seen> {
    let (errors, requests) = runs.iter().fold((0, 0), |sum, run| (sum.0 + run.errors, sum.1 + run.requests));
    let within = interval::wilson(errors, requests, CONFIDENCE)?;
    // A bound of 0 is about the requests seen: no number of them proves that an error cannot happen.
    if bound == 0.0 {
        return Some((within.estimate, None));
    }
    let shares: Vec<f64> = runs.iter().filter_map(|run| Metric::Errors.of(run)).collect();
    let over = mean_interval(&shares, CONFIDENCE).map_or(within, |over| over.hull(within));
    let clamped = Interval { estimate: within.estimate, low: over.low.max(0.0), high: over.high.min(1.0) };
    Some((within.estimate, Some(clamped)))
}

fn rate(runs: &[&Run]) -> Option<Interval> {
    let [run] = runs else {
        let rates: Vec<f64> = runs.iter().map(|run| run.rate).collect();
        return geometric_mean_interval(&rates, CONFIDENCE).or_else(|| mean_interval(&rates, CONFIDENCE));
    };
    let batches = batch_rates(run);
    let half = if batches.len() < BATCHES_MIN {
        // As if requests were independent of each other: their count is then Poisson-distributed.
        interval::normal_z(CONFIDENCE) * run.rate / count(run.requests).sqrt()
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
mod parse_tests {
    use super::*;

    fn check(list: &str, expected: &[(Measure, Relation, f64)]) {
        let objectives = parse(list).unwrap_or_else(|error| panic!("{list}: {error}"));
        assert_eq!(objectives.len(), expected.len(), "{list}");
        for (objective, (measure, relation, bound)) in objectives.iter().zip(expected) {
            assert_eq!((objective.measure, objective.relation), (*measure, *relation), "{list}");
            assert!((objective.bound - bound).abs() <= 1e-12 * bound, "{list}: {}", objective.bound);
        }
    }

    fn check_error(list: &str, expected: &str) {
        let error = parse(list).expect_err(list).to_string();
        assert!(error.contains(expected), "{list}: {error}");
    }

    #[test]
    fn every_measure_relation_and_unit_is_read() {
        use Measure::{Errors, Max, Mean, Quantile, Rate};
        use Relation::{Above, AtLeast, AtMost, Below};
        check(
            "p99<5ms,errors<0.1%,rate>1000",
            &[(Quantile(0.99), Below, 5_000.0), (Errors, Below, 0.001), (Rate, Above, 1_000.0)],
        );
        check("p99.9<=250us", &[(Quantile(0.999), AtMost, 250.0)]);
        check("p50 < 1.5 s , mean<=900ns", &[(Quantile(0.5), Below, 1.5e6), (Mean, AtMost, 0.9)]);
        check("max<1s,max<30µs", &[(Max, Below, 1e6), (Max, Below, 30.0)]);
        check("errors<=0,errors<0.05", &[(Errors, AtMost, 0.0), (Errors, Below, 0.05)]);
        check("rate>=2500.5/s,p10>1ns", &[(Rate, AtLeast, 2_500.5), (Quantile(0.1), Above, 0.001)]);
    }

    #[test]
    fn an_error_names_the_part_and_what_would_be_right() {
        check_error("", "write a list, as p99<5ms");
        check_error("p99<5ms,,rate>1", "write a list, as p99<5ms");
        check_error("p99", "\"p99\" compares nothing: write one of < <= > >=");
        check_error("p99=5ms", "\"p99=5ms\" compares nothing");
        check_error("p99<<5ms", "compares nothing");
        check_error("p99=<5ms", "unknown, \"p99=\"");
        check_error("<5ms", "unknown, \"\"");
        check_error("p99<5ms,latency<5ms", "\"latency<5ms\" measures something unknown, \"latency\": write p50");
        check_error("p<5ms", "unknown, \"p\"");
        check_error("p-1<5ms", "unknown, \"p-1\"");
        check_error("p100<5ms", "below 100; for the longest time write `max`");
        check_error("p0<5ms", "above 0");
        check_error("p99<5", "p99 needs a unit: write `p99<5ms` or another");
        check_error("max<=0.5", "max needs a unit: write `max<=0.5ms`");
        check_error("p99<5m", "p99 cannot be compared with \"5m\": it is a time, as in 500us, 5ms");
        check_error("mean<-5ms", "mean cannot be compared with \"-5ms\"");
        check_error("mean<ms", "mean cannot be compared with \"ms\"");
        check_error("mean<1e3ms", "cannot be compared");
        check_error("max<", "max cannot be compared with \"\"");
        check_error("errors<101%", "it is a share from 0% to 100%");
        check_error("errors<5", "it is a share from 0% to 100%");
        check_error("errors<5ms", "it is a share");
        check_error("errors<0%", "\"errors<0%\" can never hold, because nothing is below 0: write `errors<=0`");
        check_error("rate>5ms", "it is a number of requests a second");
        check_error("rate>inf", "it is a number of requests a second");
        check_error(&["max<1s"; OBJECTIVES_MAX + 1].join(","), "more than 32 objectives");
        assert_eq!(parse(&["max<1s"; OBJECTIVES_MAX].join(",")).expect("as many as may be").len(), OBJECTIVES_MAX);
    }

    mod any {
        use proptest::prelude::*;

        proptest! {
            #[test]
            fn text_never_panics(list in "[pmaxernot0-9.<>=%µus, -]{0,40}") {
                if let Ok(objectives) = super::parse(&list) {
                    prop_assert!(objectives.iter().all(|objective| objective.bound >= 0.0));
                }
            }
        }
    }
}

#[cfg(test)]
mod judge_tests {
    use super::*;
    use crate::measurement::{self, Verdict};
    use crate::stats::slo::{outcome, parse};

    /// A run of ten seconds with response times spread evenly up to `longest_us`.
    fn run(requests: u64, longest_us: u64, errors: u64) -> Run {
        let mut response = Distribution::default();
        for request in 1..=requests {
            response.histogram.record(longest_us * 1_000 * request / requests).expect("within bounds");
        }
        let part = |at: u64| measurement::Interval {
            at_seconds: count(at),
            seconds: 1.0,
            requests: requests / 10 + at % 2,
            ..measurement::Interval::default()
        };
        Run {
            seconds: 10.0,
            requests,
            errors,
            rate: count(requests) / 10.0,
            response,
            series: (0..10).map(part).collect(),
            ..Run::default()
        }
    }

    fn check(list: &str, runs: &[Run], expected: Outcome) -> Vec<Judged> {
        let judged = judge(&parse(list).expect(list), runs);
        assert_eq!(outcome(&judged), expected, "{list}: {judged:?}");
        judged
    }

    #[test]
    fn one_run_passes_fails_or_leaves_open_by_the_interval_of_its_counts() {
        let one = [run(100_000, 5_000, 50)];
        check("p99<5.1ms", &one, Outcome::Pass);
        check("p99<4.9ms", &one, Outcome::Fail);
        check("p99<4.95ms", &one, Outcome::Inconclusive);
        check("p99>4.8ms,p50<=2.6ms", &one, Outcome::Pass);
        check("mean<2.6ms", &one, Outcome::Pass);
        check("mean<2.5ms", &one, Outcome::Inconclusive);
        check("max<=5.1ms", &one, Outcome::Pass);
        check("max<4.9ms", &one, Outcome::Fail);
        check("errors<0.1%", &one, Outcome::Pass);
        check("errors<0.05%", &one, Outcome::Inconclusive);
        check("errors<0.03%", &one, Outcome::Fail);
        check("rate>9999", &one, Outcome::Pass);
        check("rate>10000", &one, Outcome::Inconclusive);
        check("rate>10002", &one, Outcome::Fail);
    }

    #[test]
    fn too_few_requests_prove_no_high_percentile_and_no_small_share() {
        let judged = check("p99.9<1s", &[run(100, 5_000, 0)], Outcome::Inconclusive);
        assert_eq!(judged[0].reason, Some("too few requests to tell"));
        assert!(judged[0].interval.is_some_and(|interval| interval.high.is_infinite()), "{judged:?}");
        check("errors<0.1%", &[run(100, 5_000, 0)], Outcome::Inconclusive);
        check("errors<=0", &[run(100, 5_000, 0)], Outcome::Pass);
        check("errors<=0", &[run(100, 5_000, 1)], Outcome::Fail);
    }

    #[test]
    fn several_runs_are_judged_by_how_they_differ() {
        let runs = [4_000, 4_600, 5_300].map(|longest| run(100_000, longest, 0));
        // Each alone passes; together, the next run may exceed the bound.
        check("p99<5.3ms", &runs[..1], Outcome::Pass);
        check("p99<5.3ms", &runs, Outcome::Inconclusive);
        check("p99<15ms,mean<10ms", &runs, Outcome::Pass);
        check("max<5.2ms", &runs, Outcome::Fail);
        let steady = [run(100_000, 5_000, 10), run(100_100, 5_010, 12), run(99_900, 4_990, 11)];
        check("rate>9900,rate<10100,errors<0.1%", &steady, Outcome::Pass);
        check("rate>10100", &steady, Outcome::Fail);
    }

    #[test]
    fn one_objective_missed_decides_even_if_another_is_open() {
        check("p99<4.95ms,p50<1ms", &[run(100_000, 5_000, 0)], Outcome::Fail);
    }

    #[test]
    fn runs_that_cannot_be_believed_or_ended_early_decide_nothing() {
        let invalid = Run { verdict: Verdict::invalid("the client was busy"), ..run(1_000, 5_000, 0) };
        let judged = check("p99<1us", &[run(1_000, 5_000, 0), invalid], Outcome::Inconclusive);
        assert_eq!(judged[0].reason, Some("a run was INVALID"));
        let interrupted = Run { interrupted: true, ..run(1_000, 5_000, 0) };
        let judged = check("p99<1us", &[interrupted], Outcome::Inconclusive);
        assert_eq!(judged[0].reason, Some("a run was interrupted"));
        for list in ["p99<1us", "mean<1us", "max<1us", "errors<=0", "rate>1"] {
            check(list, &[Run::default()], Outcome::Inconclusive);
            check(list, &[], Outcome::Inconclusive);
        }
    }
}
