//! Operators' actions: each in the log with its actor, and seen by shoppers and other servers.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use bookstore::{
    Actor, Bookstore, Fault, Limit, Reads, Settings, Verdict,
    domain::{Addition, Draft, Edit, Entry, EntryKind, LogFilter, Raised, SalesBy, SalesQuery, Sold},
    exchange::Report,
};

use hosting::Client;

use super::{Kind, Shop, both, close, id, key, operator};

both!(
    one_book_is_restocked_and_a_book_with_enough_copies_is_left_alone,
    a_book_is_added_under_a_free_id_and_can_be_bought,
    an_edit_changes_what_it_names_and_logs_each_change,
    a_delisted_book_is_gone_for_shoppers_and_there_for_operators,
    another_store_sees_what_an_operator_changes,
    the_log_is_filtered_by_time_book_and_kind,
    sales_are_summed_with_the_prices_of_their_time,
    an_import_adds_changes_and_leaves_and_its_preview_says_the_same,
    other_programs_delist_books_without_an_actor,
);

const COOKING: i32 = 12498;

fn draft(number: Option<i32>) -> Draft {
    Draft { id: number, title: "New".to_owned(), topic: "college life".to_owned(), stock: 2, price_cents: 150 }
}

fn delist() -> Edit {
    Edit { listed: Some(false), ..Edit::default() }
}

/// Kinds and actors of the newest entries, oldest first.
fn newest(shop: &Shop, store: &Bookstore, count: usize) -> Vec<(EntryKind, Option<Actor>)> {
    let log = shop.log(store);
    log[log.len() - count..].iter().map(|entry| (entry.kind, entry.actor.clone())).collect()
}

fn by_operator(kinds: &[EntryKind]) -> Vec<(EntryKind, Option<Actor>)> {
    kinds.iter().map(|kind| (*kind, Some(operator()))).collect()
}

fn one_book_is_restocked_and_a_book_with_enough_copies_is_left_alone(kind: Kind) {
    let shop = Shop::of(kind);
    let store = shop.open(&Settings::default());
    let restock = |book, amount| shop.runtime.block_on(store.restock_book(id(book), amount, operator()));
    let raised = restock(COOKING, 2000).expect("no fault").expect("a book");
    assert_eq!((raised.before, raised.after), (1000, 2000));
    let entry = shop.log(&store).pop().expect("an entry");
    assert_eq!((Some(entry.number), entry.kind, entry.actor), (raised.number, EntryKind::Restock, Some(operator())));
    assert_eq!((entry.book, entry.before, entry.after), (id(COOKING), Some(1000), Some(2000)));
    let left = restock(COOKING, 1999);
    assert_eq!(left, Ok(Some(Raised { number: None, before: 2000, after: 2000 })));
    assert_eq!(restock(1, 5), Ok(None));
    assert!(matches!(restock(COOKING, -1), Err(Fault::Invalid { field: "amount", .. })));
    let all = shop.runtime.block_on(store.restock(1500, operator())).expect("no fault");
    assert_eq!((all.books_raised, newest(&shop, &store, 3)), (3, by_operator(&[EntryKind::Restock; 3])));
    close(&store);
    drop(store);
    let store = shop.open(&Settings::default());
    assert_eq!(newest(&shop, &store, 3), by_operator(&[EntryKind::Restock; 3]), "a restart keeps the actors");
    close(&store);
}

