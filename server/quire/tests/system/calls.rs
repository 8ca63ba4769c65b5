//! The log of calls: its fields, its choice, and its bound.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
};

use bookstore::grpc::wire::book_store_client::BookStoreClient;
use kit::{poll, wait_for};
use kv::grpc::wire::{CreateRequest, RetrieveRequest, key_value_service_client::KeyValueServiceClient};
use quire_rpc::{
    client::Protocol,
    health::{HealthCheckRequest, HealthClient},
};
use serde_json::Value;

use super::tokens::{channel, tokens};
use crate::common::{
    PATIENCE,
    process::{Server, Start},
    store::{BOOK, folder, one},
};

fn lines(server: &Server) -> Vec<Value> {
    let lines = server.log.text();
    let lines = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["target"] == "quire::calls").map(|mut line| line["fields"].take()).collect()
}

/// The health of a service that does not exist.
fn nowhere() -> HealthCheckRequest {
    HealthCheckRequest { service: "nowhere".to_owned() }
}

/// Waits for this many lines of ended calls, and returns them.
async fn ended(server: &Server, count: usize) -> Vec<Value> {
    poll("lines of calls", async || {
        let ended: Vec<Value> = lines(server).into_iter().filter(|line| line["message"] == "a call ended").collect();
        (ended.len() >= count).then_some(ended)
    })
    .await
}

#[tokio::test]
async fn a_line_has_method_code_time_bytes_caller_and_request() {
    for protocol in [Protocol::Grpc, Protocol::GrpcWeb, Protocol::Connect] {
        let folder = folder();
        tokens(folder.path(), &["shop"]);
        let server = Start::default().set("server.tokens=tokens").set("log.calls=all").serve(folder.path());
        let shop = BookStoreClient::new(channel(&server, protocol, Some("the shop token")));
        shop.lookup(one(BOOK)).await.expect("a book");
        let health = HealthClient::new(channel(&server, protocol, None));
        health.check(nowhere()).await.expect_err("no such service");
        let stranger = BookStoreClient::new(channel(&server, protocol, None));
        stranger.lookup(one(BOOK)).await.expect_err("no credential");
        let lines = ended(&server, 3).await;
        let [lookup, check] = ["/bookstore.BookStore/Lookup", "/grpc.health.v1.Health/Check"];
        let wanted = [(lookup, "Ok"), (check, "NotFound"), (lookup, "Unauthenticated")];
        for (line, (method, code)) in lines.iter().zip(wanted) {
            assert_eq!(line["method"], method, "{line}");
            assert_eq!(line["code"], code, "{line}");
            assert!(line["time_ms"].as_f64().is_some_and(|time| time > 0.0), "{line}");
            assert!(line["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:")), "{line}");
            assert_eq!(line["request"], "request 7", "{line}");
            assert_eq!(line["trace"], "4bf92f3577b34da6a3ce929d0e0e4736", "{line}");
        }
        // Five bytes before each message, in gRPC; a tag and a number of two bytes in the request.
        let prefix = if matches!(protocol, Protocol::Connect) { 0 } else { 5 };
        assert_eq!(lines[0]["bytes_in"], prefix + 3, "{}", lines[0]);
        assert!(lines[0]["bytes_out"].as_u64().is_some_and(|bytes| bytes > prefix + 10), "{}", lines[0]);
        assert_eq!(lines[0]["credential"], "shop-holder", "{}", lines[0]);
        assert!(lines[2].get("credential").is_none(), "{}", lines[2]);
        server.stop();
    }
}

/// Waits for this many lines of ended HTTP requests, and returns them.
fn requests(server: &Server, count: usize) -> Vec<Value> {
    wait_for("lines of requests", || {
        let is_request = |line: &Value| line["message"] == "a request ended";
        let ended: Vec<Value> = lines(server).into_iter().filter(is_request).collect();
        (ended.len() >= count).then_some(ended)
    })
}

/// Length of the page with this field in its request.
fn page(server: &Server, path: &str, field: &str) -> usize {
    let mut stream = TcpStream::connect(server.address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{field}Connection: close\r\n\r\n").expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split_once("\r\n\r\n").expect("a body").1.len()
}

#[test]
fn a_line_of_a_request_has_path_status_bytes_caller_and_request() {
    let folder = folder();
    tokens(folder.path(), &["metrics"]);
    let server = Start::default().set("server.tokens=tokens").set("log.calls=all").serve(folder.path());
    let page = |path: &str, field: &str| page(&server, path, field);
    let trace = "Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00\r\n";
    let length = page("/healthz", &format!("X-Request-Id: request 7\r\n{trace}"));
    page("/metrics?token=secret", "Authorization: Bearer the metrics token\r\n");
    page("/metrics", "");
    page("/nowhere", "Authorization: Bearer the metrics token\r\n");
    let lines = requests(&server, 4);
    let found = lines.iter().map(|line| (line["method"].as_str().unwrap_or_default(), line["status"].as_u64()));
    let found: Vec<_> = found.collect();
    let wanted = [
        ("GET /healthz", Some(200)),
        ("GET /metrics", Some(200)),
        ("GET /metrics", Some(401)),
        ("GET /nowhere", Some(404)),
    ];
    assert_eq!(found, wanted);
    assert_eq!((&lines[0]["request"], &lines[0]["bytes_in"]), (&"request 7".into(), &0.into()), "{}", lines[0]);
    assert_eq!(lines[0]["trace"], "4bf92f3577b34da6a3ce929d0e0e4736", "{}", lines[0]);
    assert_eq!(lines[0]["bytes_out"].as_u64(), Some(length as u64), "{}", lines[0]);
    assert!(lines[0]["time_ms"].as_f64().is_some_and(|time| time > 0.0), "{}", lines[0]);
    assert!(lines[0]["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:")), "{}", lines[0]);
    assert_eq!(lines[1]["credential"], "metrics-holder", "{}", lines[1]);
    assert!(lines[2].get("credential").is_none(), "{}", lines[2]);
    assert!(!server.log.text().contains("secret"));
    server.stop();
}

