//! Every limit reached: refused by its name, and the game continues.

use std::time::Duration;

use quire_rpc::{Code, Status};
use rpcgame::game::EARLY_BYTES;
use rpcgame::grpc::wire::rpc_game_client::RpcGameClient;
use rpcgame::{GameLimits, Group};

use crate::support::{client, done, expected, send, serve, wait_for};

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, words: &str) {
    let status = answer.expect_err("a refusal");
    assert_eq!(status.code(), code, "{status:?}");
    assert!(status.message().contains(words), "no '{words}' in {status:?}");
}

fn later(client: &RpcGameClient, serial: u64) -> tokio::task::JoinHandle<Result<u64, Status>> {
    let client = client.clone();
    tokio::spawn(async move { send(&client, serial, "early", serial).await })
}

#[tokio::test]
async fn a_missing_serial_is_waited_for_so_long_and_then_named() {
    let (address, games) = serve(GameLimits { wait: Duration::from_millis(30), ..GameLimits::default() }).await;
    let client = client(address).await;
    send(&client, 1, "one", 1).await.unwrap();
    refused(
        send(&client, 4, "four", 4).await,
        Code::FailedPrecondition,
        "serial 2 is missing: it did not come within rpcgame.wait_seconds, 30 ms",
    );
    assert_eq!(games.waiting_bytes(), 0, "what was refused is not held");
    assert_eq!(games.counts().refusals().find(|(_, count)| *count > 0), Some(("missing", 1)));
    // Serial 4 was not handled, so it may come again.
    for (serial, name) in [(2, "two"), (3, "three"), (4, "four")] {
        send(&client, serial, name, serial).await.unwrap();
    }
    assert_eq!(done(&client).await, expected([("one", 1), ("two", 2), ("three", 3), ("four", 4)]));
}

#[tokio::test]
async fn a_message_too_far_ahead_is_refused_with_the_serial_that_is_missing() {
    let (address, games) = serve(GameLimits { window_messages: 3, ..GameLimits::default() }).await;
    let client = client(address).await;
    let (third, second) = (later(&client, 3), later(&client, 2));
    wait_for("two that wait", || games.waiting_bytes() == 2 * (EARLY_BYTES + "early".len())).await;
    refused(
        send(&client, 4, "four", 4).await,
        Code::ResourceExhausted,
        "serial 1 is missing, and serial 4 is 3 or more ahead",
    );
    refused(send(&client, u64::MAX, "", 0).await, Code::ResourceExhausted, "window_messages");
    send(&client, 1, "one", 1).await.unwrap();
    second.await.unwrap().unwrap();
    third.await.unwrap().unwrap();
    assert_eq!(done(&client).await, expected([("one", 1), ("early", 2), ("early", 3)]));
}

#[tokio::test]
async fn waiting_messages_of_all_games_have_so_much_room_together() {
    let waiting_bytes_max = 2 * (EARLY_BYTES + "early".len());
    let (address, games) = serve(GameLimits { waiting_bytes_max, ..GameLimits::default() }).await;
    let (first, second) = (client(address).await, client(address).await);
    let waiting = [later(&first, 2), later(&second, 2)];
    wait_for("two that wait", || games.waiting_bytes() == waiting_bytes_max).await;
    refused(send(&first, 3, "", 0).await, Code::ResourceExhausted, "waiting_bytes_max");
    for client in [&first, &second] {
        send(client, 1, "one", 1).await.unwrap();
    }
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
    assert_eq!(games.waiting_bytes(), 0);
    assert_eq!(done(&first).await, expected([("one", 1), ("early", 2)]));
}

#[tokio::test]
async fn a_caller_that_leaves_takes_its_message_along() {
    let (address, games) = serve(GameLimits::default()).await;
    let client = client(address).await;
    let leaving = later(&client, 2);
    wait_for("one that waits", || games.waiting_bytes() > 0).await;
    leaving.abort();
    wait_for("its leave", || games.waiting_bytes() == 0).await;
    send(&client, 1, "one", 1).await.unwrap();
    send(&client, 2, "two", 2).await.unwrap();
    assert_eq!(done(&client).await, expected([("one", 1), ("two", 2)]));
}