fn a_book_is_added_under_a_free_id_and_can_be_bought(kind: Kind) {
    let shop = Shop::of(kind);
    let store = shop.open(&Settings::default());
    let add = |draft| shop.runtime.block_on(store.add_book(draft, operator()));
    let Ok(Addition::Added(book, number)) = add(draft(None)) else { panic!("it was not added") };
    assert_eq!((book.id, &*book.title, book.stock), (id(53574), "New", 2));
    let entry = shop.log(&store).pop().expect("an entry");
    assert_eq!((entry.number, entry.kind, entry.after), (number, EntryKind::Added, Some(2)));
    assert_eq!(newest(&shop, &store, 1), by_operator(&[EntryKind::Added]));
    let Ok(Addition::Taken(there)) = add(draft(Some(COOKING))) else { panic!("the id is taken") };
    assert_eq!(there.title, "Cooking for the Impatient Undergraduate");
    assert!(matches!(add(draft(Some(7))), Ok(Addition::Added(..))));
    let receipt = shop.runtime.block_on(store.buy(id(7), 2, None, None)).expect("no fault");
    assert_eq!((receipt.verdict, receipt.stock_left), (Verdict::Bought, Some(0)));
    let college = shop.runtime.block_on(store.search("college life")).expect("no fault");
    assert_eq!(college.len(), 4);
    for (wrong, field) in [
        (Draft { title: " ".to_owned(), ..draft(None) }, "title"),
        (Draft { topic: "a\u{202e}b".to_owned(), ..draft(None) }, "topic"),
        (Draft { topic: "t".repeat(300), ..draft(None) }, "topic"),
        (Draft { stock: -1, ..draft(None) }, "stock"),
        (Draft { price_cents: -1, ..draft(None) }, "price_cents"),
        (draft(Some(0)), "id"),
    ] {
        let fault = add(wrong).expect_err("a refusal");
        assert!(matches!(&fault, Fault::Invalid { field: named, .. } if *named == field), "{fault}");
    }
    assert!(matches!(add(draft(Some(i32::MAX))), Ok(Addition::Added(..))));
    assert!(matches!(add(draft(None)), Err(Fault::Invalid { field: "id", .. })), "no id is above the highest");
    close(&store);
}

fn an_edit_changes_what_it_names_and_logs_each_change(kind: Kind) {
    let shop = Shop::of(kind);
    let store = shop.open(&Settings::default());
    let edit = |edit| shop.runtime.block_on(store.edit_book(id(COOKING), edit, operator())).expect("no fault");
    let all = Edit {
        title: Some("Cooking".to_owned()),
        topic: Some("food".to_owned()),
        price_cents: Some(99),
        listed: Some(false),
    };
    let edited = edit(all.clone()).expect("a book");
    assert_eq!((&*edited.before.topic, &*edited.after.topic, edited.after.stock), ("college life", "food", 1000));
    assert_eq!((edited.after.price.get(), edited.after.listed), (99, false));
    assert_eq!(edited.number, shop.log(&store).last().map(|entry| entry.number));
    let kinds = [EntryKind::Price, EntryKind::Edited, EntryKind::Delisted];
    assert_eq!(newest(&shop, &store, 3), by_operator(&kinds));
    assert_eq!(edit(all).expect("a book").number, None, "nothing changes");
    let back = edit(Edit { listed: Some(true), ..Edit::default() }).expect("a book");
    assert!(back.after.listed && back.number.is_some());
    let food = shop.runtime.block_on(store.search("food")).expect("no fault");
    assert_eq!(food.iter().map(|book| book.title()).collect::<Vec<_>>(), ["Cooking"]);
    let nothing = shop.runtime.block_on(store.edit_book(id(1), delist(), operator()));
    assert_eq!(nothing, Ok(None));
    close(&store);
    drop(store);
    let store = shop.open(&Settings::default());
    let book = shop.runtime.block_on(store.lookup(id(COOKING))).expect("no fault").expect("a book");
    assert_eq!((book.title(), book.topic(), book.price().get()), ("Cooking", "food", 99));
    close(&store);
}

