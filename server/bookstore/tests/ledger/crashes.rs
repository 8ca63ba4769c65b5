//! Servers sell while the database or its connections are killed: every acknowledged purchase exists once, no key
//! bought twice, and the stock matches the log.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
    time::Duration,
};

use bookstore::{Bookstore, Fault, Receipt, Settings, Verdict, domain::EntryKind};
use postgres_testing::Server;

use super::{Shop, close, id, key, operator};

const CLIENTS: usize = 8;
const BOOKS: [i32; 4] = [12365, 12498, 53477, 53573];

/// Results of the clients.
#[derive(Debug, Default)]
struct Seen {
    receipts: HashMap<String, Receipt>,
    /// Keys with an unknown outcome.
    unknown: Vec<String>,
    refused: usize,
}

/// Buys with one key after the other until `stop`; unanswered keys are retried at the end.
async fn shop_on(client: usize, stores: Vec<Bookstore>, stop: &AtomicBool, sold: &AtomicUsize) -> Seen {
    let mut seen = Seen::default();
    for number in 0.. {
        if stop.load(Relaxed) {
            return seen;
        }
        let (name, store) = (format!("{client}/{number}"), &stores[(client + number) % stores.len()]);
        let book = BOOKS[(client + number) % BOOKS.len()];
        match store.buy(id(book), 1, Some(key(&name)), None).await {
            Ok(receipt) => {
                assert!(!receipt.replayed, "{name} was never sent before");
                sold.fetch_add(1, Relaxed);
                seen.receipts.insert(name, receipt);
            }
            Err(Fault::OutcomeUnknown) => seen.unknown.push(name),
            Err(Fault::Unavailable(_) | Fault::Overloaded { .. } | Fault::Failed(_)) => {
                seen.refused += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(other) => panic!("{name}: {other}"),
        }
    }
    seen
}

/// Sells during `disturb`, and then audits the log.
fn sell_through(server: &mut Server, stores: usize, disturb: impl FnOnce(&mut Server, &dyn Fn(usize))) {
    let shop = Shop::at(Some(server.database()));
    let settings = Settings { database_timeout: Duration::from_secs(3), ..Settings::default() };
    let stores: Vec<Bookstore> = (0..stores).map(|_| shop.open(&settings)).collect();
    shop.runtime.block_on(stores[0].restock(1_000_000, operator())).expect("stock");
    let (stop, sold) = (AtomicBool::new(false), AtomicUsize::new(0));
    let seen: Vec<Seen> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (stores, stop, sold, runtime) = (stores.clone(), &stop, &sold, shop.runtime.handle());
                scope.spawn(move || runtime.block_on(shop_on(client, stores, stop, sold)))
            })
            .collect();
        let wait_for_sales = |more: usize| {
            let (from, began) = (sold.load(Relaxed), std::time::Instant::now());
            while sold.load(Relaxed) < from + more {
                assert!(began.elapsed() < Duration::from_mins(1), "no sales");
                thread::sleep(Duration::from_millis(1));
            }
        };
        disturb(server, &wait_for_sales);
        wait_for_sales(100);
        stop.store(true, Relaxed);
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    });
    audit(&shop, &stores, &seen);
    stores.iter().for_each(close);
}

fn audit(shop: &Shop, stores: &[Bookstore], seen: &[Seen]) {
    let log = shop.log(&stores[0]);
    let mut bought: HashMap<String, Receipt> = HashMap::new();
    let mut stock: HashMap<i32, i64> = HashMap::new();
    for entry in &log {
        if let Some(key) = &entry.key {
            let name = String::from_utf8_lossy(key.as_bytes()).into_owned();
            assert!(bought.insert(name.clone(), entry.receipt()).is_none(), "{name} bought twice");
        }
        let before = stock.insert(entry.book.get(), entry.after.expect("a stock"));
        if entry.kind != EntryKind::Added {
            assert_eq!(before, entry.before, "each entry follows the one before");
        }
    }
    let (mut kept, mut lost, mut refused) = (0, 0, 0);
    for Seen { receipts, unknown, refused: here } in seen {
        refused += here;
        for (name, receipt) in receipts {
            let logged = bought.get(name).unwrap_or_else(|| panic!("{name} was acknowledged and is lost"));
            assert_eq!(Receipt { replayed: false, ..*logged }, *receipt, "{name}");
        }
        kept += unknown.iter().filter(|name| bought.contains_key(*name)).count();
        lost += unknown.iter().filter(|name| !bought.contains_key(*name)).count();
        for name in unknown {
            let place: usize = name.split('/').map(|part| part.parse::<usize>().expect("a number")).sum();
            let again = stores[0].buy(id(BOOKS[place % BOOKS.len()]), 1, Some(key(name)), None);
            let again = shop.runtime.block_on(again).expect("no fault");
            assert_eq!((again.verdict, again.replayed), (Verdict::Bought, bought.contains_key(name)), "{name}");
        }
    }
    let acknowledged: usize = seen.iter().map(|seen| seen.receipts.len()).sum();
    eprintln!("acknowledged {acknowledged}, unknown and done {kept}, unknown and not done {lost}, refused {refused}");
    let counted = bought.values().filter(|receipt| receipt.verdict == Verdict::Bought).count();
    assert!(counted >= acknowledged + kept);
    for book in BOOKS {
        until_shown(shop, &stores[0], book);
    }
}

/// Waits until readers see the database's state.
fn until_shown(shop: &Shop, store: &Bookstore, book: i32) {
    let last = || {
        let log = shop.log(store);
        log.iter().rev().find(|entry| entry.book == id(book)).and_then(|entry| entry.after)
    };
    let began = std::time::Instant::now();
    loop {
        let shown = shop.runtime.block_on(store.lookup(id(book))).expect("no fault").expect("a book").stock();
        if Some(i64::from(shown)) == last() {
            return;
        }
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "book {book} is shown with {shown} copies, not {:?}",
            last()
        );
    }
}

#[test]
fn a_database_that_is_killed_loses_nothing_that_was_acknowledged() {
    let mut server = Server::start("");
    sell_through(&mut server, 2, |server, wait_for_sales| {
        for _ in 0..4 {
            wait_for_sales(50);
            server.kill();
            server.run();
        }
    });
}

#[test]
fn connections_that_are_ended_in_any_moment_lose_nothing_and_sell_nothing_twice() {
    let mut server = Server::start("");
    sell_through(&mut server, 2, |server, wait_for_sales| {
        for _ in 0..40 {
            wait_for_sales(20);
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'quire'";
            assert!(server.psql("postgres", end).status.success());
        }
    });
}
