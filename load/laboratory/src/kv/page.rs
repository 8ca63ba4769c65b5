//! Results of the key-value experiments, compared with the published ones.

use bench::report::page::{Card, Page, Table};
use bench::report::units;

use super::load::{CALLS_IN_FLIGHT, READS_PERCENT, SMALL_KEYS, Small};
use super::peers::has_memory_folder;
use crate::findings::{Findings, RUN_COLUMNS, Show, Summary, card, fixed, page, row, runs_csv, table, value};
use crate::lab::Lab;
use crate::results::{Observed, Results};

/// Stores: values of the setting `kv.store`, descriptions, and published calls per second.
pub(super) const STORES: [&str; 2] = ["mutex", "concurrent"];
const STORE_NAMES: [&str; 2] = ["one lock", "no call waits for another"];
const PUBLISHED: [f64; 2] = [24.0, 2_450.0];
/// Simulated work of a read and of a write, in milliseconds.
pub(super) const WORK_MS: [u64; 2] = [10, 50];

/// Subjects of small calls, if installed.
pub(super) const SMALL_SUBJECTS: [&str; 3] = ["quire", "redis", "etcd"];
const SMALL_NAMES: [&str; 3] = ["Quire", "Redis", "etcd"];
const SMALL_KINDS: [(Small, &str); 3] = [(Small::Read, "reads"), (Small::Write, "writes"), (Small::Mix, "mix")];
/// Connections, and calls in flight on each (Redis: pipelining).
pub(super) const BATCHINGS: [(usize, usize); 3] = [(10, 100), (10, 10), (100, 1)];

pub(super) fn small_name(small: Small, (connections, in_flight): (usize, usize)) -> String {
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

/// Assembles the findings.
pub(super) fn findings(lab: &Lab) -> anyhow::Result<Findings> {
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
    page("The key-value experiments")
        .lead("One lock around the map against a map in which calls do not wait for each other, and small values beside Redis and etcd.")
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
    table("Calls a second", heads, rows)
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
    table(&format!("Small values, {name}"), heads, rows)
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
