//! Many connections and few file descriptors: the server uses its limit, reserves some for its files, and refuses each
//! excess connection with an answer.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

use kv::grpc::wire::{CreateRequest, key_value_service_client::KeyValueServiceClient};
use quire_rpc::Code;

use crate::common::{
    PATIENCE, http,
    process::Start,
    store::{BOOK, folder, one},
};

/// Silent connections; each has a permit once the server counts it.
fn idle(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(address).expect("a connection")).collect()
}

/// The full answer to a request on a connection.
fn asked(mut stream: &TcpStream, path: &str) -> String {
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the request leaves");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_soft_limit_of_open_files_is_raised_to_the_hard_one() {
    let folder = folder();
    let start = Start::default().inside("ulimit -S -n 128; exec \"$@\"").set("kv.durability=log");
    let server = start.serve(folder.path());
    let connections = idle(server.address, 400);
    assert!(server.shop().buy(one(BOOK)).await.expect("a purchase").into_inner().success);
    let kv = KeyValueServiceClient::new(server.channel());
    kv.create(CreateRequest { key: b"k".to_vec().into(), ..CreateRequest::default() }).await.expect("a write");
    assert_eq!(http::get(server.address, "/healthz").status, 200);
    assert!(http::metric(server.address, "process_max_fds") > 400);
    drop(connections);
}

#[test]
fn a_default_that_needs_more_files_than_there_are_adapts_without_a_warning() {
    let folder = folder();
    let server = Start::default().inside("ulimit -n 512; exec \"$@\"").serve(folder.path());
    let log = server.log.text();
    assert!(!log.contains("WARN"), "{log}");
    assert!(log.contains("open files"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_few_descriptors_fewer_connections_are_taken_and_each_one_too_many_is_told() {
    let folder = folder();
    let start = Start::default().inside("ulimit -n 512; exec \"$@\"").set("kv.durability=log");
    let start = start.set("limits.connections=4096").set("rpcgame.enabled=false").set("tasks.enabled=false");
    let server = start.serve(folder.path());
    let log = server.log.text();
    assert!(
        log.contains("limits.connections is 4096, but the hard limit of open files (RLIMIT_NOFILE) is 512: 256"),
        "{log}"
    );
    let purchase = server.shop();
    assert!(purchase.buy(one(BOOK)).await.expect("a purchase").into_inner().success);
    let all = idle(server.address, 600);
    // Health and files have reserved descriptors.
    assert_eq!(http::get(server.address, "/healthz").status, 200);
    let kv = KeyValueServiceClient::new(server.channel());
    let refused = kv.create(CreateRequest::default()).await.expect_err("one connection too many");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(purchase.buy(one(BOOK)).await.expect("a purchase").into_inner().success, "who has a place keeps it");
    assert!(asked(&all[0], "/").starts_with("HTTP/1.1 200"));
}
