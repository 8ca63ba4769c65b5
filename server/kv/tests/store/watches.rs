//! Watchers get every change in order, and are cut off rather than waited for.

use std::time::Duration;

use hosting::Client;
use kv::{Event, EventKind, Fault, Limit, Limits, Watch};

use super::{KINDS, Store, value};

async fn told(watch: &mut Watch, count: usize) -> Vec<(EventKind, String, Vec<u8>)> {
    let mut told = Vec::new();
    for _ in 0..count {
        let Event { kind, key, value, .. } = watch.next().await.expect("an event").expect("no fault");
        told.push((kind, String::from_utf8(key.to_vec()).unwrap(), value.to_vec()));
    }
    told
}

#[tokio::test]
async fn a_watcher_is_told_of_each_change_to_its_keys_in_order() {
    use EventKind::{Deleted, Expired, Put};
    for kind in KINDS {
        let store = Store::open(kind, Limits::default());
        let kv = &store.kv;
        let mut watch = kv.watch(b"a", Client::Unknown).unwrap();
        kv.create(b"a1", value(b"1"), None).await.unwrap();
        kv.create(b"b", value(b"1"), None).await.unwrap();
        assert!(kv.create(b"a1", value(b"refused"), None).await.is_err());
        kv.update(b"a1", value(b"2"), None, None).await.unwrap();
        kv.delete(b"a1", None).await.unwrap();
        kv.delete(b"a1", None).await.unwrap();
        kv.create(b"a2", value(b"3"), Some(Duration::from_secs(1))).await.unwrap();
        store.pass(1000);
        kv.sweep().await;
        kv.create(b"a3", value(b"4"), Some(Duration::from_secs(1))).await.unwrap();
        store.pass(1000);
        kv.create(b"a3", value(b"5"), None).await.unwrap();
        let event = |kind, key: &str, value: &[u8]| (kind, key.to_owned(), value.to_vec());
        let expected = vec![
            event(Put, "a1", b"1"),
            event(Put, "a1", b"2"),
            event(Deleted, "a1", b""),
            event(Put, "a2", b"3"),
            event(Expired, "a2", b""),
            event(Put, "a3", b"4"),
            event(Expired, "a3", b""),
            event(Put, "a3", b"5"),
        ];
        assert_eq!(told(&mut watch, expected.len()).await, expected, "{kind:?}");
    }
}

#[tokio::test]
async fn a_watcher_that_does_not_keep_up_is_cut_off_and_told_why() {
    for kind in KINDS {
        let limits = Limits { watch_events: 3, watch_bytes: 10_000, ..Limits::default() };
        let store = Store::open(kind, limits);
        let (mut slow, mut quick) =
            (store.kv.watch(b"", Client::Unknown).unwrap(), store.kv.watch(b"", Client::Unknown).unwrap());
        for number in 0..4u8 {
            store.kv.create(&[number], value(b"v"), None).await.unwrap();
            told(&mut quick, 1).await;
        }
        let fault = slow.next().await.unwrap().unwrap_err();
        assert_eq!(fault, Fault::Limit { limit: Limit::WatchEvents, at: 3 });
        assert_eq!((slow.next().await, store.kv.levels().watchers), (None, 1));
        store.kv.create(b"large", value(&[7; 10_000]), None).await.unwrap();
        let fault = quick.next().await.unwrap().unwrap_err();
        assert_eq!(fault, Fault::Limit { limit: Limit::WatchBytes, at: 10_000 });
        assert_eq!(store.kv.levels().watchers, 0);
    }
}

#[tokio::test]
async fn watchers_are_limited_and_make_room_when_they_go() {
    let store = Store::open(KINDS[2], Limits { watchers: 2.into(), ..Limits::default() });
    let first = store.kv.watch(b"", Client::Unknown).unwrap();
    let _second = store.kv.watch(b"", Client::Unknown).unwrap();
    assert_eq!(store.kv.watch(b"", Client::Unknown).unwrap_err(), Fault::Limit { limit: Limit::Watchers, at: 2 });
    drop(first);
    assert!(store.kv.watch(b"", Client::Unknown).is_ok());
}

#[tokio::test]
async fn the_end_of_the_service_ends_every_watch_after_its_last_event() {
    for kind in KINDS {
        let store = Store::open(kind, Limits::default());
        let mut watch = store.kv.watch(b"", Client::Unknown).unwrap();
        store.kv.create(b"k", value(b"v"), None).await.unwrap();
        store.kv.end_watches();
        assert_eq!(told(&mut watch, 1).await.len(), 1);
        assert_eq!(watch.next().await, None);
    }
}
