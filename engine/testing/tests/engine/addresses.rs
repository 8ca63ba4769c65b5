//! Addresses of a channel: several servers in turn, skipping unreachable ones, and Unix sockets.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Running, text};
use quire_rpc::client::{Address, Channel, HttpVersion, Protocol, Resolver, Settings};
use quire_rpc::{Limits, Peer, Server};
use rpc_testing::EchoService;
use rpc_testing::proto::echo_client::EchoClient;
use rpc_testing::proto::echo_server::EchoServer;
use tokio::net::{TcpListener, UnixListener};

async fn client(resolver: impl Resolver, settings: Settings) -> EchoClient {
    let builder = Channel::builder("http://shop.example").unwrap().resolver(resolver).settings(settings);
    EchoClient::new(builder.connect().await.unwrap())
}

#[tokio::test]
async fn calls_are_shared_out_among_several_servers() {
    let (first, second) = (Running::new(Limits::default()).await, Running::new(Limits::default()).await);
    let client = client(vec![first.address, second.address], Settings { connections: 4, ..Settings::default() }).await;
    for _ in 0..40 {
        client.call(text("to one of them")).await.unwrap();
    }
    for server in [first, second] {
        let counts = server.stopped().await;
        assert_eq!((counts.get("opened"), counts.get("/testing.Echo/Call OK")), (2, 20));
    }
}

#[tokio::test]
async fn an_address_without_a_server_is_passed_over_on_either_http() {
    let server = Running::new(Limits::default()).await;
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for http in [HttpVersion::Http1, HttpVersion::Http2] {
        let settings = Settings { protocol: Protocol::Connect, http, connections: 2, ..Settings::default() };
        let client = client(vec![dead, server.address], settings).await;
        for _ in 0..4 {
            client.call(text("found")).await.unwrap();
        }
    }
}

/// Resolves to the addresses set last.
struct Moving(Arc<Mutex<Vec<SocketAddr>>>);

impl Resolver for Moving {
    async fn resolve(&self) -> io::Result<Vec<Address>> {
        Ok(self.0.lock().unwrap().iter().copied().map(Address::Tcp).collect())
    }
}

#[tokio::test]
async fn a_resolver_is_asked_before_each_connection() {
    let addresses = Arc::new(Mutex::new(Vec::new()));
    let settings = Settings { reconnect_first: Duration::from_millis(1), ..Settings::default() };
    let builder = Channel::builder("http://shop.example").unwrap().resolver(Moving(Arc::clone(&addresses)));
    let channel = builder.settings(settings).connect_lazy().unwrap();
    let error = channel.ready().await.unwrap_err().to_string();
    assert_eq!(error, "cannot reach shop.example: the resolver knows no address");
    let client = EchoClient::new(channel);
    for _ in 0..2 {
        let server = Running::new(Limits::default()).await;
        *addresses.lock().unwrap() = vec![server.address];
        let mut request = quire_rpc::Request::new(text("moved"));
        request.set_wait_for_ready(true);
        client.call(request).await.unwrap();
        server.stopped().await;
    }
}

#[tokio::test]
async fn a_unix_socket_is_an_address() {
    let path = std::env::temp_dir().join(format!("quire-rpc-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let server = Server::builder().add_service(EchoServer::new(EchoService)).build();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let server = server.clone();
            tokio::spawn(async move { server.serve_connection(stream, Peer::default(), pending()).await });
        }
    });
    let channel = Channel::builder(&format!("unix:{}", path.display())).unwrap().connect().await.unwrap();
    let answer = EchoClient::new(channel).call(text("near")).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(answer.get_ref().payload, b"near");
}

#[tokio::test]
async fn a_server_of_this_process_needs_no_address() {
    let server = Server::builder().add_service(EchoServer::new(EchoService)).build();
    let dial = move || {
        let (near, far) = tokio::io::duplex(1024);
        let server = server.clone();
        tokio::spawn(async move { server.serve_connection(far, Peer::default(), pending()).await });
        Ok(near)
    };
    for http in [HttpVersion::Http1, HttpVersion::Http2] {
        let settings = Settings { protocol: Protocol::Connect, http, ..Settings::default() };
        let builder = Channel::builder("http://here").unwrap().dial(dial.clone()).settings(settings);
        let client = EchoClient::new(builder.connect().await.unwrap());
        let answer = client.call(text(&"long ".repeat(1000))).await.unwrap().into_inner();
        assert_eq!(answer.payload.len(), 5000);
    }
}
