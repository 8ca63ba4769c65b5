//! What the key-value experiments found, as a page, as rows and as named figures, beside what was published.

use super::load::{READS_PERCENT, SMALL_KEYS, Small};
use super::{BATCHINGS, CALLS_IN_FLIGHT, Measurements, SMALL_SUBJECTS, STORES, WORK_MS, small_name};
use crate::Findings;
use crate::bookstore_page::runs_csv;
use crate::experiment_page;
use crate::lab::{Measured, Results};
use bench::report::page::{Banner, Card, Page, Table, Tone, Value};
use bench::report::units;

/// Calls a second as published, in the order of [`STORES`].
const PUBLISHED: [f64; 2] = [24.0, 2_450.0];
const STORE_NAMES: [&str; 2] = ["one lock", "no call waits for another"];
/// In the order of [`SMALL_SUBJECTS`].
const SMALL_NAMES: [&str; 3] = ["Quire", "Redis", "etcd"];
const SMALL_KINDS: [(Small, &str); 3] = [(Small::Read, "reads"), (Small::Write, "writes"), (Small::Mix, "mix")];

/// Puts everything together.
pub(super) fn findings(found: &Measurements) -> anyhow::Result<Findings> {
    let Measurements { with_work, without_work, small, peers } = found;
    let page = experiment_page("The key-value experiments")
        .lead("One lock around the map against a map in which calls do not wait for each other, and small values beside Redis and etcd.")
        .cards(cards(found))
        .heading("The published load")
        .paragraph(format!(
            "Creations, retrievals, updates and deletions of random keys, as many of each, sizes exponential with means \
             of 64 B and 64 KiB, {CALLS_IN_FLIGHT} calls in flight; a read works {} ms and a write {} ms, so that no server can \
             pass {:.0} calls a second. Medians over the rounds.",
            WORK_MS[0], WORK_MS[1], allowed()
        ))
        .table(published_table(with_work, "with_work", true))
        .paragraph(format!(
            "With both cores kept from resting by threads that give way to everybody, {} did {:.0} calls a second: the \
             difference is how long a core of this machine takes to come back from a rest, which every wake-up of a \
             waiting thread pays.",
            STORES[1],
            with_work.median(STORES[1], "with_work_awake", rate)
        ))
        .heading("The same without simulated work")
        .paragraph("What is left is moving the values: the client's core is full, and no call waits for a lock that is held for a microsecond.")
        .table(published_table(without_work, "without_work", false))
        .heading("Small values")
        .paragraph(format!(
            "{} keys of 16 B with values of 100 B, all there, drawn at random; each server alone on one core, who asks on \
             the other. The mix is {READS_PERCENT}% reads; of Redis it is worked out from its reads and writes, since its benchmark \
             makes one kind at a time. Connections × calls in flight on each (Redis: pipelined by redis-benchmark). \
             Quire and etcd speak gRPC, Redis its own protocol. None of the three writes to a disk: Redis without \
             persistence, etcd's log {}. etcd's reads are linearizable, as the others' are.",
            units::count(SMALL_KEYS),
            if super::peers::has_memory_folder() { "in a folder that is in memory (/dev/shm)" } else { "ON DISK, for want of /dev/shm" }
        ))
        .tables(SMALL_KINDS.map(|(kind, name)| small_table(small, kind, name)).into())
        .paragraph(if peers.versions.is_empty() {
            "Neither peer is installed.".to_owned()
        } else {
            format!("Versions: {}.", peers.versions.join("; "))
        });
    let page = with_warnings(page, found);
    let csvs = vec![("runs.csv".to_owned(), runs_csv([with_work, without_work, small])?)];
    Ok(Findings { page: page.finish(), csvs, summary: summary(found) })
}

