//! More load than a service bears, over every protocol: the run ends in time, every due request is accounted for, and
//! rate, bytes and CPU are of the same window.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bench::null::{Null, NullServer};
use clap::Parser;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A contract of this tree, by its file.
const HEALTH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../engine/rpc/proto/health.proto");

/// Bytes of an answer, without framing.
const ANSWER_BYTES: usize = 1000;
/// Maximum framing bytes of an answer.
const FRAMING_BYTES_MAX: u64 = 300;

/// Rate and duration of every load: so many requests are due.
const DUE: u64 = 2000;
const SECONDS: f64 = 1.0;
/// Far more than duration and timeout, and far less than it takes to send everything that is due.
const RUN_TIME_MAX: Duration = Duration::from_secs(15);

#[derive(Parser)]
struct Flags {
    #[command(subcommand)]
    server: NullServer,
}

fn loads() -> [(&'static str, &'static [&'static str]); 3] {
    let grpc = &["grpc", "ADDRESS", "grpc.health.v1.Health/Check", "--proto", HEALTH, "--data", "{}", "-m", "1"];
    [
        ("grpc", grpc),
        ("http", &["http", "http://ADDRESS/"]),
        ("tcp", &["tcp", "ADDRESS", "--line", "x", "--reply", "bytes:1000", "-m", "1"]),
    ]
}

/// Tries all loads at once: they mostly wait.
fn each_load(check: impl Fn(&str, &[&str]) + Sync) {
    thread::scope(|scope| {
        for (speaks, load) in loads() {
            let check = &check;
            scope.spawn(move || check(speaks, load));
        }
    });
}

/// One run over two connections against a server with this delay: its report, rows and exit code.
fn overloaded(protocol: &str, load: &[&str], delay: Duration, timeout: &str) -> (Value, String, Option<i32>) {
    let (bytes, delay) = (ANSWER_BYTES.to_string(), humantime::format_duration(delay).to_string());
    let flags = Flags::parse_from(["null", protocol, "--answer-bytes", &bytes, "--delay", &delay]);
    let null = Null::start(flags.server).expect("a server");
    let folder = tempfile::tempdir().expect("a folder");
    let [json, csv] = ["run.json", "rows.csv"].map(|name| folder.path().join(name));
    let plan = "-c 2 -r 2000 --arrivals constant -d 1s --warm-up 200ms -q";
    let began = Instant::now();
    let said = Command::new(env!("CARGO_BIN_EXE_quire-bench"))
        .args(load.iter().map(|word| word.replace("ADDRESS", &null.address.to_string())))
        .args(plan.split(' ').chain(["--timeout", timeout]))
        .args(["--json".as_ref(), json.as_os_str(), "--csv".as_ref(), csv.as_os_str()])
        .output()
        .expect("the program");
    let took = began.elapsed();
    assert!(took < RUN_TIME_MAX, "{load:?} took {took:?}");
    let report = std::fs::read(&json).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&said.stderr)));
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    (report["runs"][0].clone(), std::fs::read_to_string(csv).expect("rows"), said.status.code())
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn figure(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// Every due request has one ending and one response time; those sent have a service time.
fn adds_up(run: &Value) {
    let endings: u64 = run["endings"].as_object().expect("endings").values().map(count).sum();
    let (sent, not_sent) = (count(&run["sent"]), count(&run["endings"]["not sent"]));
    assert_eq!((count(&run["requests"]), endings, sent + not_sent), (DUE, DUE, DUE), "{run}");
    assert_eq!((count(&run["response"]["count"]), count(&run["service"]["count"])), (DUE, sent));
    let failed = not_sent + count(&run["endings"]["timeout"]) + count(&run["endings"]["closed"]);
    assert_eq!(count(&run["errors"]), failed);
    let busy = figure(&run["client_cpu_seconds"]);
    // There are two connections, so at most two workers.
    assert!(busy > 0.0 && busy <= 2.0 * SECONDS, "{busy} s of CPU in {SECONDS} s");
}

fn reasons(run: &Value) -> String {
    run["verdict"]["reasons"].to_string()
}

#[test]
fn a_slow_server_is_asked_for_no_longer_than_the_run_and_the_timeout() {
    each_load(asks_a_slow_server);
}

fn asks_a_slow_server(speaks: &str, load: &[&str]) {
    let (run, rows, code) = overloaded(speaks, load, Duration::from_millis(20), "500ms");
    adds_up(&run);
    assert_eq!(code, Some(3));
    for reason in ["requests were due and never sent", "the rate was not reached"] {
        assert!(reasons(&run).contains(reason), "{run}");
    }
    // Two connections for a second, an answer each in 20 ms or more.
    let completed = count(&run["completed"]);
    assert!((1..=2 * (50 + 1)).contains(&completed), "{completed} answers");
    assert!((figure(&run["rate"]) * SECONDS - figure(&run["completed"])).abs() < 1e-6);
    // One answer on each connection may lie on either end of the window.
    let bytes = count(&run["received_bytes"]);
    let (least, most) = (completed.saturating_sub(2) * 1000, (completed + 2) * (1000 + FRAMING_BYTES_MAX));
    assert!((least..=most).contains(&bytes), "{bytes} bytes of {completed} answers");
    shows_it_over_time(&run);
    assert!(rows.starts_with("number,connection,scheduled_ns,sent_ns,"), "arrivals have no client");
    assert_eq!(rows.lines().count() as u64, DUE + 1);
    let unsent = rows.lines().filter(|row| row.ends_with(",not sent"));
    assert_eq!(unsent.clone().count() as u64, count(&run["endings"]["not sent"]));
    assert!(unsent.clone().all(|row| row.split(',').nth(3) == Some("")), "it has no time of sending");
}

#[test]
fn a_rate_that_was_not_reached_ends_the_run_before_the_timeout() {
    let (speaks, load) = loads()[2];
    let (run, _, code) = overloaded(speaks, load, Duration::from_millis(20), "1h");
    adds_up(&run);
    assert_eq!((code, &run["interrupted"]), (Some(3), &false.into()), "{run}");
    assert!(reasons(&run).contains("the rate was not reached"), "{run}");
}

/// Percentiles wherever there were answers, and the requested rate beside the achieved one.
fn shows_it_over_time(run: &Value) {
    let series = run["series"].as_array().expect("intervals");
    let answered = series.iter().filter(|part| count(&part["requests"]) > 0);
    assert!(answered.clone().count() > 0);
    assert!(answered.clone().all(|part| part["p50_us"].as_f64() > Some(0.0)), "{series:?}");
    let due: f64 = series.iter().filter_map(|part| part["due"].as_f64()).sum();
    assert!((due - figure(&run["requests"])).abs() < 1.0, "{due} due over time");
}

#[test]
fn a_server_that_never_answers_leaves_no_request_unaccounted_for() {
    each_load(|speaks, load| {
        let (run, _, code) = overloaded(speaks, load, Duration::from_hours(1), "500ms");
        adds_up(&run);
        assert_eq!((code, count(&run["completed"])), (Some(3), 0));
        assert!(reasons(&run).contains("every request failed"), "{run}");
        assert!(count(&run["endings"]["timeout"]) > 0, "{run}");
    });
}

#[test]
fn an_interrupted_run_gives_up_what_is_under_way_and_counts_it() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("run.json");
    let mut load = Command::new(env!("CARGO_BIN_EXE_quire-bench"))
        .args([
            "tcp",
            &address,
            "--line",
            "x",
            "--reply",
            "line",
            "-r",
            "100",
            "-m",
            "3",
            "-d",
            "1h",
            "--timeout",
            "1h",
        ])
        .args(["--warm-up", "0s", "-q", "--json", json.to_str().expect("a path")])
        .stdout(Stdio::null())
        .spawn()
        .expect("the program");
    // The first connection is the probe before the load, which sends nothing.
    let looked = listener.accept().expect("a look");
    let (stream, _) = listener.accept().expect("a connection");
    let mut lines = BufReader::new(&stream).lines();
    (0..3).for_each(|_| drop(lines.next().expect("a request").expect("readable")));
    let began = Instant::now();
    let pid = Pid::from_raw(i32::try_from(load.id()).expect("a process")).expect("a process");
    kill_process(pid, Signal::INT).expect("it runs");
    load.wait().expect("it ends");
    assert!(began.elapsed() < Duration::from_secs(30), "it waited for answers");
    let report: Value = serde_json::from_slice(&std::fs::read(json).expect("a report")).expect("JSON");
    let run = &report["runs"][0];
    let [interrupted, not_sent] = ["interrupted", "not sent"].map(|ending| count(&run["endings"][ending]));
    assert_eq!((interrupted, count(&run["requests"])), (3, 3 + not_sent), "{run}");
    drop((looked, lines));
}
