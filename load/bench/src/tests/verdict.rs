use std::time::Duration;

use super::*;
use crate::schedule::Arrivals;

fn plan(rate: Option<&str>) -> Plan {
    let pace = match rate {
        None => Pace::Closed { ramp_up: Duration::ZERO },
        Some(rate) => Pace::Open { arrivals: Arrivals::Constant, profile: rate.parse().expect("a rate") },
    };
    Plan {
        pace,
        end: End::After(Duration::from_secs(10)),
        warm_up: Duration::ZERO,
        connections: 1,
        in_flight: 1,
        workers: 1,
        cores: None,
        timeout: Duration::from_secs(1),
        seed: 1,
    }
}

/// Ten seconds of 1,000 requests a second, answered in 2 ms.
fn quiet() -> Run {
    let mut run = Run {
        rate: 1000.0,
        seconds: 10.0,
        requests: 10_000,
        sent: 10_000,
        completed: 10_000,
        client_busy_max: 0.5,
        ..Run::default()
    };
    run.response.histogram.record_n(2_000_000, 10_000).expect("in range");
    run.service.histogram.record_n(1_990_000, 10_000).expect("in range");
    run.lag.histogram.record_n(10_000, 10_000).expect("in range");
    run
}

fn judged(plan: &Plan, change: impl FnOnce(&mut Run, &mut Seen<'_>)) -> Verdict {
    let mut run = quiet();
    let run_before = Run::default();
    let mut seen = Seen { plan, run: &run_before, stolen: 0.0, others: 0.0, lag_by_time: vec![20.0; 40], rows_lost: 0 };
    change(&mut run, &mut seen);
    judge(&Seen { run: &run, ..seen })
}

fn expect(said: &[String], expected: &[&str]) {
    assert_eq!(said.len(), expected.len(), "{said:?}");
    for (said, expected) in said.iter().zip(expected) {
        assert!(said.contains(expected), "{said}");
    }
}

fn check(plan: &Plan, change: impl FnOnce(&mut Run, &mut Seen<'_>), expected: &[&str]) {
    expect(&judged(plan, change).reasons, expected);
}

#[test]
fn a_quiet_run_is_believed() {
    for plan in [plan(None), plan(Some("1000"))] {
        assert_eq!(judged(&plan, |_, _| {}), Verdict::default());
    }
}

#[test]
fn a_busy_client_is_not() {
    check(&plan(None), |run, _| run.client_busy_max = 0.97, &["the client was the bottleneck"]);
}

#[test]
fn a_rate_that_was_not_reached_is_not() {
    check(&plan(Some("1000")), |run, _| run.rate = 950.0, &["the rate was not reached: 950 a second of 1000"]);
    check(&plan(None), |run, _| run.rate = 1.0, &[]);
}

#[test]
fn a_lag_that_grew_is_not_and_one_that_came_and_went_is() {
    let growing =
        |_: &mut Run, seen: &mut Seen<'_>| seen.lag_by_time = (0..40).map(|step| f64::from(step) * 500.0).collect();
    check(&plan(Some("1000")), growing, &["the send lag grew"]);
    let passing = |_: &mut Run, seen: &mut Seen<'_>| seen.lag_by_time[20] = 1e6;
    check(&plan(Some("1000")), passing, &[]);
}

#[test]
fn stolen_time_and_failure_are_told() {
    check(&plan(None), |_, seen| seen.stolen = 0.05, &["5.0% of the machine's time went to other virtual machines"]);
    check(&plan(None), |_, seen| seen.rows_lost = 7, &["7 rows were lost"]);
    check(&plan(None), |run, _| run.errors = 10_000, &["every request failed"]);
    check(&plan(None), |run, _| run.requests = 0, &["no request was measured"]);
}

#[test]
fn requests_that_were_never_sent_are_told() {
    let unsent = |run: &mut Run, _: &mut Seen<'_>| run.sent = 1_000;
    check(&plan(Some("1000")), unsent, &["requests were due and never sent: 9,000 of 10,000"]);
}

#[test]
fn response_times_far_above_service_times_are_doubted_with_the_percentile_where_they_are() {
    let doubts = |late: u64| {
        let change = |run: &mut Run, _: &mut Seen<'_>| {
            run.response.histogram.record_n(50_000_000, late).expect("in range");
        };
        judged(&plan(Some("1000")), change).doubts
    };
    expect(&doubts(20), &[]);
    expect(&doubts(500), &["p99 is 50.0 ms from when they were due and 1.99 ms from when they were sent"]);
    expect(&doubts(20_000), &["p50 is 50.0 ms from when they were due"]);
}

#[test]
fn other_processes_are_doubted_if_a_worker_waited_for_them() {
    let doubts = |others: f64, waiting: f64| {
        let change = |run: &mut Run, seen: &mut Seen<'_>| {
            run.client_waiting_max = waiting;
            seen.others = others;
        };
        judged(&plan(None), change).doubts
    };
    expect(&doubts(0.5, 0.0), &[]);
    expect(&doubts(0.05, 0.5), &[]);
    expect(&doubts(0.5, 0.1), &["they had 50% of the time (at most 10%), and a worker waited for a core for 10%"]);
}

#[test]
fn a_server_that_counted_far_less_than_the_client_saw_is_told() {
    let server = |latency: &[(f64, u64)]| ServerSide { latency: latency.to_vec(), ..ServerSide::default() };
    let said = |latency: &[(f64, u64)]| compare_with_server(&quiet(), &server(latency));
    assert_eq!(said(&[]), None);
    assert_eq!(said(&[(0.001, 60), (0.002, 40)]), None, "twice is no wonder");
    assert_eq!(said(&[(0.0001, 10), (f64::INFINITY, 90)]), None, "the median has no upper end");
    let far = said(&[(0.0001, 60), (0.002, 40)]).expect("twenty times");
    assert!(far.contains("its median is at most 100 µs, the client's is 1.99 ms"), "{far}");
}
