//! The shopper's client: every command, its exit codes, JSON, and retries that buy once.

use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::common::{
    NOWHERE,
    audit::Audit,
    poll,
    process::{self, Server, Start},
    store::{self, BOOK, folder, folder_with},
};

#[track_caller]
fn text(done: &Output, exit: i32) -> String {
    assert_eq!(done.status.code(), Some(exit), "{done:?}");
    String::from_utf8(done.stdout.clone()).expect("text")
}

#[test]
fn every_command_answers_and_exits_with_0() {
    let folder = folder();
    let server = Server::start(folder.path());
    assert!(text(&server.client(&["ping"], ""), 0).starts_with("Hello quire client! ("));
    let found = text(&server.client(&["search", "college", "life"], ""), 0);
    let ids: Vec<&str> = found.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(ids, ["id", "12365", "12498"]);
    let book = text(&server.client(&["lookup", "53573"], ""), 0);
    assert!(book.contains("Distributed Systems for Dummies") && book.contains("39.00"), "{book}");
    assert_eq!(text(&server.client(&["buy", "12365"], ""), 0), "bought book 12365 (purchase 5)\n");
    assert_eq!(text(&server.client(&["buy", "12365", "3"], ""), 0), "bought 3 copies of book 12365 (purchase 6)\n");
    assert!(text(&server.client(&["help"], ""), 0).contains("books of a <topic>"));
    assert_eq!(text(&server.client(&["exit"], ""), 0), "");
    assert_eq!(text(&server.client(&["quit"], ""), 0), "");
    assert!(text(&server.client(&["?"], ""), 0).contains("books of a <topic>"));
    let nothing = text(&server.client(&["search", "knitting"], ""), 0);
    assert_eq!(nothing, "no book has the topic 'knitting'\n");
}

#[test]
fn topics_are_listed_and_a_search_without_a_hit_names_those_that_are_near() {
    let folder = folder();
    let server = Server::start(folder.path());
    let rows = |table: &str| table.lines().skip(1).map(|row| row.trim().to_owned()).collect::<Vec<_>>();
    let topics = rows(&text(&server.client(&["topics"], ""), 0));
    assert!(topics[0].starts_with("college life") && topics[0].ends_with('2'), "{topics:?}");
    assert_eq!(topics.len(), 2);
    assert!(rows(&text(&server.client(&["topics", "colege life"], ""), 0))[0].starts_with("college life"));
    let near = text(&server.client(&["search", "Distributed", "System"], ""), 0);
    assert_eq!(near, "no book has the topic 'Distributed System'; near it: 'distributed systems'\n");
    let json: Value = serde_json::from_str(&text(&server.client(&["--json", "topics"], ""), 0)).expect("JSON");
    assert_eq!(json["topics"][0], serde_json::json!({ "name": "college life", "books": 2 }));
}

#[test]
fn flags_stand_anywhere_and_what_follows_two_dashes_is_no_flag() {
    let folder = folder_with("9,Dashes,--dash,5,1.00\n");
    let server = Server::start(folder.path());
    let address = server.address.to_string();
    let run = |words: &[&str]| process::run(folder.path(), words, "");
    for words in [
        ["client", &address, "--json", "lookup", "9"],
        ["client", &address, "lookup", "--json", "9"],
        ["client", &address, "lookup", "9", "--json"],
    ] {
        let json: Value = serde_json::from_str(&text(&run(&words), 0)).expect("JSON");
        assert_eq!(json["book"]["topic"], "--dash", "{words:?}");
    }
    assert!(text(&run(&["client", &address, "search", "--", "--dash"]), 0).contains("Dashes"));
    assert!(text(&run(&["client", &address, "--", "search", "--dash"]), 0).contains("Dashes"));
    let negative = run(&["client", &address, "lookup", "-1"]);
    assert!(String::from_utf8_lossy(&negative.stderr).contains("invalid value '-1' for '<ID>'"), "{negative:?}");
    assert_eq!(run(&["client", &address, "search", "--dash"]).status.code(), Some(2));
}

#[test]
fn an_address_may_be_short() {
    let folder = folder();
    let server = Server::start(folder.path());
    let port = server.address.port();
    for address in [format!("localhost:{port}"), format!(":{port}"), format!("http://127.0.0.1:{port}/")] {
        let done = process::run(folder.path(), &["client", &address, "ping"], "");
        assert!(text(&done, 0).starts_with("Hello"), "{address}");
    }
    let done = process::run(folder.path(), &["client", "--retries=0", "no-such-host.invalid", "ping"], "");
    assert_eq!(done.status.code(), Some(3), "a host without a port is an address: {done:?}");
    assert!(done.stderr.starts_with(b"no-such-host.invalid cannot be reached: "), "{done:?}");
}

