//! `quire backup` while a server sells, `quire restore` into a new folder, and their errors.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Output,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bookstore::grpc::wire::{BuyBookReply, ItemNumberRequest, RestockRequest};
use kv::grpc::wire::{CreateRequest, RetrieveRequest, key_value_service_client::KeyValueServiceClient};

use crate::common::{
    audit::Audit,
    disk::SmallDisk,
    process::{self, Server, Start},
    store::{BOOKS, folder, import, keyed, other_program},
};

fn quire(folder: &Path, arguments: &[&str]) -> Output {
    process::run(folder, arguments, "")
}

fn done(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The one-line error of a command that must fail.
fn refusal(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.lines().count() == 1, "{output:?}");
    said
}

fn backup(folder: &Path) -> String {
    done(&quire(folder, &["backup", "store.backup", "--data", "data"]))
}

fn restore(folder: &Path, data: &str) -> Output {
    quire(folder, &["restore", "store.backup", "--data", data])
}

/// All names in a folder, leftovers included.
fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name().into_string().expect("text");
    let mut names: Vec<String> = fs::read_dir(folder).expect("a folder").map(name).collect();
    names.sort();
    names
}

fn with_kv() -> Start {
    Start::default().set("kv.durability=log")
}

async fn create(server: &Server, number: usize) {
    let key = format!("key {number:05}").into_bytes().into();
    let value = format!("value {number}").into_bytes().into();
    let request = CreateRequest { key, value, ..CreateRequest::default() };
    KeyValueServiceClient::new(server.channel()).create(request).await.expect("created");
}

async fn value(server: &Server, number: usize) -> Option<String> {
    let key = format!("key {number:05}").into_bytes().into();
    let reply =
        KeyValueServiceClient::new(server.channel()).retrieve(RetrieveRequest { key, ..Default::default() }).await;
    Some(String::from_utf8_lossy(&reply.ok()?.get_ref().value).into_owned())
}

type Bought = Vec<(ItemNumberRequest, BuyBookReply)>;

