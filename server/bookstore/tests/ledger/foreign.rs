//! Other programs write the same file: their changes are seen, logged and never oversold.

use std::time::{Duration, Instant};

use bookstore::{Bookstore, Fault, Settings, Verdict, domain::EntryKind, fault::Unavailable};
use rusqlite::Connection;

use super::{Kind, Shop, both, close, id, key};

both!(readers_see_what_another_program_changed_adds_renames_and_removes);

/// Far above the promised 50 ms, because a test machine may be busy; the wait itself is reported.
const TIMEOUT: Duration = Duration::from_secs(5);

fn seen(shop: &Shop, store: &Bookstore, what: &str, holds: impl Fn(&Bookstore) -> bool) {
    let start = Instant::now();
    while !holds(store) {
        assert!(start.elapsed() < TIMEOUT, "{what} was not seen");
        shop.runtime.block_on(tokio::task::yield_now());
    }
    eprintln!("{what} seen after {:?}", start.elapsed());
}

fn book(shop: &Shop, store: &Bookstore, number: i32) -> Option<(String, u32, i64)> {
    let found = shop.runtime.block_on(store.lookup(id(number))).expect("no fault")?;
    Some((found.title().to_owned(), found.stock(), found.price().get()))
}

fn readers_see_what_another_program_changed_adds_renames_and_removes(kind: Kind) {
    let shop = Shop::of(kind);
    let store = shop.open(&Settings::default());
    shop.other_program("UPDATE book SET stock = 5, price_cents = 777 WHERE id = 12365");
    seen(&shop, &store, "a change", |store| {
        book(&shop, store, 12365) == Some(("Surviving College".to_owned(), 5, 777))
    });
    shop.other_program(
        "INSERT INTO book (id, title, topic, stock, price_cents) VALUES (1, 'New', 'college life', 3, 100)",
    );
    seen(&shop, &store, "a new book", |store| book(&shop, store, 1).is_some());
    shop.other_program("UPDATE book SET title = 'Newer', topic = 'other' WHERE id = 1");
    seen(&shop, &store, "a new title", |store| book(&shop, store, 1).is_some_and(|book| book.0 == "Newer"));
    let moved = shop.runtime.block_on(store.search("other")).unwrap();
    assert_eq!(moved.iter().map(|book| book.id()).collect::<Vec<_>>(), [id(1)]);
    shop.other_program("DELETE FROM book WHERE id = 12498");
    seen(&shop, &store, "a removal", |store| book(&shop, store, 12498).is_none());
    let college = shop.runtime.block_on(store.search("college life")).unwrap();
    assert_eq!(college.iter().map(|book| book.id()).collect::<Vec<_>>(), [id(12365)]);
    let mut kinds: Vec<EntryKind> = shop.log(&store).iter().skip(4).map(|entry| entry.kind).collect();
    // One statement changed stock and price, and SQLite does not define the order of triggers.
    kinds[..2].sort_unstable_by_key(|kind| kind.name());
    let wanted = [EntryKind::Adjusted, EntryKind::Price, EntryKind::Added, EntryKind::Edited, EntryKind::Removed];
    assert_eq!(kinds, wanted, "the file logs what other programs do");
    close(&store);
}

#[test]
fn stock_changed_behind_the_log_is_never_oversold() {
    let shop = Shop::new();
    let store = shop.open(&Settings::default());
    let shell = Connection::open(shop.path()).unwrap();
    // Without triggers there is no log entry, so only the comparison in the UPDATE can notice.
    shell.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false).unwrap();
    shell.execute("UPDATE book SET stock = 1 WHERE id = 53477", ()).unwrap();
    let buy = || shop.runtime.block_on(store.buy(id(53477), 1, None, None)).expect("no fault");
    assert_eq!((buy().verdict, buy().verdict), (Verdict::Bought, Verdict::SoldOut));
    close(&store);
}

#[test]
fn purchases_wait_for_another_programs_transaction_or_fail_by_name() {
    let shop = Shop::new();
    let settings = Settings { busy_timeout: Duration::from_millis(50), ..Settings::default() };
    let store = shop.open(&settings);
    let shell = Connection::open(shop.path()).unwrap();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    let fault = shop.runtime.block_on(store.buy(id(53477), 1, None, None)).unwrap_err();
    assert_eq!(fault, Fault::Unavailable(Unavailable::Locked));
    shell.execute_batch("ROLLBACK").unwrap();
    let bought = shop.runtime.block_on(store.buy(id(53477), 1, None, None)).expect("no fault");
    assert_eq!(bought.verdict, Verdict::Bought);
    close(&store);
}

#[test]
fn a_caller_that_gave_up_while_the_file_was_locked_is_not_charged() {
    let shop = Shop::new();
    let store = shop.open(&Settings::default());
    let shell = Connection::open(shop.path()).unwrap();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    let impatient = async {
        let purchase = store.buy(id(53477), 5, Some(key("impatient")), None);
        tokio::time::timeout(Duration::from_millis(100), purchase).await.expect_err("the file is locked");
    };
    shop.runtime.block_on(impatient);
    shell.execute_batch("ROLLBACK").unwrap();
    let next = shop.runtime.block_on(store.buy(id(53477), 1, None, None)).expect("no fault");
    assert_eq!(next.stock_left, Some(999));
    close(&store);
}

#[test]
fn a_purchase_whose_deadline_is_over_is_no_sign_of_overload() {
    let shop = Shop::new();
    let store = shop.open(&Settings::default());
    let late = shop.runtime.block_on(store.buy(id(53477), 1, None, Some(Instant::now())));
    assert_eq!(late, Err(Fault::Late));
    close(&store);
}

#[test]
fn the_log_ends_before_its_numbers_wrap() {
    let shop = Shop::new();
    let store = shop.open(&Settings::default());
    let shell = Connection::open(shop.path()).unwrap();
    shell.execute("INSERT INTO entry (number, time_ms, kind, book_id) VALUES (?1, 0, 8, 1)", (i64::MAX,)).unwrap();
    let buy = || shop.runtime.block_on(store.buy(id(53477), 1, None, None));
    let fault = buy().unwrap_err();
    assert!(fault.to_string().contains("its log is at the last number there is"), "{fault}");
    close(&store);
    let refused = shop.try_open(&Settings::default()).expect_err("no room");
    assert!(refused.to_string().contains(&format!("an entry with the number {}", i64::MAX)), "{refused}");
    shell.execute("DELETE FROM entry WHERE number = ?1", (i64::MAX,)).unwrap();
    let store = shop.open(&Settings::default());
    shop.runtime.block_on(store.buy(id(53477), 1, None, None)).expect("purchases go on");
    close(&store);
}

#[test]
fn sqlite_is_new_enough_not_to_damage_a_wal_on_reset() {
    assert!(rusqlite::version_number() >= 3_051_003, "SQLite {}", rusqlite::version());
}