#[tokio::test]
async fn a_vanished_connection_holds_nothing() {
    let (address, games) = serve(GameLimits::default()).await;
    let vanishing = client(address).await;
    let waiting = later(&vanishing, 2);
    wait_for("one that waits", || games.waiting_bytes() > 0).await;
    waiting.abort();
    drop((waiting, vanishing));
    wait_for("its end", || games.count() == 0).await;
    assert_eq!(games.waiting_bytes(), 0);
}

#[tokio::test]
async fn what_waits_when_the_game_ends_is_told_so() {
    let (address, games) = serve(GameLimits::default()).await;
    let client = client(address).await;
    let waiting = later(&client, 7);
    wait_for("one that waits", || games.waiting_bytes() > 0).await;
    assert_eq!(done(&client).await, expected([]));
    refused(waiting.await.unwrap(), Code::Aborted, "the game ended before serial 1 came");
    assert_eq!(games.waiting_bytes(), 0);
}

#[tokio::test]
async fn a_game_too_many_is_refused_until_another_is_over() {
    let (address, games) = serve(GameLimits { games_max: 2.into(), ..GameLimits::default() }).await;
    let (first, second, third) = (client(address).await, client(address).await, client(address).await);
    send(&first, 1, "one", 1).await.unwrap();
    send(&second, 1, "one", 1).await.unwrap();
    refused(send(&third, 1, "one", 1).await, Code::ResourceExhausted, "the server's limit rpcgame.games is 2");
    send(&first, 2, "two", 2).await.unwrap();
    drop(second);
    wait_for("the end of the second one's game", || games.count() == 1).await;
    send(&third, 1, "one", 1).await.unwrap();
    assert_eq!(done(&first).await, expected([("one", 1), ("two", 2)]));
    assert_eq!(done(&third).await, expected([("one", 1)]));
}

#[tokio::test]
async fn a_game_that_is_over_is_not_counted_and_leaves_room_for_another() {
    let (address, games) = serve(GameLimits { games_max: 1.into(), ..GameLimits::default() }).await;
    let (first, second) = (client(address).await, client(address).await);
    for client in [&first, &second, &first] {
        assert_eq!(games.count(), 0);
        send(client, 1, "one", 1).await.unwrap();
        assert_eq!(games.count(), 1);
        assert_eq!(done(client).await, expected([("one", 1)]));
    }
    send(&second, 1, "one", 1).await.unwrap();
    drop(second);
    wait_for("the end of the connection", || games.count() == 0).await;
    assert_eq!(*games.ended().borrow(), 3);
}

#[tokio::test]
async fn an_idle_game_is_given_up_and_the_next_message_starts_a_new_one() {
    let (address, games) =
        serve(GameLimits { idle: Duration::ZERO, group: Group::Server, ..GameLimits::default() }).await;
    let client = client(address).await;
    send(&client, 1, "one", 1).await.unwrap();
    wait_for("the end of the game", || {
        games.expire();
        games.count() == 0
    })
    .await;
    send(&client, 1, "a new one", 1).await.unwrap();
    assert_eq!(done(&client).await, expected([("a new one", 1)]));
}

#[tokio::test]
async fn a_game_in_which_a_caller_waits_is_not_idle() {
    let (address, games) = serve(GameLimits { idle: Duration::from_hours(1), ..GameLimits::default() }).await;
    let client = client(address).await;
    let waiting = later(&client, 2);
    wait_for("one that waits", || games.waiting_bytes() > 0).await;
    games.expire();
    assert_eq!(games.count(), 1);
    send(&client, 1, "one", 1).await.unwrap();
    waiting.await.unwrap().unwrap();
}
