//! Each limit reached: refused at once and by name, counted, and without effect on others.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
};

use bookstore::grpc::wire::{BookTopicRequest, HelloRequest, ItemNumberRequest, ListRequest, TailLogRequest};
use kv::grpc::wire::{CreateRequest, DeleteRequest, RetrieveRequest, key_value_service_client::KeyValueServiceClient};
use quire_rpc::{Code, Status};
use tokio::task::JoinSet;

use crate::common::{
    PATIENCE, http, poll,
    process::{Server, Start},
    store::{self, BOOK, folder, one},
    wait_for,
};

fn hello() -> HelloRequest {
    HelloRequest::default()
}

#[track_caller]
fn exhausted<T: std::fmt::Debug>(answer: Result<T, Status>, limit: &str) {
    let status = answer.expect_err("a refusal");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert!(status.message().starts_with(&format!("the server's limit limits.{limit} is ")), "{status:?}");
}

#[tokio::test]
async fn a_connection_too_many_is_told_and_closed() {
    let folder = folder();
    let server = Start::default().set("limits.connections=2").serve(folder.path());
    let (first, second) = (server.shop(), server.shop());
    first.hello(hello()).await.expect("an answer");
    second.hello(hello()).await.expect("an answer");
    exhausted(server.shop().hello(hello()).await, "connections");
    let page = http::get(server.address, "/");
    assert_eq!(page.status, 503);
    assert!(page.head.to_lowercase().contains("retry-after: 1"), "{page:?}");
    assert_eq!(http::get(server.address, "/healthz").status, 200, "a full server is healthy");
    assert!(http::refused(server.address, "connections") >= 2);
    first.hello(hello()).await.expect("those inside are not disturbed");
    drop(second);
    poll("a place", async || (http::get(server.address, "/").status == 200).then_some(())).await;
}

#[tokio::test]
async fn limits_change_at_a_signal_and_end_nothing_that_was_admitted() {
    let folder = folder();
    let set = |text: &str| fs::write(folder.path().join("quire.toml"), text).expect("a file");
    set("[limits]\nlog_tails = 4\n");
    let server = Start::default().serve(folder.path());
    let (shop, admin) = (server.shop(), server.admin());
    let tail = || admin.tail_log(TailLogRequest { after_number: Some(0) });
    let mut first = tail().await.expect("a stream").into_inner();
    assert!(first.message().await.expect("an entry").is_some());
    let many = ItemNumberRequest { quantity: Some(1001), ..one(BOOK) };
    shop.buy(many.clone()).await.expect_err("more than a purchase may have");
    let connections = || http::metric(server.address, "quire_connections_max");
    let before = connections();

    set(
        "[limits]\nconnections = 2\nlog_tails = 1\nquantity = 2000\nreservations = 1\ntopic_bytes = 17\n[kv]\nwatchers = 5\n",
    );
    server.signal("HUP");
    let said = server.log.until("hold from the next start on");
    let applied =
        "kv.watchers=5, limits.connections=2, limits.log_tails=1, limits.quantity=2000, limits.reservations=1";
    let line = |said: &str, what: &str| said.lines().find(|line| line.contains(what)).expect("a line").to_owned();
    assert!(line(&said, "hold from now on").contains(&format!("\"settings\":\"{applied}\"")), "{said}");
    assert!(line(&said, "from the next start on").contains("\"settings\":\"limits.topic_bytes\""), "{said}");
    assert_eq!((before, connections()), (4096, 2));
    assert!(!shop.buy(many).await.expect("an answer: sold out").into_inner().success);
    exhausted(tail().await, "log_tails");
    assert!(first.message().await.expect("an entry").is_some(), "it goes on");
    let second = server.shop();
    exhausted(second.hello(hello()).await, "connections");

    set("[limits]\nconnections = 3\n");
    server.signal("HUP");
    server.log.until("limits.log_tails=16");
    poll("room", async || second.hello(hello()).await.ok()).await;
    tail().await.expect("a stream");
}

#[tokio::test]
async fn a_connection_that_says_nothing_loses_its_place() {
    let folder = folder();
    let start = Start::default().set("limits.connections=1").set("limits.first_byte_seconds=0.2");
    let server = start.serve(folder.path());
    let mut silent = TcpStream::connect(server.address).expect("a connection");
    silent.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert_eq!(silent.read(&mut [0; 1]).unwrap_or(0), 0, "it is closed");
    poll("the place of the silent one", async || server.shop().hello(hello()).await.ok()).await;
}