fn with_warnings(page: Page, found: &Measurements) -> Page {
    let missing = &found.peers.missing;
    let page = if missing.is_empty() {
        page
    } else {
        page.banner(Banner {
            tone: Tone::Warning,
            key: "missing".to_owned(),
            title: "Not everything was compared".to_owned(),
            words: "These were not there to be measured.".to_owned(),
            reasons: missing.clone(),
        })
    };
    let doubts: Vec<String> =
        [&found.with_work, &found.without_work, &found.small].into_iter().flat_map(Results::doubts).collect();
    if doubts.is_empty() {
        return page;
    }
    page.banner(Banner {
        tone: Tone::Warning,
        key: "doubtful".to_owned(),
        title: "Runs with a doubt".to_owned(),
        words:
            "These runs do not meet every condition of a valid one; their figures are shown all the same. Where the \
                client was the bottleneck, the server's rate is a lower bound and its CPU a call is what to compare."
                .to_owned(),
        reasons: doubts,
    })
}

/// Calls a second that the simulated work allows.
fn allowed() -> f64 {
    let [read, write] = WORK_MS.map(units::float);
    // One call in four reads.
    units::float(CALLS_IN_FLIGHT as u64) * 1e3 / ((read + 3.0 * write) / 4.0)
}

fn rate(one: &Measured) -> f64 {
    one.run.rate
}

/// A subject's figure under a small load; Redis' mix is put together from its parts.
fn small_figure(results: &Results, subject: &str, kind: Small, batching: (usize, usize), figure: Figure) -> f64 {
    let of = |kind| results.median(subject, &small_name(kind, batching), |one| figure.of(one));
    if (subject, kind) != ("redis", Small::Mix) {
        return of(kind);
    }
    let reads = units::float(READS_PERCENT) / 100.0;
    let (read, write) = (of(Small::Read), of(Small::Write));
    match figure {
        // Times add up, rates do not.
        Figure::Rate => 1.0 / (reads / read + (1.0 - reads) / write),
        Figure::CpuUs | Figure::Busy => reads * read + (1.0 - reads) * write,
    }
}

#[derive(Clone, Copy)]
enum Figure {
    Rate,
    CpuUs,
    Busy,
}

impl Figure {
    fn of(self, one: &Measured) -> f64 {
        match self {
            Self::Rate => rate(one),
            Self::CpuUs => one.server_cpu_us(),
            Self::Busy => one.server_busy(),
        }
    }
}

fn cards(found: &Measurements) -> Vec<Card> {
    let published = found.with_work.median(STORES[1], "with_work", rate);
    let reads = small_figure(&found.small, "quire", Small::Read, BATCHINGS[0], Figure::Rate);
    let cpu = |subject| small_figure(&found.small, subject, Small::Read, BATCHINGS[0], Figure::CpuUs);
    let (ours, redis) = (cpu("quire"), cpu("redis"));
    let card = |name: &str, value, note| Card { name: name.to_owned(), value, note, tone: Tone::Main };
    vec![
        card(
            "The published load",
            Value::figure("card_published_per_second", published, format!("{} /s", units::number(published))),
            format!("published: {}; the work allows {:.0}", units::number(PUBLISHED[1]), allowed()),
        ),
        card(
            "Small reads, 10 × 100",
            Value::figure("card_reads_per_second", reads, format!("{} /s", units::number(reads))),
            "over gRPC, one server core".to_owned(),
        ),
        card(
            "CPU of a small read, 10 × 100",
            Value::figure("card_read_cpu_us", ours, format!("{ours:.2} µs")),
            if redis.is_nan() { "Redis is not installed".to_owned() } else { format!("Redis: {redis:.2} µs") },
        ),
    ]
}

