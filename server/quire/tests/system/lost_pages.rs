//! Purchases on a disk whose failed fsyncs lose data, followed by a power cut: every acknowledged purchase exists
//! exactly once.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bookstore::grpc::wire::{BuyBookReply, ItemNumberRequest, LogRequest, admin_client::AdminClient};
use rand_core::{RngCore as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use rusqlite::{Connection, OpenFlags};
use tokio::task::JoinSet;

use crate::common::{
    audit::Audit,
    lost_pages::LostPages,
    poll,
    process::{Server, Start},
    store::{database, folder_with, keyed},
};

/// Each file and time of a failure once.
const ROUNDS: u64 = 4;
const BUYERS: u64 = 48;
/// So many, with titles so long, that each purchase changes a page of its own, and some hundred commits fill the WAL up
/// to its next checkpoint.
const BOOKS: i32 = 3000;
const TITLE: usize = 600;

type Bought = Vec<(ItemNumberRequest, BuyBookReply)>;

/// Counts of all purchases of a round and of those acknowledged.
#[derive(Debug, Default)]
struct Rush {
    over: AtomicBool,
    acknowledged: AtomicU64,
}

impl Rush {
    /// Waits for this many more purchases.
    async fn more(&self, count: u64) {
        let goal = self.acknowledged.load(Ordering::Relaxed) + count;
        let reached = async || (self.acknowledged.load(Ordering::Relaxed) >= goal).then_some(());
        poll("purchases", reached).await;
    }
}

/// Buys, and retries unacknowledged purchases, until the rush is over.
async fn buy(server: Arc<Server>, rush: Arc<Rush>, name: String, mut random: Xoshiro256PlusPlus) -> Bought {
    let (shop, mut bought) = (server.shop(), Bought::new());
    for number in 0.. {
        let book = i32::try_from(random.next_u32() % BOOKS.unsigned_abs()).expect("an id") + 1;
        let wish = keyed(book, &format!("{name} {number}"));
        loop {
            if rush.over.load(Ordering::Relaxed) {
                return bought;
            }
            if let Ok(reply) = shop.buy(wish.clone()).await {
                rush.acknowledged.fetch_add(1, Ordering::Relaxed);
                bought.push((wish, reply.into_inner()));
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    bought
}

/// Reads pages of the log, so that readers obstruct checkpoints.
async fn read(admin: AdminClient, rush: Arc<Rush>) -> Bought {
    while !rush.over.load(Ordering::Relaxed) {
        let _ = admin.log(LogRequest::default()).await;
    }
    Bought::new()
}

/// Events of a round.
#[derive(Debug)]
struct Plan {
    suffix: &'static str,
    skip: u32,
    count: u32,
    keep: u32,
    /// Log pages are read all the time; otherwise the ledger's connection is the only one.
    readers: bool,
    /// The server is killed right after the failure, and restarted before the power cut.
    killed_first: bool,
}

impl Plan {
    fn new(random: &mut Xoshiro256PlusPlus, round: u64) -> Self {
        let (skip, keep) = (random.next_u32() % 40, [0, 50][(random.next_u32() % 2) as usize]);
        let log = Self { suffix: "bookstore.db-wal", skip, count: 1, keep, readers: true, killed_first: true };
        match round % 4 {
            // The second failure hits the checkpoint at which the ledger closes the file.
            0 => Self { count: 2, readers: false, killed_first: false, ..log },
            1 => log,
            2 => Self { suffix: "bookstore.db-head", killed_first: random.next_u32().is_multiple_of(2), ..log },
            _ => Self { suffix: "bookstore.db", skip: 0, killed_first: random.next_u32().is_multiple_of(2), ..log },
        }
    }
}

type Crowd = (Arc<Server>, Arc<Rush>, JoinSet<Bought>);

fn serve(folder: &Path, disk: &LostPages, plan: &Plan, random: &mut Xoshiro256PlusPlus) -> Crowd {
    let server = Arc::new(Start::default().on(disk).serve(folder));
    let (rush, mut tasks) = (Arc::new(Rush::default()), JoinSet::new());
    let seed = random.next_u64();
    for place in 0..BUYERS {
        let own = Xoshiro256PlusPlus::seed_from_u64(seed ^ place);
        tasks.spawn(buy(Arc::clone(&server), Arc::clone(&rush), format!("{seed:x} {place}"), own));
    }
    if plan.readers {
        tasks.spawn(read(server.admin(), Arc::clone(&rush)));
    }
    (server, rush, tasks)
}

/// Kills the server and collects its buyers' results.
async fn kill((server, rush, mut tasks): Crowd) -> Bought {
    server.signal("KILL");
    rush.over.store(true, Ordering::Relaxed);
    let mut bought = Bought::new();
    while let Some(told) = tasks.join_next().await {
        bought.extend(told.expect("a buyer ends"));
    }
    Arc::into_inner(server).expect("no buyer is left").kill();
    bought
}

async fn round(folder: &Path, disk: &LostPages, plan: &Plan, random: &mut Xoshiro256PlusPlus) -> Bought {
    let crowd = serve(folder, disk, plan, random);
    crowd.1.more(200).await;
    disk.fail(plan.suffix, plan.skip, plan.count, plan.keep);
    poll("the failures", async || (disk.failures_left() == 0).then_some(())).await;
    if !plan.killed_first {
        crowd.1.more(800).await;
        return kill(crowd).await;
    }
    let mut bought = kill(crowd).await;
    // Another program keeps the WAL open, so that no connection of the server is the last to close the file, which
    // would empty the WAL. Read-only, so it does not do so itself.
    let observer = Connection::open_with_flags(database(folder), OpenFlags::SQLITE_OPEN_READ_ONLY).expect("it opens");
    observer.query_row("SELECT count(*) FROM book", (), |_| Ok(())).expect("the books are read");
    let crowd = serve(folder, disk, plan, random);
    crowd.1.more(800).await;
    bought.extend(kill(crowd).await);
    bought
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_after_a_failed_fsync_survives_a_power_cut() {
    let title = "x".repeat(TITLE);
    let rows: Vec<String> = (1..=BOOKS).map(|id| format!("{id},{title},topic {},100000,1.00\n", id % 50)).collect();
    let folder = folder_with(&rows.concat());
    let disk = LostPages::under(&folder.path().join("data"));
    let seed = std::env::var("LOST_PAGES_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let (mut random, mut bought) = (Xoshiro256PlusPlus::seed_from_u64(seed), Bought::new());
    for number in 0..ROUNDS {
        let plan = Plan::new(&mut random, number);
        bought.extend(round(folder.path(), &disk, &plan, &mut random).await);
        disk.power_cut();
        let server = Start::default().serve(folder.path());
        let audit = Audit::of(&server).await;
        eprintln!("round {number}, {plan:?}: {} purchases, {} log entries", bought.len(), audit.entries.len());
        let last = i64::try_from(audit.entries.len()).expect("a number");
        let lost = bought.iter().filter(|(_, reply)| reply.purchase_number > last).count();
        assert_eq!(lost, 0, "of {} acknowledged purchases", bought.len());
        for (wish, reply) in &bought {
            audit.holds(wish, reply);
        }
        server.stop();
    }
}
