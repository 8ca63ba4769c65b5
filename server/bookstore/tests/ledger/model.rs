//! Concurrent random purchases and changes by operators, in every mode, on one store or two over one file. The log
//! is their order; a model that replays it must agree with every answer.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bookstore::{
    Bookstore, CommitMode, Fault, Receipt, Settings, Verdict,
    domain::{Edit, Entry, EntryKind},
};
use proptest::prelude::*;
use tokio::task::JoinSet;

use super::{Kind, Shop, close, id, key, operator};

#[derive(Clone, Debug)]
enum Action {
    Buy { book: i32, quantity: i32, key: Option<u8> },
    Restock(i64),
    RestockBook { book: i32, amount: i64 },
    Price { book: i32, cents: i64 },
    Edit { book: i32, title: Option<String>, listed: Option<bool> },
}

#[derive(Debug)]
enum Answer {
    Receipt(Result<Receipt, Fault>),
    Done,
}

/// Books 1 to 3 exist, 4 does not; stocks are so small that they run out.
const STOCK: i64 = 12;

fn action() -> impl Strategy<Value = Action> {
    let buy = (1..=4, 1..=5, prop::option::weighted(0.5, 0..20_u8));
    prop_oneof![
        12 => buy.prop_map(|(book, quantity, key)| Action::Buy { book, quantity, key }),
        1 => (0..20_i64).prop_map(Action::Restock),
        1 => (1..=4, 0..20_i64).prop_map(|(book, amount)| Action::RestockBook { book, amount }),
        1 => (1..=4, 0..10_000_i64).prop_map(|(book, cents)| Action::Price { book, cents }),
        2 => (1..=4, prop::option::of("[A-C]"), prop::option::weighted(0.7, prop::bool::weighted(0.7)))
            .prop_map(|(book, title, listed)| Action::Edit { book, title, listed }),
    ]
}

async fn perform(store: Bookstore, action: Action) -> (Action, Answer) {
    let answer = match action {
        Action::Buy { book, quantity, key: number } => {
            let key = number.map(|number| key(&format!("key {number}")));
            Answer::Receipt(store.buy(id(book), quantity, key, None).await)
        }
        Action::Restock(amount) => store.restock(amount, operator()).await.map(|_| Answer::Done).expect("no fault"),
        Action::Price { book, cents } => {
            store.update_price(id(book), cents, operator()).await.map(|_| Answer::Done).expect("no fault")
        }
        Action::RestockBook { book, amount } => {
            store.restock_book(id(book), amount, operator()).await.map(|_| Answer::Done).expect("no fault")
        }
        Action::Edit { book, ref title, listed } => {
            let edit = Edit { title: title.clone(), listed, ..Edit::default() };
            store.edit_book(id(book), edit, operator()).await.map(|_| Answer::Done).expect("no fault")
        }
    };
    (action, answer)
}

/// Replays the log and checks each entry against the state before it.
fn replay(kind: Kind, log: &[Entry]) -> (BTreeMap<i32, i64>, BTreeMap<i32, i64>) {
    let (mut stock, mut price, mut delisted) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    assert!(log.is_sorted_by(|one, next| one.number < next.number), "numbers rise");
    for (place, entry) in log.iter().enumerate() {
        if kind == Kind::File {
            assert_eq!(entry.number, i64::try_from(place).unwrap() + 1, "numbers have no gaps");
        }
        let book = entry.book.get();
        let known = stock.get(&book).copied();
        let seen = known.filter(|_| !delisted.contains(&book));
        let by_operator = !matches!(entry.kind, EntryKind::Added | EntryKind::Purchase | EntryKind::Refused);
        assert_eq!(entry.actor, by_operator.then(operator));
        match entry.kind {
            EntryKind::Added => drop(stock.insert(book, entry.after.unwrap())),
            EntryKind::Purchase => {
                assert_eq!(entry.before, seen);
                let after = known.unwrap() - i64::from(entry.quantity.unwrap());
                assert!(after >= 0, "never oversold");
                assert_eq!(entry.after, Some(after));
                stock.insert(book, after);
            }
            EntryKind::Refused => {
                assert_eq!((entry.before, entry.after), (seen, seen));
                assert!(seen.is_none_or(|seen| seen < i64::from(entry.quantity.unwrap())), "refused for a reason");
            }
            EntryKind::Restock => {
                assert_eq!(entry.before, known);
                assert!(entry.after > entry.before, "a restock raises");
                stock.insert(book, entry.after.unwrap());
            }
            EntryKind::Price => drop(price.insert(book, entry.after.unwrap())),
            EntryKind::Edited => {}
            EntryKind::Delisted => assert!(delisted.insert(book), "it was listed"),
            EntryKind::Listed => assert!(delisted.remove(&book), "it was delisted"),
            other => panic!("nothing here makes an entry of {other:?}"),
        }
    }
    (stock, price)
}

