//! Several servers share a database of `PostgreSQL`: each shows the others' commits, the log misses nothing, and a lost
//! primary stops only purchases.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use bookstore::{
    Bookstore, Fault, Settings, Verdict,
    domain::{Entry, EntryKind},
    fault::Unavailable,
};
use hosting::Client;
use postgres_testing::{Psql, Server, database_of, shared};

use super::{Kind, Shop, close, id, key, operator};

/// Far above the promised time, because a test machine may be busy; the wait itself is reported.
const TIMEOUT: Duration = Duration::from_secs(20);

fn until(shop: &Shop, what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TIMEOUT, "{what}: not seen");
        shop.runtime.block_on(tokio::task::yield_now());
    }
    eprintln!("{what}: seen after {:?}", start.elapsed());
}

fn stock(shop: &Shop, store: &Bookstore, number: i32) -> u32 {
    shop.runtime.block_on(store.lookup(id(number))).expect("no fault").expect("a book").stock()
}

fn psql(shop: &Shop) -> Psql {
    shared().session(database_of(shop.url.as_deref().expect("a database")))
}

#[test]
fn what_one_server_sells_the_others_show() {
    let shop = Shop::of(Kind::Database);
    let (one, other) = (shop.open(&Settings::default()), shop.open(&Settings::default()));
    for sold in 1..=20 {
        let bought = shop.runtime.block_on(one.buy(id(53477), 1, None, None)).expect("no fault");
        assert_eq!((bought.verdict, bought.stock_left), (Verdict::Bought, Some(1000 - sold)));
        assert_eq!(stock(&shop, &one, 53477), 1000 - sold, "a server shows its own sale at once");
        until(&shop, "a sale", || stock(&shop, &other, 53477) == 1000 - sold);
    }
    close(&one);
    close(&other);
}

#[test]
fn shows_a_book_that_was_sold_before_it_was_known() {
    let shop = Shop::of(Kind::Database);
    let store = shop.open(&Settings { follow_interval: Duration::from_hours(1), ..Settings::default() });
    shop.other_program("SET quire.ledger = 'on'; INSERT INTO book (id, title, topic, stock, price_cents) VALUES (7, 'Unheard of', 'rumours', 5, 100)");
    let bought = shop.runtime.block_on(store.buy(id(7), 1, None, None)).expect("no fault");
    assert_eq!((bought.verdict, bought.stock_left), (Verdict::Bought, Some(4)));
    let shown = || shop.runtime.block_on(store.lookup(id(7))).expect("no fault").map(|book| book.stock());
    until(&shop, "the book", || shown() == Some(4));
    close(&store);
}

/// A sale by a server that ends between COMMIT and notification.
const SALE_OF_A_SERVER_THAT_DIED: &str = "BEGIN; SET LOCAL quire.ledger = 'on'; \
    UPDATE book SET stock = 998 WHERE id = 53477; \
    INSERT INTO entry (book_id, time_ms, kind, quantity, \"before\", \"after\") VALUES (53477, 1, 2, 2, 1000, 998); COMMIT";

#[test]
fn shows_a_sale_of_a_server_that_died_before_announcing_it() {
    let shop = Shop::of(Kind::Database);
    let store = shop.open(&Settings::default());
    for _ in 0..3 {
        assert_eq!(stock(&shop, &store, 53477), 1000);
        shop.other_program(SALE_OF_A_SERVER_THAT_DIED);
        until(&shop, "the sale", || stock(&shop, &store, 53477) == 998);
        shop.other_program("UPDATE book SET stock = 1000 WHERE id = 53477");
        until(&shop, "the correction", || stock(&shop, &store, 53477) == 1000);
    }
    close(&store);
}