fn a_delisted_book_is_gone_for_shoppers_and_there_for_operators(kind: Kind) {
    let shop = Shop::of(kind);
    for reads in [Reads::Memory, Reads::Database] {
        let settings = Settings { reads, ..Settings::default() };
        let store = shop.open(&settings);
        let buy = |name| shop.runtime.block_on(store.buy(id(COOKING), 1, Some(key(name)), None)).expect("no fault");
        let bought = buy("before");
        let edited = shop.runtime.block_on(store.edit_book(id(COOKING), delist(), operator()));
        assert!(edited.expect("no fault").expect("a book").number.is_some());
        assert!(shop.runtime.block_on(store.lookup(id(COOKING))).expect("no fault").is_none());
        assert_eq!(shop.runtime.block_on(store.search("college life")).expect("no fault").len(), 1);
        assert_eq!(shop.runtime.block_on(store.list(None, 0)).expect("no fault").items.len(), 3);
        let again = buy("before");
        assert_eq!((again.verdict, again.replayed, again.number), (Verdict::Bought, true, bought.number));
        let refused = buy(if reads == Reads::Memory { "after" } else { "later" });
        assert_eq!((refused.verdict, refused.stock_left), (Verdict::NoSuchBook, None));
        let all = shop.runtime.block_on(store.list_all(None, 0)).expect("no fault").items;
        let listed: Vec<_> = all.iter().map(|book| (book.id().get(), book.is_listed())).collect();
        assert_eq!(listed, [(12365, true), (COOKING, false), (53477, true), (53573, true)]);
        let raised = shop.runtime.block_on(store.restock(5000, operator())).expect("no fault").books_raised;
        assert_eq!(raised, if reads == Reads::Memory { 3 } else { 0 }, "a restock of all leaves it alone");
        let one = shop.runtime.block_on(store.restock_book(id(COOKING), 1001, operator()));
        assert!(one.expect("no fault").is_some(), "it can be restocked by itself");
        close(&store);
        drop(store);
        let store = shop.open(&settings);
        assert!(shop.runtime.block_on(store.lookup(id(COOKING))).expect("no fault").is_none(), "after a restart");
        let back = Edit { listed: Some(true), ..Edit::default() };
        shop.runtime.block_on(store.edit_book(id(COOKING), back, operator())).expect("no fault");
        let book = shop.runtime.block_on(store.lookup(id(COOKING))).expect("no fault").expect("a book");
        assert_eq!(book.stock(), 1001);
        close(&store);
    }
}

fn eventually(shop: &Shop, what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(5), "{what}");
        shop.runtime.block_on(tokio::task::yield_now());
    }
}

fn another_store_sees_what_an_operator_changes(kind: Kind) {
    let shop = Shop::of(kind);
    let (store, other) = (shop.open(&Settings::default()), shop.open(&Settings::default()));
    let title =
        |number| shop.runtime.block_on(other.lookup(id(number))).expect("no fault").map(|book| book.title().to_owned());
    shop.runtime.block_on(store.add_book(draft(Some(7)), operator())).expect("no fault");
    eventually(&shop, "a new book", || title(7).is_some());
    let edit = Edit { title: Some("Newer".to_owned()), ..Edit::default() };
    shop.runtime.block_on(store.edit_book(id(7), edit, operator())).expect("no fault");
    eventually(&shop, "a new title", || title(7).as_deref() == Some("Newer"));
    shop.runtime.block_on(store.edit_book(id(7), delist(), operator())).expect("no fault");
    eventually(&shop, "a book that was delisted", || title(7).is_none());
    let bought = shop.runtime.block_on(other.buy(id(7), 1, None, None)).expect("no fault");
    assert_eq!(bought.verdict, Verdict::NoSuchBook);
    let raised = shop.runtime.block_on(other.restock_book(id(7), 9, operator())).expect("no fault");
    assert_eq!(raised.map(|raised| (raised.before, raised.after)), Some((2, 9)));
    let back = Edit { listed: Some(true), ..Edit::default() };
    shop.runtime.block_on(other.edit_book(id(7), back, operator())).expect("no fault");
    let bought = shop.runtime.block_on(store.buy(id(7), 1, None, None)).expect("no fault");
    assert_eq!((bought.verdict, bought.stock_left), (Verdict::Bought, Some(8)));
    close(&store);
    close(&other);
}

