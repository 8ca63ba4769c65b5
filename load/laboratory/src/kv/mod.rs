//! The key-value experiments: the published mix of calls with simulated work, one lock around the map against a
//! concurrent map; the same without simulated work; and small values compared with Redis and etcd.
//!
//! With two or more cores, the server runs on the first and the client on the last.

mod load;
mod page;
mod peers;

use std::time::Duration;

use anyhow::Context as _;
use bench::cores::on_core;
use bench::plan::{End, Plan};
use bench::workload::grpc::GrpcWorkload;
use kit::Server;

use self::load::{CALLS_IN_FLIGHT, ETCD, KEYS_FIRST, Methods, Published, QUIRE, SMALL_KEYS, Small};
use self::page::{BATCHINGS, SMALL_SUBJECTS, STORES, WORK_MS, small_name};
use self::peers::{Etcd, Redis};
use crate::findings::Findings;
use crate::lab::{Cores, Lab, calls, closed, measure, prepare};
use crate::machine::BusyCores;

/// Connections of the published load.
const CONNECTIONS: usize = 4;
/// Duration of the published load with simulated work, and of its warm-up: with one lock a call waits for four seconds.
const WITH_WORK: Duration = Duration::from_secs(6);
const WITH_WORK_WARM_UP: Duration = Duration::from_secs(1);
/// Highest share of calls that may miss their key, because hundreds of others overtook them.
const OVERTAKEN_SHARE_MAX: f64 = 0.05;
/// Duration of every other load.
const POINT: Duration = Duration::from_millis(1500);
const WARM_UP: Duration = Duration::from_millis(300);

/// Starts the servers, measures, and returns the findings.
pub(crate) fn run(lab: &mut Lab) -> anyhow::Result<Findings> {
    let rounds = lab.options.rounds;
    let small = |subjects: usize, kinds: usize| subjects * kinds * BATCHINGS.len();
    let [has_redis, has_etcd] = ["redis-server", "etcd"].map(|name| usize::from(peers::find(name).is_some()));
    // With and without simulated work, once more with busy cores, and the small values.
    lab.progress.expect(3 * rounds, WITH_WORK_WARM_UP + WITH_WORK);
    let short = STORES.len() + small(1 + has_redis + has_etcd, 2) + small(1 + has_etcd, 1);
    lab.progress.expect(short * rounds, WARM_UP + POINT);
    let [read, write] = WORK_MS;
    let work = [format!("kv.read_delay_ms={read}"), format!("kv.write_delay_ms={write}")];
    let subjects = published_subjects(lab, &work.each_ref().map(String::as_str))?;
    published_load(lab, &subjects, "with_work")?;
    // With one lock a call takes four seconds, which would hide 0.1 ms.
    let busy = BusyCores::start([lab.cores.server, lab.cores.client].into_iter().flatten()).context("no thread")?;
    published_load(lab, &subjects[1..], "with_work_awake")?;
    drop((busy, subjects));
    let subjects = published_subjects(lab, &[])?;
    published_load(lab, &subjects, "without_work")?;
    drop(subjects);
    small_values(lab)?;
    page::findings(lab)
}

fn quire(lab: &Lab, settings: &[&str]) -> anyhow::Result<Server> {
    let settings: Vec<&str> = settings.iter().copied().chain(["server.threads=1"]).collect();
    on_core(lab.cores.server, || lab.quire("quire", "kv", &settings))
}

/// A server, the name of its store, and the published load on it.
struct Subject {
    store: &'static str,
    server: Server,
    mix: GrpcWorkload,
}

/// A server of each store, filled with the first keys.
fn published_subjects(lab: &Lab, settings: &[&str]) -> anyhow::Result<Vec<Subject>> {
    let start = |store: &'static str| {
        let store_setting = format!("kv.store={store}");
        let settings: Vec<&str> = settings.iter().copied().chain([&*store_setting]).collect();
        let server = quire(lab, &settings)?;
        let published = Published::new(lab.options.seed);
        let first = calls(&server, QUIRE.create, published.first())?;
        prepare(&first, &published_plan(lab.cores, End::Count(KEYS_FIRST))).context("the first keys cannot be made")?;
        let mix = calls(&server, QUIRE.read, published.mix())?;
        Ok(Subject { store, server, mix })
    };
    STORES.into_iter().map(start).collect()
}