#[test]
fn only_roles_that_may_read_the_tables_can_announce_a_sale() {
    let shop = Shop::of(Kind::Database);
    let store = shop.open(&Settings::default());
    let newest = shop.log(&store).last().expect("the sample catalogue").number;
    let announce = |channel: &str, number: i64, stock: u32| {
        let payload = format!(r#"{{"numbers":[],"books":[[53477,{number},{stock},100,0]]}}"#);
        shop.other_program(&format!("SELECT pg_notify({channel}, '{payload}')"));
    };
    announce("'quire_book'", newest + 2000, 5);
    announce("(SELECT news_channel FROM quire_schema)", newest + 1000, 7);
    // Had the first been accepted, this one would be outdated.
    until(&shop, "the announcement", || stock(&shop, &store, 53477) == 7);
    close(&store);
}

#[test]
fn stock_that_changed_unseen_is_never_oversold() {
    let shop = Shop::of(Kind::Database);
    // A server that polls the others only once an hour.
    let store = shop.open(&Settings { follow_interval: Duration::from_hours(1), ..Settings::default() });
    shop.other_program("SET quire.ledger = 'on'; UPDATE book SET stock = 1 WHERE id = 53477");
    let buy = || shop.runtime.block_on(store.buy(id(53477), 1, None, None)).expect("no fault");
    assert_eq!((buy().verdict, buy().verdict), (Verdict::Bought, Verdict::SoldOut));
    close(&store);
}

#[test]
fn a_tail_misses_no_entry_that_is_committed_late_with_an_earlier_number() {
    let shop = Shop::of(Kind::Database);
    let store = shop.open(&Settings::default());
    let newest = shop.log(&store).last().expect("the sample catalogue").number;
    let mut slow = psql(&shop);
    let before = stock(&shop, &store, 12365);
    // Its rows have the savepoint's id, which is later than the transaction's.
    slow.run("BEGIN; SAVEPOINT part; UPDATE book SET stock = stock + 1 WHERE id = 12365; RELEASE part;");
    let mut tail = store.tail(Some(newest), Client::at(None)).expect("a place");
    let sold: Vec<i64> = (0..5)
        .map(|_| {
            shop.runtime.block_on(store.buy(id(53477), 1, None, None)).expect("no fault").number.expect("a number")
        })
        .collect();
    let none = shop.runtime.block_on(async { tokio::time::timeout(Duration::from_millis(400), tail.next()).await });
    assert!(none.is_err(), "no entry is sent while an earlier one may come: {none:?}");
    slow.run("COMMIT;");
    let mut seen: Vec<Entry> = Vec::new();
    while seen.len() < sold.len() + 1 {
        let page = async { tokio::time::timeout(TIMEOUT, tail.next()).await };
        seen.extend(shop.runtime.block_on(page).expect("in time").expect("open").expect("no fault"));
    }
    assert!(seen.is_sorted_by(|one, next| one.number < next.number), "{seen:?}");
    until(&shop, "a late commit", || stock(&shop, &store, 12365) == before + 1);
    assert_eq!(seen[0].kind, EntryKind::Adjusted);
    assert_eq!(seen[1..].iter().map(|entry| entry.number).collect::<Vec<_>>(), sold);
    close(&store);
}

#[test]
fn a_book_that_another_transaction_holds_is_waited_for_and_other_books_are_sold_meanwhile() {
    let shop = Shop::of(Kind::Database);
    let settings = Settings { busy_timeout: Duration::from_millis(100), ..Settings::default() };
    let (store, impatient) = (shop.open(&Settings::default()), shop.open(&settings));
    let mut shell = psql(&shop);
    shell.run("BEGIN; UPDATE book SET stock = 5 WHERE id = 53477; DELETE FROM book WHERE id = 53573;");
    let buy = |store: &Bookstore, book| shop.runtime.block_on(store.buy(id(book), 1, None, None));
    let begin = |book| {
        let store = store.clone();
        shop.runtime.spawn(async move { store.buy(id(book), 1, None, None).await })
    };
    let (changed, removed) = (begin(53477), begin(53573));
    let restock = {
        let store = store.clone();
        shop.runtime.spawn(async move { store.restock(1001, operator()).await })
    };
    for _ in 0..3 {
        assert_eq!(buy(&store, 12365).expect("no fault").verdict, Verdict::Bought);
    }
    assert_eq!(buy(&impatient, 53477).unwrap_err(), Fault::Unavailable(Unavailable::BookLocked));
    assert_eq!(buy(&impatient, 12365).expect("no fault").verdict, Verdict::Bought);
    assert!(*impatient.healthy().borrow(), "a lock is no failure");
    assert!(!changed.is_finished() && !removed.is_finished() && !restock.is_finished());
    shell.run("COMMIT;");
    for (call, verdict) in [(removed, Verdict::NoSuchBook), (changed, Verdict::Bought)] {
        assert_eq!(shop.runtime.block_on(call).expect("no panic").expect("no fault").verdict, verdict);
    }
    assert!(shop.runtime.block_on(restock).expect("no panic").expect("no fault").books_raised >= 1);
    close(&store);
    close(&impatient);
}

#[test]
fn what_comes_while_a_book_is_waited_for_is_sold_in_the_same_transaction_but_for_books_that_others_hold() {
    let shop = Shop::of(Kind::Database);
    let patient = Settings { lock_wait: TIMEOUT, database_timeout: TIMEOUT * 4, ..Settings::default() };
    let store = shop.open(&patient);
    let newest = shop.log(&store).last().expect("the sample catalogue").number;
    let (mut holds_one, mut holds_other, mut looks) = (psql(&shop), psql(&shop), psql(&shop));
    holds_one.run("BEGIN; UPDATE book SET stock = stock WHERE id = 53477;");
    holds_other.run("BEGIN; UPDATE book SET stock = stock WHERE id = 12365;");
    let buy = |book, name: &str| {
        let (store, key) = (store.clone(), key(name));
        shop.runtime.spawn(async move { store.buy(id(book), 1, Some(key), None).await })
    };
    let first = buy(53477, "first");
    let waits =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database();";
    until(&shop, "a wait for the lock", || looks.run(waits).trim() == "1");
    let mut others = Vec::new();
    for (place, book) in [53477, 12365, 53573, 53477].into_iter().enumerate() {
        others.push(buy(book, &place.to_string()));
        until(&shop, "a job that waits", || store.levels().purchases_queued == others.len());
    }
    holds_one.run("ROLLBACK;");
    let other = others.remove(1);
    let answers: Vec<_> = std::iter::once(first)
        .chain(others)
        .map(|call| shop.runtime.block_on(call).expect("no panic").expect("no fault").verdict)
        .collect();
    assert_eq!(answers, [Verdict::Bought; 4]);
    let made = format!("SELECT count(DISTINCT xmin::text) FROM entry WHERE number > {newest};");
    assert_eq!(looks.run(&made).trim(), "1", "transactions");
    assert!(!other.is_finished(), "its book is held");
    holds_other.run("ROLLBACK;");
    let receipt = shop.runtime.block_on(other).expect("no panic").expect("no fault");
    assert_eq!(receipt.verdict, Verdict::Bought);
    assert_eq!(looks.run(&made).trim(), "2", "transactions");
    assert_eq!(receipt.number, shop.log(&store).last().map(|entry| entry.number));
    close(&store);
}

#[test]
fn no_one_waits_for_a_locked_book_whose_reservation_is_over() {
    let shop = Shop::of(Kind::Database);
    let now = Arc::new(AtomicI64::new(1_000_000));
    let clock = Arc::clone(&now);
    let patient = Settings {
        lock_wait: TIMEOUT * 2,
        database_timeout: TIMEOUT * 8,
        clock: Some(Arc::new(move || clock.load(Ordering::Relaxed))),
        ..Settings::default()
    };
    let store = shop.open(&patient);
    let hold = |book, name: &str| {
        let held = store.hold(id(book), 1, key(name), Some(60), &Client::Unknown, None);
        shop.runtime.block_on(async { tokio::time::timeout(TIMEOUT, held).await }).expect("no wait").expect("held")
    };
    hold(53477, "over");
    let mut other = psql(&shop);
    other.run("BEGIN; UPDATE book SET stock = stock WHERE id = 53477;");
    now.fetch_add(61_000, Ordering::Relaxed);
    hold(12365, "next");
    let held = "SELECT held FROM book WHERE id = 53477;";
    assert_eq!(other.run(held).trim(), "1");
    other.run("ROLLBACK;");
    until(&shop, "its copy's return", || other.run(held).trim() == "0");
    close(&store);
}

#[test]
fn a_database_of_every_earlier_schema_is_migrated_and_one_of_a_later_schema_is_refused() {
    let version = |shop: &Shop| psql(shop).run("SELECT version FROM quire_schema;").parse::<usize>().expect("a number");
    let newest = Shop::of(Kind::Database);
    close(&newest.open(&Settings::default()));
    for schema in 1..version(&newest) {
        let shop = Shop::of(Kind::Database);
        let dump = format!("{}/tests/fixtures/database-{schema}.sql", env!("CARGO_MANIFEST_DIR"));
        shop.other_program(&fs::read_to_string(dump).expect("a dump of each schema"));
        assert_eq!(version(&shop), schema);
        let store = shop.open(&Settings::default());
        assert_eq!(version(&shop), version(&newest));
        let step = psql(&shop).run("SELECT increment_by FROM pg_sequences WHERE sequencename = 'entry_number';");
        assert_eq!(step, "32", "numbers of a transaction");
        let buy = |book, quantity, name| {
            shop.runtime.block_on(store.buy(id(book), quantity, Some(key(name)), None)).expect("no fault")
        };
        for (book, quantity, name, verdict) in [
            (53477, 3, "first", Verdict::Bought),
            (53477, 2, "second", Verdict::Bought),
            (12498, 1000, "all", Verdict::Bought),
            (12498, 1, "late", Verdict::SoldOut),
        ] {
            let again = buy(book, quantity, name);
            assert_eq!((again.replayed, again.verdict), (true, verdict), "{name} of schema {schema}");
        }
        for (book, copies, cents) in [(53477, 995, 5995), (12365, 995, 2999), (53573, 1000, 1234)] {
            let book = shop.runtime.block_on(store.lookup(id(book))).expect("no fault").expect("a book");
            assert_eq!((book.stock(), book.price().get()), (copies, cents), "{}", book.title());
        }
        let is_listed = shop.runtime.block_on(store.lookup(id(12498))).expect("no fault").is_some();
        assert_eq!(is_listed, schema < 5, "delisted, where a release could do that");
        assert_eq!(["next", "and next"].map(|name| buy(53477, 1, name).stock_left), [Some(994), Some(993)]);
        shop.other_program(
            "UPDATE book SET stock = 990, listed = false WHERE id = 53477; DROP TRIGGER book_changed ON book",
        );
        close(&store);
        let store = shop.open(&Settings::default());
        shop.other_program("UPDATE book SET listed = true WHERE id = 53477");
        let log = shop.log(&store);
        assert!(log.is_sorted_by(|one, next| one.number < next.number), "no number comes twice: {log:?}");
        let kinds: Vec<_> = log[if schema < 5 { 12 } else { 13 }..].iter().map(|entry| entry.kind).collect();
        let sales = [EntryKind::Purchase; 2];
        let changes = [EntryKind::Adjusted, EntryKind::Delisted, EntryKind::Listed];
        assert_eq!(kinds, [&sales[..], &changes].concat());
        close(&store);
    }
    newest.other_program("UPDATE quire_schema SET version = version + 1");
    let refused = newest.try_open(&Settings::default()).expect_err("of a later release").to_string();
    assert!(refused.contains("use a newer quire, or restore a backup from before"), "{refused}");
}

#[test]
fn two_servers_that_get_the_same_keys_in_opposite_orders_agree() {
    let shop = Shop::of(Kind::Database);
    let stores = [shop.open(&Settings::default()), shop.open(&Settings::default())];
    for round in 0..10 {
        let answers = shop.runtime.block_on(async {
            let mut running = tokio::task::JoinSet::new();
            for place in 0..100 {
                for (side, store) in stores.iter().enumerate() {
                    let (store, number) = (store.clone(), if side == 0 { place } else { 99 - place });
                    // The two servers lock different books, so that only the keys collide.
                    let book = [53477, 12365][side];
                    running.spawn(async move {
                        let bought = store.buy(id(book), 1, Some(key(&format!("{round}/{number}"))), None).await;
                        (number, bought)
                    });
                }
            }
            running.join_all().await
        });
        for number in 0..100 {
            let of_key: Vec<_> =
                answers.iter().filter(|(other, _)| *other == number).map(|(_, answer)| answer).collect();
            let bought = of_key.iter().filter(|answer| answer.is_ok()).count();
            let reused = of_key.iter().filter(|answer| matches!(answer, Err(Fault::KeyReused { .. }))).count();
            assert_eq!((bought, reused), (1, 1), "{of_key:?}");
        }
    }
    stores.iter().for_each(close);
}

#[test]
fn servers_that_start_at_once_make_the_tables_once() {
    let shop = Shop::of(Kind::Database);
    let stores = std::thread::scope(|scope| {
        let starting: Vec<_> = (0..4).map(|_| scope.spawn(|| shop.open(&Settings::default()))).collect();
        starting.into_iter().map(|start| start.join().expect("a store")).collect::<Vec<_>>()
    });
    assert_eq!(shop.log(&stores[0]).len(), 4, "the sample catalogue, once");
    stores.iter().for_each(close);
}

#[test]
fn without_the_right_to_create_tables_the_start_prints_the_sql() {
    let shop = Shop::of(Kind::Database);
    let url = shop.url.clone().expect("a database");
    let database = database_of(&url);
    let role = format!("guest_{database}");
    shop.other_program(&format!("CREATE ROLE {role} LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC"));
    let guest = Shop::at(Some(url.replace("quire@", &format!("{role}@"))));
    let message = guest.try_open(&Settings::default()).expect_err("no right").to_string();
    let (reason, sql) = message.split_once('\n').expect("SQL after the message");
    assert!(reason.contains("may not create or change tables") && !reason.contains("CREATE"), "{reason}");
    let grants = "GRANT ALL ON ALL TABLES IN SCHEMA public TO";
    shop.other_program(&format!("{sql} {grants} {role}; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role};"));
    guest.import("7,Title,topic,3,1.00\n");
    let store = guest.open(&Settings::default());
    assert_eq!(store.levels().replicas, None, "it may not see replicas");
    let bought = guest.runtime.block_on(store.buy(id(7), 1, Some(key("a")), None)).expect("no fault");
    assert_eq!((bought.verdict, bought.stock_left), (Verdict::Bought, Some(2)));
    close(&store);
}

#[test]
fn rows_of_lost_connections_are_removed_after_a_day_and_an_open_one_is_replaced() {
    let shop = Shop::of(Kind::Database);
    let store = shop.open(&Settings::default());
    let buy = || shop.runtime.block_on(store.buy(id(53477), 1, None, None)).expect("no fault").verdict;
    assert_eq!(buy(), Verdict::Bought);
    let rows = || psql(&shop).run("SELECT string_agg(batch::text, ' ' ORDER BY id) FROM ledger_session;");
    shop.other_program(
        "INSERT INTO ledger_session (batch, since) \
         VALUES (7, now() - interval '2 days'), (8, now() - interval '1 hour'), (9, now() - interval '25 hours')",
    );
    close(&shop.open(&Settings::default()));
    assert_eq!(rows(), "1 8", "the open connection's and the recent one");
    let mut healthy = store.healthy();
    healthy.borrow_and_update();
    shop.other_program("UPDATE ledger_session SET since = now() - interval '2 days'");
    close(&shop.open(&Settings::default()));
    assert_eq!(rows(), "");
    assert_eq!(buy(), Verdict::Bought);
    assert!(!healthy.has_changed().expect("open"), "another connection takes its place");
    assert_eq!(rows(), "1");
    close(&store);
}

#[test]
fn without_a_primary_purchases_are_refused_at_once_and_reads_go_on() {
    let mut server = Server::start("");
    let shop = Shop::at(Some(server.database()));
    let settings = Settings { database_timeout: Duration::from_secs(2), ..Settings::default() };
    let store = shop.open(&settings);
    let buy = |name: &str| shop.runtime.block_on(store.buy(id(53477), 1, Some(key(name)), None));
    assert_eq!(buy("first").expect("no fault").verdict, Verdict::Bought);
    server.kill();
    until(&shop, "the loss", || !*store.healthy().borrow());
    let start = Instant::now();
    assert_eq!(buy("second").unwrap_err(), Fault::Unavailable(Unavailable::Unreachable));
    assert!(start.elapsed() < Duration::from_millis(500), "at once: {:?}", start.elapsed());
    assert_eq!(stock(&shop, &store, 53477), 999);
    assert!(store.trouble().expect("trouble").contains("no primary"), "{:?}", store.trouble());
    let age = store.levels().age.expect("an age");
    until(&shop, "the age of what is read", || store.levels().age.is_some_and(|later| later > age));
    server.run();
    until(&shop, "the primary", || *store.healthy().borrow());
    assert_eq!(buy("second").expect("no fault").verdict, Verdict::Bought);
    let again = buy("first").expect("no fault");
    assert_eq!((again.verdict, again.replayed), (Verdict::Bought, true));
    close(&store);
}

#[test]
fn a_start_waits_for_a_primary_that_is_away_and_not_for_one_that_refuses() {
    let mut server = Server::start("");
    let shop = Shop::at(Some(server.database()));
    let message = Shop::at(Some(server.url("nowhere"))).try_open(&Settings::default()).expect_err("no database");
    assert!(message.to_string().contains("\"nowhere\" does not exist"), "{message}");
    server.kill();
    let store = std::thread::scope(|scope| {
        let starting = scope.spawn(|| shop.open(&Settings::default()));
        server.run();
        starting.join().expect("a store")
    });
    assert_eq!(stock(&shop, &store, 53477), 1000);
    close(&store);
}

#[test]
fn over_tls_the_certificate_must_be_vouched_for_and_name_the_host() {
    let server = Server::start("");
    let made = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    let (own, stranger) = (made("127.0.0.1"), made("127.0.0.1"));
    server.secure(&own.cert.pem(), &own.signing_key.serialize_pem());
    let url = server.database();
    let folder = tempfile::tempdir().expect("a folder");
    let trusting = |name: &str, certificate: &str| {
        let path = folder.path().join(name);
        fs::write(&path, certificate).expect("a file");
        Settings { database_ca: Some(path), database_timeout: Duration::from_secs(2), ..Settings::default() }
    };
    let shop = Shop::at(Some(format!("{url}?sslmode=verify-full")));
    let store = shop.open(&trusting("own", &own.cert.pem()));
    let bought = shop.runtime.block_on(store.buy(id(53477), 1, None, None)).expect("no fault");
    assert_eq!(bought.verdict, Verdict::Bought);
    let plain = "SELECT count(*) FROM pg_stat_activity JOIN pg_stat_ssl USING (pid) WHERE application_name = 'quire' AND NOT ssl";
    assert_eq!(server.psql("postgres", plain).stdout, b"0\n", "no connection is without TLS");
    close(&store);
    let refused = |url: String, certificate: &str| {
        let message = Shop::at(Some(url)).try_open(&trusting("other", certificate)).expect_err("no trust").to_string();
        assert!(message.contains("certificate"), "{message}");
    };
    refused(format!("{url}?sslmode=verify-full"), &stranger.cert.pem());
    refused(format!("{url}?sslmode=verify-full").replace("127.0.0.1", "localhost"), &own.cert.pem());
}

#[test]
fn a_frozen_primary_is_given_up_in_time_and_its_purchase_is_settled_afterwards() {
    let server = Server::start("");
    let shop = Shop::at(Some(server.database()));
    let settings = Settings {
        database_timeout: Duration::from_millis(500),
        busy_timeout: Duration::from_millis(500),
        ..Settings::default()
    };
    let store = shop.open(&settings);
    // The connection that sells is open.
    shop.runtime.block_on(store.buy(id(12365), 1, None, None)).expect("no fault");
    let mut process = server.session(database_of(shop.url.as_deref().unwrap()));
    let backends =
        process.run("SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE application_name = 'quire';");
    let send = |name: &str| {
        let sent = std::process::Command::new("kill").args(["-s", name]).args(backends.split(' ')).status();
        assert!(sent.expect("kill runs").success());
    };
    send("STOP");
    let answer = shop.runtime.block_on(store.buy(id(53477), 1, Some(key("frozen")), None));
    send("CONT");
    match answer {
        Err(Fault::Unavailable(_) | Fault::OutcomeUnknown) => {}
        other => panic!("{other:?}"),
    }
    let mut bought = None;
    until(&shop, "the end of the freeze", || {
        bought = match shop.runtime.block_on(store.buy(id(53477), 1, Some(key("frozen")), None)) {
            Err(Fault::Unavailable(_)) => None,
            answer => Some(answer.expect("no other fault")),
        };
        bought.is_some()
    });
    let bought = bought.expect("seen");
    assert_eq!((bought.verdict, bought.stock_left), (Verdict::Bought, Some(999)), "once");
    close(&store);
}

#[test]
fn a_server_without_a_spare_connection_reports_it_and_keeps_the_one_that_sells() {
    let server = Server::start("");
    let shop = Shop::at(Some(server.database().replace("quire@", "till@")));
    let database = database_of(shop.url.as_deref().expect("a database"));
    let mut admin = server.session(database);
    admin.run(&format!("CREATE ROLE till LOGIN CONNECTION LIMIT 0; ALTER DATABASE {database} OWNER TO till;"));
    let settings = Settings { database_timeout: Duration::from_secs(2), ..Settings::default() };
    let store = std::thread::scope(|scope| {
        let starting = scope.spawn(|| shop.open(&settings));
        until(&shop, "a refusal", || server.log().contains("too many connections"));
        admin.run("ALTER ROLE till CONNECTION LIMIT -1;");
        starting.join().expect("a store")
    });
    let buy = || shop.runtime.block_on(store.buy(id(53477), 1, None, None));
    buy().expect("no fault");
    let mut healthy = store.healthy();
    healthy.borrow_and_update();
    let end = |which: &str| {
        format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'till' AND query {which};")
    };
    let (follower, writer) = (end("LIKE 'SELECT%'"), end("NOT LIKE 'SELECT%'"));
    admin.run("ALTER ROLE till CONNECTION LIMIT 1;");
    assert_eq!(admin.run(&follower), "t");
    until(&shop, "reads that do not follow", || store.levels().age.is_some_and(|age| age > settings.database_timeout));
    assert!(!healthy.has_changed().expect("open"), "the connection that sells was given up");
    assert_eq!(buy().expect("no fault").verdict, Verdict::Bought);
    admin.run("ALTER ROLE till CONNECTION LIMIT 0;");
    assert_eq!(admin.run(&end("LIKE '%'")), "t");
    until(&shop, "the loss", || !*store.healthy().borrow());
    until(&shop, "its reason", || store.trouble().is_some_and(|trouble| trouble.contains("connections")));
    assert_eq!(buy().unwrap_err(), Fault::Unavailable(Unavailable::Crowded));
    admin.run("ALTER ROLE till CONNECTION LIMIT -1;");
    until(&shop, "the way back", || *store.healthy().borrow());
    // The follower's first statements are no SELECT.
    let both = "SELECT string_agg((query LIKE 'SELECT%')::text, ' ' ORDER BY query LIKE 'SELECT%') FROM pg_stat_activity \
                WHERE usename = 'till';";
    until(&shop, "the follower", || admin.run(both) == "false true");
    // One that is ended alone is replaced.
    healthy.borrow_and_update();
    for _ in 0..3 {
        assert_eq!(admin.run(&writer), "t");
        assert_eq!(buy().expect("no fault").verdict, Verdict::Bought);
    }
    assert!(!healthy.has_changed().expect("open"), "the primary answers");
    close(&store);
}

#[test]
fn a_host_that_becomes_the_primary_is_found_while_another_is_silent() {
    let server = Server::start("log_connections = on\n");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let host = format!("quire@127.0.0.1:{},127", silent.local_addr().expect("an address").port());
    let shop = Shop::at(Some(server.database().replace("quire@127", &host)));
    // A silent host is waited for longer than this test lasts.
    let store = shop.open(&Settings { database_timeout: TIMEOUT * 2, ..Settings::default() });
    let set_replica = |is_replica: &str| {
        let set = format!("ALTER SYSTEM SET default_transaction_read_only = {is_replica}");
        for sql in [&set, "SELECT pg_reload_conf()"] {
            assert!(server.psql("postgres", sql).status.success());
        }
    };
    let connections = || server.log().matches("connection authorized").count();
    set_replica("on");
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'quire'";
    assert!(server.psql("postgres", end).status.success());
    until(&shop, "the loss", || !*store.healthy().borrow());
    let before = connections();
    until(&shop, "that it is asked again and again", || connections() > before + 8);
    set_replica("off");
    until(&shop, "the primary", || *store.healthy().borrow());
    let bought = shop.runtime.block_on(store.buy(id(53477), 1, None, None)).expect("no fault");
    assert_eq!(bought.verdict, Verdict::Bought);
    close(&store);
}

#[test]
fn receipts_are_refused_with_the_reason() {
    let shop = Shop::of(Kind::Database);
    let store = shop.open(&Settings::default());
    assert!(!store.has_receipts());
    let refused = shop.runtime.block_on(store.receipt(1, &key("a"))).expect_err("no tree");
    assert!(refused.to_string().contains("need the SQLite store"), "{refused}");
    assert_eq!(bookstore::grpc::code(&refused), quire_rpc::Code::Unimplemented);
    close(&store);
}

#[test]
fn replicas_are_counted_for_a_user_who_may_see_them() {
    let server = Server::start("");
    let shop = Shop::at(Some(server.database()));
    let store = shop.open(&Settings::default());
    assert_eq!(store.levels().replicas, Some(0));
    let receiver = server.receiver();
    until(&shop, "a replica", || store.levels().replicas == Some(1));
    drop(receiver);
    until(&shop, "no replica", || store.levels().replicas == Some(0));
    close(&store);
}
