//! Shutdown: calls in flight are answered, streams end, the store is left in one file.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
};

use bookstore::grpc::wire::{HelloRequest, TailLogRequest};
use quire_rpc::{
    Code,
    health::{HealthCheckRequest, HealthClient},
};
use tokio::task::JoinSet;

use crate::common::{
    audit::Audit,
    poll,
    process::{Server, Start},
    store::{self, BOOK, database, folder, one},
};

/// Asserts that the store is entirely in its file.
fn checkpointed(folder: &Path) {
    let log = fs::metadata(database(folder).with_extension("db-wal")).map_or(0, |meta| meta.len());
    assert_eq!(log, 0, "the write-ahead log was copied back");
}

/// Stops a server while callers hold everything open that they can.
async fn ends_soon(signal: &str) {
    let folder = folder();
    // Longer than this waits for the end.
    let mut server = Start::default().set("server.drain_seconds=600").serve(folder.path());
    let idle = server.channel();
    bookstore::grpc::wire::book_store_client::BookStoreClient::new(idle.clone())
        .hello(HelloRequest::default())
        .await
        .expect("an answer");
    let silent = TcpStream::connect(server.address).expect("a connection");
    let mut tail = server.admin().tail_log(TailLogRequest { after_number: Some(0) }).await.expect("a stream");
    let health = HealthClient::new(server.channel());
    let mut watch = health.watch(HealthCheckRequest::default()).await.expect("a stream").into_inner();
    assert!(watch.message().await.expect("a status").is_some());
    assert!(tail.get_mut().message().await.expect("an entry").is_some());
    server.shop().buy(one(BOOK)).await.expect("an answer");
    server.signal(signal);
    let status = server.wait();
    assert!(status.success(), "{status}");
    checkpointed(folder.path());
    while tail.get_mut().message().await.expect("the stream ends in order").is_some() {}
    drop((silent, idle));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_ends_a_server_soon_whatever_callers_hold_open() {
    ends_soon("TERM").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigint_ends_a_server_soon_whatever_callers_hold_open() {
    ends_soon("INT").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purchases_in_flight_are_answered_before_the_end_and_later_ones_are_refused() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let shop = server.shop();
    let connected_before = server.shop();
    connected_before.hello(HelloRequest::default()).await.expect("an answer");
    // They wait for the file's write lock when the signal comes.
    let other = store::other_program(folder.path());
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let shop = shop.clone();
        tasks.spawn(async move { shop.buy(one(BOOK)).await });
    }
    let calls = "quire_calls_in_flight";
    poll("purchases that wait", async || (crate::common::http::metric(server.address, calls) >= 50).then_some(()))
        .await;
    server.signal("TERM");
    server.log.until("\"stopping\"");
    // A connection learns a moment after the line that the server stops; until then its calls are in flight.
    poll("a drain of the connection", async || connected_before.hello(HelloRequest::default()).await.err()).await;
    // Both at once: the first purchases wait for the lock for five seconds at most.
    let connects_now = server.shop();
    let (one_later, other_later) = tokio::join!(connected_before.buy(one(BOOK)), connects_now.buy(one(BOOK)));
    for later in [one_later, other_later] {
        let refused = later.expect_err("no new work during a drain");
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    }
    other.execute_batch("COMMIT").expect("the lock is given back");
    let answers = tasks.join_all().await;
    let replies: Vec<_> = answers.into_iter().map(|answer| answer.expect("an answer").into_inner()).collect();
    assert!(replies.iter().all(|reply| reply.success));
    assert!(server.wait().success());
    checkpointed(folder.path());
    let audit = Audit::of(&Server::start(folder.path())).await;
    for reply in &replies {
        audit.holds(&one(BOOK), reply);
    }
    assert_eq!(audit.purchases_of(BOOK), replies.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deadline_holds_even_when_the_store_cannot_be_written() {
    let folder = folder();
    let mut server = Start::default().set("server.drain_seconds=1").serve(folder.path());
    let other = store::other_program(folder.path());
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let shop = server.shop();
    let waiting = tokio::spawn(async move { shop.buy(one(BOOK)).await });
    poll("a purchase that waits", async || {
        (crate::common::http::metric(server.address, "quire_calls_in_flight") >= 1).then_some(())
    })
    .await;
    server.signal("TERM");
    let status = server.wait();
    assert!(!status.success(), "an end that is not in order is told");
    let last = server.log.until("not closed in time");
    assert!(last.contains("everything acknowledged is on disk"), "{last}");
    assert!(waiting.await.expect("the call ends").is_err(), "never success");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_is_logged_as_a_warning_and_ctrl_c_during_it_ends_at_once() {
    let folder = folder();
    let mut server = Start::default().set("server.drain_seconds=600").serve(folder.path());
    let other = store::other_program(folder.path());
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let shop = server.shop();
    let waiting = tokio::spawn(async move { shop.buy(one(BOOK)).await });
    poll("a purchase that waits", async || {
        (crate::common::http::metric(server.address, "quire_calls_in_flight") >= 1).then_some(())
    })
    .await;
    server.signal("INT");
    let line = server.log.until("\"stopping\"");
    assert!(line.lines().any(|line| line.contains("WARN") && line.contains("stopping")), "{line}");
    server.signal("INT");
    assert_eq!(server.wait().code(), Some(130));
    assert!(waiting.await.expect("the call ends").is_err(), "never success");
    drop(other);
    assert_eq!(Audit::of(&Server::start(folder.path())).await.purchases_of(BOOK), 0);
}

#[tokio::test]
async fn a_caller_that_is_frozen_holds_up_the_end_no_longer_than_the_deadline() {
    let folder = folder();
    let mut server = Start::default().set("server.drain_seconds=1").serve(folder.path());
    let shop = server.shop();
    shop.hello(HelloRequest::default()).await.expect("an answer");
    server.signal("TERM");
    // This runtime has one thread, and waiting here keeps it from answering anything.
    assert!(server.wait().success());
    drop(shop);
    checkpointed(folder.path());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stopped_in_order_starts_again_with_everything() {
    let folder = folder();
    for round in 1..4 {
        let server = Server::start(folder.path());
        assert!(server.shop().buy(one(BOOK)).await.expect("an answer").into_inner().success);
        assert_eq!(Audit::of(&server).await.purchases_of(BOOK), round);
        server.stop();
        checkpointed(folder.path());
    }
}

#[test]
fn sighup_ends_no_server_and_is_worth_no_line_if_there_is_nothing_to_read_again() {
    let folder = folder();
    let server = Start::default().flag("--log-level=debug").serve(folder.path());
    server.signal("HUP");
    let log = server.log.until("there are no records to load again");
    assert!(!log.lines().any(|line| line.contains("again") && !line.contains("DEBUG")), "{log}");
    server.stop();
    checkpointed(folder.path());
}

#[test]
fn a_signal_while_the_server_loads_stops_it_in_order_and_sighup_does_not() {
    for stop in ["INT", "TERM"] {
        let folder = folder();
        let pipe = folder.path().join("records.csv");
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
        let mut command = Start::default().flag("--records-csv=records.csv").command(folder.path());
        let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the server starts");
        // Opening a pipe for writing waits until the server opens it for reading: it loads until the pipe is closed.
        let writing = fs::OpenOptions::new().write(true).open(&pipe).expect("a pipe");
        kit::signal(child.id(), "HUP");
        kit::signal(child.id(), stop);
        let ended = child.wait_with_output().expect("the server ends");
        let log = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{}: {log}", ended.status);
        assert!(log.contains("stopped before everything was loaded") && log.contains(stop), "{log}");
        drop(writing);
    }
}

#[test]
fn a_log_that_no_one_reads_does_not_keep_the_server_from_stopping_in_order() {
    let folder = folder();
    let mut command = Start::default().command(folder.path());
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the server starts");
    let mut log = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    assert!(log.any(|line| line.expect("text").contains("\"listening\"")), "it listens");
    drop(log);
    kit::signal(child.id(), "HUP");
    kit::signal(child.id(), "TERM");
    let status = child.wait().expect("the server ends");
    assert!(status.success(), "{status}");
    checkpointed(folder.path());
}

/// A client waiting at its prompt answers the server's GOAWAY, and later input is not sent.
#[test]
fn a_clients_prompt_holds_up_no_drain_and_buys_nothing_after_it() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let mut prompt = Command::new(env!("CARGO_BIN_EXE_quire"))
        .args(["client", "--timeout", "2s", &server.address.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a prompt");
    let mut typed = prompt.stdin.take().expect("its input");
    let mut shown = BufReader::new(prompt.stdout.take().expect("its output"));
    writeln!(typed, "lookup {BOOK}").expect("it reads");
    let mut line = String::new();
    while !line.contains(&BOOK.to_string()) {
        line.clear();
        assert!(shown.read_line(&mut line).expect("readable") > 0, "no answer");
    }
    server.signal("TERM");
    assert!(server.wait().success());
    let log = server.log.text();
    assert!(!log.contains("the deadline was over"), "{log}");
    writeln!(typed, "buy {BOOK}").expect("it reads");
    drop(typed);
    let ended = prompt.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(!said.contains("not known"), "{said}");
}

#[test]
fn a_server_whose_database_file_is_gone_at_the_end_fails_and_names_it() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    fs::rename(database(folder.path()), folder.path().join("away.db")).expect("the file moves");
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(1), "{}", server.log.text());
    server.log.until("bookstore.db was deleted or moved while it was open");
}
