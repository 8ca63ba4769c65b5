//! A key buys once, wherever its index entry currently is.

use bookstore::{Bookstore, Fault, Receipt, Settings, Verdict, domain::KeyOwner};
use rusqlite::Connection;

use super::{Kind, Shop, both, close, id, key, operator};

both!(
    every_key_is_found_after_restarts_wherever_it_is,
    a_refusal_is_repeated_even_when_there_is_stock_again,
    a_key_with_another_request_is_refused_and_named,
    a_key_used_with_one_server_is_known_to_the_other,
    a_key_belongs_to_the_name_of_the_credential,
);

fn buy(shop: &Shop, store: &Bookstore, book: i32, quantity: i32, name: &str) -> Result<Receipt, Fault> {
    shop.runtime.block_on(store.buy(id(book), quantity, Some(key(name)), None))
}

fn a_key_belongs_to_the_name_of_the_credential(kind: Kind) {
    let shop = Shop::of(kind);
    shop.import("7,Title,topic,100,1.00\n");
    let settings = Settings { keys_in_memory: 1, ..Settings::default() };
    let mut store = shop.open(&settings);
    let buy = |store: &Bookstore, owner: &str, quantity: i32, name: &str| {
        let owner = if owner.is_empty() { KeyOwner::COMMON } else { KeyOwner::named(owner) };
        let receipt = shop.runtime.block_on(store.buy(id(7), quantity, Some(key(name).of(owner)), None));
        receipt.map(|receipt| (receipt.replayed, receipt.number))
    };
    let first = buy(&store, "till 1", 1, "1").expect("bought");
    let second = buy(&store, "till 2", 2, "1").expect("bought");
    assert_eq!((first.0, second.0, first.1 == second.1), (false, false, false));
    let common = buy(&store, "", 1, "common").expect("bought");
    for place in 0..5 {
        // The index takes earlier keys over.
        buy(&store, "", 1, &format!("{place}")).expect("bought");
    }
    for _ in 0..2 {
        assert_eq!(buy(&store, "till 1", 1, "1").expect("an answer"), (true, first.1));
        assert_eq!(buy(&store, "till 2", 2, "1").expect("an answer"), (true, second.1));
        let Err(Fault::KeyReused { number, .. }) = buy(&store, "till 1", 2, "1") else { panic!("reused") };
        assert_eq!(Some(number), first.1);
        // Sent before keys had owners, or before the server asked for credentials.
        assert_eq!(buy(&store, "till 1", 1, "common").expect("an answer"), (true, common.1));
        close(&store);
        store = shop.open(&settings);
    }
    assert!(!buy(&store, "till 2", 2, "common").expect("bought").0, "another purchase");
    close(&store);
}

fn every_key_is_found_after_restarts_wherever_it_is(kind: Kind) {
    let shop = Shop::of(kind);
    shop.import("7,Title,topic,100000,1.00\n");
    // Moves begin after a hundred keys, so that all stages occur many times.
    let settings = Settings { keys_in_memory: 100, ..Settings::default() };
    let mut first = Vec::new();
    let mut store = shop.open(&settings);
    for round in 0..5 {
        let answers = shop.runtime.block_on(async {
            let mut running = tokio::task::JoinSet::new();
            for place in 0..700 {
                let (store, name) = (store.clone(), format!("{round}/{place}"));
                running.spawn(async move { (store.buy(id(7), 1, Some(key(&name)), None).await, name) });
            }
            running.join_all().await
        });
        first.extend(answers.into_iter().map(|(receipt, name)| (receipt.expect("no fault"), name)));
        for (receipt, name) in &first {
            let again = buy(&shop, &store, 7, 1, name).expect("no fault");
            assert_eq!(again, Receipt { replayed: true, ..*receipt }, "{name}");
        }
        close(&store);
        store = shop.open(&settings);
    }
    for (receipt, name) in &first {
        assert_eq!(buy(&shop, &store, 7, 1, name).expect("no fault").number, receipt.number, "{name}");
    }
    let left = shop.runtime.block_on(store.lookup(id(7))).expect("no fault").expect("a book").stock();
    assert_eq!(left, 100_000 - u32::try_from(first.len()).unwrap());
    close(&store);
}