#[tokio::test]
async fn a_stream_counts_the_bytes_of_all_its_messages() {
    let folder = folder();
    let server = Start::default().set("log.calls=all").serve(folder.path());
    let health = HealthClient::new(server.channel());
    let mut watch = health.watch(HealthCheckRequest::default()).await.expect("a stream").into_inner();
    assert!(watch.message().await.expect("a status").is_some());
    drop(watch);
    let line = ended(&server, 1).await.remove(0);
    assert_eq!(line["method"], "/grpc.health.v1.Health/Watch", "{line}");
    assert_eq!((&line["bytes_in"], &line["code"]), (&5.into(), &"Cancelled".into()), "{line}");
    // A prefix, and a status in two bytes; a server that has just started may send two.
    let out = line["bytes_out"].as_u64().unwrap_or_default();
    assert!(out > 0 && out.is_multiple_of(7), "{line}");
    assert!(line.get("credential").is_none(), "{line}");
    server.stop();
}

#[tokio::test]
async fn a_slow_call_has_where_its_time_went() {
    let folder = folder();
    let start = Start::default().set("kv.durability=log").set("kv.write_delay_ms=500");
    let server = start.set("log.calls=all").set("log.calls_slower_than=500").serve(folder.path());
    let keys = KeyValueServiceClient::new(server.channel());
    keys.create(CreateRequest { key: "a".to_owned().into(), ..CreateRequest::default() }).await.expect("a key");
    keys.retrieve(RetrieveRequest { key: "a".to_owned().into(), ..RetrieveRequest::default() }).await.expect("a value");
    let lines = ended(&server, 2).await;
    let part = |name: &str| lines[0][name].as_f64().unwrap_or_default();
    let parts = part("queue_ms") + part("handler_ms") + part("batch_ms");
    assert!((part("time_ms") - parts).abs() < 0.01, "{}", lines[0]);
    assert!(part("commit_ms") > 0.0 && part("commit_ms") <= part("handler_ms") - 500.0, "{}", lines[0]);
    assert!(part("handler_ms") > 500.0, "{}", lines[0]);
    assert!(["queue_ms", "handler_ms", "commit_ms", "batch_ms"].iter().all(|part| lines[1].get(part).is_none()));
    server.stop();
}

#[tokio::test]
async fn failures_alone_are_logged_in_text_and_nothing_by_default() {
    let folder = folder();
    let start = Start::default().flag("--log-format=text").set("log.calls=failures");
    let server = start.serve(folder.path());
    let shop = server.shop();
    shop.lookup(one(BOOK)).await.expect("a book");
    HealthClient::new(server.channel()).check(nowhere()).await.expect_err("no such service");
    let log = server.log.until("a call ended");
    let line = log.lines().find(|line| line.contains("a call ended")).expect("a line");
    assert!(line.contains("quire::calls") && line.contains("code=NotFound") && line.contains("bytes_in="), "{line}");
    server.stop();
    let server = Server::start(folder.path());
    HealthClient::new(server.channel()).check(nowhere()).await.expect_err("no such service");
    server.signal("HUP");
    server.signal("TERM");
    server.log.until("\"stopped\"");
    assert_eq!(lines(&server), Vec::<Value>::new());
}

#[tokio::test]
async fn lines_beyond_the_bound_are_counted() {
    const CALLS: u64 = 1000;
    let folder = folder();
    let server = Start::default().set("log.calls=all").set("log.calls_per_second=7").serve(folder.path());
    let shop = server.shop();
    for _ in 0..CALLS {
        shop.lookup(one(BOOK)).await.expect("a book");
    }
    server.signal("TERM");
    let counts = wait_for("a line or a count for every call", || {
        let (written, counts): (Vec<Value>, Vec<Value>) =
            lines(&server).into_iter().partition(|line| line["message"] == "a call ended");
        let left_out: u64 = counts.iter().filter_map(|line| line["lines"].as_u64()).sum();
        (written.len() as u64 + left_out == CALLS).then_some(counts)
    });
    assert!(!counts.is_empty() && counts.iter().all(|line| line["limit"] == 7), "{counts:?}");
}

