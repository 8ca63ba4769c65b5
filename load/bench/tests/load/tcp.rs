//! The load of lines against scripts of bytes: boundaries of replies, their order, and broken connections.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use bench::cli::tcp::{TcpArgs, prepare};
use bench::template::Turn;
use bench::workload::tcp::{ABANDONED_MAX, LINE_BYTES_MAX, OUTCOMES_MAX, TcpSession, TcpWorkload};
use bench::workload::{Answer, Session as _, Workload as _};
use clap::Parser;
use tokio::task::LocalSet;

const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    tcp: TcpArgs,
}

fn flags(arguments: &[&str]) -> TcpArgs {
    Flags::parse_from(std::iter::once(&"tcp").chain(arguments)).tcp
}

type Step = Box<dyn FnOnce(&mut BufReader<TcpStream>) + Send>;

/// A server with a step per connection, except the first, which only probes.
fn script(steps: Vec<Step>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        drop(listener.accept().expect("a look"));
        let (mut listener, last) = (Some(listener), steps.len() - 1);
        for (number, step) in steps.into_iter().enumerate() {
            let (stream, _) = listener.as_ref().expect("a listener").accept().expect("a connection");
            stream.set_nodelay(true).expect("an option");
            // A client with the last answer finds no one listening.
            listener.take_if(|_| number == last);
            step(&mut BufReader::new(stream));
        }
    });
    address
}

fn step(step: impl FnOnce(&mut BufReader<TcpStream>) + Send + 'static) -> Step {
    Box::new(step)
}

/// Answers `count` lines with what `answer` makes of each, in writes of `chunk` bytes.
fn answers(count: usize, chunk: usize, answer: impl Fn(&str) -> String + Send + 'static) -> Step {
    step(move |stream| {
        for _ in 0..count {
            let mut line = String::new();
            stream.read_line(&mut line).expect("a line");
            for part in answer(line.trim_end_matches('\n')).as_bytes().chunks(chunk) {
                stream.get_mut().write_all(part).expect("a write");
            }
        }
        // Until the client closes.
        let _ = stream.read(&mut [0]);
    })
}

struct Client {
    runtime: tokio::runtime::Runtime,
    workload: TcpWorkload,
    session: Rc<TcpSession>,
}

impl Client {
    fn new(address: SocketAddr, arguments: &[&str]) -> Self {
        let (workload, _) = prepare(&flags(&[&[&*address.to_string()], arguments].concat())).expect("a load");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let session = Rc::new(runtime.block_on(workload.open(0)).expect("a connection"));
        Self { runtime, workload, session }
    }

    /// Makes requests in one go; returns their answers, in the order they were made.
    fn at_once(&self, count: u64) -> Vec<Answer> {
        let local = LocalSet::new();
        self.runtime.block_on(local.run_until(async {
            let tasks: Vec<_> = (0..count)
                .map(|number| {
                    let session = Rc::clone(&self.session);
                    tokio::task::spawn_local(async move { session.request(turn(number)).await })
                })
                .collect();
            let mut answers = Vec::new();
            for task in tasks {
                let answer = tokio::time::timeout(PATIENCE, task).await.expect("no answer in time").expect("no panic");
                assert!(answer.sent_at <= answer.done_at);
                assert!(answer.first_byte_at.is_none_or(|at| at <= answer.done_at));
                answers.push(answer);
            }
            answers
        }))
    }

    fn labels(&self, count: u64) -> Vec<String> {
        self.at_once(count).iter().map(|answer| self.workload.label(answer.ending.number)).collect()
    }

    fn give_up(&self, number: u64) {
        self.runtime.block_on(async {
            let given_up = tokio::time::timeout(Duration::from_millis(1), self.session.request(turn(number)));
            assert!(given_up.await.is_err());
        });
    }
}

fn turn(number: u64) -> Turn {
    Turn { number, client: 1, worker: 2 }
}

#[test]
fn replies_belong_to_requests_in_their_order_however_they_are_cut() {
    for chunk in [1, 2, 3, 7, 1000] {
        let address = script(vec![answers(200, chunk, |line| format!("you said {line}\r\n"))]);
        let client = Client::new(address, &["--line", "n{{number}}", "--reply", "line", "--outcome"]);
        let wanted: Vec<String> = (0..200).map(|number| format!("reply you said n{number}")).collect();
        assert_eq!(client.labels(200), wanted);
    }
}

#[test]
fn replies_of_fixed_length_may_hold_newlines() {
    let address = script(vec![answers(3, 1, |line| format!("\n{line}\n"))]);
    let client = Client::new(address, &["--line", "{{number}}", "--reply", "bytes:3", "--outcome"]);
    assert_eq!(client.labels(3), ["reply \\n0\\n", "reply \\n1\\n", "reply \\n2\\n"]);
}

