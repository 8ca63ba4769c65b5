//! Open connections as operators see them, and their cut.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Running, open, text};
use quire_rpc::server::{Client, ConnectionRegistry, OpenConnection};
use quire_rpc::{Code, Limits, Request, Status};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Close reason of a connection that was cut.
const CUT: &str = "closed: cut: by an operator";

async fn listing(registry: &ConnectionRegistry) -> Running {
    Running::with(Limits::default(), |builder| builder.connections(registry.clone())).await
}

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(9);

/// The first open connection that satisfies `holds`.
async fn once(registry: &ConnectionRegistry, holds: impl Fn(&OpenConnection) -> bool) -> OpenConnection {
    let found = async {
        loop {
            if let Some(found) = registry.list().into_iter().find(&holds) {
                return found;
            }
            tokio::task::yield_now().await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, found).await;
    found.unwrap_or_else(|_| panic!("it does not come to that: {:?}", registry.list()))
}

#[tokio::test]
async fn a_connection_is_listed_with_its_caller_its_calls_and_its_bytes_until_it_ends() {
    let registry = ConnectionRegistry::default();
    let server = listing(&registry).await;
    let client = server.client().await;
    let (sender, mut echoes) = open(&client).await;
    sender.send(text(&"x".repeat(10_000))).await.unwrap();
    echoes.message().await.unwrap();
    let open = once(&registry, |open| open.calls_in_flight == 1 && open.bytes_written >= 10_000).await;
    assert!(open.bytes_read >= 10_000 && open.user_agent.starts_with("quire-grpc/"), "{open:?}");
    assert!(open.address.is_some_and(|address| address.ip().is_loopback()), "{open:?}");
    assert_eq!(open.client, Client::at(open.address.map(|address| address.ip())));
    drop(sender);
    assert!(echoes.message().await.unwrap().is_none());
    once(&registry, |open| open.calls_in_flight == 0).await;
    drop((client, echoes));
    server.counts.until(|counts| counts.get("closed") == 1).await;
    assert!(registry.list().is_empty());
}

#[tokio::test]
async fn a_cut_connection_ends_with_its_calls_and_no_other_does() {
    let registry = ConnectionRegistry::default();
    let server = listing(&registry).await;
    let (first, second) = (server.client().await, server.client().await);
    let (_sender, mut echoes) = open(&first).await;
    let id = once(&registry, |open| open.calls_in_flight == 1).await.id;
    second.call(text("x")).await.unwrap();
    assert!(registry.cut(id));
    assert_eq!(echoes.message().await.unwrap_err().code(), Code::Unavailable);
    server.counts.until(|counts| counts.get(CUT) == 1).await;
    second.call(text("x")).await.unwrap();
    assert!(registry.list().iter().all(|open| open.id != id));
    assert!(!registry.cut(id), "it is not open any more");
}

#[tokio::test]
async fn a_connection_that_has_sent_nothing_can_be_cut() {
    let registry = ConnectionRegistry::default();
    let server = listing(&registry).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let id = once(&registry, |open| open.bytes_read == 0).await.id;
    assert!(registry.cut(id));
    assert_eq!(silent.read(&mut [0]).await.unwrap_or(0), 0);
    server.counts.until(|counts| counts.get(CUT) == 1).await;
}

#[tokio::test]
async fn connections_of_http1_are_listed_and_cut_as_well() {
    let registry = ConnectionRegistry::default();
    let server = listing(&registry).await;
    let mut browser = TcpStream::connect(server.address).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: localhost\r\nuser-agent: Lynx/2\r\n\r\n";
    browser.write_all(request).await.unwrap();
    browser.read_u8().await.unwrap();
    let open = once(&registry, |open| open.bytes_written > 0).await;
    assert_eq!((&*open.user_agent, open.bytes_read), ("Lynx/2", request.len() as u64));
    assert!(registry.cut(open.id));
    server.counts.until(|counts| counts.get(CUT) == 1).await;
}

#[tokio::test]
async fn a_caller_with_a_credential_is_listed_by_its_name() {
    let registry = ConnectionRegistry::default();
    let name = |_: &str, request: &mut Request<()>| {
        let named: Arc<str> = request.metadata().get("name").unwrap_or("unnamed").into();
        request.extensions_mut().insert(Client::Credential(named));
        Ok::<_, Status>(())
    };
    let server =
        Running::with(Limits::default(), |builder| builder.connections(registry.clone()).interceptor(name)).await;
    let client = server.client().await;
    for caller in ["ada", "grace"] {
        let mut request = Request::new(text("x"));
        request.metadata_mut().insert("name", caller).unwrap();
        client.call(request).await.unwrap();
        once(&registry, |open| open.client == Client::Credential(caller.into())).await;
    }
}
