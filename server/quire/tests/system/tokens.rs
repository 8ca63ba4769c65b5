//! Authentication: beyond loopback every service requires a credential with its scope.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream},
    path::Path,
    process::{Command, Output, Stdio},
    sync::Arc,
    time::Instant,
};

use bookstore::grpc::wire::{
    HelloRequest, ListRequest, TailLogRequest, admin_client::AdminClient, book_store_client::BookStoreClient,
};
use hosting::access::hashed;
use kv::grpc::wire::{
    DeleteRequest, PutRequest, WatchRequest, key_range_service_client::KeyRangeServiceClient,
    key_value_service_client::KeyValueServiceClient,
};
use quire_rpc::{
    Code, Request, Status,
    client::{Channel, Protocol, Settings},
    health::{HealthCheckRequest, HealthClient},
    rustls::{ClientConnection, StreamOwned, pki_types::ServerName},
};
use rpcgame::{
    grpc::wire::{PlayRequest, rpc_game_stream_client::RpcGameStreamClient},
    lean::{Connection, Hello, Keep, TableLimits, VERSION},
};

use super::{bad_starts::one_line, probe::certificate};
use crate::common::{
    PATIENCE, http,
    process::{self, Server, Start},
    store::{BOOK, folder, keyed},
};

/// Writes the file: a credential for each scope, whose token is `the SCOPE token`.
pub(crate) fn tokens(folder: &Path, scopes: &[&str]) {
    let line = |scope: &&str| format!("{scope}-holder {scope} {}\n", hashed(&format!("the {scope} token")));
    fs::write(folder.join("tokens"), scopes.iter().map(line).collect::<String>()).expect("a file");
}

/// A server that other machines can reach.
fn reachable() -> Start {
    Start::default().flag("--listen=0.0.0.0:0").set("server.tokens=tokens")
}

pub(crate) fn channel(server: &Server, protocol: Protocol, token: Option<&'static str>) -> Channel {
    let builder = Channel::builder(&format!("http://127.0.0.1:{}", server.address.port())).expect("an address");
    let channel = builder.settings(Settings { protocol, ..Settings::default() }).connect_lazy().expect("a channel");
    channel.intercepted(move |_: &str, request: &mut Request<()>| {
        if let Some(token) = token {
            request.metadata_mut().insert("authorization", &format!("Bearer {token}")).expect("a legal value");
        }
        request.metadata_mut().insert("x-request-id", "request 7").expect("a legal value");
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        request.metadata_mut().insert("traceparent", parent).expect("a legal value");
        Ok(())
    })
}

fn code<T>(answer: Result<T, Status>) -> Code {
    answer.map_or_else(|status| status.code(), |_| Code::Ok)
}

/// The codes of a greeting, a key's deletion and a list of operators.
async fn codes(server: &Server, protocol: Protocol, token: Option<&'static str>) -> [Code; 3] {
    let channel = || channel(server, protocol, token);
    [
        code(BookStoreClient::new(channel()).hello(HelloRequest::default()).await),
        code(KeyValueServiceClient::new(channel()).delete(DeleteRequest::default()).await),
        code(AdminClient::new(channel()).list(ListRequest::default()).await),
    ]
}