#[test]
fn without_outcomes_every_reply_is_a_reply_and_bytes_are_counted() {
    let address = script(vec![answers(5, 1000, |_| "x".repeat(1000))]);
    let client = Client::new(address, &["--line", "{{client}}:{{worker}}", "--reply", "bytes:1000"]);
    assert_eq!(client.labels(5), ["reply"; 5]);
    let traffic = client.session.traffic();
    assert_eq!((traffic.sent_bytes, traffic.received_bytes), (5 * 4, 5 * 1000));
}

#[test]
fn lines_made_in_one_go_leave_in_one_write() {
    /// Fewer than the tasks that a `LocalSet` polls in a row.
    const IN_ONE_GO: usize = 50;
    let (read, was_read) = mpsc::channel();
    let address = script(vec![step(move |stream| {
        // The first read has everything: nothing was written before all were queued.
        let count = stream.fill_buf().expect("lines").len() / b"x\n".len();
        read.send(count).expect("a listener");
        stream.get_mut().write_all(&[b'.'; IN_ONE_GO]).expect("a write");
        let _ = stream.get_mut().read_to_end(&mut Vec::new());
    })]);
    let client = Client::new(address, &["--line", "x", "--reply", "bytes:1"]);
    assert_eq!(client.labels(IN_ONE_GO as u64), ["reply"; IN_ONE_GO]);
    assert_eq!(was_read.recv_timeout(PATIENCE), Ok(IN_ONE_GO));
}

#[test]
fn lines_may_end_as_others_want_them() {
    let address = script(vec![answers(1, 9, |line| format!("{}\n", line.ends_with('\r')))]);
    let client = Client::new(address, &["--line", "PING", "--reply", "line", "--outcome", "--crlf"]);
    assert_eq!(client.labels(1), ["reply true"]);
}

#[test]
fn replies_that_are_not_good_are_errors() {
    let address = script(vec![answers(3, 9, |line| format!("{}\n", ["OK", "FINE", "NO"][line.len()]))]);
    let rows = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(rows.path(), "word\n\"\"\na\nbb\n").expect("a file");
    let rows = rows.path().to_str().expect("a path");
    let arguments = ["--line", "{{row.word}}", "--reply", "line", "--rows", rows, "--ok", "OK", "--ok", "FINE"];
    let client = Client::new(address, &arguments);
    let errors: Vec<bool> = client.at_once(3).iter().map(|answer| answer.ending.is_error).collect();
    assert_eq!(errors, [false, false, true]);
}

#[test]
fn beyond_the_limit_of_kinds_replies_are_other() {
    let count = u64::from(OUTCOMES_MAX) + 10;
    let address = script(vec![answers(usize::try_from(count).expect("small"), 99, |line| format!("{line}\n"))]);
    let client = Client::new(address, &["--line", "{{number}}", "--reply", "line", "--outcome"]);
    let labels = client.labels(count);
    assert_eq!(labels.iter().filter(|label| *label == "other").count(), 10);
    assert!(labels[usize::from(OUTCOMES_MAX)..].iter().all(|label| label == "other"));
}

#[test]
fn a_closed_connection_fails_what_was_in_flight_and_the_next_request_opens_another() {
    let address = script(vec![
        step(|stream| {
            for _ in 0..2 {
                stream.read_line(&mut String::new()).expect("a line");
            }
            stream.get_mut().write_all(b"one\ntw").expect("a write");
            for _ in 0..3 {
                stream.read_line(&mut String::new()).expect("a line");
            }
        }),
        answers(2, 9, |_| "again\n".into()),
    ]);
    let client = Client::new(address, &["--line", "x", "--reply", "line", "--outcome"]);
    assert_eq!(client.labels(5), ["reply one", "closed", "closed", "closed", "closed"]);
    assert_eq!(client.labels(2), ["reply again", "reply again"]);
}

#[test]
fn with_the_server_gone_requests_end_as_connection_and_nothing_hangs() {
    let address = script(vec![answers(0, 1, |_| String::new()), step(drop_all)]);
    let client = Client::new(address, &["--line", "x", "--reply", "line"]);
    // The script answers a byte by closing.
    assert_eq!(client.labels(1), ["closed"]);
    assert_eq!(client.labels(1), ["closed"]);
    assert_eq!(client.labels(3), ["connection"; 3]);
}

fn drop_all(stream: &mut BufReader<TcpStream>) {
    let _ = stream.read(&mut [0]);
}