fn check_receipts(log: &[Entry], answers: &[(Action, Answer)]) {
    let mut first: HashMap<u8, Receipt> = HashMap::new();
    let numbered: HashMap<i64, &Entry> = log.iter().map(|entry| (entry.number, entry)).collect();
    for (action, answer) in answers {
        let (Action::Buy { book, quantity, key }, Answer::Receipt(receipt)) = (action, answer) else { continue };
        let receipt = match receipt {
            Ok(receipt) => receipt,
            Err(fault) => {
                assert!(key.is_some() && matches!(fault, Fault::KeyReused { .. }), "{fault}");
                continue;
            }
        };
        let Some(number) = receipt.number else {
            assert!(key.is_none() && receipt.verdict != Verdict::Bought);
            continue;
        };
        let entry = numbered[&number];
        assert_eq!((entry.book, entry.quantity), (id(*book), Some(u32::try_from(*quantity).unwrap())));
        assert_eq!(entry.receipt(), Receipt { replayed: true, ..*receipt });
        if let Some(key) = key {
            let other = first.entry(*key).or_insert(*receipt);
            assert_eq!((other.number, other.verdict), (receipt.number, receipt.verdict), "one purchase a key");
        }
    }
    let bought = answers.iter().filter(|(_, answer)| {
        matches!(answer, Answer::Receipt(Ok(Receipt { verdict: Verdict::Bought, replayed: false, .. })))
    });
    let logged = log.iter().filter(|entry| entry.kind == EntryKind::Purchase);
    assert_eq!(bought.count(), logged.count(), "each entry was acknowledged once, each acknowledgement logged once");
}

fn check(kind: Kind, settings: &[Settings], actions: &[Action]) {
    let shop = Shop::of(kind);
    let rows: Vec<String> = (1..=3).map(|book| format!("{book},Title,topic,{STOCK},1.00\n")).collect();
    shop.import(&rows.concat());
    let stores: Vec<Bookstore> = settings.iter().map(|settings| shop.open(settings)).collect();
    let answers: Vec<(Action, Answer)> = shop.runtime.block_on(async {
        let mut running = JoinSet::new();
        for (place, action) in actions.iter().enumerate() {
            running.spawn(perform(stores[place % stores.len()].clone(), action.clone()));
        }
        running.join_all().await
    });
    let log = shop.log(&stores[0]);
    let (stock, price) = replay(kind, &log);
    check_receipts(&log, &answers);
    stores.iter().for_each(close);
    // A restart reads the state of the log.
    let store = shop.open(&settings[0]);
    let books = shop.runtime.block_on(store.list_all(None, 0)).expect("books").items;
    let read: BTreeMap<i32, i64> = books.iter().map(|book| (book.id().get(), i64::from(book.stock()))).collect();
    assert_eq!(read, stock);
    for book in books.iter() {
        let last = price.get(&book.id().get());
        assert!(last.is_none_or(|cents| *cents == book.price().get()));
    }
    close(&store);
}

fn group() -> Settings {
    // Small limits, so that a short run reaches them.
    Settings { batch_max: 7, keys_in_memory: 3, restock_slice: 2, ..Settings::default() }
}

fn each() -> Settings {
    Settings { commit: CommitMode::Each, write_pool: 3, ..group() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn concurrent_actions_agree_with_the_model(actions in prop::collection::vec(action(), 1..150)) {
        check(Kind::File, &[group()], &actions);
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn concurrent_actions_agree_with_the_model_over_a_database(actions in prop::collection::vec(action(), 1..150)) {
        check(Kind::Database, &[group()], &actions);
    }

    #[test]
    fn concurrent_actions_agree_with_the_model_with_a_transaction_each(actions in prop::collection::vec(action(), 1..60)) {
        check(Kind::File, &[each()], &actions);
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn concurrent_actions_agree_with_the_model_with_a_transaction_each_over_a_database(actions in prop::collection::vec(action(), 1..60)) {
        check(Kind::Database, &[each()], &actions);
    }

    #[test]
    fn two_stores_on_one_file_agree_with_the_model(actions in prop::collection::vec(action(), 1..100)) {
        check(Kind::File, &[group(), group()], &actions);
        check(Kind::File, &[group(), each()], &actions);
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn three_stores_on_one_database_agree_with_the_model(actions in prop::collection::vec(action(), 1..150)) {
        check(Kind::Database, &[group(), group(), each()], &actions);
    }
}
