//! Receipts, checkpoints and tiles of a store: all of them lead to one root, cover what was acknowledged, and are of no
//! other log.

use std::{convert::Infallible, fs};

use bookstore::{
    Bookstore, Fault, Settings,
    domain::EntryKind,
    fault::Unavailable,
    receipts::{Checked, check},
    store,
};
use tlog::{Checkpoint, Node, Tile, Verifier, consistency, is_consistent, leaf_hash};

use super::{Shop, close, id, key};

const BOOK: i32 = 53477;

/// Writes entries as another program, and makes the next purchase put them under the head.
const ENTRIES: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < COUNT)
    INSERT INTO entry (time_ms, kind, book_id, before, after) SELECT i, 5, 53477, 1, 2 FROM n";

fn buy(shop: &Shop, store: &Bookstore, name: &str) -> i64 {
    let bought = shop.runtime.block_on(store.buy(id(BOOK), 1, Some(key(name)), None)).expect("no fault");
    bought.number.expect("a number")
}

fn public_key(shop: &Shop, store: &Bookstore) -> Verifier {
    shop.runtime.block_on(store.log_key()).expect("a key")
}

fn checkpoint(shop: &Shop, store: &Bookstore) -> Checkpoint {
    let note = shop.runtime.block_on(store.checkpoint()).expect("a checkpoint");
    Checkpoint::open(&note, &public_key(shop, store)).expect("it is signed")
}

fn try_receipt(shop: &Shop, store: &Bookstore, number: i64, name: &str) -> Result<Option<String>, Fault> {
    shop.runtime.block_on(store.receipt(number, &key(name)))
}

/// The receipt, once the hashes are computed.
fn receipt(shop: &Shop, store: &Bookstore, number: i64, name: &str) -> String {
    loop {
        match try_receipt(shop, store, number, name) {
            Err(Fault::Unavailable(Unavailable::Hashing)) => std::thread::yield_now(),
            made => return made.expect("no fault").expect("a receipt"),
        }
    }
}

/// A node of the tree, as a reader of tiles computes it.
fn node(shop: &Shop, store: &Bookstore, size: u64, node: Node) -> [u8; 32] {
    let (level, below) = (node.height / Tile::HEIGHT, node.height % Tile::HEIGHT);
    let first = node.index << below;
    let row = size >> (level * Tile::HEIGHT);
    let index = first / Tile::WIDTH;
    let width = Tile::WIDTH.min(row - index * Tile::WIDTH);
    let bytes = shop.runtime.block_on(store.tile(Tile { level, index, width })).expect("no fault").expect("a tile");
    let (hashes, _) = bytes.as_chunks::<32>();
    let from = usize::try_from(first % Tile::WIDTH).expect("small");
    let mut hashes = hashes[from..from + (1 << below)].to_vec();
    while hashes.len() > 1 {
        hashes = hashes.chunks(2).map(|pair| tlog::node_hash(&tlog::Hash(pair[0]), &tlog::Hash(pair[1])).0).collect();
    }
    hashes[0]
}

#[test]
fn tiles_and_entries_lead_to_the_root_that_receipts_rest_on() {
    let shop = Shop::new();
    let store = shop.open(&Settings::default());
    let first = buy(&shop, &store, "first");
    let old = checkpoint(&shop, &store);
    shop.other_program(&ENTRIES.replace("COUNT", "66000"));
    let last = buy(&shop, &store, "last");
    let new = checkpoint(&shop, &store);
    assert_eq!((old.size, new.size), (first.unsigned_abs(), last.unsigned_abs()));
    let read = |wanted| Ok::<_, Infallible>(tlog::Hash(node(&shop, &store, new.size, wanted)));
    assert_eq!(tlog::root(new.size, read), Ok(new.root));
    let proof = consistency(old.size, new.size, read).unwrap();
    assert!(is_consistent(old.size, old.root, new.size, new.root, &proof));
    for (number, name) in [(first, "first"), (last, "last")] {
        let checked =
            check(&receipt(&shop, &store, number, name), &public_key(&shop, &store), &[]).expect("it is proven");
        let Checked { log_size, kind, book, quantity, .. } = checked;
        assert_eq!((log_size, kind, book, quantity), (new.size, Some(EntryKind::Purchase), 53477, Some(1)));
        assert_eq!((checked.number, checked.key_sha256), (number, Some(tlog::sha256(&[name.as_bytes()]).0)));
    }
    let tile = Tile { level: 0, index: 3, width: Tile::WIDTH };
    let hashes = shop.runtime.block_on(store.tile(tile)).unwrap().expect("a tile");
    let mut bundle = &shop.runtime.block_on(store.entry_bundle(tile)).unwrap().expect("a bundle")[..];
    for hash in hashes.chunks(32) {
        let (length, rest) = bundle.split_first_chunk::<2>().expect("an entry");
        let (entry, rest) = rest.split_at(u16::from_be_bytes(*length).into());
        assert_eq!(leaf_hash(entry).0, *hash);
        bundle = rest;
    }
    assert!(bundle.is_empty());
    let beyond = Tile { level: 0, index: new.size / 256, width: new.size % 256 + 1 };
    assert_eq!(shop.runtime.block_on(store.tile(beyond)), Ok(None));
    assert_eq!(shop.runtime.block_on(store.tile(Tile { level: 3, index: 0, width: 1 })), Ok(None));
    assert_eq!(shop.runtime.block_on(store.entry_bundle(beyond)), Ok(None));
    close(&store);
}

