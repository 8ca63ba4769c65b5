//! Grouping of callers into games, and the order of messages.

use quire_rpc::Code;
use rpcgame::grpc::wire::DoneRequest;
use rpcgame::grpc::wire::rpc_game_client::RpcGameClient;
use rpcgame::{GameLimits, Group, Sums};
use tokio::task::JoinSet;

use crate::support::{client, done, expected, gzip_client, message, send, serve};

fn group(group: Group) -> GameLimits {
    GameLimits { group, ..GameLimits::default() }
}

/// Serials from 1 to `most`, each once, in a pseudo-random but fixed order.
fn shuffled(most: u64) -> impl Iterator<Item = u64> {
    // A multiplier without a common factor visits every residue.
    let prime = 7919;
    assert!(!most.is_multiple_of(prime));
    (0..most).map(move |place| place * prime % most + 1)
}

fn name(serial: u64) -> String {
    "n".repeat(usize::try_from(serial % 300).unwrap())
}

async fn play_shuffled(client: &RpcGameClient, most: u64) -> Sums {
    let mut calls = JoinSet::new();
    for serial in shuffled(most) {
        let client = client.clone();
        calls.spawn(async move { (serial, send(&client, serial, &name(serial), serial * 3).await) });
    }
    while let Some(answer) = calls.join_next().await {
        let (serial, value) = answer.unwrap();
        let expected = rpcgame::hash(name(serial).as_bytes()).wrapping_add(serial * 3).wrapping_add(serial - 1);
        assert_eq!(value.unwrap(), expected, "serial {serial}");
    }
    done(client).await
}

fn expected_of(most: u64) -> Sums {
    let names: Vec<String> = (1..=most).map(name).collect();
    expected(names.iter().zip(1..).map(|(name, serial)| (name.as_str(), serial * 3)))
}

#[tokio::test]
async fn messages_in_any_order_are_handled_in_the_order_of_their_serials() {
    let (address, games) = serve(GameLimits::default()).await;
    for client in [client(address).await, gzip_client(address).await] {
        // All are in flight at once: a connection has room for 256 calls.
        assert_eq!(play_shuffled(&client, 200).await, expected_of(200));
        assert_eq!(games.waiting_bytes(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_at_once_do_not_disturb_each_other() {
    let (address, _) = serve(GameLimits::default()).await;
    let mut players = JoinSet::new();
    for most in [151, 199] {
        players.spawn(async move {
            let client = client(address).await;
            for _ in 0..5 {
                assert_eq!(play_shuffled(&client, most).await, expected_of(most));
            }
        });
    }
    players.join_all().await;
}

#[tokio::test]
async fn a_named_game_is_played_over_many_connections() {
    let (address, _) = serve(GameLimits::default()).await;
    let (first, second, stranger) = (client(address).await, client(address).await, client(address).await);
    for serial in 1..=100 {
        let mut request = message(serial, &name(serial), serial * 3);
        request.metadata_mut().insert("quire-game", "ours").unwrap();
        let client = if serial % 3 == 0 { &first } else { &second };
        client.r#try(request).await.unwrap();
    }
    send(&stranger, 1, "one", 1).await.unwrap();
    let mut request = quire_rpc::Request::new(DoneRequest {});
    request.metadata_mut().insert("quire-game", "ours").unwrap();
    let sums = first.done(request).await.unwrap().into_inner();
    assert_eq!(sums.client_checksum, format!("{:016x}", expected_of(100).client).into_bytes());
    assert_eq!(sums.server_checksum, format!("{:016x}", expected_of(100).server).into_bytes());
    assert_eq!(done(&stranger).await, expected([("one", 1)]));
}

#[tokio::test]
async fn a_game_without_a_proper_name_is_refused() {
    let (address, _) = serve(GameLimits::default()).await;
    let client = client(address).await;
    for name in [String::new(), "n".repeat(129)] {
        let mut request = message(1, "", 1);
        request.metadata_mut().insert("quire-game", &name).unwrap();
        let status = client.r#try(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("must have from 1 to 128"), "{status:?}");
    }
}

#[tokio::test]
async fn connections_of_an_address_or_a_server_can_play_one_game() {
    for together in [Group::Address, Group::Server] {
        let (address, games) = serve(group(together)).await;
        let clients = [client(address).await, client(address).await, client(address).await];
        for serial in 1..=90 {
            let client = &clients[usize::try_from(serial % 3).unwrap()];
            send(client, serial, &name(serial), serial * 3).await.unwrap();
        }
        assert_eq!(games.count(), 1);
        assert_eq!(done(&clients[0]).await, expected_of(90), "{together:?}");
    }
}

#[tokio::test]
async fn after_done_a_new_game_starts_from_one() {
    let (address, games) = serve(GameLimits::default()).await;
    let client = client(address).await;
    assert_eq!(done(&client).await, expected([]));
    for most in [3, 5] {
        for serial in 1..=most {
            send(&client, serial, &name(serial), serial * 3).await.unwrap();
        }
        assert_eq!(done(&client).await, expected_of(most));
    }
    assert_eq!(*games.ended().borrow(), 3);
}