#[test]
fn a_line_without_an_end_is_overlong() {
    let address = script(vec![step(|stream| {
        stream.read_line(&mut String::new()).expect("a line");
        // The client closes before it has read all.
        let _ = stream.get_mut().write_all(&vec![b'x'; 2 * LINE_BYTES_MAX]);
    })]);
    let client = Client::new(address, &["--line", "x", "--reply", "line"]);
    assert_eq!(client.labels(1), ["overlong"]);
}

#[test]
fn a_reply_that_no_request_asked_for_ends_the_connection() {
    let address = script(vec![
        step(|stream| {
            stream.read_line(&mut String::new()).expect("a line");
            stream.get_mut().write_all(b"one\ntwo\n").expect("a write");
            let _ = stream.read(&mut [0]);
        }),
        answers(1, 9, |_| "three\n".into()),
    ]);
    let client = Client::new(address, &["--line", "x", "--reply", "line", "--outcome"]);
    assert_eq!(client.labels(1), ["reply one"]);
    assert_eq!(client.labels(1), ["reply three"]);
}

#[test]
fn a_late_reply_to_a_request_that_was_given_up_is_not_taken_for_the_next() {
    let address = script(vec![answers(2, 9, {
        // Answered when the second line arrives.
        let first = std::sync::atomic::AtomicBool::new(true);
        move |line| {
            let is_first = first.swap(false, std::sync::atomic::Ordering::SeqCst);
            if is_first { String::new() } else { format!("late\n{line}\n") }
        }
    })]);
    let client = Client::new(address, &["--line", "n{{number}}", "--reply", "line", "--outcome"]);
    client.give_up(7);
    assert_eq!(client.labels(1), ["reply n0"]);
}

#[test]
fn with_too_many_requests_given_up_the_connection_is_given_up_too() {
    let address = script(vec![step(drop_to_end), answers(1, 9, |_| "fresh\n".into())]);
    let client = Client::new(address, &["--line", "x", "--reply", "line", "--outcome"]);
    let local = LocalSet::new();
    client.runtime.block_on(local.run_until(async {
        let tasks: Vec<_> = (0..=ABANDONED_MAX as u64)
            .map(|number| {
                let session = Rc::clone(&client.session);
                tokio::task::spawn_local(async move { session.request(turn(number)).await })
            })
            .collect();
        while client.session.traffic().sent_bytes < 2 * tasks.len() as u64 {
            tokio::task::yield_now().await;
        }
        for task in &tasks {
            task.abort();
        }
        for task in tasks {
            assert!(task.await.is_err());
        }
    }));
    assert_eq!(client.labels(1), ["reply fresh"]);
}

fn drop_to_end(stream: &mut BufReader<TcpStream>) {
    let _ = std::io::copy(stream, &mut std::io::sink());
}

#[test]
fn a_server_that_reads_nothing_holds_up_no_other_connection() {
    let address = script(vec![step(|stream| {
        let mut all = vec![0; 40 * 1_000_001];
        stream.read_exact(&mut all).expect("forty large lines");
        stream.get_mut().write_all(&[b'.'; 40]).expect("a write");
        drop_to_end(stream);
    })]);
    let line = "x".repeat(1_000_000);
    let client = Client::new(address, &["--line", &line, "--reply", "bytes:1"]);
    assert_eq!(client.labels(40), ["reply"; 40]);
}

#[test]
fn bad_input_is_one_line_before_any_load() {
    let nothing = "nothing listens at 127.0.0.1:1";
    let cases: [(&[&str], &str); 9] = [
        (&["localhost", "--line", "x", "--reply", "line"], "`localhost` is not an address: write HOST:PORT or :PORT"),
        (&["tcp://a:1", "--line", "x", "--reply", "line"], "is not an address"),
        (&["a:99999", "--line", "x", "--reply", "line"], "is not an address"),
        (&["127.0.0.1:1", "--line", "x", "--reply", "line"], nothing),
        (&[":1", "--line", "x", "--reply", "bytes:1KiB"], nothing),
        (&["127.0.0.1:1", "--line", "x", "--reply", "bytes:0"], "--reply `bytes:0` is unknown: write bytes:N"),
        (&["127.0.0.1:1", "--line", "x", "--reply", "json"], "--reply `json` is unknown"),
        (&["127.0.0.1:1", "--line", "{{row.x}}", "--reply", "line"], "in --line: {{row.x}} at character 1"),
        (&["127.0.0.1:1", "--line", "x", "--reply", "line", "--rows", "/no/such"], "rows of /no/such: No such file"),
    ];
    for (arguments, wanted) in cases {
        let message = format!("{:#}", prepare(&flags(arguments)).expect_err("a refusal"));
        assert!(message.contains(wanted) && !message.contains('\n'), "{arguments:?}: {message}");
    }
}
