//! Nothing acknowledged is lost when the server is killed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bookstore::grpc::wire::{
    BuyBookReply, ItemNumberRequest, RestockRequest, admin_client::AdminClient, book_store_client::BookStoreClient,
};
use rand_core::{OsRng, RngCore as _};
use tokio::task::JoinSet;

use crate::common::{
    audit::Audit,
    poll,
    process::{Server, Start},
    store::{BOOK, BOOKS, folder, one},
};

/// Kills and starts; as many as `KILL_ROUNDS` says, if it is set.
const ROUNDS: u32 = 10;
const BUYERS: usize = 48;
const CONNECTIONS: usize = 4;

/// Results that a round's buyers have when the server is gone.
#[derive(Debug, Default)]
struct Told {
    answered: Vec<(ItemNumberRequest, BuyBookReply)>,
    /// Keyed purchases without a known outcome.
    unanswered: Vec<ItemNumberRequest>,
}

fn random(below: u32) -> u32 {
    OsRng.next_u32() % below
}

fn wish() -> ItemNumberRequest {
    let mut key = vec![0; 16];
    OsRng.fill_bytes(&mut key);
    key.truncate(if random(2) == 0 { 16 } else { 0 });
    let quantity = [None, Some(1), Some(2), Some(3)][random(4) as usize];
    ItemNumberRequest { id: BOOKS[random(4) as usize], quantity, idempotency_key: key }
}

/// Buys until the server is gone.
async fn buy(shop: BookStoreClient, count: Arc<AtomicUsize>) -> Told {
    let mut told = Told::default();
    loop {
        let wish = wish();
        let Ok(reply) = shop.buy(wish.clone()).await else {
            if !wish.idempotency_key.is_empty() {
                told.unanswered.push(wish);
            }
            return told;
        };
        told.answered.push((wish, reply.into_inner()));
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Raises the stock repeatedly, so that some purchases are refused and most are not.
async fn restock(admin: AdminClient) -> Told {
    let mut amount = 1;
    while admin.restock(RestockRequest { amount: Some(amount), id: None }).await.is_ok() {
        amount = 1 + (amount + 6) % 30;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Told::default()
}

/// Loads the server, kills it at a random moment and collects the buyers' results.
async fn round(server: &mut Server) -> Told {
    let count = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    let connections: Vec<_> = (0..CONNECTIONS).map(|_| server.channel()).collect();
    for place in 0..BUYERS {
        tasks.spawn(buy(BookStoreClient::new(connections[place % CONNECTIONS].clone()), Arc::clone(&count)));
    }
    tasks.spawn(restock(server.admin()));
    let enough = 50 + random(2000) as usize;
    poll("purchases", async || (count.load(Ordering::Relaxed) >= enough).then_some(())).await;
    tokio::time::sleep(Duration::from_micros(random(3000).into())).await;
    server.kill();
    let mut told = Told::default();
    while let Some(one) = tasks.join_next().await {
        let one = one.expect("a buyer ends");
        told.answered.extend(one.answered);
        told.unanswered.extend(one.unanswered);
    }
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_has_lost_nothing_it_acknowledged() {
    let rounds = std::env::var("KILL_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().expect("a number"));
    let folder = folder();
    let start = Start::default();
    let mut server = start.serve(folder.path());
    let (mut answered, mut retried) = (Vec::new(), 0);
    for _ in 0..rounds {
        let told = round(&mut server).await;
        server = start.serve(folder.path());
        let shop = server.shop();
        let keyed = |answer: &&(ItemNumberRequest, BuyBookReply)| !answer.0.idempotency_key.is_empty();
        for (wish, reply) in told.answered.iter().filter(keyed).take(200) {
            let again = shop.buy(wish.clone()).await.expect("an answer").into_inner();
            assert_eq!(again, BuyBookReply { replayed: true, ..reply.clone() });
        }
        answered.extend(told.answered);
        for wish in told.unanswered {
            let reply = shop.buy(wish.clone()).await.expect("an answer").into_inner();
            retried += usize::from(reply.replayed);
            answered.push((wish, reply));
        }
        let audit = Audit::of(&server).await;
        for (wish, reply) in answered.iter().filter(|(_, reply)| reply.purchase_number > 0) {
            audit.holds(wish, reply);
        }
    }
    let bought = answered.iter().filter(|(_, reply)| reply.success).count();
    let refused = answered.iter().filter(|(wish, reply)| !reply.success && !wish.idempotency_key.is_empty()).count();
    eprintln!(
        "{rounds} kills, {} answers, {bought} purchases, {refused} refused keys, {retried} found done by their retry",
        answered.len()
    );
    assert!(bought > 1000 && refused > 100, "the load was one: {bought} bought, {refused} refused");
    server.stop();
}

#[tokio::test]
async fn no_other_user_can_read_what_a_store_writes() {
    use std::os::unix::fs::PermissionsExt as _;

    fn walk(folder: &std::path::Path, seen: &mut Vec<(std::path::PathBuf, u32)>) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            seen.push((path.clone(), path.metadata().expect("its mode").permissions().mode() & 0o777));
            if path.is_dir() {
                walk(&path, seen);
            }
        }
    }
    let folder = folder();
    let start = Start::default().inside("umask 000; exec \"$@\"").set("kv.durability=log");
    let server = start.serve(folder.path());
    assert!(server.shop().buy(one(BOOK)).await.expect("an answer").into_inner().success);
    let mut seen = Vec::new();
    walk(&folder.path().join("data"), &mut seen);
    let name = |path: &std::path::Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let store = ["", "-wal", "-shm", "-head", "-key"].map(|ending| format!("bookstore.db{ending}"));
    for wanted in store.iter().map(String::as_str).chain(["kv", "kv.address"]) {
        assert!(seen.iter().any(|(path, _)| name(path) == wanted), "{wanted} in {seen:?}");
    }
    assert!(seen.iter().all(|(_, mode)| mode % 0o100 == 0), "{seen:?}");
}
