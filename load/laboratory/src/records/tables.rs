//! The tables of the record queries' page.

use bench::report::page::{Table, Value};
use bench::report::units::{self, number};
use bench::stats::interval;

use super::loads::{Call, LIMITS, Load, PACKED, PLAIN, SHARES};
use crate::findings::{row, table, value};
use crate::results::Results;

/// A server for each way of finding rows and of encoding them, the best first; the last keeps no answer in one piece.
pub(super) const SUBJECTS: [&str; 7] = [
    "indexed_once",
    "indexed_each",
    "parallel_once",
    "parallel_each",
    "sequential_once",
    "sequential_each",
    "indexed_once_collected",
];
const NAMES: [&str; 7] = [
    "indexed, encoded once",
    "indexed, encoded each time",
    "parallel, encoded once",
    "parallel, encoded each time",
    "sequential, encoded once",
    "sequential, encoded each time",
    "indexed, encoded once, collected each time",
];
/// The service with default settings.
pub(super) const QUIRE: &str = SUBJECTS[0];
/// The published server as it was measured.
pub(super) const AS_PUBLISHED: &str = SUBJECTS[3];
/// The first version of the published server.
pub(super) const SLOWEST: &str = SUBJECTS[5];
/// Collects the rows of every answer.
const COLLECTED: &str = SUBJECTS[6];
pub(super) const NGINX: &str = "nginx";
/// Databases by the script's names, with titles.
pub(super) const ENGINES: [(&str, &str); 3] =
    [("sqlite", "SQLite without an index"), ("sqlite_indexed", "SQLite with an index"), ("duckdb", "DuckDB")];

/// Published p50, p90 and p99 in milliseconds, in the order of [`Call::ALL`].
const PUBLISHED_MS: [[f64; 3]; 4] =
    [[149.0, 158.0, 254.0], [141.0, 156.0, 204.0], [138.0, 171.0, 330.0], [127.0, 146.0, 233.0]];
const QUANTILES: [(&str, &str); 3] = [("p50", "p50_ms"), ("p90", "p90_ms"), ("p99", "p99_ms")];

/// Measurements besides the runs.
pub(super) struct Found {
    pub(super) rows: u64,
    pub(super) matching: u64,
    pub(super) csv_bytes: u64,
    pub(super) generated_seconds: f64,
    /// Time from the start of each server until it listens.
    pub(super) started_seconds: Vec<f64>,
    /// Time for a client to decode each answer into rows, in the order of [`Call::ALL`].
    pub(super) decoding_ms: [f64; 4],
    /// Bytes per second, measured between the series.
    pub(super) loopback: Vec<f64>,
    /// The databases' queries.
    pub(super) queries: Results,
    pub(super) versions: Vec<String>,
}

impl Found {
    /// Loopback's bulk rate in bytes per second.
    pub(super) fn bulk(&self) -> f64 {
        interval::median(&self.loopback)
    }
}

pub(super) fn published(results: &Results) -> Table {
    let heads = ["question", "", "published", "Quire", "parallel, encoded each time", "sequential, encoded each time"];
    let rows = Call::ALL.into_iter().zip(PUBLISHED_MS).flat_map(|(call, published)| {
        QUANTILES.into_iter().zip(published).enumerate().map(move |(place, ((name, figure), published))| {
            let question = if place == 0 { call.name() } else { "" };
            let cells = [QUIRE, AS_PUBLISHED, SLOWEST].map(|subject| results.cell(call.key(), subject, figure, number));
            row([question, name, &number(published)], cells)
        })
    });
    table("Milliseconds, one request at a time", heads, rows)
}

pub(super) fn ways(results: &Results) -> Table {
    let calls = Call::ALL.map(|call| format!("{}, ms", call.name()));
    let heads = ["server"].into_iter().chain(calls.iter().flat_map(|call| [&**call, "CPU, ms"]));
    let rows = SUBJECTS.into_iter().zip(NAMES).map(|(subject, name)| {
        let cell = |call: Call, figure| results.cell(call.key(), subject, figure, number);
        row([name], Call::ALL.into_iter().flat_map(|call| ["p50_ms", "cpu_ms"].map(|figure| cell(call, figure))))
    });
    table("Median and CPU a request", heads, rows)
}

