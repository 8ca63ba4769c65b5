//! The scheduler, the clock and the recorder against services whose times are known by construction.

use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bench::measurement::Run;
use bench::null::{Null, NullServer};
use bench::plan::{End, Pace, Plan};
use bench::run::run;
use bench::schedule::Arrivals;
use bench::template::Turn;
use bench::workload::{Answer, Ending, Session, Traffic, Workload};
use clap::Parser;

/// A service that our own tree describes, by its file.
const HEALTH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rpc/proto/health.proto");

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

/// The largest share of a try in which one of its threads may have waited for a core: 2 ms of four seconds. A wait that
/// is as long as the 3 ms by which a quantile may be off, at the end of a stall, moves every request of that stall.
const WAITING_MAX: f64 = 0.0005;

/// What a try saw, and the share of it in which its threads waited for a core.
struct Try {
    waiting: f64,
    result: Result<(), String>,
}

/// Tries again only if other programs disturbed the try, as the kernel tells: in an undisturbed one the clock is right
/// or the test fails. The tests take turns so as not to disturb each other.
fn check_undisturbed(check: impl Fn() -> Try) {
    const TRIES: usize = 12;
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..TRIES {
        let Try { waiting, result } = check();
        match result {
            Ok(()) => return,
            Err(failure) => assert!(waiting > WAITING_MAX, "undisturbed (waited {waiting}), and yet: {failure}"),
        }
    }
    panic!("other programs disturbed all of {TRIES} tries: nothing can be said of the clock");
}

/// What a quantile should be, within a share of it.
fn near(name: &str, seen_ms: f64, theory_ms: f64, share: f64) -> Result<(), String> {
    let is_near = (seen_ms / theory_ms - 1.0).abs() < share;
    is_near.then_some(()).ok_or_else(|| format!("{name} is {seen_ms} ms, by theory {theory_ms}"))
}

fn below(name: &str, seen: f64, bound: f64) -> Result<(), String> {
    (seen < bound).then_some(()).ok_or_else(|| format!("{seen} {name}, should be below {bound}"))
}

fn measure(plan: &Plan, workload: &Stalling) -> Run {
    run(plan, workload, &mut ()).expect("a run")
}

#[test]
fn an_open_loop_sees_the_stalls_that_a_closed_loop_hides() {
    let stalling = Stalling { since: Instant::now(), every: Duration::from_secs(1), stall: Duration::from_millis(800) };
    check_undisturbed(|| {
        let seen = measure(&plan(open(1000.0), 4, 4096), &stalling);
        assert_eq!(seen.requests, 4000);
        // A request that is due in a stall waits for its end: a fifth waits for nothing, the rest evenly up to 800 ms.
        let stalls = [0.5, 0.99, 0.999].into_iter().try_for_each(|share| {
            let seen_ms = seen.response.quantile_us(share) / 1e3;
            near(&format!("p{}", share * 100.0), seen_ms, (share - 0.2) * 1000.0, 0.01)
        });
        let closed = measure(&plan(Pace::Closed { ramp_up: Duration::ZERO }, 4, 1), &stalling);
        let hidden_ms = closed.response.quantile_us(0.99) / 1e3;
        let hidden = below("ms that 1% of a closed loop's requests took at least", hidden_ms, 3.0);
        Try { waiting: seen.client_waiting_max.max(closed.client_waiting_max), result: stalls.and(hidden) }
    });
}

#[test]
fn requests_leave_when_they_are_due() {
    let immediate = Stalling { since: Instant::now(), every: Duration::from_secs(1), stall: Duration::ZERO };
    check_undisturbed(|| {
        let seen = measure(&plan(open(2000.0), 2, 64), &immediate);
        assert_eq!(seen.requests, 4000);
        // Far below the millisecond that the runtime's own timer counts in.
        let result = below("µs of send lag in the middle", seen.lag.quantile_us(0.5), 500.0);
        Try { waiting: seen.client_waiting_max, result }
    });
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
    // Other machines on the same processor may add a reason of their own.
    let reasons = seen.verdict.reasons.join("; ");
    assert!(reasons.contains("every request failed"), "{reasons}");
}