#[tokio::test]
async fn a_call_too_many_is_refused_while_those_in_flight_go_on() {
    let folder = folder();
    let server = Start::default().set("limits.calls_in_flight=1").serve(folder.path());
    let admin = server.admin();
    let tail = TailLogRequest { after_number: Some(0) };
    let mut tail = admin.tail_log(tail).await.expect("a stream").into_inner();
    assert!(tail.message().await.expect("an entry").is_some());
    exhausted(server.shop().hello(hello()).await, "calls_in_flight");
    assert!(tail.message().await.expect("an entry").is_some(), "the stream goes on");
    assert!(http::refused(server.address, "calls_in_flight") >= 1, "metrics are shown all the same");
    drop(tail);
    poll("the stream's place", async || server.shop().hello(hello()).await.ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purchase_too_many_in_the_queue_is_refused_while_others_are_answered() {
    let folder = folder();
    let server = Start::default().set("limits.purchases_queued=4").serve(folder.path());
    // Purchases pile up while another connection holds the file's write lock.
    let other = store::other_program(folder.path());
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let mut tasks = JoinSet::new();
    let shop = server.shop();
    for _ in 0..20 {
        let shop = shop.clone();
        tasks.spawn(async move { shop.buy(one(BOOK)).await });
    }
    poll("refusals", async || (http::refused(server.address, "purchases_queued") >= 10).then_some(())).await;
    assert!(shop.clone().lookup(one(BOOK)).await.is_ok(), "readers do not wait");
    other.execute_batch("COMMIT").expect("the lock is given back");
    let (mut bought, mut refused) = (0_u32, 0_u32);
    for answer in tasks.join_all().await {
        match answer {
            Ok(reply) => bought += u32::from(reply.into_inner().success),
            refusal => {
                refused += 1;
                exhausted(refusal, "purchases_queued");
            }
        }
    }
    assert!(bought >= 4 && bought + refused == 20, "{bought} bought, {refused} refused");
    assert_eq!(http::refused(server.address, "purchases_queued"), u64::from(refused));
    let left = shop.clone().lookup(one(BOOK)).await.expect("an answer").into_inner().book.expect("the book");
    assert_eq!(left.stock.cast_unsigned(), 1000 - bought, "a refusal sold nothing");
}

#[tokio::test]
async fn a_message_a_topic_and_a_page_too_large_are_counted() {
    let folder = folder();
    let server = Start::default().set("limits.message_bytes=2000").serve(folder.path());
    let topic = |bytes| BookTopicRequest { topic: "t".repeat(bytes), ..BookTopicRequest::default() };
    let shop = server.shop();
    exhausted(shop.search(topic(2000)).await, "message_bytes");
    exhausted(shop.search(topic(1900)).await, "topic_bytes");
    let page = ListRequest { page_size: 1001, page_token: String::new() };
    exhausted(server.admin().list(page).await, "page_size");
    for limit in ["message_bytes", "topic_bytes", "page_size"] {
        assert_eq!(http::refused(server.address, limit), 1, "{limit}");
    }
    assert!(shop.search(topic(100)).await.is_ok(), "the same connection goes on");
}

#[tokio::test]
async fn a_follower_of_the_log_too_many_is_refused() {
    let folder = folder();
    let server = Start::default().set("limits.log_tails=2").serve(folder.path());
    let follow = async || server.admin().tail_log(TailLogRequest { after_number: Some(0) }).await;
    let (mut first, second) = (follow().await.expect("a stream"), follow().await.expect("a stream"));
    exhausted(follow().await, "log_tails");
    assert_eq!(http::refused(server.address, "log_tails"), 1);
    assert!(first.get_mut().message().await.expect("an entry").is_some());
    drop(second);
    poll("the place of the second", async || follow().await.ok()).await;
}

#[test]
fn a_peer_that_never_reads_delays_no_one() {
    let folder = folder();
    let server = Server::start(folder.path());
    let mut deaf = TcpStream::connect(server.address).expect("a connection");
    deaf.set_nonblocking(true).expect("a mode");
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(64);
    // Until the server stops reading, because its answers find no room.
    wait_for("a full pipe", || deaf.write(&request).is_err().then_some(()));
    assert_eq!(http::get(server.address, "/healthz").status, 200);
}

fn put(key: &str, bytes: usize) -> CreateRequest {
    CreateRequest { key: key.to_owned().into(), value: vec![7; bytes].into(), ..CreateRequest::default() }
}

#[tokio::test]
async fn keys_fill_their_part_of_the_memory_and_the_other_services_go_on() {
    let folder = folder();
    let server = Start::default().set("limits.memory_bytes=256MiB").serve(folder.path());
    let keys = KeyValueServiceClient::new(server.channel());
    let mut numbers = 0..;
    let status = loop {
        let number = numbers.next().expect("no end of numbers");
        if let Err(status) = keys.create(put(&number.to_string(), 4_000_000)).await {
            break status;
        }
    };
    assert!(status.message().starts_with("the server's limit kv.total_bytes is "), "{status:?}");
    server.shop().hello(hello()).await.expect("an answer");
    keys.delete(DeleteRequest { key: "0".into(), ..DeleteRequest::default() }).await.expect("room");
    keys.create(put("another", 4_000_000)).await.expect("room");
    assert_eq!(http::get(server.address, "/healthz").status, 200);
}

#[tokio::test]
async fn a_process_that_has_reached_its_memory_takes_what_frees_some_and_says_so() {
    let folder = folder();
    let server = Start::default().set("limits.memory_bytes=1MiB").set("kv.total_bytes=1MiB").serve(folder.path());
    let keys = KeyValueServiceClient::new(server.channel());
    let health = poll("bad health", async || {
        let page = http::get(server.address, "/healthz");
        (page.status == 503).then_some(page.body)
    });
    assert!(health.await.contains("limits.memory_bytes"));
    let log = server.log.until("the process has reached limits.memory_bytes");
    assert!(log.contains("kv.total_bytes is 1 MiB, from --set, but"), "{log}");
    exhausted(keys.retrieve(RetrieveRequest { key: "a".into(), ..RetrieveRequest::default() }).await, "memory_bytes");
    keys.delete(DeleteRequest { key: "a".into(), ..DeleteRequest::default() }).await.expect("an answer");
}
