//! A snapshot has every entry, and a folder restored from it is the same store.

use std::num::NonZeroU64;

use kv::{Durability, KeyValue, Limits, Restore, RestoreError, Snapshot, StoreKind, Version};

use super::{KINDS, Store, value};

/// Key, value, version and expiry.
type Seen = (Vec<u8>, Vec<u8>, Version, Option<NonZeroU64>);

fn entries(snapshot: &mut Snapshot) -> Vec<Seen> {
    let mut seen = Vec::new();
    while let Some(page) = snapshot.next_page().expect("a page") {
        assert!(!page.is_empty());
        seen.extend(
            page.into_iter()
                .map(|(key, entry)| (key.to_vec(), entry.value.bytes().to_vec(), entry.version, entry.expires_at_ms)),
        );
    }
    assert!(snapshot.next_page().expect("the end").is_none(), "it stays at its end");
    seen
}

/// Many entries, large and small, one expiring and one deleted.
async fn filled(kv: &KeyValue) -> Vec<Seen> {
    let mut made = Vec::new();
    for number in 0..300u32 {
        let key = number.to_be_bytes();
        let bytes = vec![7; if number % 50 == 0 { 300_000 } else { 100 }];
        let time_to_live = (number == 9).then_some(std::time::Duration::from_mins(1));
        let version = kv.create(&key, value(&bytes), time_to_live).await.expect("created");
        made.push((key.to_vec(), bytes, version, time_to_live.and_then(|_| NonZeroU64::new(1_060_000))));
    }
    kv.create(b"", value(b"empty key"), None).await.expect("created");
    kv.delete(b"", None).await.expect("deleted");
    made
}

#[tokio::test]
async fn a_snapshot_has_every_entry_in_the_order_of_the_keys() {
    for kind in KINDS {
        let store = Store::open(kind, Limits::default());
        let mut empty = store.kv.snapshot().expect("a snapshot");
        assert!(entries(&mut empty).is_empty());
        let made = filled(&store.kv).await;
        let mut snapshot = store.kv.snapshot().expect("a snapshot");
        assert!(entries(&mut snapshot) == made, "{kind:?}");
        assert!(snapshot.last_version().expect("a version") > made[299].2);
    }
}

#[tokio::test]
async fn with_the_log_a_snapshot_is_of_one_moment_whatever_is_written_meanwhile() {
    let store = Store::open((StoreKind::Concurrent, Durability::Log), Limits::default());
    let made = filled(&store.kv).await;
    let mut snapshot = store.kv.snapshot().expect("a snapshot");
    let first = snapshot.next_page().expect("a page").expect("entries").len();
    for (key, ..) in &made {
        store.kv.update(key, value(&vec![8; 200_000]), None, None).await.expect("updated");
    }
    store.kv.create(b"later", value(b"v"), None).await.expect("created");
    store.kv.delete(&made[200].0, None).await.expect("deleted");
    assert!(entries(&mut snapshot) == made[first..]);
}

#[tokio::test]
async fn a_folder_that_is_filled_from_a_snapshot_is_the_same_store() {
    for kind in KINDS {
        let mut store = Store::open(kind, Limits::default());
        let made = filled(&store.kv).await;
        let mut snapshot = store.kv.snapshot().expect("a snapshot");
        let into = store.folder.path().join("restored");
        let mut restore = Restore::begin(&into).expect("an empty folder");
        while let Some(page) = snapshot.next_page().expect("a page") {
            restore.put(&page).expect("written");
        }
        let last = snapshot.last_version().expect("a version");
        restore.end(last);
        restore.finish().expect("in place");
        assert!(matches!(Restore::begin(&into), Err(RestoreError::Filled(_))));
        store.settings.durability = Durability::Log;
        let kv =
            KeyValue::open(&into, store.settings.clone(), kv::Clock::Manual(store.now_ms.clone())).expect("opened");
        assert!(entries(&mut kv.snapshot().expect("a snapshot")) == made, "{kind:?}");
        assert!(kv.create(b"new", value(b"v"), None).await.expect("created") > last);
    }
}

#[tokio::test]
async fn a_snapshot_without_its_end_fills_no_folder() {
    let store = Store::open(KINDS[0], Limits::default());
    filled(&store.kv).await;
    let into = store.folder.path().join("restored");
    let mut restore = Restore::begin(&into).expect("an empty folder");
    restore
        .put(&store.kv.snapshot().expect("a snapshot").next_page().expect("a page").expect("entries"))
        .expect("written");
    assert!(matches!(restore.finish(), Err(RestoreError::CutOff)));
    assert!(!into.exists());
    Restore::begin(&into).expect("what is left of another attempt is removed");
}

#[tokio::test]
async fn a_snapshot_ends_with_the_store_and_more_than_a_few_at_once_are_refused() {
    let mut store = Store::open((StoreKind::Concurrent, Durability::Log), Limits::default());
    filled(&store.kv).await;
    let mut held: Vec<_> = (0..4).map(|_| store.kv.snapshot().expect("a snapshot")).collect();
    let refused = store.kv.snapshot().expect_err("one too many").to_string();
    assert!(refused.contains("try again later"), "{refused}");
    drop(held.pop());
    held.push(store.kv.snapshot().expect("there is room again"));
    // The files close although snapshots are held.
    store.reopen();
    held[0].next_page().expect_err("the disk it was of is closed");
}
