//! A server frozen in the middle of a transaction, and the errors of its peer on the same file.

use std::{net::TcpStream, path::Path, time::Duration};

use quire_rpc::{Code, Request};
use rusqlite::Connection;
use tokio::task::JoinSet;

use crate::common::{
    audit::Audit,
    http::metric,
    poll,
    process::{Server, Start},
    store::{BOOK, database, folder, keyed, one},
};

/// True if any process holds the file's write lock now.
fn locked(folder: &Path) -> bool {
    let file = Connection::open(database(folder)).expect("the file opens");
    file.busy_timeout(Duration::ZERO).expect("a timeout can be set");
    file.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_err()
}

/// Freezes the server by SIGSTOP while it holds the write lock; `false` if it never did.
fn freeze(server: &Server, folder: &Path) -> bool {
    for _ in 0..1000 {
        server.freeze();
        if locked(folder) {
            return true;
        }
        server.signal("CONT");
    }
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_peer_of_a_frozen_server_is_unavailable_says_when_to_come_back_and_charges_no_one() {
    let folder = folder();
    let (frozen, peer) = (Server::start(folder.path()), Start::default().serve(folder.path()));
    let mut load = JoinSet::new();
    for _ in 0..4 {
        let shop = frozen.shop();
        load.spawn(async move { while shop.buy(one(BOOK)).await.is_ok() {} });
    }
    assert!(freeze(&frozen, folder.path()), "a loaded server holds the lock most of the time");
    load.abort_all();

    let shop = peer.shop();
    let mut hurried = Request::new(keyed(53477, "hurried"));
    hurried.set_timeout(Duration::from_millis(300));
    let (told, hurried) = tokio::join!(shop.buy(keyed(53573, "patient")), shop.buy(hurried));
    assert_eq!(hurried.expect_err("its deadline passed").code(), Code::DeadlineExceeded);
    let told = told.expect_err("the file is locked");
    assert_eq!(told.code(), Code::Unavailable, "{told:?}");
    assert!(told.message().contains("locked by another program") && told.message().contains("nothing was done"));
    assert_eq!(told.metadata().get("grpc-retry-pushback-ms"), Some("1000"));

    // Waits for the lock when the frozen server resumes, and is dropped then.
    let mut dropped = Request::new(keyed(53477, "dropped"));
    dropped.set_timeout(Duration::from_millis(300));
    assert_eq!(shop.buy(dropped).await.expect_err("its deadline passed").code(), Code::DeadlineExceeded);
    // The peer's own clock ends the call a little after the client's.
    poll("the end of the call", async || (metric(peer.address, "quire_calls_in_flight") == 0).then_some(())).await;
    frozen.signal("CONT");
    let reply = shop.buy(keyed(53573, "patient")).await.expect("the lock is free").into_inner();
    assert!(reply.success && !reply.replayed);
    let audit = Audit::of(&peer).await;
    assert_eq!((audit.stock_of(53477), audit.stock_of(53573)), (1000, 999));
}

#[test]
fn a_burst_of_connections_waits_for_a_server_that_accepts_none_now() {
    let folder = folder();
    let server = Server::start(folder.path());
    server.freeze();
    // A client whose SYN the kernel drops tries again after a second.
    let connect = |_| TcpStream::connect_timeout(&server.address, Duration::from_millis(900)).expect("it waits");
    let waiting: Vec<TcpStream> = (0..500).map(connect).collect();
    server.signal("CONT");
    drop(waiting);
}
