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