fn the_log_is_filtered_by_time_book_and_kind(kind: Kind) {
    let shop = Shop::of(kind);
    let store = shop.open(&Settings::default());
    for book in [COOKING, 53477, COOKING] {
        shop.runtime.block_on(store.buy(id(book), 1, None, None)).expect("no fault");
    }
    shop.runtime.block_on(store.edit_book(id(COOKING), delist(), operator())).expect("no fault");
    let edit = Edit { title: Some("C".to_owned()), ..Edit::default() };
    shop.runtime.block_on(store.edit_book(id(COOKING), edit, operator())).expect("no fault");
    let log = shop.log(&store);
    let find = |before, filter: &LogFilter, size| {
        shop.runtime.block_on(store.find_log(before, filter.clone(), size)).expect("a page")
    };
    let all = |filter: LogFilter| -> Vec<Entry> {
        let (mut found, mut before) = (Vec::new(), Some(i64::MAX));
        while let Some(number) = before {
            let page = find(number, &filter, 2);
            found.extend(page.items);
            before = page.next;
        }
        found
    };
    let wanted = |holds: &dyn Fn(&Entry) -> bool| -> Vec<Entry> {
        log.iter().rev().filter(|entry| holds(entry)).cloned().collect()
    };
    let everything = LogFilter::default();
    assert_eq!(all(everything.clone()), wanted(&|_| true));
    let of_cooking = LogFilter { book: Some(id(COOKING)), ..everything.clone() };
    assert_eq!(all(of_cooking), wanted(&|entry| entry.book == id(COOKING)));
    for kind in [EntryKind::Purchase, EntryKind::Edited, EntryKind::Delisted, EntryKind::Listed] {
        let of_kind = LogFilter { kinds: vec![kind], ..everything.clone() };
        assert_eq!(all(of_kind), wanted(&|entry| entry.kind == kind), "{kind:?}");
    }
    let kinds = vec![EntryKind::Edited, EntryKind::Purchase];
    let of_both = LogFilter { kinds, book: Some(id(COOKING)), ..everything.clone() };
    assert_eq!(all(of_both).len(), 3);
    let (first, last) = (log[0].time_ms, log[log.len() - 1].time_ms);
    let (from_ms, to_ms) = (Some(first), Some(last + 1));
    assert_eq!(all(LogFilter { from_ms, to_ms, ..everything.clone() }).len(), log.len());
    assert_eq!(all(LogFilter { from_ms: Some(last + 1), ..everything.clone() }), []);
    assert_eq!(all(LogFilter { to_ms: Some(first), ..everything.clone() }), []);
    let hours = 48 * 3_600_000;
    assert_eq!(all(LogFilter { from_ms: Some(last + hours), ..everything.clone() }), []);
    assert_eq!(all(LogFilter { to_ms: Some(first - hours), ..everything.clone() }), []);
    assert_eq!(
        all(LogFilter { from_ms: Some(first - hours), to_ms: Some(last + hours), ..everything }).len(),
        log.len()
    );
    close(&store);
}

