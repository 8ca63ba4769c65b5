//! The key-value experiments: the published mix of calls with simulated work, one lock around the map against a
//! concurrent map; the same without simulated work; and small values compared with Redis and etcd.
//!
//! With two or more cores, the server runs on the first and the client on the last.

mod load;
mod peers;

use std::time::Duration;

use anyhow::Context as _;
use bench::cores::on_core;
use bench::plan::{End, Plan};
use bench::report::page::{Card, Page, Table};
use bench::report::units;
use bench::workload::grpc::GrpcWorkload;
use kit::Server;

use self::load::{CALLS_IN_FLIGHT, ETCD, KEYS_FIRST, Methods, Published, QUIRE, READS_PERCENT, SMALL_KEYS, Small};
use self::peers::{Etcd, Redis, has_memory_folder};
use crate::lab::{Cores, Lab, calls, closed, measure, prepare};
use crate::machine::BusyCores;
use crate::results::{
    Findings, Observed, RUN_COLUMNS, Results, Show, Summary, card, fixed, page, row, runs_csv, value,
};

/// Stores: values of the setting `kv.store`, descriptions, and published calls per second.
const STORES: [&str; 2] = ["mutex", "concurrent"];
const STORE_NAMES: [&str; 2] = ["one lock", "no call waits for another"];
const PUBLISHED: [f64; 2] = [24.0, 2_450.0];
/// Simulated work of a read and of a write, in milliseconds.
const WORK_MS: [u64; 2] = [10, 50];

/// Subjects of small calls, if installed.
const SMALL_SUBJECTS: [&str; 3] = ["quire", "redis", "etcd"];
const SMALL_NAMES: [&str; 3] = ["Quire", "Redis", "etcd"];
const SMALL_KINDS: [(Small, &str); 3] = [(Small::Read, "reads"), (Small::Write, "writes"), (Small::Mix, "mix")];
/// Connections, and calls in flight on each (Redis: pipelining).
const BATCHINGS: [(usize, usize); 3] = [(10, 100), (10, 10), (100, 1)];

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
    findings(lab)
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

fn small_name(small: Small, (connections, in_flight): (usize, usize)) -> String {
    let name = match small {
        Small::Read => "read",
        Small::Write => "write",
        Small::Mix => "mix",
    };
    format!("{name}_{connections}x{in_flight}")
}

/// Calls per second that the simulated work allows.
fn allowed() -> f64 {
    let [read, write] = WORK_MS.map(units::float);
    // One call in four reads.
    units::float(CALLS_IN_FLIGHT as u64) * 1e3 / ((read + 3.0 * write) / 4.0)
}

fn findings(lab: &Lab) -> anyhow::Result<Findings> {
    let results = &with_redis_mix(&lab.results);
    let csvs = vec![("runs.csv", runs_csv(lab.results.all(), &RUN_COLUMNS)?)];
    Ok(Findings { page: the_page(results, &lab.versions), csvs, summary: summary(results) })
}

/// Adds Redis' mix, computed from its reads and its writes.
fn with_redis_mix(results: &Results) -> Results {
    let mut all = results.clone();
    let reads = units::float(READS_PERCENT) / 100.0;
    for batching in BATCHINGS {
        let parts = [Small::Read, Small::Write].map(|small| small_name(small, batching));
        for (read, write) in results.of(&parts[0], "redis").zip(results.of(&parts[1], "redis")) {
            let of = |name| (read.seen.figure(name), write.seen.figure(name));
            // Times add up, rates do not.
            let time = |name| reads * of(name).0 + (1.0 - reads) * of(name).1;
            let (read_rate, write_rate) = of("per_second");
            let rate = 1.0 / (reads / read_rate + (1.0 - reads) / write_rate);
            let mix = [("per_second", rate), ("cpu_us", time("cpu_us")), ("busy", time("busy"))];
            all.push(small_name(Small::Mix, batching), "redis", read.round, Observed::new(mix));
        }
    }
    all
}

