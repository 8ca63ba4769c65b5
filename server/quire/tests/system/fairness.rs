//! A greedy client leaves permits for a newcomer at another address.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

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

/// Longest wait of a newcomer for an answer.
const SOON: Duration = Duration::from_secs(1);

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
    let watch = timeout(SOON, newcomer.watch(WatchRequest::default())).await.expect("soon").expect("a watch");
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
    let tail = timeout(SOON, newcomer.tail_log(all)).await.expect("soon").expect("a tail");
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
    timeout(SOON, newcomer.r#try(first(usize::MAX))).await.expect("soon").expect("a value");
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

#[tokio::test]
async fn a_newcomer_has_a_lean_connection_while_another_client_has_all_it_can() {
    let folder = folder();
    let server = Server::start(folder.path());
    let lean = super::rpcgame::ports(&server).1.parse().expect("an address");
    let open = || usize::try_from(http::metric(server.address, "quire_rpcgame_lean_connections")).expect("a count");
    let mut held = Vec::new();
    for _ in 0..256 {
        held.push(TcpStream::connect(lean).await.expect("a connection"));
    }
    poll("the greedy client's share", async || (open() == 192).then_some(())).await;
    let mut newcomer = connect_from(NEWCOMER, lean).await;
    timeout(SOON, poll("the newcomer's place", async || (open() == 193).then_some(()))).await.expect("soon");
    newcomer.shutdown().await.expect("an end");
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