fn sales_are_summed_with_the_prices_of_their_time(kind: Kind) {
    let shop = Shop::of(kind);
    let store = shop.open(&Settings::default());
    let buy = |book, quantity| shop.runtime.block_on(store.buy(id(book), quantity, None, None)).expect("no fault");
    buy(COOKING, 2);
    shop.runtime.block_on(store.update_price(id(COOKING), 1000, operator())).expect("no fault");
    buy(COOKING, 3);
    buy(53477, 1);
    let sales = |query| shop.runtime.block_on(store.sales(query, Client::Unknown)).expect("sales");
    let by_book = sales(SalesQuery { by: SalesBy::Book, ..SalesQuery::default() });
    let sold = |purchases, copies, cents| Sold { purchases, copies, cents, copies_unpriced: 0 };
    let rows: Vec<_> = by_book.rows.iter().map(|row| (row.book, row.day, row.sold)).collect();
    assert_eq!(rows, [(Some(id(COOKING)), None, sold(2, 5, 6700)), (Some(id(53477)), None, sold(1, 1, 5995))]);
    assert_eq!(by_book.total, sold(3, 6, 12_695));
    assert_eq!(by_book.rows[0].title.as_deref(), Some("Cooking for the Impatient Undergraduate"));
    let by_day = sales(SalesQuery::default());
    assert_eq!(by_day.total, by_book.total);
    assert!(by_day.rows.iter().all(|row| row.book.is_none() && row.day.is_some()));
    let of_one = sales(SalesQuery { by: SalesBy::DayAndBook, book: Some(id(53477)), ..SalesQuery::default() });
    assert_eq!(of_one.total, sold(1, 1, 5995));
    let last = shop.log(&store).pop().expect("an entry").time_ms;
    let later = SalesQuery { from_ms: Some(last + 1), ..SalesQuery::default() };
    assert_eq!((sales(later).rows.len(), sales(later).total), (0, Sold::default()));
    shop.other_program(&format!("DELETE FROM book WHERE id = {COOKING}"));
    let total = sales(SalesQuery::default()).total;
    assert_eq!((total.cents, total.copies, total.copies_unpriced), (9695, 6, 3), "its last price went with the book");
    close(&store);
}

fn an_import_adds_changes_and_leaves_and_its_preview_says_the_same(kind: Kind) {
    let shop = Shop::of(kind);
    let store = shop.open(&Settings::default());
    shop.runtime.block_on(store.edit_book(id(COOKING), delist(), operator())).expect("no fault");
    let before = shop.log(&store).len();
    let csv = b"id,title,topic,stock,price\n7,Seven,new,3,1.00\n7,Again,new,3,1.00\nx,Bad,new,3,1\n\
        12365,Surviving College,college life,1000,29.99\n12498,Cooking,college life,9,18.50\n"
        .to_vec();
    let plan = shop.runtime.block_on(store.plan_import(csv.clone(), Client::Unknown)).expect("a plan");
    let counts = |report: &Report| (report.added, report.changed, report.unchanged, report.refused);
    assert_eq!(counts(&plan), (1, 1, 1, 2));
    assert_eq!(plan.bad.iter().map(|row| (row.line, row.column)).collect::<Vec<_>>(), [(3, "id"), (4, "id")]);
    let (was, is) = &plan.changes[0];
    assert_eq!((was.stock, is.stock, &*is.title, is.listed), (1000, 9, "Cooking", false));
    assert_eq!(shop.log(&store).len(), before, "a preview changes nothing");
    let done = shop.runtime.block_on(store.apply_import(csv.clone(), operator(), Client::Unknown)).expect("no fault");
    assert_eq!(done, plan);
    let kinds = [EntryKind::Added, EntryKind::Adjusted, EntryKind::Edited];
    assert_eq!(newest(&shop, &store, 3), by_operator(&kinds));
    let again = shop.runtime.block_on(store.apply_import(csv, operator(), Client::Unknown)).expect("no fault");
    assert_eq!((counts(&again), shop.log(&store).len()), ((0, 0, 3, 2), before + 3), "it can be sent again");
    let listed = b"id,title,topic,stock,price,listed\n7,Seven,new,3,1.00,no\n12498,Cooking,college life,9,18.50,yes\n";
    shop.runtime.block_on(store.apply_import(listed.to_vec(), operator(), Client::Unknown)).expect("no fault");
    assert_eq!(newest(&shop, &store, 2), by_operator(&[EntryKind::Delisted, EntryKind::Listed]));
    for (unusable, wanted) in [
        (&b"id,title\n1,A\n"[..], "the header 'id,title,topic,stock,price'"),
        (b"", "the header 'id,title,topic,stock,price'"),
        (b"id,title,topic,stock,price\n1,\"A", "column stock"),
    ] {
        let done = shop.runtime.block_on(store.apply_import(unusable.to_vec(), operator(), Client::Unknown));
        let text = done.map_or_else(|fault| fault.to_string(), |report| report.bad[0].to_string());
        assert!(text.contains(wanted), "{text}");
    }
    close(&store);
}

