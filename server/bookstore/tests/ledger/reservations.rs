//! Copies are held for the time of a reservation, sold or given back exactly once, and never lost.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bookstore::{
    Bookstore, Fault, Limit, Reads, Settings, Verdict,
    domain::{Entry, EntryKind, HoldState, KeyOwner, Reservation, STOCK_MAX},
    store::{self, Part},
};
use hosting::Client;
use proptest::{prelude::*, test_runner::TestRunner};
use quire_rpc::Code;
use rusqlite::{Connection, config::DbConfig};

use super::{Kind, Shop, both, close, id, key, operator};

/// The clock of reservations, which only the test moves.
#[derive(Clone)]
struct Clock(Arc<AtomicI64>);

impl Clock {
    fn new() -> Self {
        Self(Arc::new(AtomicI64::new(1_000_000)))
    }

    fn pass(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1000, Relaxed);
    }

    /// Settings with this clock, and so few keys in memory that most are in the index.
    fn settings(&self) -> Settings {
        let now = Arc::clone(&self.0);
        Settings { clock: Some(Arc::new(move || now.load(Relaxed))), keys_in_memory: 2, ..Settings::default() }
    }
}

const BOOK: i32 = 7;

/// Books of the sample catalogue and of the test, each with an entry in the log.
const BOOKS: usize = 5;

fn shop(kind: Kind, stock: i32) -> (Shop, Clock) {
    let shop = Shop::of(kind);
    shop.import(&format!("{BOOK},Title,topic,{stock},1.00\n"));
    (shop, Clock::new())
}

fn hold(shop: &Shop, store: &Bookstore, name: &str, copies: i32, seconds: i32) -> Result<Reservation, Fault> {
    shop.runtime.block_on(store.hold(id(BOOK), copies, key(name), Some(seconds), &Client::Unknown, None))
}

fn end(shop: &Shop, store: &Bookstore, name: &str, confirms: bool) -> Reservation {
    shop.runtime.block_on(store.end_hold(key(name), confirms, None)).expect("no fault")
}

/// Free and held copies.
fn copies(shop: &Shop, store: &Bookstore) -> (u32, u32) {
    let book = shop.runtime.block_on(store.lookup(id(BOOK))).expect("no fault").expect("a book");
    (book.stock(), book.held())
}

fn wait_for(shop: &Shop, store: &Bookstore, expected: (u32, u32)) {
    let begun = Instant::now();
    while copies(shop, store) != expected {
        assert!(begun.elapsed() < Duration::from_secs(30), "not {expected:?}, but {:?}", copies(shop, store));
        shop.runtime.block_on(tokio::task::yield_now());
    }
}

both!(
    copies_are_held_then_sold_or_given_back_once_across_restarts,
    a_time_that_is_over_gives_copies_back_and_a_later_confirmation_is_told,
    more_reservations_than_a_transaction_ends_are_given_back,
    a_reservation_of_one_server_is_known_to_another,
    a_key_is_of_a_purchase_or_of_a_reservation,
    reservations_are_limited_and_one_client_leaves_half_of_them_to_others,
    lists_and_a_book_that_was_removed_and_added_again_show_the_held_copies,
    a_held_book_can_be_edited_delisted_and_removed,
    held_copies_leave_room_to_give_them_back,
    two_servers_and_a_model_agree_on_every_answer,
    many_callers_of_two_servers_lose_no_copy_and_sell_none_twice,
);

/// In a database: `hold` and `held` are as the log has them, and so is each stock.
const AUDIT: &str = r#"
CREATE TEMP VIEW open AS SELECT book_id, number, quantity FROM entry begun WHERE kind = 6 AND quantity > 0 AND "before" > "after"
    AND NOT EXISTS (SELECT FROM entry WHERE idempotency_key = begun.idempotency_key AND key_owner = begun.key_owner AND
        number > begun.number);
SELECT 1 / (NOT EXISTS (TABLE open EXCEPT SELECT book_id, number, quantity FROM hold)
    AND NOT EXISTS (SELECT book_id, number, quantity FROM hold EXCEPT TABLE open)
    AND NOT EXISTS (SELECT FROM book WHERE held <> (SELECT coalesce(sum(quantity), 0) FROM hold WHERE book_id = id)
        OR stock <> (SELECT sum(coalesce("after", 0) - coalesce("before", 0)) FROM entry
            WHERE book_id = id AND kind NOT IN (5, 8))))::integer;
