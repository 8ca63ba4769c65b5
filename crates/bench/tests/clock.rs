//! The scheduler, the clock and the recorder against services whose times are known by construction.

use std::time::{Duration, Instant};

use bench::plan::{Arrivals, End, Pace, Plan};
use bench::report::Run;
use bench::run::run;
use bench::workload::{Answer, Ending, Session, Traffic, Turn, Workload};

/// A service that answers at once, except that it stops for `stall` at every multiple of `every`.
#[derive(Clone)]
struct Stalling {
    since: Instant,
    every: Duration,
    stall: Duration,
}

const DONE: Ending = Ending { number: 0, is_error: false };

impl Workload for Stalling {
    type Session = Self;

    async fn open(&self, _: usize) -> anyhow::Result<Self> {
        Ok(self.clone())
    }

    fn label(&self, _: u16) -> String {
        "done".to_owned()
    }
}

impl Session for Stalling {
    async fn request(&self, _: Turn) -> Answer {
        let sent_at = Instant::now();
        let into = Duration::from_nanos(
            u64::try_from(sent_at.duration_since(self.since).as_nanos() % self.every.as_nanos())
                .expect("under an hour"),
        );
        if into < self.stall {
            tokio::time::sleep(self.stall.saturating_sub(into)).await;
        } else {
            tokio::task::yield_now().await;
        }
        Answer { sent_at, first_byte_at: None, done_at: Instant::now(), ending: DONE }
    }

    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
}

fn plan(pace: Pace, seconds: u64, in_flight: usize) -> Plan {
    Plan {
        pace,
        end: End::After(Duration::from_secs(seconds)),
        warm_up: Duration::ZERO,
        connections: 1,
        in_flight,
        workers: 1,
        cores: None,
        timeout: Duration::from_secs(10),
        seed: 1,
    }
}

fn open(rate: f64) -> Pace {
    Pace::Open { arrivals: Arrivals::Constant, profile: bench::schedule::Profile::constant(rate).expect("a rate") }
}

fn measure(plan: &Plan, workload: &Stalling) -> Run {
    run(plan, workload, &mut ()).expect("a run")
}

#[test]
fn an_open_loop_sees_the_stalls_that_a_closed_loop_hides() {
    let stalling = Stalling { since: Instant::now(), every: Duration::from_secs(1), stall: Duration::from_millis(800) };
    // Whoever is due in a stall waits for its end: a fifth waits for nothing, the rest evenly from 0 to 800 ms.
    let theory_ms = |share: f64| (share - 0.2) * 1000.0;
    let seen = measure(&plan(open(1000.0), 4, 4096), &stalling);
    for share in [0.5, 0.99, 0.999] {
        let (seen, theory) = (seen.response.quantile_us(share) / 1e3, theory_ms(share));
        assert!((seen / theory - 1.0).abs() < 0.01, "p{}: {seen} ms, by theory {theory}", share * 100.0);
    }
    assert_eq!(seen.requests, 4000);
    let hidden = measure(&plan(Pace::Closed { ramp_up: Duration::ZERO }, 4, 1), &stalling);
    let hidden_ms = hidden.response.quantile_us(0.99) / 1e3;
    assert!(hidden_ms < 3.0, "of a closed loop's requests 99% seem to take no more than {hidden_ms} ms");
}

#[test]
fn requests_leave_when_they_are_due() {
    let immediate = Stalling { since: Instant::now(), every: Duration::from_secs(1), stall: Duration::ZERO };
    let seen = measure(&plan(open(2000.0), 2, 64), &immediate);
    assert_eq!(seen.requests, 4000);
    // Far below the millisecond that the runtime's own timer counts in.
    let median_us = seen.lag.quantile_us(0.5);
    assert!(median_us < 500.0, "half of the requests left within {median_us} µs");
}

#[test]
fn a_count_of_requests_is_kept_to_the_request_by_any_number_of_workers() {
    let immediate = Stalling { since: Instant::now(), every: Duration::from_secs(1), stall: Duration::ZERO };
    let plan = Plan {
        end: End::Count(10_001),
        connections: 3,
        workers: 2,
        ..plan(Pace::Closed { ramp_up: Duration::ZERO }, 1, 7)
    };
    let seen = measure(&plan, &immediate);
    assert_eq!((seen.requests, seen.response.count()), (10_001, 10_001));
    assert_eq!(seen.endings["done"], 10_001);
}

#[test]
fn a_request_that_takes_too_long_ends_as_a_timeout() {
    let stuck = Stalling { since: Instant::now(), every: Duration::from_hours(1), stall: Duration::from_hours(1) };
    let plan = Plan {
        end: End::Count(3),
        timeout: Duration::from_millis(100),
        ..plan(Pace::Closed { ramp_up: Duration::ZERO }, 1, 1)
    };
    let seen = measure(&plan, &stuck);
    assert_eq!(seen.endings["timeout"], 3);
    assert_eq!(seen.verdict.reasons, ["every request failed"]);
}

#[test]
fn a_rate_that_the_service_cannot_bear_is_invalid() {
    let slow = Stalling { since: Instant::now(), every: Duration::from_millis(20), stall: Duration::from_millis(20) };
    let seen = measure(&plan(open(1000.0), 2, 4), &slow);
    let reasons = seen.verdict.reasons.join("; ");
    assert!(reasons.contains("the rate was not reached"), "{reasons}");
    assert!(reasons.contains("the send lag grew"), "{reasons}");
}