fn the_page(results: &Results, versions: &[String]) -> Page {
    let etcd_log = if has_memory_folder() {
        "in a folder that is in memory (/dev/shm)"
    } else {
        "ON DISK, since there is no /dev/shm"
    };
    page("The key-value experiments", "One lock around the map against a map in which calls do not wait for each other, and small values beside Redis and etcd.")
        .cards(cards(results))
        .heading("The published load")
        .paragraph(format!(
            "Creations, retrievals, updates and deletions of random keys, as many of each, sizes exponential with means \
             of 64 B and 64 KiB, {CALLS_IN_FLIGHT} calls in flight; a read works {} ms and a write {} ms, so that no server can \
             pass {:.0} calls a second. Medians over the rounds.",
            WORK_MS[0], WORK_MS[1], allowed()
        ))
        .table(published(results, "with_work", true))
        .paragraph(format!(
            "With both cores kept awake by threads of the lowest priority, {} did {:.0} calls a second: the difference is \
             how long an idle core of this machine takes to wake up, which every wake-up of a waiting thread pays.",
            STORES[1],
            results.median("with_work_awake", STORES[1], "per_second")
        ))
        .heading("The same without simulated work")
        .paragraph("What is left is moving the values: the client's core is full, and no call waits for a lock that is held for a microsecond.")
        .table(published(results, "without_work", false))
        .heading("Small values")
        .paragraph(format!(
            "{} keys of 16 B with values of 100 B, all there, drawn at random; each server alone on one core, its client on \
             the other. The mix is {READS_PERCENT}% reads; Redis' mix is computed from its reads and writes, since its benchmark \
             makes one kind at a time. Connections × calls in flight on each (Redis: pipelined by redis-benchmark). \
             Quire and etcd speak gRPC, Redis its own protocol. None of the three writes to a disk: Redis without \
             persistence, etcd's log {etcd_log}. etcd's reads are linearizable, as the others' are.",
            units::count(SMALL_KEYS)
        ))
        .tables(SMALL_KINDS.map(|(kind, name)| small(results, kind, name)).into())
        .paragraph(match versions {
            [] => "Neither peer is installed.".to_owned(),
            versions => format!("Versions: {}.", versions.join("; ")),
        })
}

fn cards(results: &Results) -> Vec<Card> {
    let load = small_name(Small::Read, BATCHINGS[0]);
    let a_second: Show = |rate| format!("{} /s", units::number(rate));
    let redis = results.median(&load, "redis", "cpu_us");
    vec![
        card(
            "The published load",
            value("card_published_per_second", results.median("with_work", STORES[1], "per_second"), a_second),
            format!("published: {}; the work allows {:.0}", units::number(PUBLISHED[1]), allowed()),
        ),
        card(
            "Small reads, 10 × 100",
            value("card_reads_per_second", results.median(&load, "quire", "per_second"), a_second),
            "over gRPC, one server core",
        ),
        card(
            "CPU of a small read, 10 × 100",
            value("card_read_cpu_us", results.median(&load, "quire", "cpu_us"), |cpu| format!("{cpu:.2} µs")),
            if redis.is_nan() { "Redis is not installed".to_owned() } else { format!("Redis: {redis:.2} µs") },
        ),
    ]
}

fn published(results: &Results, load: &str, has_published: bool) -> Table {
    let heads = ["store", "published, calls/s", "calls/s", "p50, ms", "p99, ms", "server CPU a call, µs", "failed"];
    let figures: [(&str, Show); 5] = [
        ("per_second", fixed::<0>),
        ("p50_ms", fixed::<1>),
        ("p99_ms", fixed::<1>),
        ("cpu_us", fixed::<1>),
        ("failed", units::number),
    ];
    let rows = STORES.iter().zip(STORE_NAMES).zip(PUBLISHED).map(|((store, name), published)| {
        let published = if has_published { units::number(published) } else { "none".to_owned() };
        row([&*format!("{store}: {name}"), &published], results.cells(load, store, &figures))
    });
    Table::of_numbers("Calls a second", heads, rows)
}

fn small(results: &Results, kind: Small, name: &str) -> Table {
    let heads = ["connections × in flight", "server", "calls/s", "CPU a call, µs", "of its core", "p50, µs", "p99, µs"];
    let figures: [(&str, Show); 5] = [
        ("per_second", units::number),
        ("cpu_us", fixed::<2>),
        ("busy", units::percent),
        ("p50_us", fixed::<0>),
        ("p99_us", fixed::<0>),
    ];
    let rows = BATCHINGS.into_iter().flat_map(|batching| {
        SMALL_SUBJECTS.into_iter().zip(SMALL_NAMES).map(move |(subject, name)| {
            let clients = format!("{} × {}", batching.0, batching.1);
            row([&*clients, name], results.cells(&small_name(kind, batching), subject, &figures))
        })
    });
    Table::of_numbers(format!("Small values, {name}"), heads, rows)
}

fn summary(results: &Results) -> Summary {
    let mut summary = Summary::default();
    summary.add("allowed_per_second", allowed());
    for load in ["with_work", "without_work"] {
        summary.medians(results, load, &STORES, &["per_second", "cpu_us", "mean_ms"]);
    }
    summary.medians(results, "with_work_awake", &STORES[1..], &["per_second", "mean_ms"]);
    for (kind, _) in SMALL_KINDS {
        for batching in BATCHINGS {
            summary.medians(results, &small_name(kind, batching), &SMALL_SUBJECTS, &["per_second", "cpu_us", "busy"]);
        }
    }
    summary
}
