//! Every limit reached: refused by name, without effect.

use std::ops::ControlFlow;

use futures_util::future::join_all;
use hosting::Client;
use kv::{Durability, Fault, Limit, Limits, Scan, StoreKind, Version};

use super::{KINDS, Store, value};

fn limit(limit: Limit, at: usize) -> Fault {
    Fault::Limit { limit, at }
}

#[tokio::test]
async fn key_bytes_and_value_bytes_are_exact() {
    for kind in KINDS {
        let store = Store::open(kind, Limits { key_bytes: 4, value_bytes: 8, ..Limits::default() });
        let kv = &store.kv;
        kv.create(b"1234", value(b"12345678"), None).await.unwrap();
        assert_eq!(kv.create(b"12345", value(b""), None).await, Err(limit(Limit::KeyBytes, 4)));
        assert_eq!(kv.create(b"k", value(b"123456789"), None).await, Err(limit(Limit::ValueBytes, 8)));
        assert_eq!(kv.update(b"1234", value(b"123456789"), None, None).await, Err(limit(Limit::ValueBytes, 8)));
        assert_eq!(kv.delete(b"12345", None).await, Err(limit(Limit::KeyBytes, 4)));
        assert_eq!(kv.watch(b"12345", Client::Unknown).unwrap_err(), limit(Limit::KeyBytes, 4));
        assert_eq!(store.value(b"1234").await.unwrap(), b"12345678");
    }
}

#[tokio::test]
async fn entries_are_refused_beyond_the_limit_and_none_is_evicted() {
    for kind in KINDS {
        let store = Store::open(kind, Limits { entries: 2, ..Limits::default() });
        let kv = &store.kv;
        kv.create(b"a", value(b"1"), None).await.unwrap();
        kv.create(b"b", value(b"1"), None).await.unwrap();
        assert_eq!(kv.create(b"c", value(b"1"), None).await, Err(limit(Limit::Entries, 2)));
        kv.update(b"a", value(b"2"), None, None).await.unwrap();
        assert_eq!((store.value(b"a").await.unwrap(), store.value(b"b").await.unwrap()), (b"2".into(), b"1".into()));
        kv.delete(b"a", None).await.unwrap();
        kv.create(b"c", value(b"1"), None).await.unwrap();
    }
}

#[tokio::test]
async fn total_bytes_are_counted_to_the_byte() {
    for kind in KINDS {
        let probe = Store::open(kind, Limits::default());
        probe.kv.create(b"key", value(&[7; 100]), None).await.unwrap();
        let one = probe.kv.levels().bytes;
        let store = Store::open(kind, Limits { total_bytes: 2 * one + 10, ..Limits::default() });
        let kv = &store.kv;
        kv.create(b"ke1", value(&[7; 100]), None).await.unwrap();
        assert_eq!(kv.create(b"ke2", value(&[7; 111]), None).await, Err(limit(Limit::TotalBytes, 2 * one + 10)));
        assert_eq!(kv.levels().entries, 1, "a refused entry takes no room");
        kv.create(b"ke2", value(&[7; 110]), None).await.unwrap();
        assert_eq!(kv.update(b"ke1", value(&[7; 101]), None, None).await, Err(limit(Limit::TotalBytes, 2 * one + 10)));
        assert_eq!(store.value(b"ke1").await.unwrap(), [7; 100]);
        kv.update(b"ke2", value(b""), None, None).await.unwrap();
        kv.update(b"ke1", value(&[7; 210]), None, None).await.unwrap();
        kv.delete(b"ke1", None).await.unwrap();
        kv.delete(b"ke2", None).await.unwrap();
        assert_eq!(kv.levels().bytes, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_hold_with_many_writers_at_once() {
    for kind in KINDS {
        let store = Store::open(kind, Limits { entries: 10, ..Limits::default() });
        let creates = (0..200u32).map(|number| {
            let kv = store.kv.clone();
            tokio::spawn(async move { kv.create(&number.to_be_bytes(), value(b"v"), None).await })
        });
        let done = join_all(creates).await.into_iter().filter(|done| done.as_ref().unwrap().is_ok()).count();
        assert_eq!((done, store.kv.levels().entries), (10, 10), "{kind:?}");
    }
}

#[tokio::test]
async fn pages_end_at_their_entries_and_at_their_bytes() {
    for kind in KINDS {
        let store = Store::open(kind, Limits { page_entries: 3, page_bytes: 250, ..Limits::default() });
        for key in [b"a", b"b", b"c", b"d"] {
            store.kv.create(key, value(&[7; 99]), None).await.unwrap();
        }
        let scan = async |entries, keys_only, stop_at: usize| {
            let mut seen = 0;
            let page = Scan { entries, keys_only, ..Scan::default() };
            let next = store.kv.scan(&page, |_, _| {
                seen += 1;
                if seen == stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            next.await.map(|next| (next.map(|key| key.to_vec()), seen))
        };
        assert_eq!(scan(4, true, 9).await, Err(limit(Limit::PageEntries, 3)));
        assert_eq!(scan(0, true, 9).await, Ok((Some(b"c".to_vec()), 3)), "0 asks for as many as there may be");
        assert_eq!(scan(3, false, 9).await, Ok((Some(b"b".to_vec()), 2)), "200 bytes are below the limit, 300 are not");
        assert_eq!(scan(3, true, 2).await, Ok((Some(b"b".to_vec()), 2)));
        store.kv.update(b"a", value(&[7; 999]), None, None).await.unwrap();
        assert_eq!(scan(3, false, 9).await, Ok((Some(b"a".to_vec()), 1)), "a page holds at least one entry");
    }
}

#[tokio::test]
async fn writes_beyond_the_queue_are_refused() {
    let limits = Limits { writes_queued: 1, ..Limits::default() };
    let store = Store::open((StoreKind::Concurrent, Durability::Log), limits);
    // On one thread all requests come before any answer, and the journal cannot keep up.
    let writes = join_all((0..5000u32).map(|number| {
        let kv = &store.kv;
        async move { kv.create(&number.to_be_bytes(), value(&[7; 4096]), None).await }
    }));
    let outcomes = writes.await;
    let refused = outcomes.iter().filter(|outcome| **outcome == Err(limit(Limit::WritesQueued, 1))).count();
    assert!(
        refused > 0 && outcomes.iter().all(|outcome| outcome.is_ok() || *outcome == Err(limit(Limit::WritesQueued, 1)))
    );
    assert_eq!(store.kv.levels().entries, outcomes.len() - refused);
}

#[test]
fn every_refusal_says_what_to_do() {
    for name in Limit::ALL {
        let said = limit(name, 7).to_string();
        assert!(said.starts_with(&format!("the server's limit kv.{} is 7: ", name.name())), "{said}");
    }
    assert!(Fault::Conflict(Version(7)).to_string().contains("has version 7"));
    assert!(Fault::Unavailable("stopping").to_string().contains("nothing was done"));
}