/// Stages of a query, by differences of medians.
pub(super) fn stages(results: &Results, found: &Found) -> Table {
    let heads = [
        "call",
        "sequential scan",
        "parallel scan",
        "encoding",
        "collecting",
        "transport",
        "of it to the first byte",
        "server CPU",
        "client CPU",
        "to make rows of it",
    ];
    let rows = Call::ALL.into_iter().zip(found.decoding_ms).map(|(call, decoding_ms)| {
        let p50 = |subject| results.median(call.key(), subject, "p50_ms");
        let of = |figure| results.median(call.key(), QUIRE, figure);
        let ready = p50(QUIRE);
        let cells = [
            ("sequential_scan", p50("sequential_once") - ready),
            ("parallel_scan", p50("parallel_once") - ready),
            ("encoding", p50("indexed_each") - ready),
            ("collecting", p50(COLLECTED) - ready),
            ("transport", ready),
            ("first_byte", of("first_byte_ms")),
            ("server_cpu", of("cpu_ms")),
            ("client_cpu", of("client_cpu_ms")),
            ("decoding", decoding_ms),
        ];
        row([call.name()], cells.map(|(name, ms)| value(format!("{}_{name}_ms", call.key()), ms, number)))
    });
    table("Milliseconds", heads, rows)
}

pub(super) fn parts(results: &Results) -> Table {
    let heads =
        ["call", "result_size", "Quire, p50", "p99", "sequential, encoded each time, p50", "p99", "MB an answer"];
    let rows = Call::ALL.into_iter().flat_map(|call| {
        SHARES.map(|share| {
            let load = Load::one_at_a_time(call).share(share).name();
            let figures =
                [(QUIRE, "p50_ms"), (QUIRE, "p99_ms"), (SLOWEST, "p50_ms"), (SLOWEST, "p99_ms"), (QUIRE, "megabytes")];
            let name = if share < 1.0 { "" } else { call.name() };
            row([name, &number(share)], figures.map(|(subject, figure)| results.cell(&load, subject, figure, number)))
        })
    });
    table("Milliseconds, one request at a time", heads, rows)
}

pub(super) fn packed(results: &Results) -> Table {
    let heads = ["call", "coding", "p50, ms", "p99, ms", "MB an answer", "server CPU, ms", "client CPU, ms"];
    let rows = Call::ALL.into_iter().flat_map(|call| {
        [PLAIN, PACKED[0], PACKED[1]].map(|coding| {
            let load = Load::one_at_a_time(call).coded(coding).name();
            let figures = ["p50_ms", "p99_ms", "megabytes", "cpu_ms", "client_cpu_ms"];
            let name = if coding == PLAIN { call.name() } else { "" };
            row([name, coding.0], figures.map(|figure| results.cell(&load, QUIRE, figure, number)))
        })
    });
    table("One request at a time, all matching rows; unpacking is not timed", heads, rows)
}

pub(super) fn others(results: &Results, found: &Found) -> Table {
    let heads = ["subject", "until the rows are there, ms", "until they are JSON, ms", "CPU, ms", "MB", "rows"];
    let [one, eight] = LIMITS.map(|clients| Load::limit(clients).name());
    let servers = [(QUIRE, "Quire, /search"), (NGINX, "nginx, the answer as a file")].map(|(subject, name)| {
        if results.of(&one, subject).next().is_none() {
            return row([name, "missing"], []);
        }
        let rate = results.median(&eight, subject, "bytes_per_second") / 1e9;
        let cells = ["p50_ms", "cpu_ms", "megabytes"].map(|figure| results.cell(&one, subject, figure, number));
        let matching = Value::text(units::count(found.matching));
        row([&*format!("{name}; {} GB/s to 8 clients", number(rate)), ""], cells.into_iter().chain([matching]))
    });
    let engines = ENGINES.map(|(engine, name)| {
        let figures = ["rows_ms", "json_ms", "cpu_ms", "megabytes"];
        if found.queries.of("", engine).next().is_none() {
            return row([name, "missing"], []);
        }
        let rows = found.queries.median("", engine, "rows");
        let is_wrong = (rows - units::float(found.matching)).abs() > 0.5;
        let cells = figures.map(|figure| found.queries.cell("", engine, figure, number));
        row([name], cells.into_iter().chain([Value::text(number(rows)).bad(is_wrong)]))
    });
    table("The same query, median milliseconds", heads, servers.into_iter().chain(engines))
}

pub(super) fn facts(found: &Found) -> Table {
    let seconds = |server: usize| found.started_seconds.get(server).copied().unwrap_or(f64::NAN);
    let facts = [
        ("loopback, bulk", format!("{}/s", units::bytes(found.bulk()))),
        ("the file", units::bytes(units::float(found.csv_bytes))),
        ("generated in", format!("{} s", number(found.generated_seconds))),
        ("server with rows encoded once listens after", format!("{} s", number(seconds(0)))),
        ("server that encodes each time listens after", format!("{} s", number(seconds(1)))),
        ("others' versions", found.versions.join(", ")),
    ];
    Table::of_facts("Beside the queries", facts.map(|(name, fact)| (name.to_owned(), fact)))
}
