//! Servers on their own ports, and messages.

use std::future::pending;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use quire_rpc::client::{Channel, Settings as ChannelSettings};
use quire_rpc::wire::put_delimited;
use quire_rpc::{Encoded, Encoding, Request, Response, Status};
use rpcgame::grpc::wire::rpc_game_client::{RpcGameClient, TRY};
use rpcgame::grpc::wire::rpc_game_server::RpcGameServer;
use rpcgame::grpc::wire::rpc_game_stream_server::RpcGameStreamServer;
use rpcgame::grpc::wire::{DoneRequest, DoneResponse, TryRequest};
use rpcgame::grpc::{GameService, StreamService};
use rpcgame::{GameLimits, Games, Sums, hash, lean};
use tokio::net::TcpListener;

/// Far longer than anything here takes; only a failing test waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Path of the tests' own input.
pub(crate) fn input_path() -> PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/lines.txt").into()
}

/// Serves games over gRPC on its own port.
pub(crate) async fn serve(settings: GameLimits) -> (SocketAddr, Games) {
    let games = Games::new(settings);
    let server = quire_rpc::Server::builder()
        .add_service(RpcGameServer::new(GameService::new(games.clone())))
        .add_service(RpcGameStreamServer::new(StreamService::new(games.clone())));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(server.serve(listener, pending()));
    (address, games)
}

/// Serves the lean protocol on its own port.
pub(crate) async fn serve_lean(limits: lean::Limits) -> (SocketAddr, lean::Server) {
    let server = lean::Server::new(Games::new(GameLimits::default()), limits, PATIENCE);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, serving) = (listener.local_addr().unwrap(), server.clone());
    tokio::spawn(async move { serving.serve(listener, Vec::new(), pending()).await });
    (address, server)
}

/// A client with its own connection.
pub(crate) async fn client(address: SocketAddr) -> RpcGameClient {
    client_with(address, ChannelSettings::default()).await
}

/// Like the existing client, which compresses requests.
pub(crate) async fn gzip_client(address: SocketAddr) -> RpcGameClient {
    client_with(address, ChannelSettings { compression: Some((Encoding::Gzip, 0)), ..ChannelSettings::default() }).await
}

async fn client_with(address: SocketAddr, settings: ChannelSettings) -> RpcGameClient {
    let channel = Channel::builder(&format!("http://{address}")).unwrap().settings(settings);
    RpcGameClient::new(channel.connect().await.unwrap())
}

/// A message as a client of the contract writes it.
pub(crate) fn message(serial: u64, name: &str, count: u64) -> Request<TryRequest> {
    Request::new(TryRequest { serial: serial.to_string(), name: name.to_owned(), count: count.to_string() })
}

/// A message with any fields, text or not.
pub(crate) fn fields(serial: &[u8], name: &[u8], count: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (field, value) in [(1, serial), (2, name), (3, count)] {
        put_delimited(field, value, &mut bytes);
    }
    bytes
}

/// Sends any bytes as a message.
pub(crate) async fn send_bytes(client: &RpcGameClient, bytes: Vec<u8>) -> Result<Response<Encoded>, Status> {
    client.channel().unary(&TRY, Request::new(Encoded::from(bytes))).await
}

/// Sends a message; returns its value.
pub(crate) async fn send(client: &RpcGameClient, serial: u64, name: &str, count: u64) -> Result<u64, Status> {
    let answer = client.r#try(message(serial, name, count)).await?;
    Ok(answer.get_ref().value.parse().unwrap())
}

/// Ends the game; returns the checksums.
pub(crate) async fn done(client: &RpcGameClient) -> Sums {
    let DoneResponse { client_checksum, server_checksum } = client.done(DoneRequest {}).await.unwrap().into_inner();
    let number = |digits: &[u8]| {
        assert_eq!(digits.len(), 16);
        u64::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
    };
    Sums { client: number(&client_checksum), server: number(&server_checksum) }
}

/// Expected checksums of a game with these messages, in this order.
pub(crate) fn expected<'a>(messages: impl IntoIterator<Item = (&'a str, u64)>) -> Sums {
    let (mut client, mut server) = (Vec::new(), Vec::new());
    for (place, (name, count)) in messages.into_iter().enumerate() {
        client.extend_from_slice(name.as_bytes());
        client.extend_from_slice(&count.to_le_bytes());
        let value = hash(name.as_bytes()).wrapping_add(count).wrapping_add(place as u64);
        server.extend_from_slice(&value.to_le_bytes());
    }
    Sums { client: hash(&client), server: hash(&server) }
}

/// Polls until `condition` holds.
pub(crate) async fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "waited in vain for {what}");
}
