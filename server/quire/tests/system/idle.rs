//! Thousands of idle connections: little memory each, and no other client is affected.

use std::{fs, io::Write as _, net::TcpStream};

use bookstore::grpc::wire::HelloRequest;
use tokio::sync::Mutex;

use crate::common::{
    http,
    process::Start,
    store::{BOOK, folder, one},
    wait_for,
};

const CONNECTIONS: usize = 2_000;

/// Memory per connection, including allocator overhead.
const KIBIBYTES_EACH_MAX: u64 = 16;

/// The connection preface and an empty SETTINGS frame (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Held by each test with so many connections: two at a time would exceed the file limit.
pub(super) static MANY_CONNECTIONS: Mutex<()> = Mutex::const_new(());

/// Open-file limit of this process and the server it starts.
pub(super) fn files_max() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
    line.split_whitespace().nth(3).and_then(|soft| soft.parse().ok()).unwrap_or_default()
}

pub(super) fn resident_kibibytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("a process");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a size");
    line.split_whitespace().nth(1).and_then(|size| size.parse().ok()).expect("a number")
}

#[tokio::test]
async fn thousands_of_idle_connections_cost_little_and_disturb_no_one() {
    if files_max() < CONNECTIONS + 2000 {
        return eprintln!("left out: {} open files are allowed, too few for {CONNECTIONS} connections", files_max());
    }
    let _others_wait = MANY_CONNECTIONS.lock().await;
    let folder = folder();
    let server = Start::default().set("limits.connections=2100").serve(folder.path());
    server.shop().hello(HelloRequest::default()).await.expect("an answer");
    let before = resident_kibibytes(server.id());
    let idle: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).expect("a connection");
            stream.write_all(PREFACE).expect("room for the preface");
            stream
        })
        .collect();
    let open = u64::try_from(CONNECTIONS).expect("fits");
    wait_for("every connection", || (http::metric(server.address, "quire_connections") >= open).then_some(()));
    let bought = server.shop().buy(one(BOOK)).await.expect("an answer").into_inner();
    assert!(bought.success, "{bought:?}");
    let grown = resident_kibibytes(server.id()).saturating_sub(before);
    eprintln!("{CONNECTIONS} idle connections: {grown} KiB");
    assert!(grown < open * KIBIBYTES_EACH_MAX, "{grown} KiB for {CONNECTIONS} idle connections");
    drop(idle);
    wait_for("their ends", || (http::metric(server.address, "quire_connections") < 100).then_some(()));
}