"#;

fn assert_verified(shop: &Shop) {
    if shop.url.is_some() {
        return shop.other_program(AUDIT);
    }
    let found = store::verify(&shop.path(), &mut |_, _| {}).expect("it can be read");
    assert!(found.problems.is_empty(), "{:?}", found.problems);
}

fn copies_are_held_then_sold_or_given_back_once_across_restarts(kind: Kind) {
    let (shop, clock) = shop(kind, 10);
    let mut store = shop.open(&clock.settings());
    let first = hold(&shop, &store, "sold", 3, 60).expect("held");
    assert_eq!((first.state, first.stock_left, first.replayed), (HoldState::Held, Some(7), false));
    assert_eq!(first.held, Some((id(BOOK), 3, 1_060_000)));
    assert_eq!(hold(&shop, &store, "back", 2, 60).expect("held").stock_left, Some(5));
    assert_eq!(copies(&shop, &store), (5, 5));
    assert_eq!(hold(&shop, &store, "more", 6, 60).expect("refused").state, HoldState::TooFew);
    let buy =
        |store: &Bookstore, copies| shop.runtime.block_on(store.buy(id(BOOK), copies, None, None)).expect("no fault");
    assert_eq!(buy(&store, 6).verdict, Verdict::TooFew);
    close(&store);
    store = shop.open(&clock.settings());
    assert_eq!(copies(&shop, &store), (5, 5), "they are held across a restart");
    assert_eq!(hold(&shop, &store, "sold", 3, 60), Ok(Reservation { replayed: true, ..first }));
    let sold = end(&shop, &store, "sold", true);
    assert_eq!((sold.state, sold.stock_left, sold.replayed), (HoldState::Bought, Some(5), false));
    let back = end(&shop, &store, "back", false);
    assert_eq!((back.state, back.stock_left, back.replayed), (HoldState::Released, Some(7), false));
    assert_eq!(copies(&shop, &store), (7, 0));
    clock.pass(120);
    for _ in 0..2 {
        for _ in 0..2 {
            for (name, confirms, was) in [("sold", true, sold), ("sold", false, sold), ("back", false, back)] {
                let again = end(&shop, &store, name, confirms);
                assert_eq!(again, Reservation { replayed: true, now_ms: again.now_ms, ..was });
            }
            assert_eq!(hold(&shop, &store, "sold", 3, 60).expect("an answer").state, HoldState::Bought);
            assert_eq!(hold(&shop, &store, "back", 2, 60).expect("an answer").state, HoldState::Released);
            assert_eq!(end(&shop, &store, "no one's", true).state, HoldState::NoSuchReservation);
        }
        assert_verified(&shop);
        close(&store);
        store = shop.open(&clock.settings());
    }
    let log: Vec<Entry> = shop.log(&store).into_iter().filter(|entry| entry.key.is_some()).collect();
    let kinds: Vec<_> = log.iter().map(|entry| (entry.kind, entry.before, entry.after, entry.key)).collect();
    assert_eq!(
        kinds,
        [
            (EntryKind::Reserved, Some(10), Some(7), Some(key("sold"))),
            (EntryKind::Reserved, Some(7), Some(5), Some(key("back"))),
            (EntryKind::Purchase, Some(5), Some(5), Some(key("sold"))),
            (EntryKind::Released, Some(5), Some(7), Some(key("back"))),
        ]
    );
    close(&store);
}