/// With simulated work the warm-up is part of the same run, because the load must not stop between them.
fn published_load(lab: &mut Lab, subjects: &[Subject], name: &str) -> anyhow::Result<()> {
    let stores: Vec<&'static str> = subjects.iter().map(|subject| subject.store).collect();
    let (warm_up, plan) = if name == "without_work" {
        (Some(End::After(WARM_UP)), published_plan(lab.cores, End::After(POINT)))
    } else {
        (None, Plan { warm_up: WITH_WORK_WARM_UP, ..published_plan(lab.cores, End::After(WITH_WORK)) })
    };
    for round in lab.rounds() {
        lab.in_turns(round, &stores, &[(name.to_owned(), ())], |store, ()| {
            let subject = subjects.iter().find(|subject| subject.store == store).expect("one of the stores");
            measure(&subject.server, &subject.mix, warm_up, &plan, OVERTAKEN_SHARE_MAX).context(store)
        })?;
    }
    Ok(())
}

fn published_plan(cores: Cores, end: End) -> Plan {
    plan(cores, (CONNECTIONS, CALLS_IN_FLIGHT / CONNECTIONS), end)
}

fn plan(cores: Cores, (connections, in_flight): (usize, usize), end: End) -> Plan {
    Plan { workers: 1, cores: cores.client.map(|core| vec![core]), ..closed(connections, in_flight, end) }
}

fn small_values(lab: &mut Lab) -> anyhow::Result<()> {
    let cores = lab.cores;
    let quire = quire(lab, &[])?;
    fill(&quire, QUIRE, cores)?;
    let redis = Redis::start(lab)?;
    let etcd = Etcd::start(lab)?;
    if let Some(etcd) = &etcd {
        fill(&etcd.server, ETCD, cores)?;
    }
    let present = [true, redis.is_some(), etcd.is_some()];
    let subjects: Vec<&'static str> =
        SMALL_SUBJECTS.into_iter().zip(present).filter_map(|(subject, there)| there.then_some(subject)).collect();
    let ask = |subject: &str, (small, batching): &(Small, (usize, usize))| {
        let grpc = |server: &Server, methods: Methods| {
            let calls = calls(server, methods.read, load::small_calls(methods, *small))?;
            measure(server, &calls, Some(End::After(WARM_UP)), &plan(cores, *batching, End::After(POINT)), 0.0)
        };
        let seen = match (subject, &redis, &etcd) {
            ("redis", Some(redis), _) => redis.run(*small, *batching, POINT),
            ("etcd", _, Some(etcd)) => grpc(&etcd.server, ETCD),
            _ => grpc(&quire, QUIRE),
        };
        seen.with_context(|| subject.to_owned())
    };
    let loads = |kinds: &[Small]| -> Vec<_> {
        let of = |batching| kinds.iter().map(move |small| (small_name(*small, batching), (*small, batching)));
        BATCHINGS.into_iter().flat_map(of).collect()
    };
    // Redis' benchmark makes one kind of call at a time; its mix is computed from these.
    let mixing: Vec<&'static str> = subjects.iter().copied().filter(|subject| *subject != "redis").collect();
    for round in lab.rounds() {
        lab.in_turns(round, &subjects, &loads(&[Small::Read, Small::Write]), ask)?;
        lab.in_turns(round, &mixing, &loads(&[Small::Mix]), ask)?;
    }
    Ok(())
}

/// Creates every small entry.
fn fill(server: &Server, methods: Methods, cores: Cores) -> anyhow::Result<()> {
    let creations = calls(server, methods.create, load::small_creations())?;
    prepare(&creations, &plan(cores, (10, 100), End::Count(SMALL_KEYS))).context("a server cannot be filled")
}
