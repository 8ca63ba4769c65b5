//! The client's report of an unanswered purchase, and how to retry it: a locked file, lost answers, ended connections.

use std::{
    net::TcpListener,
    path::Path,
    process::{Child, Output, Stdio},
};

use kit::{Fault, Proxy};
use serde_json::Value;

use super::probe::certificate;
use crate::common::{
    NOWHERE,
    audit::Audit,
    http::metric,
    poll,
    process::{self, Server, Start},
    store::{self, BOOK, folder},
};

fn said(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

fn json(done: &Output, exit: i32) -> Value {
    assert_eq!(done.status.code(), Some(exit), "{done:?}");
    serde_json::from_slice(&done.stdout).expect("JSON")
}

fn begin(folder: &Path, words: &[&str]) -> Child {
    let mut command = process::quire(folder);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the client starts")
}

/// Runs a command line as a shell would.
fn run_line(folder: &Path, line: &str) -> Output {
    let words = shlex::split(line).expect("a command line");
    assert_eq!(words[0], "quire");
    process::run(folder, &words[1..].iter().map(String::as_str).collect::<Vec<_>>(), "")
}

#[tokio::test]
async fn a_deadline_that_passes_while_a_purchase_waits_leaves_its_outcome_unknown_and_its_key_known() {
    let folder = folder();
    let server = Server::start(folder.path());
    let address = server.address.to_string();
    let other = store::other_program(folder.path());
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let done = process::run(folder.path(), &["client", "--timeout", "4", &address, "buy", "12365", "2"], "");
    let as_json = process::run(folder.path(), &["client", "--timeout", "4", "--json", &address, "buy", "12365"], "");
    other.execute_batch("COMMIT").expect("the lock is given back");
    assert_eq!(done.status.code(), Some(4), "{done:?}");
    let text = said(&done);
    assert!(text.starts_with("it is not known whether 'buy 12365 2' was done: "), "{text}");
    assert!(!text.contains("cannot be reached"), "{text}");
    let again = text.lines().last().expect("a command").trim();
    assert!(again.ends_with(&format!("{address} buy 12365 2")), "{again}");
    let as_json = json(&as_json, 4);
    assert_eq!((&as_json["outcome"], &as_json["success"]), (&"UNKNOWN".into(), &false.into()));
    let key = as_json["key"].as_str().expect("a key");
    assert_eq!(as_json["command"], format!("quire client --key {key} --json {address} buy 12365"));
    // The printed command shows the outcome, however often it is run, and buys nothing twice.
    for _ in 0..2 {
        let done = run_line(folder.path(), again);
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        assert!(
            String::from_utf8_lossy(&done.stdout).starts_with("bought 2 copies of book 12365 (purchase "),
            "{done:?}"
        );
    }
    let replayed = json(&run_line(folder.path(), as_json["command"].as_str().expect("a command")), 0);
    assert_eq!(replayed["outcome"], "BUY_OUTCOME_BOUGHT");
    assert_eq!(Audit::of(&server).await.purchases_of(BOOK), 2);
}

#[tokio::test]
async fn a_swallowed_answer_is_asked_for_again_with_the_same_key() {
    let folder = folder();
    let server = Server::start(folder.path());
    let proxy = Proxy::start(server.address, &[Fault::Swallow, Fault::None]);
    let address = proxy.address.to_string();
    let words = ["client", "--timeout", "12", "--json", &address, "buy", "12365"];
    let bought = json(&process::run(folder.path(), &words, ""), 0);
    assert_eq!((&bought["success"], &bought["replayed"]), (&true.into(), &true.into()));
    assert_eq!(Audit::of(&server).await.purchases_of(BOOK), 1);
}

#[tokio::test]
async fn a_connection_that_ends_after_the_request_is_asked_for_again_or_unknown() {
    let folder = folder();
    let server = Server::start(folder.path());
    let address = |proxy: &Proxy| proxy.address.to_string();
    // The sample catalogue has four entries in the log.
    let purchases = async |count: u64| {
        poll("the purchase in the log", async || {
            (metric(server.address, "quire_log_number") == 4 + count).then_some(())
        })
        .await;
    };
    let proxy = Proxy::start(server.address, &[Fault::Swallow, Fault::None]);
    let client = begin(folder.path(), &["client", "--timeout", "20", "--json", &address(&proxy), "buy", "12365"]);
    purchases(1).await;
    proxy.cut();
    let bought = json(&client.wait_with_output().expect("the client ends"), 0);
    assert_eq!(bought["replayed"], true);
    // Without retries, it reports the unknown outcome.
    let proxy = Proxy::start(server.address, &[Fault::Swallow]);
    let words = ["client", "--retries=0", "--timeout", "20", "--json", &address(&proxy), "buy", "12365"];
    let client = begin(folder.path(), &words);
    purchases(2).await;
    proxy.cut();
    let unknown = json(&client.wait_with_output().expect("the client ends"), 4);
    assert_eq!((&unknown["outcome"], &unknown["status"]), (&"UNKNOWN".into(), &"UNAVAILABLE".into()));
}

#[tokio::test]
async fn an_interrupted_purchase_is_unknown_and_shows_its_key() {
    let folder = folder();
    let server = Server::start(folder.path());
    let other = store::other_program(folder.path());
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let client = begin(folder.path(), &["client", &server.address.to_string(), "buy", "12365"]);
    poll("a purchase in flight", async || (metric(server.address, "quire_calls_in_flight") >= 1).then_some(())).await;
    kit::signal(client.id(), "INT");
    let done = client.wait_with_output().expect("the client ends");
    other.execute_batch("COMMIT").expect("the lock is given back");
    assert_eq!(done.status.code(), Some(4), "{done:?}");
    assert!(said(&done).contains("quire client --key "), "{done:?}");
}

#[test]
fn a_purchase_that_was_never_sent_is_unreachable_not_unknown() {
    let folder = folder();
    let words = ["client", "--json", "--retries=1", NOWHERE, "buy", "12365"];
    let done = json(&process::run(folder.path(), &words, ""), 3);
    assert_eq!(done["outcome"], "UNREACHABLE");
}

#[tokio::test]
async fn the_command_that_asks_again_has_the_flags_for_tls() {
    let folder = folder();
    certificate(folder.path());
    std::fs::copy(folder.path().join("cert.pem"), folder.path().join("my ca.pem")).expect("a copy");
    let start = Start::default().set("tls.certificate=cert.pem").set("tls.key=key.pem");
    let server = start.serve(folder.path());
    let address = format!("https://{}", server.address);
    let other = store::other_program(folder.path());
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let words = ["client", "--timeout=4", "--ca", "my ca.pem", &address, "buy", "12365"];
    let done = process::run(folder.path(), &words, "");
    other.execute_batch("COMMIT").expect("the lock is given back");
    assert_eq!(done.status.code(), Some(4), "{done:?}");
    let text = said(&done);
    let again = text.lines().last().expect("a command");
    assert!(again.contains("--ca 'my ca.pem' https://"), "{again}");
    assert_eq!(run_line(folder.path(), again).status.code(), Some(0));
}

#[test]
fn a_server_that_says_nothing_at_all_was_sent_nothing() {
    let folder = folder();
    certificate(folder.path());
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    let url = format!("https://{address}");
    for words in [vec!["--ca", "cert.pem", &url], vec![&address]] {
        let words = [&["client", "--timeout=2"][..], &words, &["buy", "12365"]].concat();
        let done = process::run(folder.path(), &words, "");
        assert_eq!(done.status.code(), Some(3), "{done:?}");
    }
}