fn a_time_that_is_over_gives_copies_back_and_a_later_confirmation_is_told(kind: Kind) {
    let (shop, clock) = shop(kind, 10);
    let mut store = shop.open(&clock.settings());
    for (name, seconds) in [("idle", 10), ("stopped", 20), ("long", 100)] {
        hold(&shop, &store, name, 1, seconds).expect("held");
    }
    clock.pass(9);
    assert_eq!(hold(&shop, &store, "idle", 1, 10).expect("an answer").state, HoldState::Held);
    clock.pass(1);
    wait_for(&shop, &store, (8, 2));
    close(&store);
    clock.pass(10);
    store = shop.open(&clock.settings());
    wait_for(&shop, &store, (9, 1));
    for name in ["idle", "stopped"] {
        for confirms in [true, false] {
            let late = end(&shop, &store, name, confirms);
            assert_eq!((late.state, late.replayed), (HoldState::Expired, true), "{name}");
        }
    }
    assert_eq!(end(&shop, &store, "long", true).state, HoldState::Bought);
    assert_eq!(copies(&shop, &store), (9, 0));
    assert_verified(&shop);
    close(&store);
}

#[test]
fn a_time_that_ends_far_in_the_future_is_bounded_at_a_start() {
    let (shop, clock) = shop(Kind::File, 10);
    let mut store = shop.open(&clock.settings());
    hold(&shop, &store, "ahead", 1, 60).expect("held");
    close(&store);
    // The system's clock was ahead.
    clock.pass(-100_000);
    let mut settings = clock.settings();
    settings.limits.reservation_seconds = 120.into();
    store = shop.open(&settings);
    clock.pass(119);
    assert_eq!(hold(&shop, &store, "ahead", 1, 60).expect("an answer").state, HoldState::Held);
    assert_eq!(copies(&shop, &store), (9, 1));
    clock.pass(1);
    wait_for(&shop, &store, (10, 0));
    assert_eq!(end(&shop, &store, "ahead", true).state, HoldState::Expired);
    assert_verified(&shop);
    close(&store);
}

fn more_reservations_than_a_transaction_ends_are_given_back(kind: Kind) {
    const COUNT: i32 = 1500;
    let (shop, clock) = shop(kind, COUNT);
    let store = shop.open(&Settings { keys_in_memory: 100, ..clock.settings() });
    shop.runtime.block_on(async {
        let mut running = tokio::task::JoinSet::new();
        for number in 0..COUNT {
            let (store, key) = (store.clone(), key(&number.to_string()));
            running.spawn(async move { store.hold(id(BOOK), 1, key, Some(60), &Client::Unknown, None).await });
        }
        assert!(
            running.join_all().await.iter().all(|held| held.as_ref().is_ok_and(|held| held.state == HoldState::Held))
        );
    });
    assert_eq!(copies(&shop, &store), (0, COUNT.unsigned_abs()));
    clock.pass(60);
    wait_for(&shop, &store, (COUNT.unsigned_abs(), 0));
    assert_verified(&shop);
    close(&store);
}