fn other_programs_delist_books_without_an_actor(kind: Kind) {
    let shop = Shop::of(kind);
    let store = shop.open(&Settings::default());
    let set = |listed: &str| shop.other_program(&format!("UPDATE book SET listed = {listed} WHERE id = {COOKING}"));
    let is_there = || shop.runtime.block_on(store.lookup(id(COOKING))).expect("no fault").is_some();
    let (no, yes) = if kind == Kind::File { ("0", "1") } else { ("false", "true") };
    set(no);
    eventually(&shop, "a book that was delisted", || !is_there());
    set(yes);
    eventually(&shop, "a book that was listed again", is_there);
    assert_eq!(newest(&shop, &store, 2), [(EntryKind::Delisted, None), (EntryKind::Listed, None)]);
    close(&store);
}

/// A CSV file with the books 1 to `count` of one copy each, and this last row.
fn many_rows(count: usize, last: &str) -> Vec<u8> {
    let rows = (1..=count).map(|number| format!("{number},T,t,1,1.00\n")).collect::<Vec<_>>().concat();
    format!("id,title,topic,stock,price\n{rows}{last}").into_bytes()
}

#[test]
fn an_import_that_stops_names_the_rows_that_are_done() {
    let shop = Shop::new();
    let store = shop.open(&Settings::default());
    let books = store.books();
    let broken_off = shop.runtime.block_on(async {
        let import = store.begin_import(Some(operator()), Client::Unknown).expect("an import");
        assert!(import.send(many_rows(100, "")[..1000].to_vec()).await);
        import.break_off().await
    });
    assert_eq!(broken_off, None, "not a slice has come");
    let long = format!("300,{},t,1,1", "T".repeat(2 << 20));
    let stopped = shop.runtime.block_on(store.apply_import(many_rows(299, &long), operator(), Client::Unknown));
    let Err(Fault::ImportStopped { line, cause }) = stopped else { panic!("{stopped:?}") };
    assert_eq!(line, 257, "the header and the rows of one slice");
    assert!(matches!(*cause, Fault::Invalid { .. }), "{cause}");
    assert_eq!(store.books(), books + 256, "nothing of the import before, and a slice of this");
    // The rest is sent alone, so that copies that were sold meanwhile stay sold.
    let sold = shop.runtime.block_on(store.buy(id(1), 1, None, None)).expect("no fault");
    assert_eq!(sold.stock_left, Some(0));
    let rest = b"id,title,topic,stock,price\n257,T,t,1,1.00\n".to_vec();
    shop.runtime.block_on(store.apply_import(rest, operator(), Client::Unknown)).expect("no fault");
    let first = shop.runtime.block_on(store.lookup(id(1))).expect("no fault").expect("a book");
    assert_eq!((first.stock(), store.books()), (0, books + 257));
    close(&store);
}

#[test]
fn an_import_whose_caller_goes_begins_no_further_slice() {
    let shop = Shop::new();
    let store = shop.open(&Settings::default());
    let books = store.books();
    let other = shop.lock();
    let import = shop.runtime.block_on(async {
        let import = store.begin_import(Some(operator()), Client::Unknown).expect("an import");
        assert!(import.send(many_rows(600, "")).await);
        import
    });
    eventually(&shop, "a slice that waits for the lock", || store.levels().purchases_queued == 1);
    drop(import);
    other.execute_batch("COMMIT").expect("the lock is given back");
    let is_free = || {
        let begun = async { (0..3).map(|_| store.begin_import(None, Client::Unknown)).collect::<Result<Vec<_>, _>>() };
        shop.runtime.block_on(begun).is_ok()
    };
    eventually(&shop, "the end of the import", is_free);
    assert_eq!(store.books(), books + 256);
    close(&store);
}

