//! Create, retrieve, update, delete, versions, expiry and scans.

use std::{ops::ControlFlow, time::Duration};

use kv::{Durability, Fault, KeyValue, Limits, Scan, Settings, StoreKind, Version};

use super::{KINDS, Store, value};

const SECOND: Option<Duration> = Some(Duration::from_secs(1));

#[tokio::test]
async fn each_call_does_what_its_name_says_and_no_more() {
    for kind in KINDS {
        let store = Store::open(kind, Limits::default());
        let kv = &store.kv;
        assert_eq!(kv.retrieve(b"k").await.unwrap_err(), Fault::Missing);
        assert_eq!(kv.update(b"k", value(b"1"), None, None).await, Err(Fault::Missing));
        assert_eq!(kv.delete(b"k", None).await, Ok(false));
        let first = kv.create(b"k", value(b"1"), None).await.unwrap();
        assert_eq!(kv.create(b"k", value(b"2"), None).await, Err(Fault::Exists));
        assert_eq!(store.value(b"k").await.unwrap(), b"1");
        let second = kv.update(b"k", value(b"2"), None, None).await.unwrap();
        assert!(second > first);
        assert_eq!(kv.retrieve(b"k").await.unwrap().version, second);
        assert_eq!(kv.delete(b"k", None).await, Ok(true));
        assert_eq!(store.value(b"k").await, None);
        assert!(kv.create(b"k", value(b"3"), None).await.unwrap() > second, "a version is never given twice");
        assert_eq!(store.value(b"k").await.unwrap(), b"3");
    }
}

#[tokio::test]
async fn a_put_creates_or_replaces_also_what_has_expired() {
    for kind in KINDS {
        let store = Store::open(kind, Limits::default());
        let kv = &store.kv;
        let first = kv.put(b"k", value(b"1"), SECOND).await.unwrap();
        let second = kv.put(b"k", value(b"2"), SECOND).await.unwrap();
        assert!(second > first);
        assert_eq!(store.value(b"k").await.unwrap(), b"2");
        store.pass(1000);
        kv.put(b"k", value(b"3"), None).await.unwrap();
        store.pass(10_000);
        assert_eq!(store.value(b"k").await.unwrap(), b"3", "a put without a time does not expire");
        assert_eq!(store.kv.levels().entries, 1);
    }
}

#[tokio::test]
async fn keys_and_values_may_be_empty() {
    for kind in KINDS {
        let store = Store::open(kind, Limits::default());
        store.kv.create(b"", value(b""), None).await.unwrap();
        assert_eq!(store.value(b"").await.unwrap(), b"");
        assert_eq!(store.kv.create(b"", value(b"x"), None).await, Err(Fault::Exists));
        store.kv.update(b"", value(b"y"), None, None).await.unwrap();
        assert_eq!(store.value(b"").await.unwrap(), b"y");
        assert_eq!(store.kv.delete(b"", None).await, Ok(true));
        assert_eq!(store.kv.levels().entries, 0);
    }
}

#[tokio::test]
async fn an_expected_version_lets_no_update_overwrite_another_unseen() {
    for kind in KINDS {
        let store = Store::open(kind, Limits::default());
        let kv = &store.kv;
        let seen = kv.create(b"k", value(b"0"), None).await.unwrap();
        let mine = kv.update(b"k", value(b"mine"), Some(seen), None).await.unwrap();
        assert_eq!(kv.update(b"k", value(b"yours"), Some(seen), None).await, Err(Fault::Conflict(mine)));
        assert_eq!(kv.delete(b"k", Some(seen)).await, Err(Fault::Conflict(mine)));
        assert_eq!(store.value(b"k").await.unwrap(), b"mine");
        assert_eq!(kv.delete(b"k", Some(mine)).await, Ok(true));
        assert_eq!(kv.delete(b"k", Some(mine)).await, Ok(false), "an absent key is no conflict");
        assert_eq!(kv.update(b"k", value(b"late"), Some(mine), None).await, Err(Fault::Missing));
        let again = kv.create(b"k", value(b"new"), None).await.unwrap();
        assert_eq!(kv.update(b"k", value(b"late"), Some(mine), None).await, Err(Fault::Conflict(again)));
    }
}

