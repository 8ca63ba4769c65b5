//! The store's files are moved, replaced or removed under a server.

use std::{fs, thread, time::Duration};

use bookstore::{Bookstore, Fault, Settings, Verdict, domain::EntryKind};

use super::{Shop, id, operator};

const BOOK: i32 = 12365;

/// A purchase is not acknowledged, nor is a later one, and operators see this reason.
fn refuses(shop: &Shop, store: &Bookstore, named: &str) {
    let buy = || shop.runtime.block_on(store.buy(id(BOOK), 1, None, None));
    buy().expect_err("the files are not in their place");
    while !store.trouble().is_some_and(|reason| reason.contains(named)) {
        thread::yield_now();
    }
    let fault = buy().expect_err("the store has failed");
    assert!(matches!(fault, Fault::Unavailable(_)), "{fault}");
}

fn sells_again(shop: &Shop, store: &Bookstore) {
    shop.runtime.block_on(store.healthy().wait_for(|healthy| *healthy)).expect("a ledger");
    let receipt = shop.runtime.block_on(store.buy(id(BOOK), 1, None, None)).expect("sold");
    assert_eq!(receipt.verdict, Verdict::Bought);
}

#[test]
fn nothing_is_sold_while_the_files_are_not_where_they_were_opened() {
    let shop = Shop::new();
    let (folder, away) = (shop.folder.path(), shop.folder.path().with_extension("away"));
    let store = shop.open(&Settings::default());
    shop.runtime.block_on(store.restock(100, operator())).expect("stock");
    sells_again(&shop, &store);

    fs::rename(folder, &away).expect("moved");
    refuses(&shop, &store, "bookstore.db was deleted or moved");
    fs::create_dir(folder).expect("a folder");
    for file in fs::read_dir(&away).expect("a folder").map(|file| file.expect("a file")) {
        fs::copy(file.path(), folder.join(file.file_name())).expect("copied");
    }
    refuses(&shop, &store, "bookstore.db was replaced by another file");
    fs::remove_dir_all(folder).expect("removed");
    fs::rename(&away, folder).expect("moved back");
    sells_again(&shop, &store);

    // Without the WAL the file lacks what was acknowledged last.
    let log = folder.join("bookstore.db-wal");
    fs::rename(&log, &away).expect("moved");
    refuses(&shop, &store, "bookstore.db-wal was deleted or moved");
    fs::rename(&away, &log).expect("moved back");
    sells_again(&shop, &store);

    let sold = shop.log(&store).iter().filter(|entry| entry.kind == EntryKind::Purchase).count();
    assert!(sold >= 3, "{sold} of 3 purchases are in the log");
    fs::remove_dir_all(folder).expect("removed");
    refuses(&shop, &store, "bookstore.db was deleted or moved");
    assert!(!store.close(Duration::from_secs(20)), "a store whose file is gone does not close as if all were well");
}