#[tokio::test]
async fn a_signal_switches_the_log_on_and_off_and_changes_the_share_that_it_has() {
    let folder = folder();
    let set = |calls: &str| fs::write(folder.path().join("quire.toml"), format!("[log]\n{calls}\n")).expect("a file");
    set("calls = 'off'");
    let server = Start::default().serve(folder.path());
    let (shop, health) = (server.shop(), HealthClient::new(server.channel()));
    let mut reloads = 0;
    let mut seen = async |calls: &str, count: usize| {
        set(calls);
        server.signal("HUP");
        reloads += 1;
        let hold = "hold from now on";
        wait_for(hold, || (server.log.text().matches(hold).count() == reloads).then_some(()));
        let before = lines(&server).len();
        for _ in 0..20 {
            shop.lookup(one(BOOK)).await.expect("a book");
        }
        page(&server, "/healthz", "");
        health.check(nowhere()).await.expect_err("no such service");
        // Pages are logged when their connections have them all.
        page(&server, "/nowhere", "");
        wait_for("its lines", || (lines(&server).len() >= before + count).then_some(()));
        lines(&server).split_off(before).into_iter().map(|mut line| line["method"].take()).collect::<Vec<_>>()
    };
    assert_eq!(seen("calls = 'all'", 23).await.len(), 23);
    let failed = ["/grpc.health.v1.Health/Check", "GET /nowhere"];
    assert_eq!(seen("calls = 'all'\ncalls_sample = 0", 2).await, failed);
    assert_eq!(seen("calls = 'off'", 0).await, [""; 0]);
    assert_eq!(seen("calls = 'all'\ncalls_sample = 1", 23).await.len(), 23);
    server.stop();
}

#[tokio::test]
async fn chance_traces_calls_without_a_parent_and_a_signal_changes_it() {
    let folder = folder();
    let set = |port: u16, sample: u8| {
        let trace = format!("endpoint = 'http://127.0.0.1:{port}'\nsample = {sample}\ncallers_per_second = {sample}\n");
        fs::write(folder.path().join("quire.toml"), format!("[log]\ncalls = 'all'\n[trace]\n{trace}")).expect("a file");
    };
    // No collector is there.
    set(1, 0);
    let server = Start::default().serve(folder.path());
    let shop = server.shop();
    shop.lookup(one(BOOK)).await.expect("a book");
    set(2, 1);
    server.signal("HUP");
    let log = server.log.until("hold from the next start on");
    assert!(
        log.contains("\"settings\":\"trace.callers_per_second=1, trace.sample=1\"")
            && log.contains("\"settings\":\"trace.endpoint\""),
        "{log}"
    );
    shop.lookup(one(BOOK)).await.expect("a book");
    let lines = ended(&server, 2).await;
    assert!(lines[0].get("trace").is_none(), "{}", lines[0]);
    assert!(lines[1]["trace"].as_str().is_some_and(|id| id.len() == 32), "{}", lines[1]);
    server.stop();
}

#[tokio::test]
async fn a_signal_changes_the_level_and_the_choice_of_calls_and_names_what_waits_for_a_start() {
    let folder = folder();
    let set = |level: &str, calls: &str, pool: u32| {
        let text = format!("[log]\nlevel = '{level}'\ncalls = '{calls}'\n[ledger]\npool = {pool}\n");
        fs::write(folder.path().join("quire.toml"), text).expect("a file");
    };
    set("info", "failures", 100);
    let server = Start::default().serve(folder.path());
    let shop = server.shop();
    let signal = |said: &str, times: usize| {
        server.signal("HUP");
        wait_for(said, || (server.log.text().matches(said).count() >= times).then_some(()));
    };
    shop.lookup(one(BOOK)).await.expect("a book");
    // Calls are below this level, and the pool waits.
    set("warn", "all", 77);
    signal("hold from the next start on", 1);
    let line = server.log.text();
    let line = line.lines().find(|line| line.contains("hold from the next start on")).expect("a line");
    assert!(line.contains("\"settings\":\"ledger.pool\""), "{line}");
    let applied = |level: &str| format!("\"settings\":\"log.calls=\\\"all\\\", log.level=\\\"{level}\\\"\"");
    assert!(server.log.text().contains(&applied("warn")), "{}", server.log.text());
    shop.lookup(one(BOOK)).await.expect("a book");
    // None of it is applied.
    set("loud", "off", 100);
    signal("the settings cannot be read again; the last ones hold", 1);
    set("info", "all", 100);
    signal("settings that have changed hold from now on", 2);
    shop.lookup(one(BOOK)).await.expect("a book");
    let line = ended(&server, 1).await.remove(0);
    assert_eq!(line["code"], "Ok");
    server.signal("TERM");
    server.log.until("\"stopped\"");
    assert_eq!(lines(&server).len(), 1);
    assert_eq!(server.log.text().matches("hold from the next start on").count(), 1);
}