#[test]
fn an_import_also_puts_rows_that_another_program_has_just_changed() {
    let shop = Shop::new();
    let store = shop.open(&Settings::default());
    let other = shop.lock();
    other.execute("UPDATE book SET stock = 5 WHERE id = ?1", [COOKING]).expect("an update");
    let file =
        b"id,title,topic,stock,price\n12498,Cooking for the Impatient Undergraduate,college life,1000,18.50\n".to_vec();
    let import = store.clone();
    let done = shop.runtime.spawn(async move { import.apply_import(file, operator(), Client::Unknown).await });
    eventually(&shop, "a slice that waits for the lock", || store.levels().purchases_queued == 1);
    other.execute_batch("COMMIT").expect("the lock is given back");
    let report = shop.runtime.block_on(done).expect("no panic").expect("no fault");
    assert_eq!((report.changed, report.unchanged), (1, 0));
    let book = shop.runtime.block_on(store.lookup(id(COOKING))).expect("no fault").expect("a book");
    assert_eq!(book.stock(), 1000);
    close(&store);
}

#[test]
fn jobs_beside_the_queue_are_limited_and_counted() {
    let shop = Shop::new();
    let mut settings = Settings { restock_slice: 1, ..Settings::default() };
    settings.limits.purchases_queued = 1;
    let store = shop.open(&settings);
    let other = shop.lock();
    let first = store.clone();
    let restock = shop.runtime.spawn(async move { first.restock(5000, operator()).await });
    eventually(&shop, "the restock", || store.levels().purchases_queued == 1);
    let add = || {
        let store = store.clone();
        shop.runtime.spawn(async move { store.add_book(draft(Some(7)), operator()).await })
    };
    // The queue refuses it while the restock is there.
    let addition = RefCell::new(add());
    eventually(&shop, "one beside the queue and one in it", || {
        if addition.borrow().is_finished() {
            addition.replace(add());
        }
        store.levels().purchases_queued == 2
    });
    other.execute_batch("COMMIT").expect("the lock is given back");
    // The restock has slices left when the addition leaves the queue.
    let refused = shop.runtime.block_on(addition.into_inner()).expect("no panic");
    assert!(matches!(refused, Err(Fault::Limit { limit: Limit::PurchasesQueued, at: 1 })), "{refused:?}");
    assert_eq!(shop.runtime.block_on(restock).expect("no panic").expect("no fault").books_raised, 4);
    eventually(&shop, "none", || store.levels().purchases_queued == 0);
    close(&store);
}

#[test]
fn imports_and_summaries_of_sales_are_limited_for_each_client() {
    let shop = Shop::new();
    let store = shop.open(&Settings::default());
    let one = || Client::Credential("one".into());
    shop.runtime.block_on(async {
        let begun: Vec<_> = (0..3).map(|_| store.begin_import(None, one()).expect("a share")).collect();
        let refused = store.begin_import(None, one()).map(drop);
        assert!(matches!(refused, Err(Fault::Limit { limit: Limit::Imports, .. })), "{refused:?}");
        store.begin_import(None, Client::Credential("another".into())).expect("a share is left");
        drop(begun);
    });
    // On one thread, so that the first summary does not end between the calls.
    let thread = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    thread.block_on(async {
        let query = SalesQuery { from_ms: None, to_ms: None, by: SalesBy::Day, book: None };
        let sales = || store.sales(query, one());
        let (first, second, third, fourth) = tokio::join!(biased; sales(), sales(), sales(), sales());
        assert!([first, second, third].iter().all(Result::is_ok));
        assert!(matches!(fourth, Err(Fault::Limit { limit: Limit::Sales, .. })), "{fourth:?}");
        store.sales(query, one()).await.expect("the share is free again");
    });
    close(&store);
}
