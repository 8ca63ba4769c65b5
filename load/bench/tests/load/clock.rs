//! The scheduler and the recorder against services in this process: counts, endings and verdicts. The precision of the
//! clock is a benchmark, `benches/clock.rs`.

use std::time::{Duration, Instant};

use bench::measurement::Run;
use bench::plan::{End, Pace, Plan};
use bench::run::run;
use bench::schedule::Arrivals;
use bench::template::Turn;
use bench::workload::{Answer, Ending, Session, Traffic, Workload};

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
    Pace::Open { arrivals: Arrivals::Constant, profile: rate.to_string().parse().expect("a rate") }
}

fn measure(plan: &Plan, workload: &Stalling) -> Run {
    run(plan, workload, &mut ()).expect("a run")
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