#[test]
fn what_the_store_refuses_exits_with_1() {
    let folder = folder_with("7,Scarce,scarcity,1,1.00\n8,None,scarcity,0,1.00\n");
    let server = Server::start(folder.path());
    assert_eq!(text(&server.client(&["lookup", "1"], ""), 1), "there is no book 1\n");
    assert_eq!(text(&server.client(&["buy", "1"], ""), 1), "there is no book 1\n");
    assert_eq!(text(&server.client(&["buy", "8"], ""), 1), "book 8 is sold out\n");
    assert_eq!(text(&server.client(&["buy", "7", "2"], ""), 1), "only 1 copy of book 7 is left\n");
    let too_many = server.client(&["buy", "7", "1001"], "");
    assert_eq!(too_many.status.code(), Some(1));
    assert!(too_many.stderr.starts_with(b"quantity is 1001; it must be a whole number from 1 to 1000"));
}

#[test]
fn what_cannot_be_understood_exits_with_2_and_one_line() {
    let folder = folder();
    let server = Server::start(folder.path());
    let cases: [(&[&str], &str); 8] = [
        (&["sell", "1"], "unrecognized subcommand 'sell'; help lists the commands"),
        (&["buy"], "the following required arguments were not provided: <ID>"),
        (&["search"], "the following required arguments were not provided: <TOPIC>"),
        (&["buy", "abc"], "invalid value 'abc' for '<ID>'"),
        (&["buy", "-1"], "invalid value '-1' for '<ID>': -1 is not in 1..=2147483647"),
        (&["lookup", "0"], "invalid value '0' for '<ID>'"),
        (&["buy", "12365", "0"], "invalid value '0' for '[QUANTITY]'"),
        (&["buy", "12365", "many"], "invalid value 'many' for '[QUANTITY]'"),
    ];
    for (words, wanted) in cases {
        let done = server.client(words, "");
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with(&format!("quire client: {wanted}")), "{said}");
    }
    for (address, wanted) in [
        ("host:port", "it must be HOST:PORT with a port up to 65535, as host:10086"),
        ("1.2.3.4:99999", "it must be HOST:PORT with a port up to 65535, as 1.2.3.4:10086"),
        ("ftp://host:1", "it must be http://host:1 or https://host:1"),
        (":0", "it must be HOST:PORT with a port from 1 to 65535"),
    ] {
        let done = process::run(folder.path(), &["client", address, "ping"], "");
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        assert!(String::from_utf8_lossy(&done.stderr).contains(wanted), "{done:?}");
    }
    let key = server.client(&["--key", "sell", "1"], "");
    assert_eq!(key.status.code(), Some(2), "a flag's value is no flag of its own: {key:?}");
}

#[test]
fn a_server_that_is_not_there_exits_with_3() {
    let folder = folder();
    let done = process::run(folder.path(), &["client", "--retries=1", NOWHERE, "ping"], "");
    assert_eq!(done.status.code(), Some(3), "{done:?}");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(NOWHERE) && said.contains("is a server running there?"), "{said}");
    let done = process::run(folder.path(), &["client", "--json", "--retries=0", NOWHERE, "ping"], "");
    let json: Value = serde_json::from_str(&text(&done, 3)).expect("JSON");
    assert_eq!((&json["success"], &json["status"]), (&false.into(), &"UNAVAILABLE".into()));
}

#[test]
fn json_is_one_valid_line_for_every_answer() {
    let folder = folder_with("8,None,scarcity,0,1.00\n");
    let server = Server::start(folder.path());
    let json = |words: &[&str], exit| -> Value {
        let line = text(&server.client(&[&["--json"], words].concat(), ""), exit);
        assert_eq!(line.lines().count(), 1, "{line}");
        serde_json::from_str(&line).expect("JSON")
    };
    assert_eq!(json(&["ping"], 0)["message"], "Hello quire client!");
    let found = json(&["search", "college life"], 0);
    assert_eq!((&found["books"][0]["id"], &found["books"][1]["price_cents"]), (&12365.into(), &1850.into()));
    assert_eq!(json(&["lookup", "53573"], 0)["book"]["stock"], 1000);
    assert_eq!(json(&["lookup", "1"], 1)["book"], Value::Null);
    let bought = json(&["buy", "12365"], 0);
    assert_eq!((&bought["outcome"], &bought["stock_left"]), (&"BUY_OUTCOME_BOUGHT".into(), &999.into()));
    assert!(bought["purchase_number"].as_i64().is_some_and(|number| number > 0));
    assert_eq!(json(&["buy", "8"], 1)["outcome"], "BUY_OUTCOME_SOLD_OUT");
    assert_eq!(json(&["buy", "12365", "1001"], 1)["status"], "INVALID_ARGUMENT");
}

