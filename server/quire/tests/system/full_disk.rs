//! A full disk: clear errors, and purchases again once there is space.

use std::{fs, path::Path, process::Command, time::Instant};

use bookstore::grpc::wire::{BuyBookReply, ItemNumberRequest, RestockRequest};
use quire_rpc::{Code, Status};

use crate::common::{
    PATIENCE,
    audit::Audit,
    disk::SmallDisk,
    http, poll,
    process::{Server, Start},
    store::{BOOKS, folder, keyed},
    wait_for,
};

type Bought = Vec<(ItemNumberRequest, BuyBookReply)>;

/// Buys until the server fails; returns the request that failed, with its error.
async fn buy_until_full(server: &Server, bought: &mut Bought) -> (ItemNumberRequest, Status) {
    let deadline = Instant::now() + PATIENCE;
    let (shop, mut number) = (server.shop(), 0);
    loop {
        assert!(Instant::now() < deadline, "the disk does not fill up");
        let mut wave = tokio::task::JoinSet::new();
        for _ in 0..64 {
            number += 1;
            let wish = keyed(BOOKS[number % 4], &format!("{:>40} {number:>8}", std::process::id()));
            let shop = shop.clone();
            wave.spawn(async move { (wish.clone(), shop.buy(wish).await) });
        }
        let mut fault = None;
        for (wish, answer) in wave.join_all().await {
            match answer {
                Ok(reply) => bought.push((wish, reply.into_inner())),
                Err(status) => fault = Some((wish, status)),
            }
        }
        if let Some(fault) = fault {
            return fault;
        }
    }
}

/// Buys on the full disk until `/healthz` reports the store as unhealthy.
async fn unwell(server: &Server) {
    let address = server.address;
    poll("a health page that says no", async || {
        let fault = server.shop().buy(keyed(BOOKS[0], "while there is no room")).await;
        if let Err(status) = fault {
            understandable(&status);
        }
        let page = http::get(address, "/healthz");
        (page.status == 503).then(|| assert!(page.body.contains("purchases are refused"), "{page:?}"))
    })
    .await;
}

fn understandable(status: &Status) {
    let known = matches!(status.code(), Code::Internal | Code::Unavailable | Code::Unknown);
    let advice = status.message().contains("try again later") || status.message().contains("send it again");
    assert!(known && advice, "{status:?}");
}

/// Fills the disk, frees space, and buys again from the same server.
async fn recovers(server: Server, make_room: impl FnOnce()) {
    server.admin().restock(RestockRequest { amount: Some(10_000_000), id: None }).await.expect("restocked");
    let mut bought = Bought::new();
    let (wish, fault) = buy_until_full(&server, &mut bought).await;
    understandable(&fault);
    eprintln!("full after {} purchases: {:?} {}", bought.len(), fault.code(), fault.message());
    // Counted after its callers were answered.
    let failures = async || (http::metric(server.address, "quire_ledger_failures_total") >= 1).then_some(());
    poll("the failure in the metrics", failures).await;
    unwell(&server).await;
    // Reading still works.
    let book = server.shop().lookup(keyed(BOOKS[0], "")).await.expect("an answer").into_inner();
    assert!(book.success);
    make_room();
    let reply = poll("purchases after there is room", async || server.shop().buy(wish.clone()).await.ok()).await;
    bought.push((wish, reply.into_inner()));
    assert_eq!(http::get(server.address, "/healthz").status, 200);
    let failures = http::metric(server.address, "quire_ledger_failures_total");
    let logged = || u64::try_from(server.log.text().matches("the store failed").count()).expect("a number");
    wait_for("the failures in the log", || (logged() >= failures).then_some(()));
    assert_eq!(logged(), failures, "an outage is logged once, however often the store is looked for");
    let audit = Audit::of(&server).await;
    assert!(bought.iter().all(|(_, reply)| reply.success));
    for (wish, reply) in &bought {
        audit.holds(wish, reply);
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_told_and_purchases_go_on_once_there_is_room() {
    let Some(disk) = SmallDisk::mount(24) else { return };
    let server = Server::start(disk.path());
    let filler = disk.path().join("filler");
    fs::write(&filler, vec![1; 22 << 20]).expect("there is room for the filler");
    recovers(server, || fs::remove_file(filler).expect("the filler can go")).await;
}

fn fits_into(folder: &Path, kibibytes: u64) -> Server {
    // Blocks of `ulimit -f` are 512 bytes in a POSIX shell.
    let script = format!("trap '' XFSZ; ulimit -S -f {}; exec \"$@\"", kibibytes * 2);
    Start::default().inside(&script).serve(folder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_is_told_and_purchases_go_on_once_it_is_lifted() {
    if Command::new("prlimit").arg("--version").output().is_err() {
        eprintln!("left out: prlimit is not there to lift the quota");
        return;
    }
    let folder = folder();
    let server = fits_into(folder.path(), 1024);
    let id = server.id().to_string();
    recovers(server, move || {
        let lifted = Command::new("prlimit").args(["--pid", &id, "--fsize=unlimited"]).status();
        assert!(lifted.expect("prlimit runs").success());
    })
    .await;
}

#[test]
fn a_store_on_a_disk_that_cannot_be_written_is_refused_in_one_line() {
    let Some(disk) = SmallDisk::mount(8) else { return };
    Server::start(disk.path()).stop();
    disk.make_read_only();
    let ended = Start::default().command(disk.path()).output().expect("quire runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success());
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("bookstore.db cannot be written; make the file and its folder writable"), "{said}");
}
