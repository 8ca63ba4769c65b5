//! The program as users see it: exit codes, one-line errors, and an interrupted run.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;

use bench::report::json;
use rustix::process::{Pid, Signal, kill_process};

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quire-bench"));
    command.args(arguments).stdin(Stdio::null()).output().expect("the program runs")
}

/// Answers every line with a byte; signals on the channel after `after` of them.
fn line_server(after: usize) -> (SocketAddr, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (sender, answered) = mpsc::channel();
    std::thread::spawn(move || {
        // The program probes the server once before the load.
        for stream in listener.incoming().map_while(Result::ok) {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
                let mut stream = stream;
                for number in 1.. {
                    let Some(Ok(_)) = lines.next() else { return };
                    if stream.write_all(b"x").is_err() {
                        return;
                    }
                    if number == after {
                        let _ = sender.send(());
                    }
                }
            });
        }
    });
    (address, answered)
}

#[track_caller]
fn check_refused(arguments: &[&str], expected: &str) {
    let output = bench(arguments);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(said.contains(expected), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?}: nothing that could be taken for a report");
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn what_cannot_be_measured_is_one_clear_line() {
    let (address, _answered) = line_server(1);
    let address = address.to_string();
    let tcp = ["tcp", &address, "--line", "a", "--reply", "bytes:1"];
    let with = |more: &[&'static str]| [&tcp[..], more].concat();
    check_refused(&with(&["--rate", "0"]), "no request would be due");
    check_refused(&with(&["--clients", "0"]), "--clients must be from 1 to");
    check_refused(&with(&["--count", "0"]), "--count must be at least 1");
    check_refused(&with(&["--cores", "1000"]), "--cores 1000: write `none` or some of");
    check_refused(&with(&["--json", "/nowhere/at/all.json"]), "cannot write /nowhere/at/all.json");
    check_refused(&with(&["--slo", "p99<soon"]), "--slo");
    check_refused(&["http", "not a url"], "quire-bench: ");
    check_refused(&["http", "http://127.0.0.1:1/"], "127.0.0.1:1");
    check_refused(&["grpc", "127.0.0.1:1", "a.B/C"], "127.0.0.1:1");
}

#[test]
fn objectives_decide_the_exit_code() {
    let (address, _answered) = line_server(1);
    let address = address.to_string();
    let run = |slo: &str| {
        let tcp = ["tcp", &address, "--line", "a", "--reply", "bytes:1", "-n", "2000", "--slo", slo];
        bench(&tcp).status.code()
    };
    // A busy machine may leave the client without a core to spare, which is INVALID; any other outcome is wrong.
    assert!(matches!(run("p50<60s,errors<1%"), Some(0 | 3)));
    assert!(matches!(run("p50<1ns"), Some(1 | 3)));
}

#[test]
fn an_interrupted_run_reports_what_was_measured_and_says_so() {
    let (address, answered) = line_server(100);
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (address, saved, rows) = (address.to_string(), path("run.json"), path("rows.csv"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_quire-bench"));
    command.args(["tcp", &address, "--line", "a", "--reply", "bytes:1", "-d", "1h", "--warm-up", "0s"]);
    command.args(["--json", &saved, "--csv", &rows]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the program runs");
    answered.recv().expect("requests are made");
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, Signal::INT).expect("it is there");
    let output = child.wait_with_output().expect("it ends");
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    let shown = String::from_utf8(output.stdout).expect("text");
    assert!(shown.to_lowercase().contains("interrupted"), "{shown}");
    let report = json::read(Path::new(&saved)).expect("a whole report");
    assert!(report.runs[0].interrupted);
    assert!(report.runs[0].requests >= 99, "{} requests", report.runs[0].requests);
    assert!(!Path::new(&rows).exists(), "rows of an interrupted run are not under the name of a whole one");
    assert!(folder.path().join("rows.interrupted.csv").exists());
}

#[test]
fn a_row_is_written_for_every_request_in_the_order_of_its_times() {
    let (address, _answered) = line_server(1);
    let folder = tempfile::tempdir().expect("a folder");
    let rows = folder.path().join("rows.csv").display().to_string();
    let address = address.to_string();
    let output = bench(&[
        "tcp",
        &address,
        "--line",
        "a{{number}}",
        "--reply",
        "bytes:1",
        "-n",
        "5000",
        "-c",
        "3",
        "--csv",
        &rows,
    ]);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    let mut numbers = Vec::new();
    for row in csv::Reader::from_path(&rows).expect("the file").records() {
        let row = row.expect("a row");
        let time = |index: usize| row[index].parse::<u64>().expect("a time");
        assert!(time(2) <= time(3) && time(3) <= time(5), "{row:?}");
        assert_eq!(&row[6], "reply");
        numbers.push(row[0].parse::<u64>().expect("a number"));
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..5000).collect::<Vec<_>>());
}