#[test]
fn a_move_that_restarts_interrupt_goes_on_where_it_was() {
    const KEYS: u16 = 400;
    let shop = Shop::new();
    let settings = Settings { keys_in_memory: KEYS.into(), ..Settings::default() };
    let mut store = shop.open(&settings);
    let mut numbers = Vec::new();
    for place in 0..KEYS {
        numbers.push(buy(&shop, &store, 53477, 1, &format!("key {place}")).expect("no fault").number);
    }
    let indexed = || -> (i64, i64) {
        let sql = "SELECT (SELECT value FROM meta WHERE name = 'keys_indexed_up_to'), (SELECT count(*) FROM key_index)";
        Connection::open(shop.path()).and_then(|file| file.query_row(sql, (), |row| row.try_into())).expect("a row")
    };
    assert_eq!(indexed(), (0, 0), "no move has begun");
    // Each start moves a slice of about seventy keys; a move that restarted would never end.
    for restart in 0..8 {
        close(&store);
        store = shop.open(&settings);
        assert!(!buy(&shop, &store, 53477, 1, &format!("restart {restart}")).expect("no fault").replayed);
        for (place, number) in numbers.iter().enumerate().step_by(7) {
            let again = buy(&shop, &store, 53477, 1, &format!("key {place}")).expect("no fault");
            assert_eq!((again.number, again.replayed), (*number, true), "after restart {restart}");
        }
    }
    let (up_to, count) = indexed();
    assert!(up_to >= KEYS.into() && count >= KEYS.into(), "{count} keys are there, all of those up to {up_to}");
    close(&store);
}

fn a_refusal_is_repeated_even_when_there_is_stock_again(kind: Kind) {
    let shop = Shop::of(kind);
    shop.import("7,Title,topic,1,1.00\n");
    let store = shop.open(&Settings::default());
    assert_eq!(buy(&shop, &store, 7, 2, "too many").unwrap().verdict, Verdict::TooFew);
    assert_eq!(buy(&shop, &store, 7, 1, "the last").unwrap().verdict, Verdict::Bought);
    assert_eq!(buy(&shop, &store, 7, 1, "late").unwrap().verdict, Verdict::SoldOut);
    assert_eq!(buy(&shop, &store, 8, 1, "nowhere").unwrap().verdict, Verdict::NoSuchBook);
    shop.runtime.block_on(store.restock(50, operator())).unwrap();
    shop.import("8,Title,topic,5,1.00\n");
    close(&store);
    let store = shop.open(&Settings::default());
    for (book, quantity, name, verdict) in [
        (7, 2, "too many", Verdict::TooFew),
        (7, 1, "the last", Verdict::Bought),
        (7, 1, "late", Verdict::SoldOut),
        (8, 1, "nowhere", Verdict::NoSuchBook),
    ] {
        let again = buy(&shop, &store, book, quantity, name).unwrap();
        assert_eq!((again.verdict, again.replayed), (verdict, true), "{name}");
    }
    close(&store);
}

fn a_key_with_another_request_is_refused_and_named(kind: Kind) {
    let shop = Shop::of(kind);
    let store = shop.open(&Settings::default());
    let bought = buy(&shop, &store, 53477, 1, "mine").unwrap();
    for (book, quantity) in [(53477, 2), (53573, 1)] {
        let fault = buy(&shop, &store, book, quantity, "mine").unwrap_err();
        let wanted = format!(
            "this idempotency key belongs to an earlier request, for 1 copy of book 53477 (number {} in the log): send that request again, or this one with a new key",
            bought.number.unwrap()
        );
        assert_eq!(fault.to_string(), wanted);
    }
    close(&store);
}

fn a_key_used_with_one_server_is_known_to_the_other(kind: Kind) {
    let shop = Shop::of(kind);
    let (one, other) = (shop.open(&Settings::default()), shop.open(&Settings::default()));
    let first = buy(&shop, &one, 53477, 1, "shared").unwrap();
    let again = buy(&shop, &other, 53477, 1, "shared").unwrap();
    assert_eq!(again, Receipt { replayed: true, ..first });
    close(&one);
    close(&other);
}
