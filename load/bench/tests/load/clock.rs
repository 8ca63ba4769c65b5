//! The scheduler and the recorder against services in this process: counts, endings and verdicts. The precision of the
//! clock is a benchmark, `benches/clock.rs`.

use std::time::{Duration, Instant};

use bench::plan::{End, Pace, Plan};

use crate::stalling::{Stalling, measure, open, plan};

#[test]
fn a_count_of_requests_is_kept_to_the_request_by_any_number_of_workers() {
    let immediate = Stalling { since: Instant::now(), every: Duration::from_secs(1), stall: Duration::ZERO };
    let plan = Plan { end: End::Count(10_001), connections: 3, workers: 2, ..plan(Pace::Closed, 1, 7) };
    let seen = measure(&plan, &immediate);
    assert_eq!((seen.requests, seen.response.count()), (10_001, 10_001));
    assert_eq!(seen.endings["done"], 10_001);
}

#[test]
fn a_request_that_takes_too_long_ends_as_a_timeout() {
    let stuck = Stalling { since: Instant::now(), every: Duration::from_hours(1), stall: Duration::from_hours(1) };
    let plan = Plan { end: End::Count(3), timeout: Duration::from_millis(100), ..plan(Pace::Closed, 1, 1) };
    let seen = measure(&plan, &stuck);
    assert_eq!(seen.endings["timeout"], 3);
    // Other load on the same processor may add a reason of its own.
    let reasons = seen.verdict.reasons.join("; ");
    assert!(reasons.contains("every request failed"), "{reasons}");
}

#[test]
fn a_rate_that_the_service_cannot_bear_is_invalid() {
    let slow = Stalling { since: Instant::now(), every: Duration::from_millis(20), stall: Duration::from_millis(20) };
    let plan = Plan { timeout: Duration::from_secs(2), ..plan(open(1000.0), 2, 4) };
    let seen = measure(&plan, &slow);
    let reasons = seen.verdict.reasons.join("; ");
    assert!(reasons.contains("the rate was not reached"), "{reasons}");
}
