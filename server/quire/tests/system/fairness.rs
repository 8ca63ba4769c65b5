//! A greedy client leaves permits for a newcomer at another address.

use std::net::{IpAddr, SocketAddr};

use bookstore::grpc::wire::{
    HelloRequest, TailLogRequest, admin_client::AdminClient, book_store_client::BookStoreClient,
};
use kv::grpc::wire::{WatchRequest, key_range_service_client::KeyRangeServiceClient};
use quire_rpc::{
    Code, Request, Status,
    client::{Channel, Protocol},
    health::{HealthCheckRequest, HealthClient},
};
use rpcgame::grpc::wire::{TryRequest, rpc_game_client::RpcGameClient};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional},
    net::{TcpListener, TcpSocket, TcpStream},
    time::timeout,
};

use crate::common::{
    PATIENCE, http, poll,
    process::{Server, Start},
    store::folder,
};

const NEWCOMER: [u8; 4] = [127, 0, 0, 2];

async fn connect_from(source: impl Into<IpAddr>, server: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((source.into(), 0).into()).expect("an address of this machine");
    socket.connect(server).await.expect("a connection")
}

/// A channel whose connections come from the newcomer's address.
async fn newcomer(server: SocketAddr) -> Channel {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut relayed = connect_from(NEWCOMER, server).await;
            tokio::spawn(async move { copy_bidirectional(&mut client, &mut relayed).await });
        }
    });
    Channel::builder(&format!("http://{address}")).expect("an address").connect_lazy().expect("a channel")
}

/// Asks until the first refusal; returns the results.
async fn take_all<T>(limit: &str, mut ask: impl AsyncFnMut(usize) -> Result<T, Status>) -> Vec<T> {
    let mut held = Vec::new();
    loop {
        match ask(held.len()).await {
            Ok(more) => held.push(more),
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                assert!(status.message().contains(limit), "{status:?}");
                return held;
            }
        }
    }
}

#[tokio::test]
async fn a_newcomer_watches_keys_while_another_client_watches_all_it_can() {
    let folder = folder();
    let server = Server::start(folder.path());
    let greedy = KeyRangeServiceClient::new(server.channel());
    let held = take_all("kv.watchers", async |_| greedy.watch(WatchRequest::default()).await).await;
    assert_eq!(held.len(), 48, "three quarters of the default");
    let newcomer = KeyRangeServiceClient::new(newcomer(server.address).await);
    let watch = timeout(PATIENCE, newcomer.watch(WatchRequest::default())).await.expect("soon").expect("a watch");
    watch.into_inner().message().await.expect("a word").expect("the start");
}

#[tokio::test]
async fn a_newcomer_follows_the_log_while_another_client_follows_it_as_often_as_it_can() {
    let folder = folder();
    let server = Server::start(folder.path());
    let (greedy, all) = (server.admin(), TailLogRequest { after_number: Some(0) });
    let held = take_all("log_tails", async |_| greedy.tail_log(all).await).await;
    assert_eq!(held.len(), 12, "three quarters of the default");
    let newcomer = AdminClient::new(newcomer(server.address).await);
    let tail = timeout(PATIENCE, newcomer.tail_log(all)).await.expect("soon").expect("a tail");
    tail.into_inner().message().await.expect("a word").expect("an entry");
}

