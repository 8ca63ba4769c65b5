//! The store's files are moved, replaced or removed under a store that is open.

use std::{fs, path::Path};

use kv::{Durability, Fault, KeyValue, Limits, StoreKind};

use super::{Store, value};

/// A write is not acknowledged, nor is a later one, and operators see this reason.
async fn refuses(kv: &KeyValue, named: &str) {
    kv.create(b"lost", value(b"v"), None).await.expect_err("the files are not in their place");
    let mut healthy = kv.healthy();
    healthy.wait_for(|healthy| !*healthy).await.expect("a journal");
    let fault = kv.create(b"refused", value(b"v"), None).await.expect_err("the journal has failed");
    assert!(matches!(fault, Fault::Unavailable(_)), "{fault}");
    while !kv.trouble().expect("a trouble").contains(named) {
        tokio::task::yield_now().await;
    }
}

/// The newest file of the log.
fn log(folder: &Path) -> std::path::PathBuf {
    let files = fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file").path());
    files.filter(|path| path.extension().is_some_and(|is| is == "jnl")).max().expect("a log")
}

#[tokio::test]
async fn nothing_is_acknowledged_while_the_files_are_not_where_they_were_opened() {
    let mut store = Store::open((StoreKind::Concurrent, Durability::Log), Limits::default());
    let folder = store.folder.path().to_owned();
    let away = tempfile::tempdir().expect("a folder");
    let away = away.path().join("away");
    store.kv.create(b"0", value(b"v"), None).await.expect("created");

    fs::rename(&folder, &away).expect("moved");
    refuses(&store.kv, "lock was deleted or moved").await;
    fs::create_dir(&folder).expect("a folder");
    for file in ["lock", "version"] {
        fs::copy(away.join(file), folder.join(file)).expect("copied");
    }
    refuses(&store.kv, "lock was replaced by another file").await;
    fs::remove_dir_all(&folder).expect("removed");
    fs::rename(&away, &folder).expect("moved back");
    store.kv.healthy().wait_for(|healthy| *healthy).await.expect("a journal");
    store.kv.create(b"1", value(b"v"), None).await.expect("created");

    let log = log(&folder);
    fs::rename(&log, &away).expect("moved");
    refuses(&store.kv, "jnl was deleted or moved").await;
    fs::rename(&away, &log).expect("moved back");
    store.kv.healthy().wait_for(|healthy| *healthy).await.expect("a journal");
    store.kv.create(b"2", value(b"v"), None).await.expect("created");

    store.reopen();
    for key in [b"0", b"1", b"2"] {
        assert!(store.value(key).await.is_some(), "{key:?}");
    }
}
