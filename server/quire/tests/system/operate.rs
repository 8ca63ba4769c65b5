//! `quire.Operator`: the figures of a running server, its connections, its backup; and `quire top`.

use std::{
    collections::HashMap,
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use bookstore::grpc::wire::ItemNumberRequest;
use operate::grpc::wire::{
    BackupRequest, CutConnectionRequest, Figures, HistoryRequest, ListConnectionsRequest, WatchRequest,
    operator_client::OperatorClient,
};
use quire_rpc::{Code, Request};

use super::{rpcgame::ports, tasks::address};
use crate::common::{
    http,
    process::{self, Server, Start},
    store::{BOOKS, folder},
};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(9);

fn operator(server: &Server) -> OperatorClient {
    OperatorClient::new(server.channel())
}

async fn buy(server: &Server, id: i32, times: usize) {
    let shop = server.shop();
    for _ in 0..times {
        shop.buy(ItemNumberRequest { id, ..ItemNumberRequest::default() }).await.expect("an answer");
    }
}

/// The first sample that satisfies `holds`.
async fn once(server: &Server, holds: impl Fn(&Figures) -> bool) -> Figures {
    let mut samples = operator(server).watch(WatchRequest::default()).await.expect("a stream").into_inner();
    let found = async {
        loop {
            let sample = samples.message().await.expect("a sample").expect("no end");
            if holds(&sample) {
                return sample;
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("a sample in time")
}

#[tokio::test]
async fn samples_have_the_numbers_of_the_metrics_page() {
    let folder = folder();
    let server = Server::start(folder.path());
    buy(&server, BOOKS[0], 3).await;
    buy(&server, 999, 1).await;
    let figures = once(&server, |sample| sample.purchases.as_ref().is_some_and(|all| all.acknowledged == 3)).await;
    let value = |series: &str| http::metric(server.address, series);
    let purchases = figures.purchases.expect("purchases");
    assert_eq!((purchases.durable, value("quire_purchases_total{outcome=\"bought\"}")), (3, 3));
    assert_eq!(value("quire_purchases_acknowledged_total"), 3);
    let outcomes: HashMap<_, _> = purchases.outcomes.iter().map(|one| (&*one.name, one.count)).collect();
    assert_eq!(outcomes, HashMap::from([("bought", 3), ("no_such_book", 1)]));
    let levels = figures.levels.expect("levels");
    let connections = levels.connections.expect("connections");
    assert_eq!(connections.limit, value("quire_connections_max"));
    assert_eq!(levels.queue.expect("a queue").limit, value("quire_purchases_queued_max"));
    for level in [levels.memory_bytes, levels.disk_bytes, levels.descriptors] {
        assert!(level.is_some_and(|level| level.used > 0 && level.used < level.limit), "{levels:?}");
    }
    let names: Vec<_> = figures.services.iter().map(|service| &*service.name).collect();
    assert!(["tasks", "bookstore", "kv"].iter().all(|name| names.contains(name)), "{names:?}");
    let idle: Vec<_> =
        figures.services.iter().filter(|service| !service.healthy).map(|service| &*service.name).collect();
    assert_eq!((figures.healthy, idle), (true, vec!["records"]), "it has no file, which is no trouble");
    server.stop();
}

#[tokio::test]
async fn calls_of_the_last_minute_are_listed_by_method_and_failure_and_the_hour_by_the_second() {
    let folder = folder();
    let server = Server::start(folder.path());
    once(&server, |_| true).await;
    buy(&server, BOOKS[0], 2).await;
    let wrong = ItemNumberRequest { id: BOOKS[0], quantity: Some(-1), ..ItemNumberRequest::default() };
    server.shop().buy(wrong).await.expect_err("a refusal");
    let figures = once(&server, |sample| sample.errors.iter().any(|error| error.name == "InvalidArgument")).await;
    let buys = figures.methods.iter().find(|method| method.path == "/bookstore.BookStore/Buy").expect("the method");
    assert_eq!((buys.calls, buys.failed), (3, 1));
    assert!(buys.p50_seconds > 0.0 && buys.p99_seconds >= buys.p50_seconds, "{buys:?}");
    assert!(figures.commits.is_some_and(|commits| commits.entries >= 1.0 && commits.p50_seconds > 0.0));
    let history = operator(&server).history(HistoryRequest::default()).await.expect("points").into_inner().points;
    let bought: f64 = history.iter().map(|point| point.purchases_per_second).sum();
    assert!(bought > 0.0 && history.is_sorted_by_key(|point| point.time_ms), "{history:?}");
    server.stop();
}

#[tokio::test]
async fn an_operator_sees_who_is_connected_and_cuts_one() {
    let folder = folder();
    let server = Server::start(folder.path());
    let (shop, operator) = (server.shop(), operator(&server));
    shop.lookup(ItemNumberRequest { id: BOOKS[0], ..ItemNumberRequest::default() }).await.expect("a book");
    let other = loop {
        let listed = operator.list_connections(ListConnectionsRequest::default()).await.expect("a list").into_inner();
        // One's own connection has its call in flight, or is the newer one.
        if let [.., _] = &listed.connections[..]
            && listed.total == 2
        {
            break listed.connections.into_iter().min_by_key(|open| open.id).expect("a connection");
        }
        tokio::task::yield_now().await;
    };
    assert!(other.user_agent.starts_with("quire-grpc/") && other.address.starts_with("127.0.0.1:"), "{other:?}");
    let cut = operator.cut_connection(CutConnectionRequest { id: other.id }).await.expect("an answer").into_inner();
    assert!(cut.success, "{cut:?}");
    server.log.until("cut: by an operator");
    let again = operator.cut_connection(CutConnectionRequest { id: other.id }).await.expect("an answer").into_inner();
    assert!(!again.success && again.message.contains("no connection"), "{again:?}");
    server.stop();
}

#[tokio::test]
async fn connections_of_tasks_and_of_the_lean_port_are_listed_and_cut() {
    let folder = folder();
    let server = Server::start(folder.path());
    let operator = operator(&server);
    let (tasks, lean) = (address(&server).to_string(), ports(&server).1);
    for (port, bytes, user_agent) in [(tasks, &b"0 7\n"[..], "task lines"), (lean, &[0], "lean protocol")] {
        let mut stream = TcpStream::connect(&port).expect("a connection");
        stream.write_all(bytes).expect("the server reads");
        let own = stream.local_addr().expect("an address").to_string();
        let open = kit::poll("the connection's bytes", async || {
            let listed = operator.list_connections(ListConnectionsRequest::default()).await.expect("a list");
            listed.into_inner().connections.into_iter().find(|open| open.address == own && open.bytes_read > 0)
        });
        let open = open.await;
        assert_eq!((&*open.user_agent, open.bytes_read), (user_agent, bytes.len() as u64));
        let cut = operator.cut_connection(CutConnectionRequest { id: open.id }).await.expect("an answer").into_inner();
        assert!(cut.success, "{cut:?}");
        let mut rest = Vec::new();
        // A reset is as good as an end.
        drop(stream.read_to_end(&mut rest));
    }
}

#[tokio::test]
async fn a_backup_over_the_network_is_one_that_restore_takes() {
    let folder = folder();
    let server = Start::default().set("kv.durability=log").serve(folder.path());
    buy(&server, BOOKS[0], 2).await;
    assert_eq!(once(&server, |_| true).await.backup_age_seconds, None);
    let mut pieces = operator(&server).backup(BackupRequest {}).await.expect("a stream").into_inner();
    let (mut file, mut is_whole) = (Vec::new(), false);
    while let Some(piece) = pieces.message().await.expect("a piece") {
        file.extend_from_slice(&piece.data);
        is_whole = piece.last;
    }
    assert!(is_whole);
    fs::write(folder.path().join("store.backup"), file).expect("a file");
    let restored = process::run(folder.path(), &["restore", "store.backup", "--data", "other"], "");
    let said = String::from_utf8_lossy(&restored.stdout);
    assert!(restored.status.success() && said.contains("2 copies sold"), "{restored:?}");
    once(&server, |sample| sample.backup_age_seconds.is_some()).await;
    server.stop();
}

#[tokio::test]
async fn only_a_credential_with_the_scope_admin_sees_any_of_it() {
    let folder = folder();
    let server = Start::default().set("admin.token=a-token-of-operators").serve(folder.path());
    let refused = operator(&server).watch(WatchRequest::default()).await.expect_err("no token");
    assert_eq!(refused.code(), Code::Unauthenticated);
    let mut request = Request::new(WatchRequest::default());
    request.metadata_mut().insert("authorization", "Bearer a-token-of-operators").expect("a field");
    let mut samples = operator(&server).watch(request).await.expect("a stream").into_inner();
    assert!(samples.message().await.expect("a sample").is_some());
    server.stop();
}

#[test]
fn top_prints_one_sample_as_json() {
    let folder = folder();
    let server = Server::start(folder.path());
    let address = server.address.to_string();
    let top = process::run(folder.path(), &["top", &address, "--once", "--json"], "");
    let said = String::from_utf8_lossy(&top.stdout);
    assert!(top.status.success() && said.lines().count() == 1, "{top:?}");
    assert!(said.starts_with("{\"time_ms\":") && said.contains("\"services\":[{\"name\":\"tasks\""), "{said}");
    let text = process::run(folder.path(), &["top", &address, "--once"], "");
    let said = String::from_utf8_lossy(&text.stdout);
    assert!(text.status.success() && said.contains("acknowledged 0, committed 0"), "{text:?}");
    server.stop();
    let gone = process::run(folder.path(), &["top", &address, "--once"], "");
    assert_eq!(gone.status.code(), Some(3), "{gone:?}");
}
