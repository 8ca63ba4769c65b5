//! The RPC game from outside: the server on its three ports, and `quire game` against each.

use std::{fmt::Write as _, fs, net::TcpListener, path::Path, process::Output};

use quire_rpc::{
    Request,
    client::Channel,
    health::{HealthCheckRequest, HealthClient},
};
use rpcgame::grpc::wire::{DoneRequest, TryRequest, rpc_game_client::RpcGameClient};

use super::bad_starts::one_line;
use crate::common::{
    http,
    process::{Server, Start, run},
    store::folder,
    wait_for,
};

/// The addresses of the game's own ports, gRPC and lean.
pub(super) fn ports(server: &Server) -> (String, String) {
    let lines = server.log.text();
    let mut lines = lines.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let line = lines.find(|line| line["fields"]["message"] == "the RPC game has ports of its own");
    let fields = line.expect("a line that says so")["fields"].clone();
    let port = |name: &str| fields[name].as_str().unwrap_or_default().to_owned();
    (port("grpc"), port("lean"))
}

/// Twenty pairs, one without a name, and two invalid lines.
fn write_input(folder: &Path) {
    let mut lines = String::from(",5\nno pair\n");
    for number in 0..19_u32 {
        let _ = writeln!(lines, "{},{}", "a name ".repeat(number as usize * 3), number * 1000);
    }
    lines.push_str("a name without a number,\n");
    fs::write(folder.join("lines.txt"), lines).expect("a file");
}

/// Computed by Python's xxhash over that file and 20,000 messages, with the lines in
/// server/rpcgame/tests/game/drivers.rs.
const CLIENT: &str = "2a2ab8ec3c2cfb40";
const SERVER: &str = "d954f11999c38ecd";

fn game(folder: &Path, address: &str, arguments: &[&str]) -> Output {
    run(folder, &[&["game", address, "--input", "lines.txt"], arguments].concat(), "")
}

#[track_caller]
fn matches(output: &Output, messages: &str) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for side in ["client", "server"] {
        let line = format!("{side}'s checksums: client {CLIENT}, server {SERVER}\n");
        assert!(text.contains(&line), "no '{line}' in {text}");
    }
    assert!(text.starts_with(&format!("10000 of {messages}\n20000 of {messages}\n")), "{text}");
    assert!(text.contains("\nthey match\n") && text.contains(&format!("\n{messages} messages in ")), "{text}");
}

#[test]
fn every_transport_comes_to_the_same_checksums_on_every_port() {
    let folder = folder();
    write_input(folder.path());
    let server = Server::start(folder.path());
    let (grpc, lean) = ports(&server);
    let main = server.address.to_string();
    for address in [&main, &grpc] {
        for transport in ["unary", "windowed", "stream"] {
            matches(&game(folder.path(), address, &["-n", "20000", "--transport", transport]), "20000");
        }
    }
    matches(&game(folder.path(), &lean, &["-n", "20000", "--transport", "lean", "--window", "77"]), "20000");
    let metric = |series: &str| http::metric(server.address, series);
    assert_eq!(metric("quire_rpcgame_lean_messages_total"), 20_000);
    assert_eq!(metric("quire_rpcgame_ended_total"), 7);
    assert_eq!(metric("quire_rpcgame_refusals_total{reason=\"duplicate\"}"), 0);
    let left = || metric("quire_rpcgame_lean_closed_total{reason=\"client\"}") == 1;
    wait_for("the end of the lean connection", || left().then_some(()));
    assert_eq!(metric("quire_rpcgame_lean_connections"), 0);
    server.stop();
}

#[tokio::test]
async fn games_that_are_over_are_not_counted() {
    let folder = folder();
    let server = Server::start(folder.path());
    let count = || http::metric(server.address, "quire_rpcgame_games");
    let channel = server.channel();
    let client = RpcGameClient::new(channel.clone());
    for _ in 0..2 {
        assert_eq!(count(), 0);
        client.r#try(first_message()).await.expect("a value");
        assert_eq!(count(), 1);
        client.done(DoneRequest {}).await.expect("checksums");
    }
    assert_eq!(count(), 0, "over, though its connection is open");
    client.r#try(first_message()).await.expect("a value");
    assert_eq!(count(), 1);
    drop(client);
    channel.close().await;
    wait_for("the end of the connection", || (count() == 0).then_some(()));
    assert_eq!(http::metric(server.address, "quire_rpcgame_ended_total"), 2);
}

