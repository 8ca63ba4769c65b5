//! Addresses of a channel: several servers in turn, skipping unreachable ones, and Unix sockets.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Running, open, text};
use quire_rpc::client::{Address, Channel, HttpVersion, Protocol, Resolver, Settings};
use quire_rpc::{Code, Limits, Request, Server, Status};
use rpc_testing::EchoService;
use rpc_testing::proto::echo_client::EchoClient;
use rpc_testing::proto::echo_server::EchoServer;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{mpsc, oneshot};

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
        let mut request = Request::new(text("moved"));
        request.set_wait_for_ready(true);
        client.call(request).await.unwrap();
        server.stopped().await;
    }
}

#[tokio::test]
async fn a_unix_socket_is_an_address() {
    let path = std::env::temp_dir().join(format!("quire-rpc-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let server = Server::builder().add_service(EchoServer::new(EchoService));
    tokio::spawn(server.serve_incoming(listener, pending()));
    let channel = Channel::builder(&format!("unix:{}", path.display())).unwrap().connect().await.unwrap();
    let answer = EchoClient::new(channel).call(text("near")).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(answer.get_ref().payload, b"near");
}

#[tokio::test]
async fn a_server_of_this_process_needs_no_address() {
    let server = Server::builder().add_service(EchoServer::new(EchoService)).build();
    for http in [HttpVersion::Http1, HttpVersion::Http2] {
        let settings = Settings { protocol: Protocol::Connect, http, ..Settings::default() };
        let builder = Channel::builder("http://here").unwrap().connector(server.clone()).settings(settings);
        let client = EchoClient::new(builder.connect().await.unwrap());
        let answer = client.call(text(&"long ".repeat(1000))).await.unwrap().into_inner();
        assert_eq!(answer.payload.len(), 5000);
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_peer_of_an_abstract_socket_is_known_by_its_credentials() {
    let name = format!("quire-rpc-{}", std::process::id());
    let listener = UnixListener::bind(format!("\0{name}")).unwrap();
    let allow = |_: &str, request: &mut Request<()>| {
        let caller = request.peer().and_then(|peer| peer.credentials).and_then(|credentials| credentials.process);
        let ours = i32::try_from(std::process::id()).ok();
        if caller == ours { Err(Status::aborted("known")) } else { Err(Status::permission_denied("unknown")) }
    };
    let server = Server::builder().add_service(EchoServer::new(EchoService)).interceptor(allow);
    tokio::spawn(server.serve_incoming(listener, pending()));
    let channel = Channel::builder(&format!("unix-abstract:{name}")).unwrap().connect().await.unwrap();
    let status = EchoClient::new(channel).call(text("near")).await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted, "{status}");
}

#[tokio::test]
async fn streams_of_a_receiver_are_served_until_their_calls_have_ended() {
    let (give, streams) = mpsc::channel(1);
    let (stop, stopped) = oneshot::channel::<()>();
    let server = Server::builder().add_service(EchoServer::new(EchoService));
    let serving = tokio::spawn(server.serve_incoming(streams, async { drop(stopped.await) }));
    let channel = Channel::builder("http://here").unwrap().connector(move || {
        let give = give.clone();
        async move {
            let (near, far) = tokio::io::duplex(1024);
            give.send(far).await.map_err(io::Error::other)?;
            Ok(near)
        }
    });
    let client = EchoClient::new(channel.connect().await.unwrap());
    let (sender, mut echoes) = open(&client).await;
    stop.send(()).unwrap();
    sender.send(text("to the end")).await.unwrap();
    assert_eq!(echoes.message().await.unwrap().unwrap().payload, b"to the end");
    assert!(!serving.is_finished());
    drop(sender);
    assert!(echoes.message().await.unwrap().is_none());
    serving.await.unwrap();
    client.call(text("too late")).await.unwrap_err();
}