fn published_table(results: &Results, load: &'static str, with_published: bool) -> Table {
    let heads = ["store", "published, calls/s", "calls/s", "p50, ms", "p99, ms", "server CPU a call, µs", "failed"];
    let rows = STORES.iter().zip(STORE_NAMES).zip(PUBLISHED);
    rows.fold(Table::of_numbers("Calls a second", heads), |table, ((store, name), published)| {
        let published = if with_published { units::number(published) } else { "none".to_owned() };
        let median = |figure: &dyn Fn(&Measured) -> f64| results.median(store, load, figure);
        let figure = |key: &str, value: f64, text| Value::figure(format!("{load}_{store}_{key}"), value, text);
        let rate = median(&rate);
        let [p50, p99] = [0.5, 0.99].map(|share| median(&|one| one.run.response.quantile_us(share) / 1e3));
        let (cpu, failed) = (median(&Measured::server_cpu_us), median(&|one| units::float(one.run.errors)));
        table.row([
            Value::text(format!("{store}: {name}")),
            Value::text(published),
            figure("per_second", rate, format!("{rate:.0}")),
            figure("p50_ms", p50, format!("{p50:.1}")),
            figure("p99_ms", p99, format!("{p99:.1}")),
            figure("cpu_us", cpu, format!("{cpu:.1}")),
            figure("failed", failed, units::number(failed)),
        ])
    })
}

fn small_table(results: &Results, kind: Small, name: &str) -> Table {
    let heads = ["connections × in flight", "server", "calls/s", "CPU a call, µs", "of its core", "p50, µs", "p99, µs"];
    let mut table = Table::of_numbers(format!("Small values, {name}"), heads);
    for batching in BATCHINGS {
        for (subject, subject_name) in SMALL_SUBJECTS.iter().zip(SMALL_NAMES) {
            let load = small_name(kind, batching);
            let value = |figure| small_figure(results, subject, kind, batching, figure);
            let (rate, cpu, busy) = (value(Figure::Rate), value(Figure::CpuUs), value(Figure::Busy));
            let told = |key: &str, value: f64, text: String| {
                if value.is_nan() {
                    Value::text("missing")
                } else {
                    Value::figure(format!("{load}_{subject}_{key}"), value, text)
                }
            };
            // Only our own client's times are comparable.
            let quantile = |key: &str, share| {
                let us = results.median(subject, &load, |one| one.run.response.quantile_us(share));
                if us > 0.0 { told(key, us, format!("{us:.0}")) } else { Value::text("") }
            };
            table = table.row([
                Value::text(format!("{} × {}", batching.0, batching.1)),
                Value::text(subject_name),
                told("per_second", rate, units::number(rate)),
                told("cpu_us", cpu, format!("{cpu:.2}")),
                told("busy", busy, units::percent(busy)),
                quantile("p50_us", 0.5),
                quantile("p99_us", 0.99),
            ]);
        }
    }
    table
}

fn summary(found: &Measurements) -> Vec<(String, f64)> {
    let mut summary = vec![("allowed_per_second".to_owned(), allowed())];
    for (results, load) in [(&found.with_work, "with_work"), (&found.without_work, "without_work")] {
        for store in STORES {
            summary.push((format!("{load}_{store}_per_second"), results.median(store, load, rate)));
            summary.push((format!("{load}_{store}_cpu_us"), results.median(store, load, Measured::server_cpu_us)));
            let mean_ms = results.median(store, load, |one| one.run.response.mean_us()) / 1e3;
            summary.push((format!("{load}_{store}_mean_ms"), mean_ms));
        }
    }
    let awake = |figure: &dyn Fn(&Measured) -> f64| found.with_work.median(STORES[1], "with_work_awake", figure);
    summary.push(("with_work_awake_concurrent_per_second".to_owned(), awake(&rate)));
    summary.push(("with_work_awake_concurrent_mean_ms".to_owned(), awake(&|one| one.run.response.mean_us() / 1e3)));
    for (kind, _) in SMALL_KINDS {
        for batching in BATCHINGS {
            for subject in SMALL_SUBJECTS {
                let load = small_name(kind, batching);
                for (key, figure) in [("per_second", Figure::Rate), ("cpu_us", Figure::CpuUs), ("busy", Figure::Busy)] {
                    let value = small_figure(&found.small, subject, kind, batching, figure);
                    // What was not measured has no figure.
                    if !value.is_nan() {
                        summary.push((format!("{load}_{subject}_{key}"), value));
                    }
                }
            }
        }
    }
    summary
}
