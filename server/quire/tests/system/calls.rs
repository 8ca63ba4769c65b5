//! The log of calls: its fields, its choice, and its bound.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
};

use bookstore::grpc::wire::book_store_client::BookStoreClient;
use kit::{poll, wait_for};
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

#[test]
fn a_line_of_a_request_has_path_status_bytes_caller_and_request() {
    let folder = folder();
    tokens(folder.path(), &["metrics"]);
    let server = Start::default().set("server.tokens=tokens").set("log.calls=all").serve(folder.path());
    let page = |path: &str, field: &str| {
        let mut stream = TcpStream::connect(server.address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{field}Connection: close\r\n\r\n")
            .expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer.split_once("\r\n\r\n").expect("a body").1.len()
    };
    let length = page("/healthz", "X-Request-Id: request 7\r\n");
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
async fn a_signal_changes_the_level_and_the_choice_of_calls_and_names_what_waits_for_a_start() {
    let folder = folder();
    let set = |level: &str, calls: &str, connections: u32| {
        let text = format!("[log]\nlevel = '{level}'\ncalls = '{calls}'\n[limits]\nconnections = {connections}\n");
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
    // Calls are below this level, and the limit waits.
    set("warn", "all", 77);
    signal("hold from the next start on", 1);
    let line = server.log.text();
    let line = line.lines().find(|line| line.contains("hold from the next start on")).expect("a line");
    assert!(line.contains("\"settings\":\"limits.connections\""), "{line}");
    shop.lookup(one(BOOK)).await.expect("a book");
    // None of it is applied.
    set("loud", "off", 100);
    signal("the settings cannot be read again; the last ones hold", 1);
    set("info", "all", 100);
    signal("the level of the log has changed", 2);
    shop.lookup(one(BOOK)).await.expect("a book");
    let line = ended(&server, 1).await.remove(0);
    assert_eq!(line["code"], "Ok");
    server.signal("TERM");
    server.log.until("\"stopped\"");
    assert_eq!(lines(&server).len(), 1);
    assert_eq!(server.log.text().matches("hold from the next start on").count(), 1);
}