#[tokio::test]
async fn an_entry_is_gone_when_its_time_is_over_swept_or_not() {
    for kind in KINDS {
        let store = Store::open(kind, Limits::default());
        let kv = &store.kv;
        kv.create(b"k", value(b"1"), SECOND).await.unwrap();
        store.pass(999);
        assert_eq!(store.value(b"k").await.unwrap(), b"1");
        store.pass(1);
        assert_eq!(store.value(b"k").await, None);
        assert_eq!(kv.update(b"k", value(b"2"), None, None).await, Err(Fault::Missing));
        assert_eq!(kv.delete(b"k", None).await, Ok(false));
        assert_eq!(kv.levels().entries, 1, "no sweep has removed it");
        kv.create(b"k", value(b"3"), None).await.unwrap();
        assert_eq!((store.value(b"k").await.unwrap(), kv.levels().entries), (b"3".to_vec(), 1));
        store.pass(10_000);
        assert_eq!(kv.sweep().await, 0, "its new life has no end");
        assert_eq!(store.value(b"k").await.unwrap(), b"3");
    }
}

#[tokio::test]
async fn an_update_gives_a_new_time_or_none() {
    for kind in KINDS {
        let store = Store::open(kind, Limits::default());
        store.kv.create(b"k", value(b"1"), SECOND).await.unwrap();
        store.kv.update(b"k", value(b"2"), None, Some(Duration::from_secs(5))).await.unwrap();
        store.pass(4999);
        assert!(store.expiry(b"k").await.is_some());
        store.kv.update(b"k", value(b"3"), None, None).await.unwrap();
        store.pass(100_000);
        assert_eq!(store.expiry(b"k").await, None);
    }
}

#[tokio::test]
async fn a_sweep_removes_what_is_over_a_slice_at_a_time_and_frees_its_memory() {
    for kind in KINDS {
        let store = Store::open(kind, Limits::default());
        for number in 0..300u32 {
            store.kv.create(&number.to_be_bytes(), value(b"v"), SECOND).await.unwrap();
        }
        store.kv.create(b"stays", value(b"v"), None).await.unwrap();
        assert_eq!(store.kv.sweep().await, 0);
        store.pass(1000);
        let slices = [store.kv.sweep().await, store.kv.sweep().await, store.kv.sweep().await];
        assert!(slices[0] < 300 && slices.iter().sum::<usize>() == 300 && slices[2] == 0, "{slices:?}");
        let levels = store.kv.levels();
        assert_eq!(levels.entries, 1);
        store.kv.delete(b"stays", None).await.unwrap();
        assert_eq!(store.kv.levels().bytes, 0);
    }
}

async fn keys(kv: &KeyValue, prefix: &[u8], entries: usize) -> Vec<Vec<Vec<u8>>> {
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let mut page = Vec::new();
        let scan = Scan { prefix, start_after: after.as_deref(), entries, keys_only: false };
        let next = kv.scan(&scan, |key, _| {
            page.push(key.to_vec());
            ControlFlow::Continue(())
        });
        let next = next.await.unwrap();
        pages.push(page);
        let Some(next) = next else { return pages };
        after = Some(next);
    }
}

