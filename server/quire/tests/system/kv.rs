//! The key-value service in the server: on by default, configured, counted, and durable on request. No acknowledged
//! write is lost when the server is killed, and a full disk is reported and survived.

use std::{
    collections::HashMap,
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kv::grpc::wire::{
    CreateRequest, DeleteRequest, RetrieveRequest, UpdateRequest, WatchRequest,
    key_range_service_client::KeyRangeServiceClient, key_value_service_client::KeyValueServiceClient,
};
use quire_rpc::{Code, Status, client::Channel};
use rand_core::{OsRng, RngCore as _};
use tokio::task::JoinSet;

use crate::common::{
    PATIENCE,
    disk::SmallDisk,
    http, poll,
    process::{Server, Start},
    store::{BOOK, folder, one},
};

const ROUNDS: u32 = 12;
const WRITERS: u32 = 48;
const KEYS_EACH: u32 = 8;

fn durable() -> Start {
    Start::default().set("kv.durability=log")
}

fn client(channel: Channel) -> KeyValueServiceClient {
    KeyValueServiceClient::new(channel)
}

fn create(key: &str, value: Vec<u8>) -> CreateRequest {
    CreateRequest { key: key.to_owned().into(), value: value.into(), want_details: true, ..CreateRequest::default() }
}

async fn get(client: &KeyValueServiceClient, key: &str) -> Option<(Vec<u8>, u64)> {
    match client.retrieve(RetrieveRequest { key: key.to_owned().into(), want_details: true }).await {
        Ok(reply) => Some((reply.get_ref().value.to_vec(), reply.get_ref().version)),
        Err(status) => {
            assert_eq!(status.code(), Code::NotFound, "{status}");
            None
        }
    }
}

fn random(below: u32) -> u32 {
    OsRng.next_u32() % below
}

/// Intended result of a write: a value, or none.
#[derive(Clone, Debug, PartialEq)]
struct Wanted(Option<Vec<u8>>);

/// A key's state as known by its only writer.
#[derive(Clone, Debug, Default)]
struct Known {
    /// The acknowledged value; version 0 if only read.
    acknowledged: Option<(Vec<u8>, u64)>,
    /// A write in flight when the server was killed: it may have happened.
    unanswered: Option<Wanted>,
}

/// Writes to its own keys until the server is gone.
async fn write(
    client: KeyValueServiceClient,
    mut known: HashMap<String, Known>,
    count: Arc<AtomicUsize>,
) -> HashMap<String, Known> {
    let names: Vec<String> = known.keys().cloned().collect();
    loop {
        let name = &names[random(KEYS_EACH) as usize];
        let state = known.get_mut(name).expect("a key");
        let mut value = vec![0; [8, 100, 20_000][random(3) as usize]];
        OsRng.fill_bytes(&mut value[..8]);
        let (wanted, done) = match (&state.acknowledged, random(3)) {
            (None, _) => {
                let done = client.create(create(name, value.clone())).await;
                (Some(value), done.map(|reply| reply.get_ref().version))
            }
            (Some(_), 0) => {
                let delete = DeleteRequest { key: name.clone().into(), ..DeleteRequest::default() };
                (None, client.delete(delete).await.map(|_| 0))
            }
            (Some((_, version)), _) => {
                let key = name.clone().into();
                let update = UpdateRequest {
                    key,
                    value: value.clone().into(),
                    expected_version: Some(*version),
                    want_details: true,
                    ..UpdateRequest::default()
                };
                (Some(value), client.update(update).await.map(|reply| reply.get_ref().version))
            }
        };
        match done {
            Ok(version) => state.acknowledged = wanted.map(|value| (value, version)),
            Err(status) => {
                assert!(!matches!(status.code(), Code::AlreadyExists | Code::NotFound | Code::Aborted), "{status}");
                state.unanswered = Some(Wanted(wanted));
                return known;
            }
        }
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Loads the server, kills it at a random moment, and collects the writers' knowledge.
async fn round(server: &mut Server, known: Vec<HashMap<String, Known>>) -> (Vec<HashMap<String, Known>>, usize) {
    let count = Arc::new(AtomicUsize::new(0));
    let channels = [server.channel(), server.channel(), server.channel()];
    let mut tasks = JoinSet::new();
    for (place, known) in known.into_iter().enumerate() {
        tasks.spawn(write(client(channels[place % channels.len()].clone()), known, Arc::clone(&count)));
    }
    let enough = 50 + random(1500) as usize;
    poll("writes", async || (count.load(Ordering::Relaxed) >= enough).then_some(())).await;
    tokio::time::sleep(Duration::from_micros(random(3000).into())).await;
    server.kill();
    (tasks.join_all().await, count.load(Ordering::Relaxed))
}

/// Compares a restarted server's entries with a writer's knowledge, and adopts them.
async fn settle(client: &KeyValueServiceClient, known: &mut HashMap<String, Known>) -> usize {
    let mut happened = 0;
    for (name, state) in known {
        let found = get(client, name).await;
        if found != state.acknowledged {
            let Some(unanswered) = &state.unanswered else {
                panic!("acknowledged and lost: {name} {:?}, found {found:?}", state.acknowledged)
            };
            let value = Wanted(found.as_ref().map(|(value, _)| value.clone()));
            assert_eq!(&value, unanswered, "neither what was acknowledged nor what was under way: {name}");
            happened += 1;
        }
        *state = Known { acknowledged: found, unanswered: None };
    }
    happened
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_has_lost_no_value_it_acknowledged() {
    let folder = folder();
    let mut server = durable().serve(folder.path());
    let names = |writer| (0..KEYS_EACH).map(move |key| (format!("{writer}/{key}"), Known::default()));
    let mut known: Vec<HashMap<_, _>> = (0..WRITERS).map(|writer| names(writer).collect()).collect();
    let (mut written, mut happened) = (0, 0);
    for _ in 0..ROUNDS {
        let (after, count) = round(&mut server, known).await;
        known = after;
        written += count;
        server = durable().serve(folder.path());
        let client = client(server.channel());
        for known in &mut known {
            happened += settle(&client, known).await;
        }
    }
    eprintln!("{ROUNDS} kills, {written} acknowledged writes, {happened} unanswered ones had happened");
    assert!(written > 1000, "the load was one: {written}");
    server.stop();
}

fn understandable(status: &Status) {
    let known = matches!(status.code(), Code::Unavailable | Code::Unknown);
    let advice = status.message().contains("try again later") || status.message().contains("read the key to learn it");
    assert!(known && advice, "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_told_and_values_are_taken_again_once_there_is_room() {
    let Some(disk) = SmallDisk::mount(40) else { return };
    let server = durable().serve(disk.path());
    let client = client(server.channel());
    let (filler, mut kept) = (disk.path().join("filler"), Vec::new());
    fs::write(&filler, vec![1; 32 << 20]).expect("there is room for the filler");
    let fault = loop {
        let name = format!("key {}", kept.len());
        match client.create(create(&name, vec![7; 60_000])).await {
            Ok(reply) => kept.push((name, reply.get_ref().version)),
            Err(status) => break status,
        }
    };
    understandable(&fault);
    eprintln!("full after {} values: {fault}", kept.len());
    poll("the failure in the metrics", async || {
        (http::metric(server.address, "quire_kv_failures_total") >= 1).then_some(())
    })
    .await;
    understandable(&client.create(create("while there is no room", vec![7; 60_000])).await.expect_err("no room"));
    let health = http::get(server.address, "/healthz");
    assert!(
        health.status == 503 && health.body.contains("key-value journal failed"),
        "{} {}",
        health.status,
        health.body
    );
    // Reading still works.
    assert!(get(&client, &kept[0].0).await.is_some());
    fs::remove_file(filler).expect("the filler can go");
    let version = poll("writes after there is room", async || {
        client.create(create("after", vec![7; 60_000])).await.ok().map(|reply| reply.get_ref().version)
    })
    .await;
    kept.push(("after".to_owned(), version));
    assert_eq!(http::metric(server.address, "quire_kv_healthy"), 1);
    assert_eq!(http::get(server.address, "/healthz").status, 200);
    for (name, version) in &kept {
        assert_eq!(get(&client, name).await.map(|found| found.1), Some(*version), "{name}");
    }
    server.stop();
    let server = durable().serve(disk.path());
    let client = self::client(server.channel());
    for (name, version) in &kept {
        assert_eq!(get(&client, name).await.map(|found| found.1), Some(*version), "{name}");
    }
    server.stop();
}

#[tokio::test]
async fn the_service_is_on_unless_it_is_turned_off_and_forgets_unless_it_is_told_to_last() {
    let folder = folder();
    let server = Server::start(folder.path());
    client(server.channel()).create(create("k", b"v".to_vec())).await.expect("created");
    assert_eq!(http::metric(server.address, "quire_kv_entries"), 1);
    assert!(http::metric(server.address, "quire_kv_bytes") > 2);
    let series = "quire_grpc_calls_total{method=\"/io.grpc.KeyValueService/Create\",code=\"Ok\"}";
    assert_eq!(http::metric(server.address, series), 1);
    server.stop();
    let server = Server::start(folder.path());
    assert_eq!(get(&client(server.channel()), "k").await, None);
    server.stop();
    let server = Start::default().set("kv.enabled=false").serve(folder.path());
    let off = client(server.channel()).create(create("k", b"v".to_vec())).await.expect_err("off");
    assert_eq!(off.code(), Code::Unimplemented);
    server.stop();
}

#[tokio::test]
async fn one_in_16_writes_is_timed_in_the_queue_and_each_batchs_commit_is_timed_and_counted() {
    let folder = folder();
    let server = durable().serve(folder.path());
    let batches =
        || ["count", "sum"].map(|part| http::metric(server.address, &format!("quire_kv_batch_writes_{part}")));
    let counts = || {
        ["kv_queue", "kv_commit", "ledger_queue"]
            .map(|name| http::metric(server.address, &format!("quire_{name}_seconds_count")))
    };
    assert_eq!((counts(), batches()), ([0; 3], [0; 2]));
    for number in 1..=17_u64 {
        client(server.channel()).create(create(&number.to_string(), b"v".to_vec())).await.expect("created");
        server.shop().buy(one(BOOK)).await.expect("an answer");
        assert_eq!((counts(), batches()), ([number.div_ceil(16), number, number.div_ceil(16)], [number; 2]));
    }
    // On one connection, so that many come together.
    let (mut writers, channel) = (JoinSet::new(), server.channel());
    for number in 18..=200_u64 {
        let client = client(channel.clone());
        writers.spawn(async move { client.create(create(&number.to_string(), b"v".to_vec())).await.expect("created") });
    }
    writers.join_all().await;
    let [commits, writes] = batches();
    assert!(commits < writes && writes == 200, "{writes} writes in {commits} commits");
    // Nothing is written.
    client(server.channel()).create(create("1", b"v".to_vec())).await.expect_err("it is there");
    assert_eq!(batches(), [commits, writes]);
    server.stop();
}

#[tokio::test]
async fn limits_of_the_configuration_are_the_services() {
    let folder = folder();
    let server = Start::default().set("kv.entries=1").set("kv.value_bytes=10").serve(folder.path());
    let client = client(server.channel());
    let said = client.create(create("k", vec![7; 11])).await.expect_err("too large");
    assert!(said.code() == Code::ResourceExhausted && said.message().contains("kv.value_bytes is 10"), "{said}");
    client.create(create("k", vec![7; 10])).await.expect("it fits");
    let said = client.create(create("l", vec![])).await.expect_err("one too many");
    assert!(said.code() == Code::ResourceExhausted && said.message().contains("kv.entries is 1"), "{said}");
    server.stop();
}

#[test]
fn a_delay_that_would_hang_callers_is_refused_at_the_start() {
    let folder = folder();
    for (setting, said) in
        [("kv.read_delay_ms=60001", "0 to 60000"), ("kv.store=none", "kv.store"), ("kv.entries=0", "from 1")]
    {
        let ended = Start::default().set(setting).command(folder.path()).output().expect("quire runs");
        let error = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success() && error.contains(said), "{setting}: {error}");
    }
}

#[tokio::test]
async fn simulated_work_takes_its_time_and_a_deadline_ends_the_wait() {
    let folder = folder();
    let server = Start::default().set("kv.read_delay_ms=60000").set("kv.write_delay_ms=5").serve(folder.path());
    let client = client(server.channel());
    client.create(create("k", b"v".to_vec())).await.expect("created");
    let mut read = quire_rpc::Request::new(RetrieveRequest { key: "k".into(), want_details: false });
    read.set_timeout(Duration::from_millis(50));
    let late = client.retrieve(read).await.expect_err("the work takes a minute");
    assert_eq!(late.code(), Code::DeadlineExceeded);
    server.stop();
}

#[tokio::test]
async fn a_stop_ends_watches_and_does_not_wait_for_them() {
    let folder = folder();
    let server = Server::start(folder.path());
    let range = KeyRangeServiceClient::new(server.channel());
    let mut watch = range.watch(WatchRequest::default()).await.expect("a watch").into_inner();
    watch.message().await.expect("a word").expect("the start");
    let stopped = tokio::task::spawn_blocking(|| server.stop());
    let end = tokio::time::timeout(PATIENCE, watch.message()).await.expect("in time");
    assert!(matches!(end, Ok(None)), "{end:?}");
    stopped.await.expect("it stopped");
}