#[test]
fn a_reservation_whose_end_was_lost_fails_alone() {
    let (shop, clock) = shop(Kind::File, 10);
    let store = shop.open(&clock.settings());
    hold(&shop, &store, "lost", 1, 60).expect("held");
    end(&shop, &store, "lost", true);
    let settings = Settings { accept_loss: Some(1), ..clock.settings() };
    for number in 0..3 {
        shop.runtime.block_on(store.buy(id(BOOK), 1, Some(key(&number.to_string())), None)).expect("bought");
    }
    close(&store);
    shop.other_program(r#"DELETE FROM entry WHERE kind = 2 AND "before" = "after""#);
    let store = shop.open(&settings);
    let lost = Fault::LostEnd { number: shop.log(&store)[BOOKS].number };
    assert_eq!(shop.runtime.block_on(store.end_hold(key("lost"), true, None)), Err(lost.clone()));
    assert_eq!(hold(&shop, &store, "lost", 1, 60), Err(lost.clone()));
    assert_eq!(bookstore::grpc::code(&lost), Code::DataLoss);
    assert!(lost.to_string().contains("run `quire verify`"), "{lost}");
    assert_eq!(hold(&shop, &store, "other", 1, 60).expect("held").stock_left, Some(5));
    close(&store);
    let found = store::verify(&shop.path(), &mut |_, _| {}).expect("it can be read").problems;
    let said = found.iter().find(|problem| problem.part == Part::Reservations).map(|problem| problem.message.clone());
    assert!(said.is_some_and(|said| said.contains("put those back first") && !said.contains("sqlite3")), "{found:?}");
}

fn a_reservation_of_one_server_is_known_to_another(kind: Kind) {
    let (shop, clock) = shop(kind, 10);
    let (one, other) = (shop.open(&clock.settings()), shop.open(&clock.settings()));
    for name in ["sold", "back", "late"] {
        hold(&shop, &one, name, 2, 50).expect("held");
    }
    wait_for(&shop, &other, (4, 6));
    assert_eq!(end(&shop, &other, "sold", true).state, HoldState::Bought);
    assert_eq!(end(&shop, &other, "back", false).state, HoldState::Released);
    wait_for(&shop, &one, (6, 2));
    assert!(end(&shop, &one, "sold", true).replayed);
    clock.pass(50);
    for store in [&one, &other] {
        wait_for(&shop, store, (8, 0));
        assert_eq!(end(&shop, store, "late", true).state, HoldState::Expired);
    }
    let log = shop.log(&one);
    assert_eq!(log.iter().filter(|entry| entry.kind == EntryKind::Released).count(), 2, "each is given back once");
    assert_verified(&shop);
    close(&one);
    close(&other);
}

fn a_key_is_of_a_purchase_or_of_a_reservation(kind: Kind) {
    let (shop, clock) = shop(kind, 10);
    let store = shop.open(&clock.settings());
    let buy = |name: &str| shop.runtime.block_on(store.buy(id(BOOK), 1, Some(key(name)), None));
    let bought = buy("a purchase").expect("bought").number;
    let held = hold(&shop, &store, "a reservation", 1, 10).expect("held").number;
    let is_of = |fault, number| matches!(fault, Fault::KeyReused { number: other, .. } if Some(other) == number);
    assert!(is_of(hold(&shop, &store, "a purchase", 1, 10).unwrap_err(), bought));
    assert!(is_of(hold(&shop, &store, "a reservation", 2, 10).unwrap_err(), held));
    assert!(is_of(buy("a reservation").unwrap_err(), held));
    assert_eq!(end(&shop, &store, "a purchase", true).state, HoldState::NoSuchReservation);
    end(&shop, &store, "a reservation", true);
    assert!(is_of(buy("a reservation").unwrap_err(), held));
    let owned = key("a reservation").of(KeyOwner::named("till"));
    let of_another = shop.runtime.block_on(store.end_hold(owned, true, None)).expect("no fault");
    assert_eq!(of_another.state, HoldState::NoSuchReservation, "the key of another credential is another key");
    close(&store);
}

fn reservations_are_limited_and_one_client_leaves_half_of_them_to_others(kind: Kind) {
    let (shop, clock) = shop(kind, 100);
    let mut settings = clock.settings();
    settings.limits.reservations = 4.into();
    settings.limits.reservation_seconds = 60.into();
    let mut store = shop.open(&settings);
    let client = |name: &str| match name.parse() {
        Ok(address) => Client::at(Some(address)),
        Err(_) => Client::Credential(name.into()),
    };
    let hold = |store: &Bookstore, name: &str, text: &str| {
        let client = client(name);
        let owner = if let Client::Credential(name) = &client { KeyOwner::named(name) } else { KeyOwner::COMMON };
        shop.runtime.block_on(store.hold(id(BOOK), 1, key(text).of(owner), Some(60), &client, None))
    };
    let is_full = |fault| matches!(fault, Fault::Limit { limit: Limit::Reservations, at: 4 });
    for (one, two) in [("one", "two"), ("2001:db8::1", "2001:db8:0:1::1")] {
        hold(&store, one, "1").expect("held");
        hold(&store, one, "2").expect("held");
        assert!(is_full(hold(&store, one, "3").unwrap_err()));
        hold(&store, two, "4").expect("held");
        let names = ["5", "6"].map(|name| format!("{name} beside {one}"));
        hold(&store, "three", &names[0]).expect("held");
        assert!(is_full(hold(&store, "four", &names[1]).unwrap_err()));
        assert!(hold(&store, one, "1").expect("an answer").replayed, "it is open already");
        let owned = key(&names[0]).of(KeyOwner::named("three"));
        shop.runtime.block_on(store.end_hold(owned, false, None)).expect("released");
        hold(&store, "four", &names[1]).expect("held");
        clock.pass(60);
        hold(&store, one, "7").expect("the times of all are over");
        hold(&store, one, "8").expect("held");
        clock.pass(60);
    }
    assert!(
        is_full(
            hold(&store, "2001:db8::2", "9")
                .and(hold(&store, "2001:db8::3", "10"))
                .and(hold(&store, "2001:db8::4", "11"))
                .unwrap_err()
        ),
        "a /64 network is one client"
    );
    hold(&store, "one", "12").expect("held");
    close(&store);
    store = shop.open(&settings);
    let after = hold(&store, "2001:db8::5", "13");
    if kind != Kind::File {
        assert!(is_full(after.unwrap_err()), "a database keeps the holders");
        return close(&store);
    }
    after.expect("which address has the others is not known after a restart");
    assert!(is_full(hold(&store, "2001:db8::5", "14").unwrap_err()), "all are open");
    clock.pass(60);
    for seconds in [0, -1, 61] {
        let held = store.hold(id(BOOK), 1, key("x"), Some(seconds), &Client::Unknown, None);
        let fault = shop.runtime.block_on(held).unwrap_err();
        assert!(matches!(fault, Fault::Invalid { field: "seconds", .. }), "{fault}");
    }
    close(&store);
}

fn a_held_book_can_be_edited_delisted_and_removed(kind: Kind) {
    let (shop, clock) = shop(kind, 10);
    let store = shop.open(&clock.settings());
    for name in ["sold", "gone", "back"] {
        hold(&shop, &store, name, 1, 60).expect("held");
    }
    let edit = bookstore::domain::Edit { title: Some("New".to_owned()), listed: Some(false), ..Default::default() };
    shop.runtime.block_on(store.edit_book(id(BOOK), edit, operator())).expect("edited");
    assert_eq!(hold(&shop, &store, "later", 1, 60).expect("refused").state, HoldState::NoSuchBook);
    assert_eq!(end(&shop, &store, "sold", true).state, HoldState::Bought);
    let edit = bookstore::domain::Edit { listed: Some(true), ..Default::default() };
    shop.runtime.block_on(store.edit_book(id(BOOK), edit, operator())).expect("edited");
    assert_eq!(copies(&shop, &store), (7, 2));
    shop.other_program(&format!("DELETE FROM book WHERE id = {BOOK}"));
    assert_eq!(end(&shop, &store, "gone", true).state, HoldState::NoSuchBook);
    assert_eq!(end(&shop, &store, "back", false).state, HoldState::Released);
    clock.pass(60);
    assert_eq!(end(&shop, &store, "gone", true).state, HoldState::Expired);
    assert_verified(&shop);
    close(&store);
}

fn held_copies_leave_room_to_give_them_back(kind: Kind) {
    const MOST: i64 = i32::MAX as i64;
    let (shop, clock) = shop(kind, 10);
    let store = shop.open(&clock.settings());
    for (name, seconds) in [("back", 60), ("late", 30)] {
        hold(&shop, &store, name, 3, seconds).expect("held");
    }
    let restock = |amount| shop.runtime.block_on(store.restock_book(id(BOOK), amount, operator()));
    let import = |stock: i64| {
        let csv = format!("id,title,topic,stock,price\n{BOOK},Title,topic,{stock},1.00\n").into_bytes();
        shop.runtime.block_on(store.apply_import(csv, operator(), Client::at(None)))
    };
    for refused in [restock(MOST - 5).map(|_| ()), import(MOST - 5).map(|_| ())] {
        let fault = refused.expect_err("the held copies would not fit");
        assert!(fault.to_string().contains("at most 2147483641, because reservations hold 6 copies"), "{fault}");
    }
    assert_eq!(restock(MOST - 7).expect("raised").map(|raised| raised.before), Some(4));
    assert_eq!(shop.runtime.block_on(store.restock(MOST, operator())).map(|raised| raised.books_raised), Ok(5));
    assert_eq!(copies(&shop, &store), (2_147_483_641, 6));
    assert_eq!(end(&shop, &store, "back", false).stock_left, Some(2_147_483_644));
    if kind != Kind::File {
        // The database refuses it.
        close(&store);
        return;
    }
    shop.other_program(&format!("UPDATE book SET stock = {MOST} WHERE id = {BOOK}"));
    let fault = shop.runtime.block_on(store.end_hold(key("late"), false, None)).expect_err("no room");
    assert_eq!(fault, Fault::NoRoom { book: BOOK, stock: STOCK_MAX, copies: 3 });
    clock.pass(30);
    let fault = shop.runtime.block_on(store.end_hold(key("late"), true, None)).expect_err("no room");
    assert!(matches!(fault, Fault::NoRoom { .. }), "{fault}");
    assert_eq!(copies(&shop, &store), (STOCK_MAX, 3), "nothing is lost");
    assert_eq!(import(MOST - 3).map(|report| report.changed), Ok(1));
    wait_for(&shop, &store, (STOCK_MAX, 0));
    assert_verified(&shop);
    close(&store);
}

fn lists_and_a_book_that_was_removed_and_added_again_show_the_held_copies(kind: Kind) {
    for reads in [Reads::Memory, Reads::Database] {
        let (shop, clock) = shop(kind, 10);
        let store = shop.open(&Settings { reads, ..clock.settings() });
        hold(&shop, &store, "kept", 3, 60).expect("held");
        let shown = || {
            let (one, listed, all, found) = shop.runtime.block_on(async {
                tokio::join!(
                    store.lookup(id(BOOK)),
                    store.list(id(BOOK - 1).into(), 1),
                    store.list_all(id(BOOK - 1).into(), 1),
                    store.search("topic")
                )
            });
            let lists = [listed.expect("a page").items, all.expect("a page").items, found.expect("books")];
            let held: Vec<_> = lists.iter().flat_map(|books| books.iter().map(|book| book.held())).collect();
            (one.expect("no fault").map(|book| book.held()), held)
        };
        let until = |held| {
            let begun = Instant::now();
            while shown() != (Some(held), vec![held; 3]) {
                assert!(begun.elapsed() < Duration::from_secs(30), "{reads:?}: {:?}", shown());
                shop.runtime.block_on(tokio::task::yield_now());
            }
        };
        until(3);
        let sql = format!(
            "DELETE FROM book WHERE id = {BOOK}; \
             INSERT INTO book (id, title, topic, stock, price_cents) VALUES ({BOOK}, 'Again', 'topic', 7, 100)"
        );
        shop.other_program(&sql);
        hold(&shop, &store, "new", 1, 60).expect("held");
        until(4);
        for (name, left) in [("new", 7), ("kept", 10)] {
            assert_eq!(end(&shop, &store, name, false).stock_left, Some(left));
        }
        until(0);
        assert_verified(&shop);
        close(&store);
    }
}

#[test]
fn a_file_of_the_schema_before_reservations_is_checked_and_migrated() {
    let (shop, clock) = shop(Kind::File, 10);
    let store = shop.open(&clock.settings());
    shop.runtime.block_on(store.buy(id(BOOK), 1, Some(key("before")), None)).expect("bought");
    close(&store);
    let before = store::verify(&shop.path(), &mut |_, _| {}).expect("it can be read").root;
    shop.other_program("ALTER TABLE entry DROP COLUMN until_ms; DROP TABLE hold; PRAGMA user_version = 3");
    let older = store::verify(&shop.path(), &mut |_, _| {}).expect("it can be read");
    assert!(older.problems.is_empty() && older.root == before, "{older:?}");
    let store = shop.open(&clock.settings());
    hold(&shop, &store, "after", 1, 60).expect("held");
    assert_eq!(copies(&shop, &store), (8, 1));
    assert_verified(&shop);
    close(&store);
}

#[test]
fn a_table_that_differs_from_the_log_is_found_and_made_again_as_the_message_has_it() {
    for sql in [
        "DELETE FROM hold WHERE number = (SELECT max(number) FROM hold)",
        "INSERT INTO hold SELECT max(number) FROM entry",
        "DELETE FROM hold; INSERT INTO hold VALUES (1000)",
    ] {
        let (shop, clock) = shop(Kind::File, 10);
        let store = shop.open(&clock.settings());
        for name in ["one", "two", "three"] {
            hold(&shop, &store, name, 1, 60).expect("held");
        }
        end(&shop, &store, "two", true);
        close(&store);
        assert_verified(&shop);
        let file = Connection::open(shop.path()).expect("the file opens");
        file.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false).expect("triggers are off");
        file.execute_batch(sql).expect("the change is made");
        drop(file);
        let mut found = store::verify(&shop.path(), &mut |_, _| {}).expect("it can be read").problems;
        assert!(found.len() == 1 && found[0].part == Part::Reservations, "{sql}: {found:?}");
        let message = found.remove(0).message;
        shop.other_program(message.split('"').nth(1).expect("a command"));
        assert_verified(&shop);
        let store = shop.open(&clock.settings());
        assert_eq!(copies(&shop, &store), (7, 2));
        close(&store);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Hold { name: u8, copies: i32, seconds: i32 },
    End { name: u8, confirms: bool },
    Buy(i32),
    Pass(i64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..8_u8, 1..4_i32, 1..30_i32).prop_map(|(name, copies, seconds)| Step::Hold { name, copies, seconds }),
        6 => (0..8_u8, any::<bool>()).prop_map(|(name, confirms)| Step::End { name, confirms }),
        1 => (1..3_i32).prop_map(Step::Buy),
        2 => (0..20_i64).prop_map(Step::Pass),
        1 => Just(Step::Restart),
    ]
}

