//! The clock of the load generator against services whose times are known by construction: `cargo bench -p bench`. Needs a
//! quiet machine: the tightest bound is 3 ms.

use std::{
    env::args,
    process::{Command, ExitCode},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bench::{
    null::{Null, NullServer},
    plan::Pace,
};
use clap::Parser;

#[path = "../tests/common/stalling.rs"]
mod stalling;

use stalling::{Stalling, measure, open, plan};

/// A contract of this tree, by its file.
const HEALTH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../engine/rpc/proto/health.proto");

/// Checks a quantile against theory, within a relative tolerance.
fn near(name: &str, seen_ms: f64, theory_ms: f64, share: f64) -> bool {
    let is_near = (seen_ms / theory_ms - 1.0).abs() < share;
    report(name, &format!("{seen_ms:.3} ms, by theory {theory_ms} ms within {}%", share * 100.0), is_near)
}

fn below(name: &str, seen: f64, bound: f64) -> bool {
    report(name, &format!("{seen:.1}, should be below {bound}"), seen < bound)
}

#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
fn report(name: &str, figures: &str, holds: bool) -> bool {
    println!("{} {name}: {figures}", if holds { "ok  " } else { "MISS" });
    holds
}

/// An open loop sees the stalls that a closed loop hides.
fn stalls() -> bool {
    let stalling = Stalling { since: Instant::now(), every: Duration::from_secs(1), stall: Duration::from_millis(800) };
    let seen = measure(&plan(open(1000.0), 4, 4096), &stalling);
    // A request due in a stall waits for its end: a fifth does not wait, the rest evenly up to 800 ms.
    let open_loop = [0.5, 0.99, 0.999].map(|share| {
        let seen_ms = seen.response.quantile_us(share) / 1e3;
        near(&format!("open loop, p{}", share * 100.0), seen_ms, (share - 0.2) * 1000.0, 0.01)
    });
    let closed = measure(&plan(Pace::Closed, 4, 1), &stalling);
    let hidden_ms = closed.response.quantile_us(0.99) / 1e3;
    open_loop.into_iter().all(|holds| holds) & below("closed loop, p99 in ms", hidden_ms, 3.0)
}

/// Requests leave when they are due, far more precisely than the milliseconds of the runtime's own timer.
fn send_lag() -> bool {
    let immediate = Stalling { since: Instant::now(), every: Duration::from_secs(1), stall: Duration::ZERO };
    let seen = measure(&plan(open(2000.0), 2, 64), &immediate);
    below("send lag, p50 in µs", seen.lag.quantile_us(0.5), 500.0)
}

/// The program itself, over sockets, against null servers whose threads stop for 3.2 of every 4 seconds.
fn sockets() -> bool {
    let loads = [
        ("grpc", &["grpc", "ADDRESS", "grpc.health.v1.Health/Check", "--proto", HEALTH, "--data", "{}"][..]),
        ("http", &["http", "http://ADDRESS/", "--http2"][..]),
        ("tcp", &["tcp", "ADDRESS", "--line", "x", "--reply", "bytes:1"][..]),
    ];
    loads.map(|(protocol, load)| sees_its_stalls(protocol, load)).into_iter().all(|holds| holds)
}

#[derive(Parser)]
struct Flags {
    #[command(subcommand)]
    server: NullServer,
}

fn sees_its_stalls(protocol: &str, load: &[&str]) -> bool {
    // Time to begin the load, so that both of its periods have their stall.
    let first = SystemTime::now() + Duration::from_millis(500);
    let unix_ms = first.duration_since(UNIX_EPOCH).expect("after 1970").as_millis().to_string();
    let stalls = ["--stall", "3200ms", "--every", "4s", "--stall-from", &unix_ms];
    let flags = Flags::parse_from(["null", protocol].into_iter().chain(stalls));
    let null = Null::start(flags.server).expect("a server");
    let out = tempfile::NamedTempFile::new().expect("a file");
    // 500.5 requests a period, so that the two periods are sampled at different offsets.
    let plan = ["-c", "1", "-r", "125.125", "--arrivals", "constant", "-d", "8s", "--warm-up", "0s", "-q", "--json"];
    let said = Command::new(env!("CARGO_BIN_EXE_quire-bench"))
        .args(load.iter().map(|word| word.replace("ADDRESS", &null.address.to_string())))
        .args(plan)
        .arg(out.path())
        .output()
        .expect("the program");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(out.path()).expect("a report"))
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&said.stderr)));
    let run = &report["runs"][0];
    let quantiles = [("p50_us", 1200.0), ("p99_us", 3160.0), ("p999_us", 3196.0)].map(|(name, theory_ms)| {
        let seen_us = run["response"][name].as_f64().unwrap_or_else(|| panic!("{name} in {run}"));
        near(&format!("{protocol}, {name}"), seen_us / 1e3, theory_ms, 0.01)
    });
    quantiles.into_iter().all(|holds| holds)
}

fn main() -> ExitCode {
    if !args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    let holds = [stalls(), send_lag(), sockets()];
    if holds.into_iter().all(|holds| holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