fn first_message() -> Request<TryRequest> {
    Request::new(TryRequest { serial: "1".to_owned(), name: "a name".to_owned(), count: "1".to_owned() })
}

#[test]
fn with_once_the_server_stops_after_the_first_game_over_grpc() {
    let folder = folder();
    write_input(folder.path());
    let mut server = Start::default().flag("--once").serve(folder.path());
    let (grpc, _) = ports(&server);
    matches(&game(folder.path(), &grpc, &["-n", "20000"]), "20000");
    assert!(server.wait().success(), "{}", server.log.text());
    server.log.until("the game is over");
}

#[test]
fn with_once_the_server_stops_after_the_first_game_over_lean() {
    let folder = folder();
    write_input(folder.path());
    let mut server = Start::default().set("rpcgame.once=true").serve(folder.path());
    let (_, lean) = ports(&server);
    matches(&game(folder.path(), &lean, &["-n", "20000", "--transport", "lean"]), "20000");
    assert!(server.wait().success(), "{}", server.log.text());
}

#[test]
fn a_port_of_the_game_in_use_is_named_with_its_setting() {
    let folder = folder();
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = other.local_addr().expect("an address").to_string();
    for key in ["rpcgame.listen", "rpcgame.lean_listen"] {
        let line = one_line(&mut Start::default().set(&format!("{key}={address}")).command(folder.path()));
        let start = format!("cannot listen on {address}: another program does; end it or choose another port with");
        assert!(line.starts_with(&start) && line.contains(key), "{line}");
    }
    assert!(!folder.path().join("data").exists(), "nothing was made");
}

#[test]
fn settings_of_the_game_that_cannot_be_are_named() {
    let folder = folder();
    for (setting, words) in [
        ("rpcgame.listen=here", "rpcgame.listen is 'here', from --set; it must be IP:PORT, as 127.0.0.1:29381"),
        ("rpcgame.window_messages=0", "it must be a whole number from 1 to"),
        ("rpcgame.group=planet", "rpcgame.group"),
        ("rpcgame.lean_frame_bytes=1000", "rpcgame.lean_frame_bytes is '1000'"),
        ("rpcgame.wait_seconds=0", "a time above 0"),
    ] {
        let line = one_line(&mut Start::default().set(setting).command(folder.path()));
        assert!(line.contains(words), "{line}");
    }
}

#[tokio::test]
async fn a_game_that_is_not_enabled_is_not_served_anywhere() {
    let folder = folder();
    let server = Start::default().set("rpcgame.enabled=false").serve(folder.path());
    let status = RpcGameClient::new(server.channel()).done(DoneRequest {}).await.expect_err("no such service");
    assert_eq!(status.code(), quire_rpc::Code::Unimplemented);
    assert!(!server.log.text().contains("RPC game"), "{}", server.log.text());
}

#[tokio::test]
async fn health_is_told_on_the_games_own_port() {
    let folder = folder();
    let server = Server::start(folder.path());
    let channel = Channel::builder(&format!("http://{}", ports(&server).0)).expect("an address");
    let health = HealthClient::new(channel.connect().await.expect("a channel"));
    for service in ["", "RPCGame", "RPCGameStream"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let reply = health.check(request).await.expect("an answer").into_inner();
        assert_eq!(reply.status, 1, "{service}");
    }
}

#[test]
fn a_game_that_cannot_be_played_is_told_in_one_line() {
    let folder = folder();
    write_input(folder.path());
    fs::write(folder.path().join("empty.txt"), "nothing here\n").expect("a file");
    let missing = run(folder.path(), &["game", "--input", "none.txt", "-n", "1"], "");
    let empty = run(folder.path(), &["game", "--input", "empty.txt", "-n", "1"], "");
    let unreachable = game(folder.path(), "127.0.0.1:1", &["-n", "1"]);
    let cases = [
        (missing, 2, "cannot read none.txt"),
        (empty, 2, "no line as name,count"),
        (unreachable, 1, "cannot play at 127.0.0.1:1"),
    ];
    for (output, code, words) in cases {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.starts_with("quire: ") && said.contains(words) && said.lines().count() == 1, "{said}");
    }
}
