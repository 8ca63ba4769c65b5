//! Migration of a file into a database: books, the log with its numbers, and every key.

use bookstore::{
    Receipt, Settings, Verdict,
    domain::Edit,
    store::{MigrateError, Migrated, migrate},
};

use super::{Kind, Shop, close, id, key, operator};

#[test]
fn a_file_that_is_copied_goes_on_in_the_database_where_it_was() {
    let (file, database) = (Shop::new(), Shop::of(Kind::Database));
    let url = database.url.clone().expect("a database");
    let copy = || migrate(&file.path(), &url, &Settings::default(), &mut |_, _| {});
    assert!(matches!(copy(), Err(MigrateError::Source(_))), "there is no file yet");
    file.import("7,'Ünï' \"code\",topic,30,1.05\n8,Title,topic,0,1.00\n");
    let store = file.open(&Settings::default());
    let buy = |shop: &Shop, store: &bookstore::Bookstore, book, name: &str| {
        shop.runtime.block_on(store.buy(id(book), 2, Some(key(name)), None)).expect("no fault")
    };
    let first: Vec<Receipt> = (0..10).map(|number| buy(&file, &store, 7, &format!("key {number}"))).collect();
    let refused = buy(&file, &store, 8, "late");
    assert_eq!(refused.verdict, Verdict::SoldOut);
    file.runtime.block_on(store.update_price(id(7), 1, operator())).expect("no fault");
    let delist = Edit { listed: Some(false), ..Edit::default() };
    file.runtime.block_on(store.edit_book(id(8), delist, operator())).expect("no fault");
    let log = file.log(&store);
    assert!(matches!(copy(), Err(MigrateError::Selling(_))), "a server has the file open");
    close(&store);
    drop(store);
    let Ok(Migrated::Copied(sums)) = copy() else { panic!("{:?}", copy()) };
    assert_eq!((sums.books, sums.entries, sums.sold, sums.keys), (6, i64::try_from(log.len()).unwrap(), 20, 11));
    assert!(matches!(copy(), Ok(Migrated::There(again)) if again == sums), "it can be run again");
    let store = database.open(&Settings::default());
    assert_eq!(database.log(&store), log);
    for (number, receipt) in first.iter().enumerate() {
        let again = buy(&database, &store, 7, &format!("key {number}"));
        assert_eq!(again, Receipt { replayed: true, ..*receipt });
    }
    assert_eq!(buy(&database, &store, 8, "late"), Receipt { replayed: true, ..refused });
    let book = database.runtime.block_on(store.lookup(id(7))).expect("no fault").expect("a book");
    assert_eq!((book.title(), book.stock(), book.price().get()), ("'Ünï' \"code\"", 10, 1));
    assert!(database.runtime.block_on(store.lookup(id(8))).expect("no fault").is_none(), "it is delisted");
    let next = buy(&database, &store, 7, "new");
    assert!(next.number > log.last().map(|entry| entry.number), "{next:?}");
    assert!(matches!(copy(), Err(MigrateError::Filled { .. })), "the database has gone on");
    close(&store);
}

#[test]
fn a_file_with_reservations_is_not_copied() {
    let (file, database) = (Shop::new(), Shop::of(Kind::Database));
    let store = file.open(&Settings::default());
    let held = file.runtime.block_on(store.hold(id(53477), 1, key("held"), None, None)).expect("held");
    file.runtime.block_on(store.end_hold(key("held"), true, None)).expect("bought");
    assert!(held.number.is_some());
    close(&store);
    drop(store);
    let url = database.url.clone().expect("a database");
    let copied = migrate(&file.path(), &url, &Settings::default(), &mut |_, _| {});
    assert!(matches!(copied, Err(MigrateError::Reservations { count: 1, .. })), "{copied:?}");
    let store = database.open(&Settings::default());
    let fault = database.runtime.block_on(store.end_hold(key("held"), true, None)).expect_err("there are none");
    assert!(matches!(fault, bookstore::Fault::Unsupported(_)), "{fault}");
    close(&store);
}
