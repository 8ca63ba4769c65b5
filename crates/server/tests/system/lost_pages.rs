//! Purchases on a disk whose fsyncs fail and lose what they were to write, and whose power is then cut: every
//! purchase that was acknowledged is there, once.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use bookstore::grpc::wire::{BuyBookReply, ItemNumberRequest, LogRequest, admin_client::AdminClient};
use rand_core::{RngCore as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::task::JoinSet;

use crate::common::{
    audit::Audit,
    lost_pages::LostPages,
    poll,
    process::{Server, Start},
    store::{folder_with, keyed},
};

const ROUNDS: u64 = 8;
const BUYERS: u64 = 48;
/// So many, and with titles so long, that a purchase changes a page that no other does, and that some hundred
/// commits fill the WAL up to its next checkpoint.
const BOOKS: i32 = 3000;
const TITLE: usize = 600;

type Bought = Vec<(ItemNumberRequest, BuyBookReply)>;

/// Purchases by all buyers of a round, and how many were acknowledged.
#[derive(Debug, Default)]
struct Rush {
    over: AtomicBool,
    acknowledged: AtomicU64,
}

impl Rush {
    /// Waits for so many purchases from now on.
    async fn more(&self, count: u64) {
        let goal = self.acknowledged.load(Ordering::Relaxed) + count;
        let reached = async || (self.acknowledged.load(Ordering::Relaxed) >= goal).then_some(());
        poll("purchases", reached).await;
    }
}

/// Buys, and sends what was not acknowledged again, until the rush is over.
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

/// Reads pages of the log, so that checkpoints find readers in their way.
async fn read(admin: AdminClient, rush: Arc<Rush>) -> Bought {
    while !rush.over.load(Ordering::Relaxed) {
        let _ = admin.log(LogRequest::default()).await;
    }
    Bought::new()
}

/// What a round's failures are, by its seed.
#[derive(Debug)]
struct Plan {
    suffix: &'static str,
    skip: u32,
    count: u32,
    keep: u32,
    /// The server is killed right after the failure and started again before the power is cut.
    killed_first: bool,
}

impl Plan {
    fn new(random: &mut Xoshiro256PlusPlus, round: u64) -> Self {
        let suffix = if round.is_multiple_of(2) { "bookstore.db-wal" } else { "bookstore.db" };
        let skip = if suffix.ends_with("wal") { random.next_u32() % 40 } else { 0 };
        let (count, keep) = (1 + random.next_u32() % 2, [0, 50][(random.next_u32() % 2) as usize]);
        Self { suffix, skip, count, keep, killed_first: random.next_u32().is_multiple_of(3) }
    }
}

fn crowd(tasks: &mut JoinSet<Bought>, server: &Arc<Server>, rush: &Arc<Rush>, random: &mut Xoshiro256PlusPlus) {
    let seed = random.next_u64();
    for place in 0..BUYERS {
        let own = Xoshiro256PlusPlus::seed_from_u64(seed ^ place);
        tasks.spawn(buy(Arc::clone(server), Arc::clone(rush), format!("{seed:x} {place}"), own));
    }
    tasks.spawn(read(server.admin(), Arc::clone(rush)));
}

/// Kills the server and gathers what its buyers were told.
async fn kill(server: Arc<Server>, rush: &Rush, mut tasks: JoinSet<Bought>) -> Bought {
    server.signal("KILL");
    rush.over.store(true, Ordering::Relaxed);
    let mut bought = Bought::new();
    while let Some(told) = tasks.join_next().await {
        bought.extend(told.expect("a buyer ends"));
    }
    Arc::into_inner(server).expect("no buyer is left").kill();
    bought
}

async fn round(folder: &std::path::Path, disk: &LostPages, plan: &Plan, random: &mut Xoshiro256PlusPlus) -> Bought {
    let (server, rush) = (Arc::new(Start::default().on(disk).serve(folder)), Arc::new(Rush::default()));
    let mut tasks = JoinSet::new();
    crowd(&mut tasks, &server, &rush, random);
    rush.more(200).await;
    disk.fail(plan.suffix, plan.skip, plan.count, plan.keep);
    poll("the failures", async || (disk.failures_left() == 0).then_some(())).await;
    if !plan.killed_first {
        rush.more(800).await;
        return kill(server, &rush, tasks).await;
    }
    let mut bought = kill(server, &rush, tasks).await;
    // Reads the WAL first and stays, so that no one closes the file as the last one and empties the WAL on that occasion.
    let mut bystander = Start::default().on(disk).serve(folder);
    let (server, rush) = (Arc::new(Start::default().on(disk).serve(folder)), Arc::new(Rush::default()));
    let mut tasks = JoinSet::new();
    crowd(&mut tasks, &server, &rush, random);
    rush.more(800).await;
    bought.extend(kill(server, &rush, tasks).await);
    bystander.kill();
    bought
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_after_a_failed_fsync_survives_a_power_cut() {
    let title = "x".repeat(TITLE);
    let rows: String = (1..=BOOKS).map(|id| format!("{id},{title},topic {},100000,1.00\n", id % 50)).collect();
    let folder = folder_with(&rows);
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
        bought.iter().for_each(|(wish, reply)| audit.holds(wish, reply));
        server.stop();
    }
}