#[tokio::test]
async fn a_newcomer_plays_while_another_client_plays_all_games_it_can() {
    let folder = folder();
    let server = Server::start(folder.path());
    let first = |game: usize| {
        let mut request = Request::new(TryRequest { serial: "1".into(), name: "a".into(), count: "1".into() });
        let _ = request.metadata_mut().insert("quire-game", &game.to_string());
        request
    };
    let greedy = RpcGameClient::new(server.channel());
    let held = take_all("rpcgame.games", async |game| greedy.r#try(first(game)).await).await;
    assert_eq!(held.len(), 768, "three quarters of the default");
    let newcomer = RpcGameClient::new(newcomer(server.address).await);
    timeout(PATIENCE, newcomer.r#try(first(usize::MAX))).await.expect("soon").expect("a value");
}

#[tokio::test]
async fn callers_without_a_credential_leave_calls_to_those_with_one() {
    let folder = folder();
    super::tokens::tokens(folder.path(), &["shop"]);
    let start = Start::default().set("server.tokens=tokens").set("limits.calls_in_flight=32");
    let server = start.serve(folder.path());
    let stranger = HealthClient::new(server.channel());
    let held = take_all("calls_in_flight", async |_| stranger.watch(HealthCheckRequest::default()).await).await;
    assert_eq!(held.len(), 18, "three quarters of three quarters");
    let till = BookStoreClient::new(super::tokens::channel(&server, Protocol::Grpc, Some("the shop token")));
    for _ in 0..4 {
        till.hello(HelloRequest::default()).await.expect("an answer");
    }
    server.log.until("\"client\":\"127.0.0.1\",\"limit\":\"limits.calls_in_flight\"");
}

/// Silent connections, as many as a port accepts; `open` is the metric that counts them.
async fn take_connections(server: &Server, port: SocketAddr, count: u64, open: &str) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for _ in 0..count {
        held.push(TcpStream::connect(port).await.expect("a connection"));
    }
    poll("all connections", async || (http::metric(server.address, open) == count).then_some(())).await;
    held
}

#[tokio::test]
async fn a_newcomer_is_served_while_another_client_has_all_connections() {
    let folder = folder();
    let start = Start::default().set("limits.connections=16").set("tasks.connections=16");
    let server = start.set("rpcgame.lean_connections=16").serve(folder.path());
    let (tasks, lean) = (super::tasks::address(&server), super::rpcgame::ports(&server).1);
    let lean = lean.parse().expect("an address");
    let mut held = take_connections(&server, server.address, 16, "quire_connections").await;
    held.extend(take_connections(&server, tasks, 16, "quire_tasks_connections").await);
    held.extend(take_connections(&server, lean, 16, "quire_rpcgame_lean_connections").await);
    let shop = BookStoreClient::new(newcomer(server.address).await);
    timeout(PATIENCE, shop.hello(HelloRequest::default())).await.expect("soon").expect("an answer");
    let mut task = connect_from(NEWCOMER, tasks).await;
    let mut reply = [0];
    task.write_all(b"0:41\n").await.expect("room");
    timeout(PATIENCE, task.read_exact(&mut reply)).await.expect("soon").expect("a reply");
    assert_eq!(reply, [137]);
    let mut game = connect_from(NEWCOMER, lean).await;
    let mut said = Vec::new();
    game.write_all(&[0xff; 64]).await.expect("room");
    timeout(PATIENCE, game.read_to_end(&mut said)).await.expect("soon").expect("an end");
    assert!(!String::from_utf8_lossy(&said).contains("lean_connections"), "{said:?}");
    for limit in ["limits.connections", "tasks.connections", "rpcgame.lean_connections"] {
        server.log.until(&format!("\"client\":\"127.0.0.1\",\"limit\":\"{limit}\""));
    }
}

#[tokio::test]
async fn one_with_a_token_is_served_while_strangers_at_its_address_have_all_connections() {
    let folder = folder();
    super::tokens::tokens(folder.path(), &["shop"]);
    let start = Start::default().set("server.tokens=tokens").set("metrics.open=true");
    let server = start.set("limits.connections=16").serve(folder.path());
    let mut held = take_connections(&server, server.address, 16, "quire_connections").await;
    let till = BookStoreClient::new(super::tokens::channel(&server, Protocol::Grpc, Some("the shop token")));
    let hello =
        async || timeout(PATIENCE, till.hello(HelloRequest::default())).await.expect("soon").expect("an answer");
    hello().await;
    // Each of them takes the place of an earlier one.
    for _ in 0..16 {
        held.push(TcpStream::connect(server.address).await.expect("a connection"));
        hello().await;
    }
}

#[tokio::test]
async fn a_newcomers_cpu_tasks_do_not_wait_for_those_of_another_client() {
    let folder = folder();
    let server = Server::start(folder.path());
    let tasks = super::tasks::address(&server);
    let mut held = Vec::new();
    for connection in 1..=200 {
        let mut greedy = TcpStream::connect(tasks).await.expect("a connection");
        let lines = (0..64).fold(String::new(), |lines, task| lines + &format!("0:{}\n", 1000 * connection + task));
        greedy.write_all(lines.as_bytes()).await.expect("room");
        held.push(greedy);
    }
    let waiting = || http::metric(server.address, "quire_tasks_in_flight");
    poll("a long queue", async || (waiting() > 11_000).then_some(())).await;
    let mut newcomer = connect_from(NEWCOMER, tasks).await;
    let mut reply = [0];
    newcomer.write_all(b"0:41\n").await.expect("room");
    timeout(PATIENCE, newcomer.read_exact(&mut reply)).await.expect("in time").expect("a reply");
    assert_eq!(reply, [137]);
    assert!(waiting() > 1000, "it did not wait for the others");
    let mut greedy = BufReader::new(TcpStream::connect(tasks).await.expect("a connection"));
    let mut said = String::new();
    greedy.write_all(b"HELLO 2\n0:68\n").await.expect("room");
    timeout(PATIENCE, greedy.read_line(&mut said)).await.expect("in time").expect("a line");
    let refusal = "ERR too many CPU tasks wait and this one was not begun; try again in ";
    assert!(said.starts_with(refusal) && waiting() > 1000, "{said}");
}
