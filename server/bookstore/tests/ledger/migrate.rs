//! Migration of a file into a database: books, the log with its numbers, and every key.

use std::fs;

use bookstore::{
    Bookstore, Receipt, Settings, Verdict,
    domain::{Edit, HoldState},
    store::{MigrateError, Migrated, Plan, migrate, plan_migration},
};

use hosting::Client;
use postgres_testing::database_of;

use super::{Kind, Shop, close, id, key, operator};

#[test]
fn a_file_that_is_copied_goes_on_in_the_database_where_it_was() {
    let (file, database) = (Shop::new(), Shop::of(Kind::Database));
    let url = database.url.clone().expect("a database");
    let copy = || migrate(&file.path(), &url, &Settings::default(), &mut |_, _| {});
    assert!(matches!(copy(), Err(MigrateError::Source(_))), "there is no file yet");
    file.import("7,'Ünï' \"code\",topic,30,1.05\n8,Title,topic,0,1.00\n");
    let store = file.open(&Settings::default());
    let buy = |shop: &Shop, store: &Bookstore, book, name: &str| {
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
    let plan = || plan_migration(&file.path(), &url, &Settings::default()).expect("a plan");
    let Plan { here, there: None, problems, .. } = plan() else { panic!("{:?}", plan()) };
    assert!(matches!(problems[..], [MigrateError::Selling(_)]) && here.keys == 11, "{problems:?}");
    close(&store);
    drop(store);
    let files = || {
        let mut files: Vec<_> =
            fs::read_dir(file.folder.path()).expect("a folder").map(|one| one.expect("a file")).collect();
        files.sort_by_key(fs::DirEntry::file_name);
        files.iter().map(|one| (one.file_name(), fs::read(one.path()).expect("bytes"))).collect::<Vec<_>>()
    };
    let before = files();
    assert!(plan().problems.is_empty() && plan().there.is_none(), "a plan makes no tables: {:?}", plan());
    assert!(files() == before, "nor does it change the file");
    let Ok(Migrated::Copied(sums)) = copy() else { panic!("{:?}", copy()) };
    assert_eq!((sums.books, sums.entries, sums.sold, sums.keys), (6, i64::try_from(log.len()).unwrap(), 20, 11));
    assert!(matches!(copy(), Ok(Migrated::There(again)) if again == sums), "it can be run again");
    assert!(plan().problems.is_empty() && plan().there == Some(sums), "{:?}", plan());
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
    assert!(matches!(plan().problems[..], [MigrateError::Filled { .. }]), "{:?}", plan());
    close(&store);
}

#[test]
fn reservations_go_on_in_the_database() {
    let (file, database) = (Shop::new(), Shop::of(Kind::Database));
    let store = file.open(&Settings::default());
    let hold = |shop: &Shop, store: &Bookstore, name: &str| {
        shop.runtime.block_on(store.hold(id(53477), 2, key(name), None, &Client::Unknown, None)).expect("an answer")
    };
    let end = |shop: &Shop, store: &Bookstore, name: &str, confirms| {
        shop.runtime.block_on(store.end_hold(key(name), confirms, None)).expect("an answer")
    };
    let held = hold(&file, &store, "held");
    for (name, confirms) in [("sold", true), ("back", false)] {
        hold(&file, &store, name);
        end(&file, &store, name, confirms);
    }
    let log = file.log(&store);
    close(&store);
    drop(store);
    let url = database.url.clone().expect("a database");
    let copied = migrate(&file.path(), &url, &Settings::default(), &mut |_, _| {});
    assert!(matches!(copied, Ok(Migrated::Copied(_))), "{copied:?}");
    let store = database.open(&Settings::default());
    assert_eq!(database.log(&store), log);
    let book = database.runtime.block_on(store.lookup(id(53477))).expect("no fault").expect("a book");
    assert_eq!((book.stock(), book.held()), (996, 2));
    let again = hold(&database, &store, "held");
    assert_eq!((again.held, again.number, again.replayed), (held.held, held.number, true));
    for (name, state) in [("sold", HoldState::Bought), ("back", HoldState::Released)] {
        let again = end(&database, &store, name, true);
        assert_eq!((again.state, again.replayed), (state, true));
    }
    let sold = end(&database, &store, "held", true);
    assert_eq!((sold.state, sold.stock_left, sold.replayed), (HoldState::Bought, Some(996), false));
    close(&store);
}

#[test]
fn a_plan_names_what_the_user_would_have_to_own() {
    let (file, database) = (Shop::new(), Shop::of(Kind::Database));
    close(&file.open(&Settings::default()));
    let owner = database.url.clone().expect("a database");
    migrate(&file.path(), &owner, &Settings::default(), &mut |_, _| {}).expect("a copy");
    let role = format!("clerk_{}", database_of(&owner));
    database.other_program(&format!(
        "CREATE ROLE {role} LOGIN; GRANT CREATE ON SCHEMA public TO {role}; GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}"
    ));
    let url = owner.replace("quire@", &format!("{role}@"));
    let plan = || plan_migration(&file.path(), &url, &Settings::default()).expect("a plan");
    assert!(plan().problems.is_empty(), "of this schema, with all of it: {:?}", plan());
    database.other_program("UPDATE quire_schema SET version = 5");
    let words = "not the owner of book, not the owner of book_changed, not the owner of entry, not the owner of entry_number, \
        not the owner of quire_schema";
    let [problem] = &plan().problems[..] else { panic!("{:?}", plan()) };
    assert!(problem.to_string().contains(words), "{problem}");
    database.other_program(&format!("GRANT quire TO {role}"));
    assert!(plan().problems.is_empty(), "its owner's member: {:?}", plan());
}
