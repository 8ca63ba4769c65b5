use std::time::Duration;

use super::*;
use crate::plan::Arrivals;

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

fn check(plan: &Plan, change: impl FnOnce(&mut Seen<'_>), expected: &[&str]) {
    let mut seen = Seen {
        plan,
        rate: 1000.0,
        seconds: 10.0,
        busy_max: 0.5,
        stolen: 0.0,
        lag_by_time: vec![20.0; 40],
        requests: 10_000,
        errors: 0,
        rows_lost: 0,
    };
    change(&mut seen);
    let reasons = judge(&seen).reasons;
    assert_eq!(reasons.len(), expected.len(), "{reasons:?}");
    for (reason, expected) in reasons.iter().zip(expected) {
        assert!(reason.contains(expected), "{reason}");
    }
}

#[test]
fn a_quiet_run_is_believed() {
    check(&plan(None), |_| {}, &[]);
    check(&plan(Some("1000")), |_| {}, &[]);
}

#[test]
fn a_busy_client_is_not() {
    check(&plan(None), |seen| seen.busy_max = 0.97, &["the client was the bottleneck"]);
}

#[test]
fn a_rate_that_was_not_reached_is_not() {
    check(&plan(Some("1000")), |seen| seen.rate = 950.0, &["the rate was not reached: 950 a second of 1000"]);
    check(&plan(None), |seen| seen.rate = 1.0, &[]);
}

#[test]
fn a_lag_that_grew_is_not_and_one_that_came_and_went_is() {
    let growing = |seen: &mut Seen<'_>| seen.lag_by_time = (0..40).map(|step| f64::from(step) * 500.0).collect();
    check(&plan(Some("1000")), growing, &["the send lag grew"]);
    let passing = |seen: &mut Seen<'_>| seen.lag_by_time[20] = 1e6;
    check(&plan(Some("1000")), passing, &[]);
}

#[test]
fn stolen_time_and_failure_are_told() {
    check(&plan(None), |seen| seen.stolen = 0.05, &["5.0% of the machine's time was stolen"]);
    check(&plan(None), |seen| seen.rows_lost = 7, &["7 rows were lost"]);
    check(&plan(None), |seen| seen.errors = 10_000, &["every request failed"]);
    check(&plan(None), |seen| seen.requests = 0, &["no request was measured"]);
}