#[test]
fn receipts_of_a_long_log_come_once_its_hashes_are_computed_and_quickly_from_then_on() {
    let shop = Shop::new();
    let settings = Settings::default();
    close(&shop.open(&settings));
    shop.other_program(&ENTRIES.replace("COUNT", "400000"));
    let store = shop.open(&settings);
    let number = buy(&shop, &store, "a");
    let first = try_receipt(&shop, &store, number, "a");
    assert_eq!(first, Err(Fault::Unavailable(Unavailable::Hashing)), "a request computes a part");
    check(&receipt(&shop, &store, number, "a"), &public_key(&shop, &store), &[]).expect("it is proven");
    close(&store);
    let store = shop.open(&settings);
    let again = try_receipt(&shop, &store, number, "a").expect("the hashes are kept").expect("a receipt");
    check(&again, &public_key(&shop, &store), &[]).expect("it is proven");
    close(&store);
    fs::remove_file(shop.folder.path().join("bookstore.db-nodes")).expect("the file of hashes");
    let store = shop.open(&settings);
    let anew = receipt(&shop, &store, number, "a");
    assert_eq!(anew, again, "what is deleted is computed again");
    close(&store);
}

#[test]
fn a_receipt_is_given_to_who_has_the_key() {
    let shop = Shop::new();
    let store = shop.open(&Settings::default());
    let number = buy(&shop, &store, "mine");
    assert!(try_receipt(&shop, &store, number, "mine").unwrap().is_some());
    for (number, name) in
        [(number, "yours"), (number - 1, "mine"), (number + 1, "mine"), (0, "mine"), (i64::MIN, "mine")]
    {
        assert_eq!(try_receipt(&shop, &store, number, name), Ok(None), "{number} {name}");
    }
    close(&store);
}

#[test]
fn entries_of_other_programs_are_signed_once_they_are_in_the_head() {
    let shop = Shop::new();
    let store = shop.open(&Settings::default());
    let before = buy(&shop, &store, "before");
    shop.other_program("UPDATE book SET stock = 7 WHERE id = 53477");
    assert_eq!(checkpoint(&shop, &store).size, before.unsigned_abs(), "SQLite may not have flushed it");
    let after = buy(&shop, &store, "after");
    assert_eq!(after, before + 2);
    assert_eq!(checkpoint(&shop, &store).size, after.unsigned_abs());
    close(&store);
}

#[test]
fn numbers_without_an_entry_are_leaves_too() {
    let shop = Shop::new();
    let store = shop.open(&Settings::default());
    buy(&shop, &store, "before");
    shop.other_program(
        "INSERT INTO entry (number, time_ms, kind, book_id, before, after) VALUES (1500, 0, 5, 53477, 1, 2)",
    );
    let number = buy(&shop, &store, "after");
    assert_eq!(number, 1501);
    check(&receipt(&shop, &store, number, "after"), &public_key(&shop, &store), &[]).expect("it is proven");
    close(&store);
}

#[test]
fn a_row_that_was_changed_gets_no_receipt() {
    let shop = Shop::new();
    let store = shop.open(&Settings::default());
    let number = buy(&shop, &store, "a");
    shop.other_program(&format!("UPDATE entry SET quantity = 2 WHERE number = {number}"));
    let Err(Fault::Failed(reason)) = try_receipt(&shop, &store, number, "a") else { panic!("it is not proven") };
    assert!(reason.contains("does not lead to the root in its head"), "{reason}");
    close(&store);
}

#[test]
fn a_restored_store_is_another_log_and_the_same_store_stays_the_same() {
    let shop = Shop::new();
    let settings = Settings { origin: Some("shop.example/log".to_owned()), ..Settings::default() };
    let store = shop.open(&settings);
    let number = buy(&shop, &store, "a");
    let (public, made) = (public_key(&shop, &store), receipt(&shop, &store, number, "a"));
    assert_eq!(public.name(), "shop.example/log");
    close(&store);
    let store = shop.open(&settings);
    assert_eq!(public_key(&shop, &store), public);
    close(&store);
    let restored = Shop::new();
    store::copy(&shop.path(), &restored.path(), &settings, &mut |_, _| {}).expect("a backup");
    let copy = restored.open(&settings);
    let other = public_key(&restored, &copy);
    assert_ne!(other, public, "a restored store may not go on as the log that it was");
    check(&made, &other, &[]).expect_err("of another log");
    assert!(try_receipt(&restored, &copy, number, "a").unwrap().is_some());
    close(&copy);
    let kept = shop.folder.path().join("bookstore.db-head");
    fs::remove_file(kept).expect("the head");
    let store = shop.open(&Settings { accept_loss: Some(0), ..settings });
    assert_ne!(public_key(&shop, &store), public, "nor may one that lost its head, with the same secret");
    close(&store);
}

#[test]
fn the_name_of_a_log_is_random_unless_it_is_set() {
    let names = [(); 2].map(|()| {
        let shop = Shop::new();
        let store = shop.open(&Settings::default());
        let name = public_key(&shop, &store).name().to_owned();
        close(&store);
        name
    });
    assert_ne!(names[0], names[1]);
    assert!(names.iter().all(|name| name.starts_with("quire/") && name.len() == 6 + 32), "{names:?}");
}