#[test]
fn a_rate_that_the_service_cannot_bear_is_invalid() {
    let slow = Stalling { since: Instant::now(), every: Duration::from_millis(20), stall: Duration::from_millis(20) };
    let seen = measure(&plan(open(1000.0), 2, 4), &slow);
    let reasons = seen.verdict.reasons.join("; ");
    assert!(reasons.contains("the rate was not reached"), "{reasons}");
    assert!(reasons.contains("the send lag grew"), "{reasons}");
}

/// The program itself, over sockets, against null servers whose threads stop for 3.2 of every 4 seconds. Within 5%, for
/// an unoptimised build takes its time to answer all requests that waited; `peers/bench_tools.py` judges the optimised one.
#[test]
fn every_protocol_sees_the_stalls_of_a_server_behind_a_socket() {
    let loads = [
        ("grpc", &["grpc", "ADDRESS", "grpc.health.v1.Health/Check", "--proto", HEALTH, "--data", "{}"][..]),
        ("http", &["http", "http://ADDRESS/", "--http2"][..]),
        ("tcp", &["tcp", "ADDRESS", "--line", "x", "--reply", "bytes:1"][..]),
    ];
    check_undisturbed(|| {
        std::thread::scope(|scope| {
            let loads = loads.map(|(protocol, load)| scope.spawn(move || sees_its_stalls(protocol, load)));
            let seen = loads.map(|load| load.join().expect("no panic"));
            let waiting = seen.iter().map(|seen| seen.waiting).fold(0.0, f64::max);
            Try { waiting, result: seen.into_iter().try_for_each(|seen| seen.result) }
        })
    });
}

#[derive(Parser)]
struct Flags {
    #[command(subcommand)]
    server: NullServer,
}

fn sees_its_stalls(protocol: &str, load: &[&str]) -> Try {
    // Time to begin the load in, so that both of its periods have their stall.
    let first = SystemTime::now() + Duration::from_millis(500);
    let unix_ms = first.duration_since(UNIX_EPOCH).expect("after 1970").as_millis().to_string();
    let stalls = ["--stall", "3200ms", "--every", "4s", "--stall-from", &unix_ms];
    let flags = Flags::parse_from(["null", protocol].into_iter().chain(stalls));
    let null = Null::start(flags.server).expect("a server");
    let out = tempfile::NamedTempFile::new().expect("a file");
    // Two periods, met at different places, for the rate is no whole number a period.
    let plan = ["-c", "1", "-r", "125.125", "--arrivals", "constant", "-d", "8s", "--warm-up", "0s", "-q", "--json"];
    let said = Command::new(env!("CARGO_BIN_EXE_quire-bench"))
        .args(load.iter().map(|word| word.replace("ADDRESS", &null.address().to_string())))
        .args(plan)
        .arg(out.path())
        .output()
        .expect("the program");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(out.path()).expect("a report"))
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&said.stderr)));
    let run = &report["runs"][0];
    let result =
        [("p50_us", 1200.0), ("p99_us", 3160.0), ("p999_us", 3196.0)].into_iter().try_for_each(|(name, theory_ms)| {
            let seen_us = run["response"][name].as_f64().unwrap_or_else(|| panic!("{name} in {run}"));
            near(&format!("{} {name}", load[0]), seen_us / 1e3, theory_ms, 0.05)
        });
    let client = run["client_waiting_max"].as_f64().expect("a share");
    Try { waiting: client.max(servers_waiting(Duration::from_secs(8))), result }
}

/// The largest share of `of` that a thread of a null server in this process has waited for a core.
fn servers_waiting(of: Duration) -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux tells of threads").flatten();
    let read =
        |task: &std::fs::DirEntry, file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
    let waited = tasks.filter(|task| read(task, "comm").starts_with("null-")).map(|task| {
        // Time on a core, time in wait for one, turns; in nanoseconds.
        let waited = read(&task, "schedstat").split(' ').nth(1).and_then(|waited| waited.parse().ok());
        Duration::from_nanos(waited.unwrap_or(0)).as_secs_f64()
    });
    waited.fold(0.0, f64::max) / of.as_secs_f64()
}
