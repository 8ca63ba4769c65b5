//! `store::verify` finds each kind of damage in a store, and nothing in one that was used as it may be.

use bookstore::{
    Settings,
    store::{self, Part, Verified},
};
use rusqlite::{Connection, config::DbConfig};

use super::{Shop, close, id, key, operator};

const BOOK: i32 = 53477;

/// A shop that was opened some times, so that the index has some of the keys.
fn used() -> Shop {
    let shop = Shop::new();
    let settings = Settings { keys_in_memory: 8, ..Settings::default() };
    for round in 0..3 {
        let store = shop.open(&settings);
        for number in 0..30 {
            let key = (number % 3 > 0).then(|| key(&format!("{round} {number}")));
            shop.runtime.block_on(store.buy(id(BOOK), 1, key, None)).expect("no fault");
        }
        shop.runtime.block_on(store.restock(1010, operator())).expect("restocked");
        close(&store);
    }
    shop
}

fn verify(shop: &Shop) -> Verified {
    store::verify(&shop.path(), &mut |_, _| {}).expect("it can be read")
}

/// The parts in which a change makes something wrong, and the messages.
fn wrong_after(sql: &str) -> (Vec<Part>, String) {
    let shop = used();
    let file = Connection::open(shop.path()).expect("the file opens");
    file.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false).expect("triggers are off");
    file.execute_batch(sql).expect("the change is made");
    let found = verify(&shop).problems;
    let messages: Vec<_> = found.iter().map(|problem| problem.message.clone()).collect();
    (found.iter().map(|problem| problem.part).collect(), messages.join("; "))
}

#[test]
fn nothing_is_wrong_in_a_store_that_sells_and_in_one_that_is_closed() {
    let shop = used();
    let found = verify(&shop);
    assert!(found.problems.is_empty() && found.keys > 0, "{found:?}");
    assert_eq!((found.covered, found.entries), (Some(found.entries), found.last.unsigned_abs()));
    let store = shop.open(&Settings::default());
    shop.runtime.block_on(store.buy(id(BOOK), 1, None, None)).expect("no fault");
    let later = verify(&shop);
    assert!(later.problems.is_empty() && later.entries == found.entries + 1, "{later:?}");
    assert_ne!(later.root, found.root);
    close(&store);
}

#[test]
fn entries_of_other_programs_are_named_and_nothing_is_wrong_with_them() {
    let shop = used();
    let last = verify(&shop).last;
    shop.other_program("UPDATE book SET stock = stock + 5; DELETE FROM book WHERE id = 12365");
    let found = verify(&shop);
    assert!(found.problems.is_empty(), "{found:?}");
    assert_eq!((found.other_programs, found.covered), (5, Some(last.unsigned_abs())));
    assert_eq!(found.other_newest, (last + 1..=last + 5).collect::<Vec<_>>());
}

#[test]
fn each_damage_is_found_in_its_part() {
    let (parts, said) = wrong_after("DELETE FROM entry WHERE number = 20");
    assert!(
        parts.contains(&Part::Log) && said.contains("has lost an entry that was acknowledged, number 20:"),
        "{said}"
    );
    let (parts, said) = wrong_after("UPDATE entry SET time_ms = time_ms + 1 WHERE number = 20");
    assert!(parts == [Part::Log] && said.contains("at least one was changed or damaged"), "{said}");
    let (parts, said) = wrong_after("UPDATE book SET stock = 7 WHERE id = 53477");
    assert!(parts == [Part::Stock] && said.contains("book 53477 has 7 copies, and by the log "), "{said}");
    let (parts, said) = wrong_after("DELETE FROM book WHERE id = 12365");
    assert!(parts == [Part::Stock] && said.contains("book 12365 is not in the catalogue"), "{said}");
    let (parts, said) = wrong_after("DELETE FROM key_index WHERE number = (SELECT min(number) FROM key_index)");
    assert!(parts == [Part::Keys] && said.contains("it lacks the keys of entries"), "{said}");
    let (parts, said) = wrong_after("UPDATE key_index SET hash = hash + 1 WHERE number = 12");
    assert!(parts == [Part::Keys] && said.contains("rows that are not in the log, for the numbers 12"), "{said}");
    let huge = r#"UPDATE entry SET "before" = 0, "after" = 9223372036854775807 WHERE kind IN (1, 4)"#;
    let (parts, said) = wrong_after(huge);
    assert!(parts.contains(&Part::Stock) && said.contains("9223372036854775807 came"), "{said}");
}

#[test]
fn the_index_of_keys_is_made_again_as_the_message_has_it() {
    let shop = used();
    shop.other_program("DELETE FROM key_index WHERE number < 30");
    let said = verify(&shop).problems.remove(0).message;
    let sql = said.split('"').nth(1).expect("a command");
    shop.other_program(sql);
    for round in 0..2 {
        let store = shop.open(&Settings { keys_in_memory: 8, ..Settings::default() });
        let again = shop.runtime.block_on(store.buy(id(BOOK), 1, Some(key("0 1")), None)).expect("no fault");
        assert!(again.replayed, "the key is known");
        for number in 0..40 {
            let key = Some(key(&format!("later {round} {number}")));
            shop.runtime.block_on(store.buy(id(BOOK), 1, key, None)).expect("no fault");
        }
        close(&store);
    }
    let found = verify(&shop);
    assert!(found.problems.is_empty() && found.keys > 0, "{found:?}");
}

#[test]
fn a_head_that_is_gone_is_a_problem_and_a_copy_needs_none() {
    let shop = used();
    let copy = shop.folder.path().join("copy.db");
    store::copy(&shop.path(), &copy, &Settings::default(), &mut |_, _| {}).expect("a copy");
    let found = store::verify_copy(&copy, &mut |_, _| {}).expect("it can be read");
    assert!(found.problems.is_empty() && found.covered.is_none(), "{found:?}");
    assert_eq!(found.root, verify(&shop).root);
    std::fs::remove_file(shop.folder.path().join("bookstore.db-head")).expect("it can go");
    let found = verify(&shop).problems;
    assert!(found.len() == 1 && found[0].part == Part::Head, "{found:?}");
    assert!(found[0].message.contains("is without its head"), "{found:?}");
    Connection::open(&copy).expect("a copy").execute("DELETE FROM entry WHERE number = 20", ()).expect("deleted");
    let found = store::verify_copy(&copy, &mut |_, _| {}).expect("it can be read").problems;
    assert!(found[0].message.contains("entries are missing from the log") && found[0].message.contains("number 20"));
}

#[test]
fn an_entry_so_old_that_a_start_does_not_hash_it_is_compared_too() {
    let shop = used();
    shop.other_program(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 70000)
         INSERT INTO entry (time_ms, kind, book_id, actor) SELECT 0, 8, 53477, 'filler' FROM n",
    );
    let store = shop.open(&Settings::default());
    for _ in 0..2 {
        shop.runtime.block_on(store.buy(id(BOOK), 1, None, None)).expect("no fault");
    }
    close(&store);
    assert!(verify(&shop).problems.is_empty());
    shop.other_program("UPDATE entry SET actor = 'another' WHERE number = 1000");
    close(&shop.open(&Settings::default()));
    let found = verify(&shop);
    assert!(found.problems.len() == 1 && found.problems[0].message.contains("among the entries 1 to 70"), "{found:?}");
}