fn page(server: &Server, path: &str, token: &str) -> u16 {
    let mut stream = TcpStream::connect(("127.0.0.1", server.address.port())).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let authorization = if token.is_empty() { String::new() } else { format!("Authorization: bearer {token}\r\n") };
    write!(stream, "GET {path} HTTP/1.1\r\nHost: any\r\n{authorization}Connection: close\r\n\r\n")
        .expect("it is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

#[tokio::test]
async fn one_key_of_two_credentials_names_two_purchases() {
    let folder = folder();
    let line = |till: &str| format!("{till} shop {}\n", hashed(&format!("the token of {till}")));
    fs::write(folder.path().join("tokens"), line("one") + &line("two")).expect("a file");
    let server = reachable().serve(folder.path());
    let mut numbers = Vec::new();
    for (token, replayed) in [("the token of one", false), ("the token of two", false), ("the token of one", true)] {
        let shop = BookStoreClient::new(channel(&server, Protocol::Grpc, Some(token)));
        let reply = shop.buy(keyed(BOOK, "1")).await.expect("an answer").into_inner();
        assert!(reply.success && reply.replayed == replayed, "{token}: {reply:?}");
        numbers.push(reply.purchase_number);
    }
    assert!(numbers[0] == numbers[2] && numbers[0] != numbers[1], "{numbers:?}");
}

#[test]
fn nothing_that_others_could_use_starts_without_credentials_or_leave() {
    let folder = folder();
    let refused = |start: Start| one_line(&mut start.command(folder.path()));
    let beyond = || Start::default().flag("--listen=0.0.0.0:0");
    let line = refused(beyond());
    assert!(line.contains("server.listen is '0.0.0.0:0', from --listen"), "{line}");
    assert!(line.contains("server.tokens") && line.contains("play") && line.contains("rpcgame.open=true"), "{line}");
    for (setting, said) in [
        ("rpcgame.open=true", "records.open=true"),
        ("records.enabled=false", "shop.open=true"),
        ("shop.open=true", "kv.open=true"),
    ] {
        let mut start = beyond();
        for earlier in ["rpcgame.open=true", "records.enabled=false", "shop.open=true"] {
            start = start.set(earlier);
            if earlier == setting {
                break;
            }
        }
        let line = refused(start);
        assert!(line.contains(said), "{line}");
    }
    for (setting, said) in
        [("rpcgame.listen=0.0.0.0:0", "rpcgame.open=true"), ("rpcgame.lean_listen=0.0.0.0:0", "rpcgame.open=true")]
    {
        let line = refused(Start::default().set(setting));
        assert!(line.contains(said), "{line}");
    }
    let line = refused(Start::default().flag("--tasks-listen=0.0.0.0:0"));
    assert!(line.contains("tasks.listen") && line.contains("tasks.open=true"), "{line}");
    assert!(!folder.path().join("data").exists(), "nothing was made");
}

#[tokio::test]
async fn each_service_admits_the_tokens_of_its_scope_in_every_protocol() {
    let folder = folder();
    tokens(folder.path(), &["shop", "kv", "admin", "metrics", "records"]);
    let server = reachable().serve(folder.path());
    server.log.until("tokens come in clear text here");
    let (no, denied, yes) = (Code::Unauthenticated, Code::PermissionDenied, Code::Ok);
    for protocol in [Protocol::Grpc, Protocol::GrpcWeb, Protocol::Connect] {
        assert_eq!(codes(&server, protocol, None).await, [no; 3], "{protocol:?}");
        assert_eq!(codes(&server, protocol, Some("the shop token")).await, [yes, denied, denied], "{protocol:?}");
        assert_eq!(codes(&server, protocol, Some("the kv token")).await, [denied, yes, denied], "{protocol:?}");
        assert_eq!(codes(&server, protocol, Some("the admin token")).await, [denied, denied, yes], "{protocol:?}");
    }
    assert_eq!(codes(&server, Protocol::Grpc, Some("the shop")).await, [no; 3]);
    for (path, scope) in [("/metrics", "metrics"), ("/search", "records"), ("/search_string", "records")] {
        assert_eq!(page(&server, path, ""), 401, "{path}");
        assert_eq!(page(&server, path, "a guess"), 401, "{path}");
        assert_eq!(page(&server, path, "the kv token"), 403, "{path}");
        assert!(![401, 403].contains(&page(&server, path, &format!("the {scope} token"))), "{path}");
    }
    for path in ["/", "/openapi", "/nothing"] {
        assert_eq!(page(&server, path, ""), 401, "{path}");
    }
    assert_eq!(page(&server, "/", "the kv token"), 200);
    assert_eq!(page(&server, "/healthz", ""), 200, "health is open");
    let health = HealthClient::new(channel(&server, Protocol::Grpc, None));
    assert!(health.check(HealthCheckRequest::default()).await.is_ok(), "health is open");
    for field in ["an operator's action", "\"credential\":\"admin-holder\"", "\"request\":\"request 7\""] {
        server.log.until(field);
    }
    let log = server.log.until("\"peer\":\"127.0.0.1:");
    assert!(!log.contains("the admin token") && !log.contains("the shop"), "a secret is not logged");
}

#[tokio::test]
async fn a_service_may_say_that_it_is_open() {
    let folder = folder();
    tokens(folder.path(), &["kv"]);
    let server = reachable().set("shop.open=true").set("metrics.open=true").serve(folder.path());
    let no = Code::Unauthenticated;
    assert_eq!(codes(&server, Protocol::Grpc, None).await, [Code::Ok, no, no]);
    assert_eq!(page(&server, "/metrics", ""), 200);
}

#[tokio::test]
async fn tokens_are_read_again_on_sighup() {
    let folder = folder();
    tokens(folder.path(), &["shop"]);
    let server = Start::default().set("server.tokens=tokens").serve(folder.path());
    let shop = async |token| codes(&server, Protocol::Grpc, Some(token)).await[0];
    assert_eq!((shop("the shop token").await, shop("the kv token").await), (Code::Ok, Code::Unauthenticated));
    fs::write(folder.path().join("tokens"), "nonsense\n").expect("a file");
    server.signal("HUP");
    server.log.until("tokens were not loaded again");
    assert_eq!(shop("the shop token").await, Code::Ok);
    tokens(folder.path(), &["kv"]);
    server.signal("HUP");
    server.log.until("tokens are loaded again");
    assert_eq!(
        (shop("the shop token").await, shop("the kv token").await),
        (Code::Unauthenticated, Code::PermissionDenied)
    );
}

#[tokio::test]
async fn an_address_that_guesses_is_slowed_down_and_logged() {
    let folder = folder();
    let server = Start::default().set("admin.token=1234567890123456").serve(folder.path());
    let list = async |token| {
        code(AdminClient::new(channel(&server, Protocol::Grpc, Some(token))).list(ListRequest::default()).await)
    };
    assert_eq!(list("1234567890123456").await, Code::Ok);
    let (mut answers, began) = (Vec::new(), Instant::now());
    for _ in 0..100 {
        answers.push(list("1234567890123457").await);
        assert_eq!(list("1234567890123456").await, Code::Ok, "the right one is never slowed down");
    }
    let soon = answers.iter().filter(|code| **code == Code::Unauthenticated).count();
    // A slow machine gives the budget time to fill up again, by one guess a second.
    let budget = 11 + began.elapsed().as_secs();
    assert!((10..=budget).contains(&u64::try_from(soon).expect("at most 100")), "{soon} guesses were not slowed down");
    assert!(answers.contains(&Code::ResourceExhausted));
    let log = server.log.until("lines were left out");
    assert!(log.contains("\"line\":\"a wrong token was sent\"") && log.contains("\"address\":\"127.0.0.1\""), "{log}");
    let lines = log.matches("\"message\":\"a wrong token was sent\"").count();
    assert!((10..100).contains(&lines), "{lines} of 100 lines");
    assert!(!log.contains("123456789012345"), "a secret is not logged");
}

/// Both calls come on one connection, which remembers its last caller.
#[tokio::test]
async fn a_refused_call_without_a_token_is_logged_by_its_address() {
    let folder = folder();
    tokens(folder.path(), &["shop"]);
    let server = reachable().serve(folder.path());
    let shop = BookStoreClient::new(channel(&server, Protocol::Grpc, None));
    let mut named = Request::new(HelloRequest::default());
    named.metadata_mut().insert("authorization", "Bearer the shop token").expect("a legal value");
    assert_eq!(code(shop.hello(named).await), Code::Ok);
    assert_eq!(code(shop.hello(HelloRequest::default()).await), Code::Unauthenticated);
    let log = server.log.until("calls of a client are refused");
    let line = log.lines().find(|line| line.contains("calls of a client are refused")).expect("a line");
    assert!(line.contains("\"client\":\"127.0.0.1\"") && !line.contains("shop-holder"), "{line}");
}

#[tokio::test]
async fn an_operators_action_is_logged_where_no_credential_is_asked_for_too() {
    let folder = folder();
    let server = Server::start(folder.path());
    assert_eq!(codes(&server, Protocol::Grpc, None).await, [Code::Ok; 3]);
    let log = server.log.until("an operator's action");
    assert!(log.contains("\"method\":\"/bookstore.Admin/List\",\"credential\":\"none needed\""), "{log}");
    assert!(log.contains("\"request\":\"request 7\"") && log.contains("\"peer\":\"127.0.0.1:"), "{log}");
    assert_eq!(log.matches("an operator's action").count(), 1, "others are no operators");
}

#[tokio::test]
async fn a_log_that_no_one_reads_holds_up_no_call() {
    let folder = folder();
    let mut command = Start::default().command(folder.path());
    let mut server = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("quire starts");
    let mut log = BufReader::new(server.stderr.take().expect("a pipe")).lines();
    let listening = log.find(|line| line.as_ref().is_ok_and(|line| line.contains("listening"))).expect("it listens");
    let line: serde_json::Value = serde_json::from_str(&listening.expect("text")).expect("JSON");
    let address = line["fields"]["address"].as_str().expect("an address");
    let admin = AdminClient::new(
        Channel::builder(&format!("http://{address}")).expect("a URL").connect_lazy().expect("a channel"),
    );
    // Each is logged, and a pipe holds 64 KiB.
    for _ in 0..1000 {
        let listed = tokio::time::timeout(PATIENCE, admin.list(ListRequest::default())).await;
        listed.expect("no wait for the log").expect("an answer");
    }
    server.kill().expect("it runs");
    server.wait().expect("it ends");
}

/// A watch by Connect over HTTP/1.1, which has begun.
fn watch_over_http1(server: &Server, token: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let head = format!(
        "POST /io.grpc.KeyRangeService/Watch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/connect+json\r\n\
         Connect-Protocol-Version: 1\r\nAuthorization: Bearer {token}\r\nContent-Length: 7\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), b"\0\0\0\0\x02{}"].concat()).expect("it is taken");
    let mut begun = [0; 15];
    stream.read_exact(&mut begun).expect("an answer");
    assert_eq!(&begun, b"HTTP/1.1 200 OK");
    stream
}

#[tokio::test]
async fn what_a_revoked_token_opened_ends_and_what_another_opened_goes_on() {
    let folder = folder();
    tokens(folder.path(), &["kv", "admin", "play", "tasks"]);
    let (file, other) = (folder.path().join("tokens"), format!("other kv {}\n", hashed("the other token")));
    let all = fs::read_to_string(&file).expect("a file") + &other;
    fs::write(&file, all).expect("a file");
    let server = Start::default().set("server.tokens=tokens").serve(folder.path());
    let watch = async |token| {
        let client = KeyRangeServiceClient::new(channel(&server, Protocol::Grpc, Some(token)));
        let mut watch = client.watch(WatchRequest::default()).await.expect("a watch").into_inner();
        watch.message().await.expect("a word").expect("the start");
        watch
    };
    let mut watched = watch("the kv token").await;
    let over_http1 = watch_over_http1(&server, "the kv token");
    let admin = AdminClient::new(channel(&server, Protocol::Grpc, Some("the admin token")));
    let mut tail = admin.tail_log(TailLogRequest { after_number: Some(3) }).await.expect("a tail").into_inner();
    tail.message().await.expect("a word").expect("an entry");
    let game = RpcGameStreamClient::new(channel(&server, Protocol::Grpc, Some("the play token")));
    let mut game = game.play(futures_util::stream::pending::<PlayRequest>()).await.expect("a game").into_inner();
    let connect = |port: &str, first: &[u8], begun: &mut [u8]| {
        let mut stream = TcpStream::connect(port).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(first).expect("it is taken");
        stream.read_exact(begun).expect("an answer");
        stream
    };
    let tasks = format!("127.0.0.1:{}", port(&server, "tasks are served"));
    let tasks = connect(&tasks, b"TOKEN the tasks token\n0:41\n", &mut [0]);
    let hello = Hello { version_min: VERSION, version_max: VERSION, window_messages: 1, table: TableLimits::default() };
    let hello = Connection::with_token(hello, Keep::First, Some(b"the play token")).output().to_vec();
    let lean = connect(&super::rpcgame::ports(&server).1, &hello, &mut [0; 4]);
    let mut kept = watch("the other token").await;
    fs::write(&file, &other).expect("a file");
    server.signal("HUP");
    server.log.until("tokens are loaded again");
    let revoked = Code::Unauthenticated;
    assert_eq!(code(watched.message().await), revoked);
    assert_eq!(code(tail.message().await), revoked);
    assert_eq!(code(game.message().await), revoked);
    for (mut stream, said) in
        [(over_http1, "the credential was revoked"), (tasks, ""), (lean, "the credential was revoked")]
    {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("an end");
        assert!(String::from_utf8_lossy(&rest).contains(said), "{rest:?}");
    }
    let keys = KeyRangeServiceClient::new(channel(&server, Protocol::Grpc, Some("the other token")));
    keys.put(PutRequest { key: "key".into(), ..PutRequest::default() }).await.expect("a version");
    kept.message().await.expect("an event").expect("the watch goes on");
}

#[tokio::test]
async fn a_file_of_tokens_that_cannot_be_read_holds_up_nothing_and_changes_nothing() {
    let folder = folder();
    let file = folder.path().join("tokens");
    tokens(folder.path(), &["shop"]);
    let server = Start::default().set("server.tokens=tokens").serve(folder.path());
    let pipe = Command::new("mkfifo").arg(folder.path().join("pipe")).status().expect("mkfifo runs");
    assert!(pipe.success());
    let damage: [(&dyn Fn(), &str); 3] = [
        (&|| fs::rename(folder.path().join("pipe"), &file).expect("a pipe in its place"), "not a regular file"),
        (&|| fs::remove_file(&file).and_then(|()| fs::write(&file, "")).expect("an empty file"), "no credential"),
        (&|| fs::write(&file, "shop-holder shop sha256:12").expect("half of one"), "wrong line 1"),
    ];
    for (damage, said) in damage {
        damage();
        server.signal("HUP");
        let log = server.log.until(said);
        let line = log.lines().find(|line| line.contains(said)).expect("the line");
        assert!(line.contains("WARN") && line.contains("tokens were not loaded again; the last ones hold"), "{line}");
        assert_eq!(codes(&server, Protocol::Grpc, Some("the shop token")).await[0], Code::Ok, "{said}");
    }
}

/// The task server's answer.
fn asked(address: SocketAddr, request: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(request.as_bytes()).expect("it is taken");
    stream.shutdown(Shutdown::Write).expect("an end");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// The port in a log line.
fn port(server: &Server, message: &str) -> u16 {
    let log = server.log.until(message);
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut found = lines.filter(|line| line["fields"]["message"] == message);
    let address: SocketAddr =
        found.next().expect("the line")["fields"]["address"].as_str().expect("text").parse().expect("an address");
    address.port()
}

#[test]
fn tasks_are_run_for_clients_whose_first_line_is_their_token() {
    let folder = folder();
    tokens(folder.path(), &["tasks", "kv"]);
    let server = Start::default().set("server.tokens=tokens").serve(folder.path());
    let address = ([127, 0, 0, 1], port(&server, "tasks are served")).into();
    assert_eq!(asked(address, "TOKEN the tasks token\n0:41\n0:68\n"), [137, 180]);
    assert_eq!(asked(address, "HELLO 2\nTOKEN the tasks token\n0:41\n"), b"OK 137\n");
    for wrong in ["0:41\n", "TOKEN a guess\n0:41\n", "TOKEN the kv token\n0:41\n", "HELLO 2\n0:41\n", "TOKEN\n0:41\n"] {
        assert!(asked(address, wrong).is_empty(), "{wrong}");
    }
    assert!(!server.log.text().contains("the kv token"), "a secret is not logged");
}

#[test]
fn tasks_speak_tls_where_others_can_reach_them() {
    let folder = folder();
    let tls = certificate(folder.path());
    tokens(folder.path(), &["tasks"]);
    let start = Start::default().set("tls.certificate=cert.pem").set("tls.key=key.pem").set("server.tokens=tokens");
    let server = start.flag("--tasks-listen=0.0.0.0:0").serve(folder.path());
    let port = port(&server, "tasks are served");
    let mut config = (*tls).clone();
    config.alpn_protocols.clear();
    let config = Arc::new(config);
    // Ends without TLS's `close_notify`.
    let first_byte = |port, request: &[u8]| {
        let name = ServerName::try_from("127.0.0.1").expect("a name");
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let client = ClientConnection::new(Arc::clone(&config), name).expect("a client");
        let mut stream = StreamOwned::new(client, stream);
        stream.write_all(request).expect("it is taken");
        let mut answer = [0; 1];
        stream.read_exact(&mut answer).expect("an answer");
        answer[0]
    };
    assert_eq!(first_byte(port, b"TOKEN the tasks token\n0:41\n"), 137);
    assert_eq!(first_byte(server.address.port(), b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"), b'H');
    assert_ne!(
        asked(([127, 0, 0, 1], port).into(), "TOKEN the tasks token\n0:41\n").first(),
        Some(&137),
        "not in clear"
    );
    let log = server.log.clone();
    server.stop();
    assert!(!log.text().contains("close_notify"), "no news for operators: {}", log.text());
}

#[test]
fn commands_show_tokens_and_certificates_to_the_lean_port_and_to_the_task_port() {
    let folder = folder();
    certificate(folder.path());
    tokens(folder.path(), &["play", "tasks"]);
    fs::write(folder.path().join("lines"), "reef,7\nwreck,9\n").expect("a file");
    let tls = || Start::default().set("tls.certificate=cert.pem").set("tls.key=key.pem").set("server.tokens=tokens");
    let server = tls().flag("--tasks-listen=0.0.0.0:0").set("rpcgame.lean_listen=0.0.0.0:0").serve(folder.path());
    let (lean, tasks) = (super::rpcgame::ports(&server).1, port(&server, "tasks are served"));
    let lean = lean.rsplit_once(':').expect("a port").1;
    let play = |scheme: &str, more: &[&str]| {
        let address = format!("{scheme}127.0.0.1:{lean}");
        let game = ["game", &address, "--transport", "lean", "--input", "lines", "-n", "1000"];
        process::run(folder.path(), &[&game[..], more].concat(), "")
    };
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let done = play("https://", &["--ca", "cert.pem", "--token", "the play token"]);
    assert!(done.status.success(), "{done:?}");
    for token in [&["--token", "the tasks token"][..], &["--token", "a guess"], &[]] {
        let denied = play("https://", &[&["--ca", "cert.pem"], token].concat());
        assert_eq!(denied.status.code(), Some(1), "{denied:?}");
        assert!(said(&denied).contains("play"), "{denied:?}");
    }
    let plain = play("", &["--token", "the play token"]);
    assert_eq!(plain.status.code(), Some(1), "not in clear");
    assert!(said(&plain).contains("speaks TLS"), "{plain:?}");
    let address = format!("127.0.0.1:{tasks}");
    let plain = process::run(folder.path(), &["tasks", &address, "--clients", "1", "--requests", "1"], "");
    assert!(said(&plain).contains("the server speaks TLS: write https://"), "{plain:?}");
    assert!(said(&play("https://", &[])).contains("--ca FILE"));
    let ask = |token: &str| {
        let chains = ["tasks", &format!("https://127.0.0.1:{tasks}"), "--clients", "3", "--requests", "2"];
        process::run(folder.path(), &[&chains[..], &["--ca", "cert.pem", "--token", token]].concat(), "")
    };
    let done = ask("the tasks token");
    assert!(done.status.success(), "{done:?}");
    assert!(!ask("the play token").status.success());
    let log = server.log.until("denied");
    assert!(!["the play token", "the tasks token", "a guess"].iter().any(|secret| log.contains(secret)), "{log}");
}

#[test]
fn a_new_token_is_printed_with_its_line_and_opens_the_server() {
    let folder = folder();
    let made = |arguments: &[&str]| process::run(folder.path(), &[&["token", "new"], arguments].concat(), "");
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).expect("text");
    let new = text(&made(&["--scope", "shop, kv", "--name", "till"]));
    let (token, line) = new.trim().split_once('\n').expect("two lines");
    assert!(token.starts_with("quire_") && token.len() > 40, "{token}");
    assert!(line.starts_with("till shop,kv sha256:") && !line.contains(token), "{line}");
    assert_ne!(new, text(&made(&["--scope", "shop,kv", "--name", "till"])));
    assert!(!made(&["--scope", "shopp"]).status.success());
    fs::write(folder.path().join("tokens"), format!("{line}\n")).expect("a file");
    let server = Start::default().set("server.tokens=tokens").serve(folder.path());
    let denied = server.client(&["ping"], "");
    assert_eq!(denied.status.code(), Some(1), "{denied:?}");
    let mut client = process::quire(folder.path());
    client.env("QUIRE_TOKEN", token).args(["client", &server.address.to_string(), "ping"]);
    let done = client.output().expect("quire runs");
    assert!(done.status.success(), "{done:?}");
    assert!(!server.log.text().contains(token), "a secret is not logged");
}

#[test]
fn an_empty_operators_token_is_refused() {
    let folder = folder();
    let line = one_line(&mut Start::default().variable("QUIRE_ADMIN_TOKEN", "").command(folder.path()));
    assert!(line.contains("admin.token") && line.contains("at least 16"), "{line}");
    fs::write(folder.path().join("quire.toml"), "[admin]\ntoken = 1234567890123456\n").expect("a file");
    let server = Server::start(folder.path());
    assert_eq!(http::get(server.address, "/healthz").status, 200);
}