/// A reservation by the model: copies, end of its time, and its end if it has one.
struct Known {
    copies: i32,
    until_ms: i64,
    end: Option<HoldState>,
}

/// Each reservation is ended at both servers at once, by calls that may contradict each other, or left until its time is over.
fn many_callers_of_two_servers_lose_no_copy_and_sell_none_twice(kind: Kind) {
    const STOCK: u32 = 1000;
    let (shop, clock) = shop(kind, STOCK.cast_signed());
    let stores = [shop.open(&clock.settings()), shop.open(&clock.settings())];
    let calls = (0..400_usize).map(|number| {
        let (key, [one, other]) = (key(&number.to_string()), stores.clone());
        let (one, other) = if number % 2 == 0 { (one, other) } else { (other, one) };
        let book = id([BOOK, 53477][number / 2 % 2]);
        async move {
            let held = one.hold(book, 2, key, Some(60), &Client::Unknown, None).await.expect("an answer");
            assert_eq!(held.state, HoldState::Held);
            if number % 7 == 0 {
                return None;
            }
            let ends = [(&one, number % 3 == 0), (&other, number % 5 == 0)];
            let [first, second] = ends.map(|(store, confirms)| store.end_hold(key, confirms, None));
            let (first, second) = tokio::join!(first, second);
            let (first, second) = (first.expect("an answer"), second.expect("an answer"));
            assert_eq!((first.state, first.number), (second.state, second.number));
            assert!(first.replayed != second.replayed, "it ends once");
            (first.state == HoldState::Bought).then_some(book)
        }
    });
    let sold: Vec<_> = shop.runtime.block_on(async { calls.collect::<tokio::task::JoinSet<_>>().join_all().await });
    let copies_sold = |book| 2 * u32::try_from(sold.iter().filter(|sold| **sold == Some(book)).count()).expect("few");
    clock.pass(60);
    for store in &stores {
        wait_for(&shop, store, (STOCK - copies_sold(id(BOOK)), 0));
    }
    assert_verified(&shop);
    stores.iter().for_each(close);
}