#[test]
fn commands_from_a_pipe_are_answered_one_by_one() {
    let folder = folder();
    let server = Server::start(folder.path());
    let done = server.client(&[], "ping\n\nlookup 12365\nsell 1\nbuy 1\n");
    assert_eq!(done.status.code(), Some(2), "the worst of them: {done:?}");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("Hello") && said.contains("Surviving College") && said.contains("there is no book 1"));
    assert_eq!(String::from_utf8_lossy(&done.stderr), "unrecognized subcommand 'sell'; help lists the commands\n");
    let done = server.client(&[], "exit\nbuy 12365\n");
    assert_eq!(text(&done, 0), "", "nothing after exit is done");
    let done = server.client(&[], "buy 1\nping\n");
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let done = server.client(&[], "search \"college life\"\nsearch 'college life'\nsearch college  life\n");
    assert_eq!(text(&done, 0).matches("Surviving College").count(), 3);
    let done = server.client(&[], "search \"college life\n");
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    assert!(done.stderr.starts_with(b"the quote \" is not closed"), "{done:?}");
}

fn buy_in_background(folder: &std::path::Path, server: &Server) -> Child {
    let address = server.address.to_string();
    let flags = ["client", "--timeout=25", "--retries=30", "--json", &address, "buy", "12365"];
    let mut command = process::quire(folder);
    command.args(flags).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the client starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purchase_retried_across_a_restart_is_made_once() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let address = server.address.to_string();
    // The purchases are sent and wait for the file's lock when the server dies.
    let other = store::other_program(folder.path());
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let clients: Vec<Child> = (0..8).map(|_| buy_in_background(folder.path(), &server)).collect();
    poll("purchases in flight", async || {
        (crate::common::http::metric(server.address, "quire_calls_in_flight") >= 8).then_some(())
    })
    .await;
    other.execute_batch("COMMIT").expect("the lock is given back");
    server.kill();
    let server = Start::default().flag("--listen").flag(&address).serve(folder.path());
    let mut numbers = Vec::new();
    for client in clients {
        let done = client.wait_with_output().expect("the client ends");
        let reply: Value = serde_json::from_str(&text(&done, 0)).expect("JSON");
        numbers.push(reply["purchase_number"].as_i64().expect("a number"));
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 8, "each client has a purchase of its own");
    assert_eq!(Audit::of(&server).await.purchases_of(BOOK), 8);
}

#[tokio::test]
async fn the_same_key_buys_once_however_often_it_is_typed() {
    let folder = folder();
    let server = Server::start(folder.path());
    let buy = || text(&server.client(&["--json", "--key=order 17", "buy", "12365"], ""), 0);
    let (first, second): (Value, Value) =
        (serde_json::from_str(&buy()).expect("JSON"), serde_json::from_str(&buy()).expect("JSON"));
    assert_eq!(first["purchase_number"], second["purchase_number"]);
    assert_eq!((&first["replayed"], &second["replayed"]), (&false.into(), &true.into()));
    assert_eq!(Audit::of(&server).await.purchases_of(BOOK), 1);
    let told = text(&server.client(&["--key=order 17", "buy", "12365"], ""), 0);
    assert!(told.ends_with("; the answer to an earlier call\n"), "{told}");
    let other = server.client(&["--key=order 17", "buy", "53477"], "");
    assert_eq!(other.status.code(), Some(1), "{other:?}");
    let long = format!("--key={}", "k".repeat(65));
    assert_eq!(server.client(&[&long, "buy", "12365"], "").status.code(), Some(2));
}

#[test]
fn a_side_without_tls_is_named_and_the_systems_certificates_are_trusted() {
    let (folder, other) = (folder(), folder());
    drop(super::probe::certificate(folder.path()));
    let plain = Server::start(other.path());
    let start = Start::default().set("tls.certificate=cert.pem").set("tls.key=key.pem").set("log.level=debug");
    let server = start.serve(folder.path());
    let ask = |scheme: &str, address: std::net::SocketAddr, trusted: &str| {
        let mut client = Command::new(env!("CARGO_BIN_EXE_quire"));
        client.current_dir(folder.path()).args(["client", "--timeout=3s", "--retries=0"]);
        client.args([&format!("{scheme}{address}"), "lookup", "12365"]).env("SSL_CERT_FILE", trusted);
        client.output().expect("quire runs")
    };
    let said = ask("https://", server.address, "cert.pem");
    assert!(said.status.success(), "{said:?}");
    for (scheme, address, wanted) in [
        ("", server.address, "cannot be reached: the server speaks TLS: write https://\n"),
        ("https://", plain.address, "cannot be reached: the server does not speak TLS: write http://\n"),
        ("https://", server.address, "not trusted; --ca FILE names the certificates that are\n"),
    ] {
        let said = ask(scheme, address, "absent.pem");
        assert_eq!(said.status.code(), Some(3), "{said:?}");
        assert!(String::from_utf8_lossy(&said.stderr).ends_with(wanted), "{said:?}");
    }
    let log = server.log.until("no TLS, and this port speaks nothing else");
    let ended = log.lines().find(|line| line.contains("closed by the peer")).expect("the first client's end");
    assert!(ended.contains("DEBUG"), "{ended}");
}