#[tokio::test]
async fn a_scan_gives_the_keys_with_a_prefix_in_order_page_by_page() {
    for kind in KINDS {
        let store = Store::open(kind, Limits::default());
        for key in ["b", "ab", "", "a", "aa", "abc", "ac"] {
            store.kv.create(key.as_bytes(), value(key.as_bytes()), None).await.unwrap();
        }
        store.kv.create(b"ad", value(b"over"), SECOND).await.unwrap();
        store.pass(1000);
        let text = |pages: Vec<Vec<Vec<u8>>>| {
            let words = |page: Vec<Vec<u8>>| page.into_iter().map(|key| String::from_utf8(key).unwrap()).collect();
            pages.into_iter().map(words).collect::<Vec<Vec<_>>>()
        };
        assert_eq!(text(keys(&store.kv, b"", 0).await), [["", "a", "aa", "ab", "abc", "ac", "b"]]);
        assert_eq!(text(keys(&store.kv, b"a", 3).await), [vec!["a", "aa", "ab"], vec!["abc", "ac"], vec![]]);
        assert_eq!(text(keys(&store.kv, b"ab", 0).await), [["ab", "abc"]]);
        assert_eq!(text(keys(&store.kv, b"zz", 0).await), [Vec::<&str>::new()]);
    }
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_restart_with_its_version_and_its_time() {
    for kind in KINDS.into_iter().filter(|kind| kind.1 == Durability::Log) {
        let mut store = Store::open(kind, Limits::default());
        let kept = store.kv.create(b"kept", value(&vec![7; 100_000]), None).await.unwrap();
        store.kv.create(b"short", value(b"1"), SECOND).await.unwrap();
        store.kv.create(b"gone", value(b"1"), None).await.unwrap();
        store.kv.delete(b"gone", None).await.unwrap();
        let levels = store.kv.levels();
        store.reopen();
        assert_eq!(store.kv.levels(), levels);
        let entry = store.kv.retrieve(b"kept").await.unwrap();
        assert_eq!((entry.version, entry.value.bytes().len()), (kept, 100_000));
        assert_eq!(store.value(b"gone").await, None);
        assert!(store.expiry(b"short").await.is_some());
        // The deletion had the greatest version.
        assert!(store.kv.create(b"next", value(b""), None).await.unwrap() > Version(kept.0 + 3));
        store.pass(1000);
        assert_eq!((store.value(b"short").await, store.kv.sweep().await), (None, 1));
        store.reopen();
        assert_eq!(store.kv.levels().entries, 2);
    }
}

#[tokio::test]
async fn a_folder_in_use_is_refused_by_name() {
    let store = Store::open((StoreKind::Concurrent, Durability::Log), Limits::default());
    let settings = Settings { durability: Durability::Log, ..Settings::default() };
    let refused = KeyValue::open(store.folder.path(), settings, kv::Clock::Wall).unwrap_err().to_string();
    assert!(refused.contains("in use by another server"), "{refused}");
}

#[tokio::test]
async fn a_closed_journal_takes_no_more_and_reads_go_on() {
    let store = Store::open((StoreKind::Concurrent, Durability::Log), Limits::default());
    store.kv.create(b"k", value(b"1"), None).await.unwrap();
    assert!(store.kv.close(Duration::from_secs(30)));
    assert!(matches!(store.kv.create(b"l", value(b"1"), None).await, Err(Fault::Unavailable("stopping"))));
    assert_eq!(store.value(b"k").await.unwrap(), b"1");
}

/// Simulated work that never ends.
const FOR_EVER: Duration = Duration::from_hours(1);

async fn slow(store: StoreKind) -> (KeyValue, tokio::task::JoinHandle<()>) {
    let settings = Settings { store, write_delay: FOR_EVER, ..Settings::default() };
    let kv = KeyValue::open(std::path::Path::new("unused"), settings, kv::Clock::Wall).unwrap();
    let writer = kv.clone();
    let task = tokio::spawn(async move { drop(writer.create(b"slow", value(b""), None).await) });
    tokio::task::yield_now().await;
    (kv, task)
}

#[tokio::test]
async fn work_on_one_key_delays_no_other_call_in_the_concurrent_store() {
    let (kv, task) = slow(StoreKind::Concurrent).await;
    assert_eq!(kv.retrieve(b"slow").await.unwrap_err(), Fault::Missing);
    assert_eq!(kv.read_now(b"other", |_| ()), Some(Err(Fault::Missing)));
    task.abort();
}

#[tokio::test]
async fn work_holds_the_lock_for_the_whole_call_in_the_mutex_store() {
    let (kv, task) = slow(StoreKind::Mutex).await;
    assert_eq!(kv.read_now(b"other", |_| ()), None, "another call holds the lock");
    let waiting = kv.clone();
    let read = tokio::spawn(async move { waiting.retrieve(b"other").await.map(|_| ()) });
    tokio::task::yield_now().await;
    assert!(!read.is_finished());
    task.abort();
    assert_eq!(read.await.unwrap(), Err(Fault::Missing));
}
