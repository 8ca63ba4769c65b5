//! Invalid messages; after each refusal the game continues.

use quire_rpc::{Code, Status};
use rpcgame::GameLimits;
use rpcgame::grpc::wire::rpc_game_client::RpcGameClient;

use crate::support::{client, done, expected, fields, gzip_client, send, send_bytes, serve};

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, words: &str) {
    let status = answer.expect_err("a refusal");
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.message().contains(words), "no '{words}' in {status:?}");
}

/// Checks that the game continues normally.
async fn goes_on(client: &RpcGameClient) {
    send(client, 1, "one", 1).await.unwrap();
    send(client, 2, "two", 2).await.unwrap();
    assert_eq!(done(client).await, expected([("one", 1), ("two", 2)]));
}

#[tokio::test]
async fn bad_numbers_are_refused_and_the_game_goes_on() {
    let (address, games) = serve(GameLimits::default()).await;
    for client in [client(address).await, gzip_client(address).await] {
        for (text, words) in [
            ("", "is empty"),
            ("-1", "something else than digits"),
            ("+1", "something else than digits"),
            (" 1", "something else than digits"),
            ("1 ", "something else than digits"),
            ("1.0", "something else than digits"),
            ("0x1", "something else than digits"),
            ("one", "something else than digits"),
            ("18446744073709551616", "too large"),
        ] {
            refused(send_bytes(&client, fields(text.as_bytes(), b"name", b"1")).await, words);
            refused(send_bytes(&client, fields(b"1", b"name", text.as_bytes())).await, "the count");
        }
        refused(send_bytes(&client, fields(b"0", b"name", b"1")).await, "serial is 0");
        refused(send_bytes(&client, fields(b"1", b"name", b"\xd9\xa1")).await, "something else than digits");
        goes_on(&client).await;
    }
    let counted: Vec<_> = games.counts().refusals().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counted, [("number", 2 * 19), ("serial zero", 2)]);
}

#[tokio::test]
async fn a_serial_that_came_before_is_refused() {
    let (address, games) = serve(GameLimits::default()).await;
    let client = client(address).await;
    send(&client, 1, "one", 1).await.unwrap();
    refused(send(&client, 1, "one", 1).await, "serial 1 came before");
    let early = tokio::spawn({
        let client = client.clone();
        async move { send(&client, 3, "three", 3).await }
    });
    crate::support::wait_for("the early one", || games.waiting_bytes() > 0).await;
    refused(send(&client, 3, "another three", 3).await, "serial 3 came before");
    send(&client, 2, "two", 2).await.unwrap();
    early.await.unwrap().unwrap();
    assert_eq!(done(&client).await, expected([("one", 1), ("two", 2), ("three", 3)]));
}

#[tokio::test]
async fn a_name_that_is_no_text_is_refused_and_the_game_goes_on() {
    let (address, _) = serve(GameLimits::default()).await;
    for client in [client(address).await, gzip_client(address).await] {
        for name in [&b"\xff"[..], b"ends in a start \xc3", b"\xed\xa0\x80", b"\xc0\x80"] {
            refused(send_bytes(&client, fields(b"1", name, b"1")).await, "not UTF-8");
        }
        goes_on(&client).await;
    }
}

#[tokio::test]
async fn a_message_that_is_none_is_refused_and_the_game_goes_on() {
    let (address, _) = serve(GameLimits::default()).await;
    let client = client(address).await;
    for (bytes, words) in [
        (&b"\x0a"[..], "ends inside a field"),
        (b"\x0a\x05abc", "ends inside a field"),
        (b"\x08\x01", "another type"),
        (b"\x02\x00", "number 0"),
        (b"\x0f", "type that does not exist"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "more than ten bytes"),
    ] {
        refused(send_bytes(&client, bytes.to_vec()).await, words);
    }
    goes_on(&client).await;
}

#[tokio::test]
async fn a_name_over_the_limit_is_refused_and_one_at_it_is_not() {
    let (address, _) = serve(GameLimits { name_bytes_max: 10, ..GameLimits::default() }).await;
    let client = client(address).await;
    refused(send(&client, 1, "eleven letters", 1).await, "name_bytes_max is 10");
    send(&client, 1, "ten letter", 1).await.unwrap();
    assert_eq!(done(&client).await, expected([("ten letter", 1)]));
}

#[tokio::test]
async fn a_name_may_be_as_long_as_a_message_lets_it_be() {
    let (address, _) = serve(GameLimits::default()).await;
    let client = client(address).await;
    let name = "n".repeat((4 << 20) - 32);
    send(&client, 1, &name, 1).await.unwrap();
    assert_eq!(done(&client).await, expected([(&*name, 1)]));
}

#[tokio::test]
async fn fields_the_contract_does_not_know_are_passed_over() {
    let (address, _) = serve(GameLimits::default()).await;
    let client = client(address).await;
    let mut request = fields(b"1", b"name", b"1");
    // Field 4 of each type, and the serial again: the last one counts.
    request.extend_from_slice(b"\x20\x07\x21aaaaaaaa\x22\x01x\x25aaaa\x0a\x011");
    send_bytes(&client, request).await.unwrap();
    assert_eq!(done(&client).await, expected([("name", 1)]));
}
