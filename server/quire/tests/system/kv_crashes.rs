//! Key-value files after a crash, a bad disk or a lost page, and the whole server's reaction.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use kv::grpc::wire::{
    CreateRequest, RetrieveRequest, ScanRequest, SnapshotRequest, UpdateRequest, WatchRequest,
    key_admin_service_client::KeyAdminServiceClient, key_range_service_client::KeyRangeServiceClient,
    key_value_service_client::KeyValueServiceClient,
};
use quire_rpc::{
    Code,
    health::{HealthCheckRequest, HealthClient},
};
use rand_core::{RngCore as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::task::JoinSet;

use crate::common::{
    http,
    lost_pages::LostPages,
    poll,
    process::{Server, Start},
    store::{BOOK, folder, one},
};

fn durable() -> Start {
    Start::default().set("kv.durability=log")
}

fn client(server: &Server) -> KeyValueServiceClient {
    KeyValueServiceClient::new(server.channel())
}

async fn put(client: &KeyValueServiceClient, key: &str) {
    let request =
        CreateRequest { key: key.to_owned().into(), value: key.to_owned().into(), ..CreateRequest::default() };
    client.create(request).await.expect("created");
}

async fn has(client: &KeyValueServiceClient, key: &str) -> bool {
    let request = RetrieveRequest { key: key.to_owned().into(), want_details: false };
    match client.retrieve(request).await {
        Ok(reply) => reply.get_ref().value == key,
        Err(status) => {
            assert_eq!(status.code(), Code::NotFound, "{status}");
            false
        }
    }
}

/// The newest log file, with its content without trailing zeros.
fn log(folder: &Path) -> (PathBuf, Vec<u8>) {
    let files = fs::read_dir(folder.join("data/kv")).expect("the store's folder").flatten().map(|file| file.path());
    let newest = files.filter(|path| path.extension().is_some_and(|is| is == "jnl")).max().expect("a log");
    let mut bytes = fs::read(&newest).expect("the log");
    bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    (newest, bytes)
}

/// Makes the bytes after the last batch from a log with at least one batch.
type Tail = fn(&[u8]) -> Vec<u8>;

/// The path as the server prints it, with data folder `data`.
fn as_named(path: &Path) -> String {
    format!("data/kv/{}", path.file_name().expect("a name").display())
}

#[tokio::test]
async fn a_torn_end_of_the_log_is_cut_off_and_told_and_nothing_acknowledged_is_missing() {
    let folder = folder();
    let mut server = durable().serve(folder.path());
    for number in 0..10 {
        put(&client(&server), &format!("first {number}")).await;
    }
    server.kill();
    let torn: [(&str, Tail); 4] = [
        ("half a batch", |log| log[..60].to_vec()),
        ("a batch without its last byte", |log| log[..log.len() - 1].to_vec()),
        ("noise", |_| vec![0xa5; 5000]),
        ("zeros", |_| vec![0; 100_000]),
    ];
    for (life, (what, tail)) in torn.into_iter().enumerate() {
        let (path, bytes) = log(folder.path());
        let tail = tail(&bytes);
        fs::write(&path, [&bytes[..], &tail].concat()).expect("written");
        let mut server = durable().serve(folder.path());
        let said = server.log.text();
        let told = said.lines().find(|line| line.contains("never acknowledged"));
        if what == "zeros" {
            assert_eq!(told, None, "{what}");
        } else {
            let told = told.unwrap_or_else(|| panic!("{what}: {said}"));
            assert!(told.contains(&as_named(&path)), "{what}: {told}");
            assert!(told.contains(&format!("\"bytes\":{}", tail.len())), "{what}: {told}");
        }
        for number in 0..10 {
            assert!(has(&client(&server), &format!("first {number}")).await, "{what}: {number}");
        }
        for earlier in 0..life {
            assert!(has(&client(&server), &format!("life {earlier}")).await, "{what}: written in life {earlier}");
        }
        put(&client(&server), &format!("life {life}")).await;
        server.kill();
    }
}

#[tokio::test]
async fn damage_stops_the_key_value_service_alone_and_is_named_everywhere() {
    let folder = folder();
    let mut server = durable().serve(folder.path());
    for number in 0..10 {
        put(&client(&server), &format!("key {number}")).await;
    }
    server.kill();
    let (path, intact) = log(folder.path());
    let mut damaged = intact.clone();
    let place = damaged.windows(5).position(|window| window == b"key 4").expect("the key is in the log");
    damaged[place] ^= 1;
    fs::write(&path, &damaged).expect("written");

    let server = durable().serve(folder.path());
    let named = |said: &str| {
        let path = as_named(&path);
        assert!(said.contains(&path) && said.contains("damaged at byte") && said.contains("keep a copy"), "{said}");
    };
    let channel = server.channel();
    let (range, admin) = (KeyRangeServiceClient::new(channel.clone()), KeyAdminServiceClient::new(channel.clone()));
    let update = UpdateRequest { key: "key 4".into(), ..UpdateRequest::default() };
    let refusals = [
        client(&server).retrieve(RetrieveRequest { key: "key 4".into(), want_details: false }).await.map(drop),
        client(&server).update(update).await.map(drop),
        range.scan(ScanRequest::default()).await.map(drop),
        range.watch(WatchRequest::default()).await.map(drop),
        admin.snapshot(SnapshotRequest {}).await.map(drop),
    ];
    for refusal in refusals {
        let status = refusal.expect_err("the store is damaged");
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        named(status.message());
    }
    let page = http::get(server.address, "/healthz");
    assert_eq!(page.status, 503);
    named(&page.body);
    named(&server.log.text());
    assert_eq!(http::metric(server.address, "quire_kv_healthy"), 0);
    let health = HealthClient::new(channel);
    for (service, status) in
        [("io.grpc.KeyValueService", "NotServing"), ("", "Serving"), ("bookstore.BookStore", "Serving")]
    {
        let reply = health.check(HealthCheckRequest { service: service.to_owned() }).await.expect("health");
        assert_eq!(format!("{:?}", reply.get_ref().status()), status, "{service}");
    }
    assert!(server.shop().buy(one(BOOK)).await.expect("the bookstore runs").get_ref().success);
    server.stop();
    assert!(fs::read(&path).expect("the log") == damaged, "nothing was changed");

    fs::write(&path, &intact).expect("written");
    let server = durable().serve(folder.path());
    for number in 0..10 {
        assert!(has(&client(&server), &format!("key {number}")).await, "{number}");
    }
    server.stop();
}

#[tokio::test]
async fn a_store_of_another_format_is_left_as_it_is_and_named_with_what_to_do() {
    let folder = folder();
    let mut server = durable().serve(folder.path());
    put(&client(&server), "key").await;
    server.kill();
    let ((log, content), version) = (log(folder.path()), folder.path().join("data/kv/version"));
    // A batch of another format, which this program would cut off as torn.
    fs::write(&log, [&*content, b"\x01newer"].concat()).expect("written");
    let intact = (fs::read(&log).expect("the log"), fs::read(&version).expect("the header"));
    let of_format = |number: u8| [b"FJL", &[number][..], &intact.1[4..]].concat();
    for number in [4, 2, 3] {
        let (header, is_other) = (of_format(number), number != 3);
        fs::write(&version, &header).expect("written");
        let server = durable().serve(folder.path());
        let page = http::get(server.address, "/healthz");
        let wanted = format!(
            "data/kv has format version {number}, and this program reads version 3; use the release that made it, or \
             restore a backup"
        );
        let expected = (if is_other { 503 } else { 200 }, is_other);
        assert_eq!((page.status, page.body.contains(&wanted)), expected, "{page:?}");
        if is_other {
            assert!(fs::read(&log).expect("the log") == intact.0, "nothing was cut off");
            assert!(fs::read(&version).expect("the header") == header);
        } else {
            assert!(has(&client(&server), "key").await);
        }
        server.stop();
    }
}

#[tokio::test]
async fn a_failed_flush_of_the_first_start_costs_nothing_at_a_power_cut() {
    let folder = folder();
    let disk = LostPages::under(&folder.path().join("data"));
    disk.fail("kv/version", 0, 1, 0);
    durable().on(&disk).serve(folder.path()).stop();
    assert_eq!(disk.failures_left(), 0);
    let mut server = durable().on(&disk).serve(folder.path());
    put(&client(&server), "key").await;
    server.kill();
    disk.power_cut();
    let server = durable().serve(folder.path());
    assert!(has(&client(&server), "key").await);
    server.stop();
}

const ROUNDS: u64 = 6;
const WRITERS: u64 = 16;
const KEYS_EACH: u64 = 4;

/// A key's state as known by its only writer: numbers of its values.
#[derive(Clone, Debug, Default)]
struct Known {
    acknowledged: u64,
    /// Values written later, with unknown outcome.
    doubtful: Vec<u64>,
}

type Keys = HashMap<String, Known>;

/// Counts of all writes of a round and of those acknowledged.
#[derive(Debug, Default)]
struct Rush {
    over: AtomicBool,
    acknowledged: AtomicU64,
}

impl Rush {
    /// Waits for this many more writes.
    async fn more(&self, count: u64) {
        let goal = self.acknowledged.load(Relaxed) + count;
        poll("writes", async || (self.acknowledged.load(Relaxed) >= goal).then_some(())).await;
    }
}

/// A value that begins with its number.
fn numbered(number: u64, bytes: usize) -> Vec<u8> {
    [&number.to_le_bytes()[..], &vec![7; bytes]].concat()
}

async fn number_of(client: &KeyValueServiceClient, key: &str) -> u64 {
    let reply = client.retrieve(RetrieveRequest { key: key.to_owned().into(), want_details: false }).await;
    let value = reply.expect("every key is there").into_inner().value;
    assert!(value[8..].iter().all(|byte| *byte == 7), "{key} has a value that someone wrote");
    value.first_chunk().map(|number| u64::from_le_bytes(*number)).expect("a number")
}

/// Updates its own keys until the rush is over.
async fn write(client: KeyValueServiceClient, rush: Arc<Rush>, mut keys: Keys, mut random: Xoshiro256PlusPlus) -> Keys {
    let names: Vec<String> = keys.keys().cloned().collect();
    while !rush.over.load(Relaxed) {
        let name = &names[(random.next_u64() % KEYS_EACH) as usize];
        let known = keys.get_mut(name).expect("a key");
        let number = known.doubtful.last().copied().unwrap_or(known.acknowledged) + 1;
        let value = numbered(number, [10, 1000, 30_000][(random.next_u64() % 3) as usize]);
        let request = UpdateRequest { key: name.clone().into(), value: value.into(), ..UpdateRequest::default() };
        known.doubtful.push(number);
        match client.update(request).await {
            Ok(_) => {
                *known = Known { acknowledged: number, doubtful: Vec::new() };
                rush.acknowledged.fetch_add(1, Relaxed);
            }
            // The outcome of a call cut off by the server's end is unknown.
            Err(status) if status.message().contains("nothing was done") => {
                known.doubtful.pop();
            }
            Err(_) => {}
        }
    }
    keys
}

/// A server under load.
struct Loaded {
    server: Server,
    rush: Arc<Rush>,
    writers: JoinSet<Keys>,
}

impl Loaded {
    fn new(server: Server, keys: Vec<Keys>, random: &mut Xoshiro256PlusPlus) -> Self {
        let (rush, mut writers) = (Arc::new(Rush::default()), JoinSet::new());
        for keys in keys {
            let random = Xoshiro256PlusPlus::seed_from_u64(random.next_u64());
            writers.spawn(write(client(&server), Arc::clone(&rush), keys, random));
        }
        Self { server, rush, writers }
    }

    async fn kill(mut self) -> Vec<Keys> {
        self.server.kill();
        self.rush.over.store(true, Relaxed);
        self.writers.join_all().await
    }
}

/// Checks the entries; a value once read counts as acknowledged. Returns how many doubtful values exist.
async fn audit(client: &KeyValueServiceClient, keys: &mut [Keys], what: &str) -> usize {
    let mut happened = 0;
    for (name, known) in keys.iter_mut().flatten() {
        let found = number_of(client, name).await;
        assert!(
            found == known.acknowledged || known.doubtful.contains(&found),
            "{what}: {name} has {found}, not {known:?}"
        );
        happened += usize::from(found != known.acknowledged);
        *known = Known { acknowledged: found, doubtful: Vec::new() };
    }
    happened
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_or_read_after_a_failed_fsync_survives_a_power_cut() {
    let folder = folder();
    let disk = LostPages::under(&folder.path().join("data"));
    let seed = std::env::var("LOST_PAGES_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let names = |writer| (0..KEYS_EACH).map(move |key| (format!("{writer}/{key}"), Known::default()));
    let mut keys: Vec<Keys> = (0..WRITERS).map(|writer| names(writer).collect()).collect();
    let server = durable().on(&disk).serve(folder.path());
    for name in keys.iter().flat_map(HashMap::keys) {
        let (key, value) = (name.clone().into(), numbered(0, 10).into());
        client(&server).create(CreateRequest { key, value, ..CreateRequest::default() }).await.expect("created");
    }
    server.stop();
    for round in 0..ROUNDS {
        let keep = [0, 50, 100][(random.next_u64() % 3) as usize];
        let skip = u32::try_from(random.next_u64() % 20).expect("small");
        let restarts = round % 2 == 1;
        let what = format!("round {round}, {skip} fsyncs, {keep} percent kept, restarted: {restarts}");
        let mut loaded = Loaded::new(durable().on(&disk).serve(folder.path()), keys, &mut random);
        loaded.rush.more(100).await;
        disk.fail(".jnl", skip, 1, keep);
        if restarts {
            // The next process does not know of the failure, and the kernel shows it data that is not on disk.
            poll("the failure", async || (disk.failures_left() == 0).then_some(())).await;
            keys = loaded.kill().await;
            let server = durable().on(&disk).serve(folder.path());
            audit(&client(&server), &mut keys, &format!("{what}, before the power cut")).await;
            loaded = Loaded::new(server, keys, &mut random);
        } else {
            let address = loaded.server.address;
            poll("the end of the recovery", async || {
                let recovered = http::metric(address, "quire_kv_failures_total") == 1;
                (recovered && http::metric(address, "quire_kv_healthy") == 1).then_some(())
            })
            .await;
        }
        loaded.rush.more(200).await;
        keys = loaded.kill().await;
        disk.power_cut();
        let server = durable().serve(folder.path());
        assert_eq!(http::get(server.address, "/healthz").status, 200, "{what}: {}", server.log.text());
        let happened = audit(&client(&server), &mut keys, &what).await;
        eprintln!("{what}: {happened} unanswered writes had happened");
        server.stop();
    }
}