fn two_servers_and_a_model_agree_on_every_answer(kind: Kind) {
    let cases = if kind == Kind::File { 24 } else { 8 };
    let mut runner = TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() });
    let steps = prop::collection::vec((step(), any::<bool>()), 1..60);
    runner.run(&steps, |steps| agree(kind, steps)).unwrap();
}

fn agree(kind: Kind, steps: Vec<(Step, bool)>) -> Result<(), TestCaseError> {
    let (shop, clock) = shop(kind, 12);
    let mut stores = [shop.open(&clock.settings()), shop.open(&clock.settings())];
    let (mut free, mut known) = (12_i32, HashMap::<u8, Known>::new());
    for (step, second) in steps {
        let now_ms = clock.0.load(Relaxed);
        for hold in known.values_mut().filter(|hold| hold.end.is_none() && hold.until_ms <= now_ms) {
            hold.end = Some(HoldState::Expired);
            free += hold.copies;
        }
        let store = &mut stores[usize::from(second)];
        match step {
            Step::Hold { name, copies, seconds } => {
                let answer = hold(&shop, store, &name.to_string(), copies, seconds);
                match known.get(&name) {
                    Some(before) if before.copies == copies => {
                        let state = before.end.unwrap_or(HoldState::Held);
                        prop_assert_eq!(answer.map(|answer| (answer.state, answer.replayed)), Ok((state, true)));
                    }
                    Some(_) => prop_assert!(matches!(answer, Err(Fault::KeyReused { .. })), "{:?}", answer),
                    None if free >= copies => {
                        free -= copies;
                        let until_ms = now_ms + i64::from(seconds) * 1000;
                        known.insert(name, Known { copies, until_ms, end: None });
                        let answer = answer.expect("no fault");
                        prop_assert_eq!(
                            (answer.state, answer.stock_left),
                            (HoldState::Held, Some(free.unsigned_abs()))
                        );
                    }
                    None => {
                        let state = if free == 0 { HoldState::SoldOut } else { HoldState::TooFew };
                        prop_assert_eq!(answer.map(|answer| answer.state), Ok(state));
                    }
                }
            }
            Step::End { name, confirms } => {
                let answer = end(&shop, store, &name.to_string(), confirms);
                let Some(hold) = known.get_mut(&name) else {
                    prop_assert_eq!(answer.state, HoldState::NoSuchReservation);
                    continue;
                };
                let is_new = hold.end.is_none();
                let state = *hold.end.get_or_insert(if confirms { HoldState::Bought } else { HoldState::Released });
                if is_new && !confirms {
                    free += hold.copies;
                }
                prop_assert_eq!((answer.state, answer.replayed), (state, !is_new));
            }
            Step::Buy(copies) => {
                if kind != Kind::File {
                    // A purchase does not look for times that are over; each server does so every second.
                    let held: i32 = known.values().filter(|hold| hold.end.is_none()).map(|hold| hold.copies).sum();
                    wait_for(&shop, store, (free.unsigned_abs(), held.unsigned_abs()));
                }
                let receipt = shop.runtime.block_on(store.buy(id(BOOK), copies, None, None)).expect("no fault");
                let is_sold = free >= copies;
                prop_assert_eq!(receipt.verdict == Verdict::Bought, is_sold);
                free -= if is_sold { copies } else { 0 };
            }
            Step::Pass(seconds) => clock.pass(seconds),
            Step::Restart => {
                close(store);
                *store = shop.open(&clock.settings());
            }
        }
    }
    clock.pass(60);
    let held: i32 = known.values().filter(|hold| hold.end.is_none()).map(|hold| hold.copies).sum();
    for store in &stores {
        wait_for(&shop, store, ((free + held).unsigned_abs(), 0));
    }
    assert_verified(&shop);
    stores.iter().for_each(close);
    Ok(())
}

#[cfg(feature = "postgres")]
#[test]
fn a_database_keeps_room_for_held_copies_and_names_an_end_that_was_lost() {
    let (shop, clock) = shop(Kind::Database, 10);
    let store = shop.open(&clock.settings());
    let number = hold(&shop, &store, "lost", 1, 60).expect("held").number.expect("a number");
    let raise = format!("UPDATE book SET stock = 2147483647 WHERE id = {BOOK}");
    let url = shop.url.as_deref().expect("a database");
    let done = postgres_testing::shared().psql(postgres_testing::database_of(url), &raise);
    assert!(!done.status.success(), "the held copy would not fit");
    end(&shop, &store, "lost", true);
    shop.other_program(r#"DELETE FROM entry WHERE kind = 2 AND "before" = "after""#);
    for confirms in [true, false] {
        let ended = shop.runtime.block_on(store.end_hold(key("lost"), confirms, None));
        assert_eq!(ended, Err(Fault::LostEnd { number }));
    }
    assert_eq!(hold(&shop, &store, "lost", 1, 60), Err(Fault::LostEnd { number }));
    assert_eq!(hold(&shop, &store, "other", 1, 60).expect("held").stock_left, Some(8));
    close(&store);
}
