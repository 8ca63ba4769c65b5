//! Stores of earlier releases, of each schema that one had: opened, migrated, sold from and verified by this one.

use std::{
    fs::{self, File},
    path::Path,
};

use bookstore::grpc::wire::{BuyOutcome, ItemNumberRequest};
use flate2::read::GzDecoder;
use kv::grpc::wire::{RetrieveRequest, key_value_service_client::KeyValueServiceClient};
use tempfile::TempDir;

use crate::common::{
    process::{self, Start},
    store::{folder, keyed, one, other_program},
};

/// A folder with the store that a release made, `data`, and its backup.
fn made_by_schema(schema: i64) -> TempDir {
    let folder = folder();
    let file = format!("{}/tests/fixtures/schema-{schema}.tar.gz", env!("CARGO_MANIFEST_DIR"));
    let file = File::open(file).expect("a fixture");
    tar::Archive::new(GzDecoder::new(file)).unpack(folder.path()).expect("a store");
    folder
}

/// Verifies the store in `data`.
#[track_caller]
fn verify(folder: &Path) -> String {
    let output = process::run(folder, &["verify", "--data", "data"], "");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("nothing is wrong"), "{output:?}");
    said
}

/// Plan of the next start's migration.
#[track_caller]
fn plan(folder: &Path) -> String {
    let output = process::run(folder, &["migrate", "--dry-run", "--from", "sqlite:data/bookstore.db"], "");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Checks that the folder's store has what the releases sold, and that this one sells from it.
async fn goes_on(folder: &Path, schema: i64) {
    let server = Start::default().set("kv.durability=log").serve(folder);
    let said = server.log.text();
    assert!(said.contains(&format!("\"from\":{schema},\"to\":{}", bookstore::store::VERSION)), "{said}");
    let shop = server.shop();
    for (id, key, quantity, number, outcome) in [
        (53477, "first", Some(3), 5, BuyOutcome::Bought),
        (53477, "second", Some(2), 6, BuyOutcome::Bought),
        (12498, "all", Some(1000), 8, BuyOutcome::Bought),
        (12498, "late", None, 9, BuyOutcome::SoldOut),
    ] {
        let reply = shop.buy(ItemNumberRequest { quantity, ..keyed(id, key) }).await.expect("an answer").into_inner();
        assert_eq!(
            (reply.replayed, reply.purchase_number, reply.outcome()),
            (true, number, outcome),
            "{key}: {reply:?}"
        );
    }
    for (id, stock, cents) in [(53477, 995, 5995), (12365, 995, 2999), (53573, 1000, 1234)] {
        let book = shop.lookup(one(id)).await.expect("an answer").into_inner().book.expect("a book");
        assert_eq!((book.stock, book.price_cents), (stock, cents), "{book:?}");
    }
    let is_listed = shop.lookup(one(12498)).await.expect("an answer").into_inner().book.is_some();
    assert_eq!(is_listed, schema < 3, "delisted, where a release could do that");
    let keys = KeyValueServiceClient::new(server.channel());
    let retrieve = |key: &str| {
        keys.retrieve(RetrieveRequest { key: key.as_bytes().to_vec().into(), ..RetrieveRequest::default() })
    };
    assert_eq!(&retrieve("a").await.expect("an entry").into_inner().value[..], b"two");
    retrieve("b").await.expect_err("it was deleted");
    let next = shop.buy(keyed(53477, "next")).await.expect("an answer").into_inner();
    assert_eq!((next.stock_left, next.replayed), (Some(994), false), "{next:?}");
    server.stop();
    let entries = if schema < 3 { 13 } else { 14 };
    assert!(verify(folder).contains(&format!("{entries} log entries, 4 books")));
    let version: i64 = other_program(folder).query_row("PRAGMA user_version", (), |row| row.get(0)).expect("a version");
    assert_eq!(version, bookstore::store::VERSION);
}

#[tokio::test]
async fn a_store_of_every_earlier_schema_is_migrated_and_keeps_stock_and_keys() {
    for schema in 1..bookstore::store::VERSION {
        let folder = made_by_schema(schema);
        // Before the first start, too.
        verify(folder.path());
        let shown = plan(folder.path());
        let next = format!("the next start migrates it to schema {}; nothing was changed\n", bookstore::store::VERSION);
        assert!(
            shown.starts_with(&format!("the file, of schema {schema}, holds 4 books")) && shown.ends_with(&next),
            "{shown}"
        );
        assert_eq!(plan(folder.path()), shown, "nothing was changed");
        goes_on(folder.path(), schema).await;
        let shown = plan(folder.path());
        assert!(shown.ends_with("the next start migrates nothing: the schema is this program's\n"), "{shown}");
    }
}

#[tokio::test]
async fn a_backup_of_every_earlier_schema_is_restored() {
    for schema in 1..bookstore::store::VERSION {
        let folder = made_by_schema(schema);
        fs::remove_dir_all(folder.path().join("data")).expect("the folder");
        let restored = process::run(folder.path(), &["restore", "old.backup", "--data", "data"], "");
        assert!(restored.status.success(), "{restored:?}");
        goes_on(folder.path(), schema).await;
    }
}