/// Buys until `stop` is set.
async fn buyer(server: &Server, name: usize, stop: Arc<AtomicBool>) -> Bought {
    let (shop, mut bought) = (server.shop(), Bought::new());
    while !stop.load(Ordering::Relaxed) {
        let wish = keyed(BOOKS[bought.len() % 4], &format!("buyer {name}, purchase {}", bought.len()));
        let reply = shop.buy(wish.clone()).await.expect("an answer").into_inner();
        bought.push((wish, reply));
    }
    bought
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_beside_a_server_that_sells_holds_all_that_was_acknowledged_before() {
    let folder = folder();
    let server = Arc::new(with_kv().serve(folder.path()));
    server.admin().restock(RestockRequest { amount: Some(1_000_000), id: None }).await.expect("restocked");
    let mut before = Bought::new();
    for number in 0..500 {
        let wish = keyed(BOOKS[number % 4], &format!("before {number}"));
        before.push((wish.clone(), server.shop().buy(wish).await.expect("an answer").into_inner()));
        if number < 100 {
            create(&server, number).await;
        }
    }
    let stop = Arc::new(AtomicBool::new(false));
    let buyers: Vec<_> = (0..4)
        .map(|name| {
            let (server, stop) = (Arc::clone(&server), Arc::clone(&stop));
            tokio::spawn(async move { buyer(&server, name, stop).await })
        })
        .collect();
    let path = folder.path().to_owned();
    let said = tokio::task::spawn_blocking(move || {
        backup(&path);
        done(&quire(&path, &["backup", "store.backup", "--data", "data", "--force"]))
    });
    let said = said.await.expect("a backup");
    stop.store(true, Ordering::Relaxed);
    let mut during = 0;
    for buyer in buyers {
        during += buyer.await.expect("a buyer").len();
    }
    assert!(during > 0, "no one bought meanwhile");
    assert!(said.contains("4 books") && said.contains("100 key-value entries"), "{said}");
    assert_eq!(fs::metadata(folder.path().join("store.backup")).expect("a file").permissions().mode() & 0o777, 0o600);
    assert_eq!(names(folder.path()), ["data", "store.backup"]);

    done(&restore(folder.path(), "new/data"));
    assert_eq!(names(&folder.path().join("new")), ["data"]);
    assert_eq!(names(&folder.path().join("new/data")), ["bookstore.db", "kv"]);
    let restored = with_kv().serve(&folder.path().join("new"));
    let audit = Audit::of(&restored).await;
    let sold: i64 = (audit.entries.iter()).filter_map(|entry| entry.quantity).map(i64::from).sum();
    let left: i64 = audit.books.iter().map(|book| i64::from(book.stock)).sum();
    assert_eq!(left + sold, 4_000_000, "stock and what was sold are what there was");
    for (wish, reply) in &before {
        audit.holds(wish, reply);
    }
    for number in 0..100 {
        assert_eq!(value(&restored, number).await, Some(format!("value {number}")));
    }
    // A key answered before the backup gets the same answer after it.
    let (wish, reply) = &before[7];
    let again = restored.shop().buy(wish.clone()).await.expect("an answer").into_inner();
    assert_eq!(again, BuyBookReply { replayed: true, message: again.message.clone(), ..reply.clone() });
    create(&restored, 100).await;
}

#[tokio::test]
async fn a_backup_without_a_server_holds_the_folder() {
    let folder = folder();
    let server = with_kv().serve(folder.path());
    server.shop().buy(keyed(BOOKS[0], "mine")).await.expect("an answer");
    create(&server, 1).await;
    server.stop();
    let said = backup(folder.path());
    assert!(said.contains("4 books with 3999 copies, 1 copies sold") && said.contains("1 key-value entries"), "{said}");
    assert_eq!(names(folder.path()), ["data", "store.backup"]);
    // tar and sha256sum can read it.
    let check = "tar xf ../store.backup && sha256sum --quiet --check SHA256SUMS";
    fs::create_dir(folder.path().join("by hand")).expect("a folder");
    let judged =
        std::process::Command::new("sh").args(["-c", check]).current_dir(folder.path().join("by hand")).output();
    assert!(judged.expect("sh runs").status.success());
    fs::create_dir_all(folder.path().join("empty/data")).expect("a folder");
    done(&restore(folder.path(), "empty/data"));
    let restored = with_kv().serve(&folder.path().join("empty"));
    assert!(restored.shop().buy(keyed(BOOKS[0], "mine")).await.expect("an answer").into_inner().replayed);
    assert_eq!(value(&restored, 1).await.as_deref(), Some("value 1"));
}

#[tokio::test]
async fn the_token_of_the_configuration_opens_the_server() {
    let folder = folder();
    fs::write(folder.path().join("quire.toml"), "[admin]\ntoken = 'a token of some length'\n").expect("a file");
    let server = with_kv().serve(folder.path());
    create(&server, 1).await;
    assert!(backup(folder.path()).contains("1 key-value entries"));
    fs::remove_file(folder.path().join("quire.toml")).expect("it can go");
    let said = refusal(&quire(folder.path(), &["backup", "other.backup", "--data", "data"]));
    assert!(said.contains(&server.address.to_string()) && said.contains("Bearer TOKEN"), "{said}");
    assert_eq!(names(folder.path()), ["data", "store.backup"]);
    drop(server);
}

#[tokio::test]
async fn a_server_that_speaks_tls_is_asked_by_its_name() {
    let folder = folder();
    drop(super::probe::certificate(folder.path()));
    let server = with_kv().set("tls.certificate=cert.pem").set("tls.key=key.pem").serve(folder.path());
    let said = refusal(&quire(folder.path(), &["backup", "store.backup", "--data", "data"]));
    let url = format!("https://{}", server.address);
    assert!(
        said.contains(&url)
            && said.contains("it speaks TLS")
            && said.contains("not trusted")
            && said.contains("--ca FILE"),
        "{said}"
    );
    let trusting = ["backup", "store.backup", "--data", "data", "--server", &url, "--ca", "cert.pem"];
    assert!(done(&quire(folder.path(), &trusting)).contains("0 key-value entries"));
}

#[test]
fn nothing_is_overwritten_and_nothing_is_made_up() {
    let folder = folder();
    let said = refusal(&quire(folder.path(), &["backup", "store.backup", "--data", "data"]));
    assert!(said.contains("there is no data/bookstore.db"), "{said}");
    Server::start(folder.path()).stop();
    let said = backup(folder.path());
    assert!(
        said.contains("store.backup holds 4 books with 4000 copies, 0 copies sold, 4 log entries, as of"),
        "{said}"
    );
    let said = refusal(&quire(folder.path(), &["backup", "store.backup", "--data", "data"]));
    assert!(said.contains("store.backup exists; name another file, or replace it with --force"), "{said}");
    let said = refusal(&restore(folder.path(), "data"));
    assert!(said.contains("data is not empty; move it away"), "{said}");
    let said = refusal(&quire(folder.path(), &["backup", "nowhere/store.backup", "--data", "data"]));
    assert!(said.contains("cannot write into the folder nowhere"), "{said}");
    assert_eq!(names(folder.path()), ["data", "store.backup"]);
}

#[test]
fn a_damaged_backup_is_refused_and_leaves_nothing_behind() {
    let folder = folder();
    let server = with_kv().serve(folder.path());
    server.stop();
    backup(folder.path());
    let file = folder.path().join("store.backup");
    let whole = fs::read(&file).expect("a backup");
    let at = |part: &str| {
        let name = part.as_bytes();
        whole.windows(name.len()).position(|bytes| bytes == name).expect("the part's head") + 512
    };
    let refused = |bytes: &[u8], expected: &str| {
        fs::write(&file, bytes).expect("a file");
        let said = refusal(&restore(folder.path(), "new"));
        assert!(said.contains("store.backup: ") && said.contains(expected), "{said}");
        assert_eq!(names(folder.path()), ["data", "store.backup"]);
    };
    for part in ["bookstore.db", "kv.snapshot"] {
        let mut bytes = whole.clone();
        bytes[at(part) + 2] ^= 1;
        refused(&bytes, &format!("damaged: its part {part} is not what was written"));
    }
    let mut bytes = whole.clone();
    bytes[at("SHA256SUMS")] ^= 1;
    refused(&bytes, "damaged: its part manifest.json is not what was written");
    let newer = String::from_utf8_lossy(&whole[at("manifest.json")..][..512]).replace("\"format\": 1", "\"format\": 2");
    let mut bytes = whole.clone();
    bytes[at("manifest.json")..][..512].copy_from_slice(newer.as_bytes());
    refused(&bytes, "it has format 2, and this program knows format 1; use a newer quire");
    refused(&whole[..at("SHA256SUMS") - 512], "damaged: its end is missing");
    refused(&whole[..whole.len() / 2], "damaged: its end cannot be read");
    refused(b"", "this is no file that `quire backup` made");
    refused(b"id,title,topic,stock,price\n", "this is no file that `quire backup` made");
    fs::write(&file, &whole).expect("a file");
    done(&restore(folder.path(), "new"));
}

#[test]
fn a_disk_without_room_for_the_backup_is_told_and_nothing_is_left_on_it() {
    let Some(disk) = SmallDisk::mount(2) else { return };
    let folder = folder();
    let rows: Vec<_> = (100_000..120_000).map(|id| format!("{id},{},filler,1,1.00\n", "long ".repeat(30))).collect();
    assert!(import(folder.path(), rows.concat().as_bytes(), &[]).status.success());
    let file = disk.path().join("store.backup");
    let said = refusal(&quire(folder.path(), &["backup", file.to_str().expect("text"), "--data", "data"]));
    assert!(said.contains("cannot copy the store to") && said.contains("full"), "{said}");
    assert_eq!(names(disk.path()), [""; 0]);
}

#[test]
fn what_is_exported_and_imported_is_the_same_catalogue() {
    let folder = folder();
    Server::start(folder.path()).stop();
    let other = other_program(folder.path());
    for (id, title, topic) in
        [(7, "Quotes \"and\", commas", "a,b"), (8, "One \u{1f4d6} \"\"", "été"), (9, "'; DROP", "x")]
    {
        let sql = "INSERT INTO book (id, title, topic, stock, price_cents) VALUES (?1, ?2, ?3, 5, 1205)";
        other.execute(sql, (id, title, topic)).expect("the change is taken");
    }
    other.execute("DELETE FROM book WHERE id = 12365", ()).expect("the change is taken");
    drop(other);
    let first = quire(folder.path(), &["export", "--data", "data"]);
    let csv = done(&first);
    assert!(csv.starts_with("id,title,topic,stock,price\n7,\"Quotes \"\"and\"\", commas\",\"a,b\",5,12.05\n"), "{csv}");
    let imported = process::run(folder.path(), &["import", "-", "--no-sample", "--data", "copy"], &csv);
    assert!(done(&imported).contains("6 books imported"), "{imported:?}");
    let said = done(&quire(folder.path(), &["export", "--data", "copy", "--out", "books.csv"]));
    assert_eq!(said, "6 books exported to books.csv\n");
    assert_eq!(fs::read_to_string(folder.path().join("books.csv")).expect("a file"), csv);
    let clash = process::run(folder.path(), &["import", "-", "--data", "third"], &csv);
    assert!(refusal(&clash).contains("12498 is the id of a book that is there already"));
    let said = refusal(&quire(folder.path(), &["export", "--data", "nowhere"]));
    assert!(said.contains("there is no nowhere/bookstore.db; name the folder of a store with --data"), "{said}");
    assert_eq!(names(folder.path()), ["books.csv", "copy", "data", "third"]);
}
