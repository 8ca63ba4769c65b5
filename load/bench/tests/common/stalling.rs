//! A service whose times are known by construction, for the tests and the benchmark of the clock.

use std::time::{Duration, Instant};

use bench::measurement::Run;
use bench::plan::{End, Pace, Plan};
use bench::run::run;
use bench::schedule::Arrivals;
use bench::template::Turn;
use bench::workload::{Answer, Ending, Session, Traffic, Workload};

/// A service that answers at once, except that it stops for `stall` at every multiple of `every`.
#[derive(Clone)]
pub(crate) struct Stalling {
    pub(crate) since: Instant,
    pub(crate) every: Duration,
    pub(crate) stall: Duration,
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

pub(crate) fn plan(pace: Pace, seconds: u64, in_flight: usize) -> Plan {
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

pub(crate) fn open(rate: f64) -> Pace {
    Pace::Open { arrivals: Arrivals::Constant, profile: rate.to_string().parse().expect("a rate") }
}

pub(crate) fn measure(plan: &Plan, workload: &Stalling) -> Run {
    run(plan, workload, &mut ()).expect("a run")
}
