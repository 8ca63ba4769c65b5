//! Findings of the record queries' experiment: page, rows and named figures, compared with the published ones.

use bench::report::page::{Card, Page, Table, Value};
use bench::report::plot::{Across, Axis, Chart, Rule, Unit};
use bench::report::units;
use bench::stats::interval;

use super::loads::{Call, LIMITS, Load, PACKED, PLAIN, POINTS, SHARES};
use crate::results::{Findings, Results, Show, Summary, card, page, requests_csv, row, runs_csv, value};

const RUNS: [&str; 17] = [
    "load",
    "server=subject",
    "round",
    "requests",
    "seconds",
    "requests_per_second=per_second",
    "bytes_a_request",
    "mean_us",
    "p50_us",
    "p90_us",
    "p99_us",
    "first_byte_p50_us=first_byte_us",
    "first_byte_p99_us",
    "server_cpu_us_a_request=cpu_us",
    "client_cpu_us_a_request=client_cpu_us",
    "client_busy_max",
    "doubts",
];
const QUERIES: [&str; 5] = ["engine=subject", "round", "query", "rows_ms", "json_ms"];

pub(super) fn findings(results: &Results, measurements: &Measurements) -> anyhow::Result<Findings> {
    let csvs = vec![
        ("runs.csv", runs_csv(results.all(), &RUNS)?),
        ("requests.csv", requests_csv(results)?),
        ("queries.csv", runs_csv(measurements.queries.all(), &QUERIES)?),
    ];
    Ok(Findings { page: the_page(results, measurements), csvs, summary: summary(results, measurements) })
}

fn the_page(results: &Results, measurements: &Measurements) -> Page {
    page("Record queries", format!(
            "{} of {} rows, by the value of a column, over gRPC and over REST, through the same clock.",
            units::count(measurements.matching),
            units::count(measurements.rows)
        ))
        .cards(cards(results, measurements))
        .heading("Goals")
        .table(goals(results, measurements))
        .heading("The published questions")
        .paragraph(
            "Milliseconds, one request at a time, all matching rows. The published figures are of a scan made parallel \
             with every answer encoded anew, of another file on another machine, and each side with a tool of its own: \
             compare the two protocols with each other, not the columns. Medians over the rounds.",
        )
        .table(published(results))
        .heading("Three scans, encoded each time and once")
        .paragraph("Median milliseconds and the server's CPU time a request; each pair of a scan and an encoding is a server of its own.")
        .table(ways(results))
        .heading("Where the time goes")
        .paragraph(
            "Median milliseconds of a request, as differences between servers. A scan: a server that scans, less one that \
             looks up. Encoding: a server that encodes each time, less one that encodes once. Collecting: a server that \
             keeps no answer in one piece, less one that does. The rest is the transport, at both ends. To make rows of \
             the answer is the client's own work: it is timed apart and is not in these times.",
        )
        .table(stages(results, measurements))
        .heading("A part of the rows")
        .table(parts(results))
        .heading("Compressed")
        .paragraph("The server compresses an answer for its first caller and keeps it; these are the times of the next callers.")
        .table(packed(results))
        .heading("One to twenty clients")
        .paragraph(format!(
            "Loopback carried {}/s over one connection with nothing but bytes to send; client and server share the \
             machine's cores.",
            units::bytes(measurements.bulk())
        ))
        .charts(Call::ALL.map(|call| curve(results, call)).into())
        .charts(vec![rates(results, measurements)])
        .heading("Beside others")
        .paragraph(
            "The same query, to databases through Python on the same file, and to nginx with the finished answer of \
             /search as a file. nginx only sends bytes: no server that has to find them first can be faster. Databases \
             run in the process that asks them, so no answer is sent anywhere.",
        )
        .table(others(results, measurements))
        .table(facts(measurements))
}

fn rate(results: &Results, call: Call) -> f64 {
    results.median(call.key(), QUIRE, "bytes_per_second")
}

/// Ratio of the gRPC side's bytes per second to the REST side's.
fn per_byte(results: &Results, grpc: Call, rest: Call) -> f64 {
    rate(results, grpc) / rate(results, rest)
}

fn speed_up(results: &Results, call: Call) -> f64 {
    let rate = |subject| results.median(call.key(), subject, "per_second");
    rate(QUIRE) / rate(SLOWEST)
}

fn cards(results: &Results, measurements: &Measurements) -> Vec<Card> {
    let call = Call::Record;
    let rate = rate(results, call);
    let a_second: Show = |rate| format!("{}/s", units::bytes(rate));
    let times: Show = |times| format!("{} times", units::number(times));
    let first_byte = results.median(call.key(), QUIRE, "first_byte_us");
    vec![
        card(
            "GetRecord, one at a time",
            value("record_bytes_per_second", rate, a_second),
            format!("{} of loopback's bulk rate", units::percent(rate / measurements.bulk())),
        ),
        card("First byte", value("record_first_byte_us", first_byte, units::micros), "the median"),
        card(
            "Against a sequential scan, encoded each time",
            value("record_speed_up", speed_up(results, call), times),
            "",
        ),
    ]
}

fn goals(results: &Results, measurements: &Measurements) -> Table {
    let heads = ["goal", "GetRecord", "/search", "GetRecordString", "/search_string"];
    let of_call = |name: &str, figure: &dyn Fn(Call) -> f64, show: Show, misses: fn(f64) -> bool| {
        Call::ALL.map(|call| value(format!("{}_{name}", call.key()), figure(call), show).bad(misses(figure(call))))
    };
    let share = |call| rate(results, call) / measurements.bulk();
    let first_byte = |call: Call| results.median(call.key(), QUIRE, "first_byte_us");
    let pair = |grpc: Call, rest: Call| {
        let ratio = per_byte(results, grpc, rest);
        value(format!("{}_per_byte", grpc.key()), ratio, units::number).bad((ratio - 1.0).abs() > 0.2)
    };
    let pairs = [
        pair(Call::Record, Call::Search),
        Value::text(""),
        pair(Call::RecordString, Call::SearchString),
        Value::text(""),
    ];
    let rows = [
        (
            "share of loopback's bulk rate, 50% or more",
            of_call("loopback_share", &share, units::percent, |share| share < 0.5),
        ),
        ("first byte, under 200 µs", of_call("first_byte_us", &first_byte, units::micros, |us| us >= 200.0)),
        (
            "times a sequential scan that encodes each time, 20 or more",
            of_call("speed_up", &|call| speed_up(results, call), units::number, |times| times < 20.0),
        ),
        ("gRPC's bytes a second over REST's, 0.8 to 1.2", pairs),
    ];
    Table::of_numbers(
        "One request at a time, all matching rows; what misses its goal is marked",
        heads,
        rows.map(|(goal, cells)| row([goal], cells)),
    )
}

fn points(results: &Results, subject: &str, call: Call, figure: &str, unit: f64) -> Vec<(f64, f64)> {
    let at = |clients| results.median(&Load::point(call, clients).name(), subject, figure) / unit;
    POINTS.map(|clients| (units::float(clients as u64), at(clients))).into()
}

fn clients_axis() -> Axis {
    Axis::linear("clients", Unit::Count).from(0.0)
}

/// Median and 99th percentile against the number of clients.
fn curve(results: &Results, call: Call) -> Chart {
    let series = [
        ("p50", QUIRE, "p50_us"),
        ("p99", QUIRE, "p99_us"),
        ("p50, parallel scan, encoded each time", AS_PUBLISHED, "p50_us"),
        ("p99, parallel scan, encoded each time", AS_PUBLISHED, "p99_us"),
    ];
    let series = series.map(|(name, subject, figure)| (name, points(results, subject, call, figure, 1.0)));
    let title = format!("{}: response time against number of clients", call.name());
    Chart::of_lines(
        title,
        "Medians over the rounds.",
        (clients_axis(), Axis::log("response time", Unit::Micros)),
        series,
    )
}

/// Bytes per second as shares of loopback's, against the number of clients.
fn rates(results: &Results, measurements: &Measurements) -> Chart {
    let share = |call: Call| (call.name(), points(results, QUIRE, call, "bytes_per_second", measurements.bulk()));
    let chart = Chart::of_lines(
        "Bytes of answers a second, as a share of loopback's bulk rate",
        "Loopback's rate is that of one connection; several can carry more where there are more cores.",
        (clients_axis(), Axis::linear("share of the bulk rate", Unit::Share).from(0.0)),
        Call::ALL.map(share),
    );
    chart.rules(vec![Rule { across: Across::Y, at: 0.5, label: "the goal".to_owned() }])
}

fn summary(results: &Results, measurements: &Measurements) -> Summary {
    let mut summary = Summary::default();
    summary.add("rows", units::float(measurements.rows));
    summary.add("matching_rows", units::float(measurements.matching));
    summary.add("loopback_bytes_per_second", measurements.bulk());
    summary.add("record_per_byte", per_byte(results, Call::Record, Call::Search));
    summary.add("record_string_per_byte", per_byte(results, Call::RecordString, Call::SearchString));
    for (call, decoding_ms) in Call::ALL.into_iter().zip(measurements.decoding_ms) {
        let key = call.key();
        summary.add(format!("{key}_loopback_share"), rate(results, call) / measurements.bulk());
        summary.add(format!("{key}_first_byte_us"), results.median(key, QUIRE, "first_byte_us"));
        summary.add(format!("{key}_speed_up"), speed_up(results, call));
        summary.add(format!("{key}_decoding_ms"), decoding_ms);
    }
    let mut seen = std::collections::BTreeSet::new();
    for one in results.all() {
        if seen.insert((&one.load, one.subject)) {
            let figures = ["p50_ms", "p90_ms", "p99_ms", "bytes_per_second", "cpu_us"];
            summary.medians(results, &one.load, &[one.subject], &figures);
        }
    }
    summary.medians(&measurements.queries, "", &ENGINES.map(|(engine, _)| engine), &["rows_ms", "json_ms"]);
    summary
}

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
pub(super) struct Measurements {
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

impl Measurements {
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
            let cells =
                [QUIRE, AS_PUBLISHED, SLOWEST].map(|subject| results.cell(call.key(), subject, figure, units::number));
            row([question, name, &units::number(published)], cells)
        })
    });
    Table::of_numbers("Milliseconds, one request at a time", heads, rows)
}

pub(super) fn ways(results: &Results) -> Table {
    let calls = Call::ALL.map(|call| format!("{}, ms", call.name()));
    let heads = ["server"].into_iter().chain(calls.iter().flat_map(|call| [&**call, "CPU, ms"]));
    let rows = SUBJECTS.into_iter().zip(NAMES).map(|(subject, name)| {
        let cell = |call: Call, figure| results.cell(call.key(), subject, figure, units::number);
        row([name], Call::ALL.into_iter().flat_map(|call| ["p50_ms", "cpu_ms"].map(|figure| cell(call, figure))))
    });
    Table::of_numbers("Median and CPU a request", heads, rows)
}

/// Stages of a query, by differences of medians.
pub(super) fn stages(results: &Results, measurements: &Measurements) -> Table {
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
    let rows = Call::ALL.into_iter().zip(measurements.decoding_ms).map(|(call, decoding_ms)| {
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
        row([call.name()], cells.map(|(name, ms)| value(format!("{}_{name}_ms", call.key()), ms, units::number)))
    });
    Table::of_numbers("Milliseconds", heads, rows)
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
            row(
                [name, &units::number(share)],
                figures.map(|(subject, figure)| results.cell(&load, subject, figure, units::number)),
            )
        })
    });
    Table::of_numbers("Milliseconds, one request at a time", heads, rows)
}

pub(super) fn packed(results: &Results) -> Table {
    let heads = ["call", "coding", "p50, ms", "p99, ms", "MB an answer", "server CPU, ms", "client CPU, ms"];
    let rows = Call::ALL.into_iter().flat_map(|call| {
        [PLAIN, PACKED[0], PACKED[1]].map(|coding| {
            let load = Load::one_at_a_time(call).coded(coding).name();
            let figures = ["p50_ms", "p99_ms", "megabytes", "cpu_ms", "client_cpu_ms"];
            let name = if coding == PLAIN { call.name() } else { "" };
            row([name, coding.0], figures.map(|figure| results.cell(&load, QUIRE, figure, units::number)))
        })
    });
    Table::of_numbers("One request at a time, all matching rows; unpacking is not timed", heads, rows)
}

pub(super) fn others(results: &Results, measurements: &Measurements) -> Table {
    let heads = ["subject", "until the rows are there, ms", "until they are JSON, ms", "CPU, ms", "MB", "rows"];
    let [one, eight] = LIMITS.map(|clients| Load::limit(clients).name());
    let servers = [(QUIRE, "Quire, /search"), (NGINX, "nginx, the answer as a file")].map(|(subject, name)| {
        if results.of(&one, subject).next().is_none() {
            return row([name, "missing"], []);
        }
        let rate = results.median(&eight, subject, "bytes_per_second") / 1e9;
        let cells = ["p50_ms", "cpu_ms", "megabytes"].map(|figure| results.cell(&one, subject, figure, units::number));
        let matching = Value::text(units::count(measurements.matching));
        row([&*format!("{name}; {} GB/s to 8 clients", units::number(rate)), ""], cells.into_iter().chain([matching]))
    });
    let engines = ENGINES.map(|(engine, name)| {
        let figures = ["rows_ms", "json_ms", "cpu_ms", "megabytes"];
        if measurements.queries.of("", engine).next().is_none() {
            return row([name, "missing"], []);
        }
        let rows = measurements.queries.median("", engine, "rows");
        let is_wrong = (rows - units::float(measurements.matching)).abs() > 0.5;
        let cells = figures.map(|figure| measurements.queries.cell("", engine, figure, units::number));
        row([name], cells.into_iter().chain([Value::text(units::number(rows)).bad(is_wrong)]))
    });
    Table::of_numbers("The same query, median milliseconds", heads, servers.into_iter().chain(engines))
}

pub(super) fn facts(measurements: &Measurements) -> Table {
    let seconds = |server: usize| measurements.started_seconds.get(server).copied().unwrap_or(f64::NAN);
    let facts = [
        ("loopback, bulk", format!("{}/s", units::bytes(measurements.bulk()))),
        ("the file", units::bytes(units::float(measurements.csv_bytes))),
        ("generated in", format!("{} s", units::number(measurements.generated_seconds))),
        ("server with rows encoded once listens after", format!("{} s", units::number(seconds(0)))),
        ("server that encodes each time listens after", format!("{} s", units::number(seconds(1)))),
        ("others' versions", measurements.versions.join(", ")),
    ];
    Table::of_facts("Beside the queries", facts.map(|(name, fact)| (name.to_owned(), fact)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bench::measurement::Run;

    use super::super::loads::{LIMITS, PACKED, SHARES};
    use super::super::page::{NGINX, SUBJECTS};
    use super::*;
    use crate::results::Observed;

    /// Two rounds in which every load ran on every server, with 250 kB per answer.
    fn runs() -> Results {
        let mut results = Results::default();
        let parts = Call::ALL.into_iter().flat_map(|call| SHARES.map(|share| Load::one_at_a_time(call).share(share)));
        let packed = Call::ALL.into_iter().flat_map(|call| PACKED.map(|how| Load::one_at_a_time(call).coded(how)));
        let curve = Call::ALL.into_iter().flat_map(|call| POINTS.map(|clients| Load::point(call, clients)));
        for load in parts.chain(packed).chain(curve).chain(LIMITS.map(Load::limit)) {
            for round in 0..2 {
                for subject in SUBJECTS.into_iter().chain([NGINX]) {
                    let rate = if subject == SLOWEST { 20.0 } else { 500.0 };
                    let run = Run { rate, completed: 1000, received_bytes: 250_000_000, ..Run::default() };
                    results.push(load.name(), subject, round, Observed::of_run(&run, Duration::from_millis(10)));
                }
            }
        }
        results
    }

    fn measurements() -> Measurements {
        let mut queries = Results::default();
        for round in 0..2 {
            for (query, rows_ms) in [(0.0, 20.0), (1.0, 30.0), (2.0, 40.0)] {
                let figures = [("query", query), ("rows", 5_000.0), ("rows_ms", rows_ms), ("json_ms", rows_ms + 30.0)];
                queries.push("", "sqlite", round, Observed::new(figures));
            }
        }
        Measurements {
            rows: 1_000_000,
            matching: 5_000,
            csv_bytes: 200_000_000,
            generated_seconds: 2.0,
            started_seconds: vec![9.0, 5.0, 9.0, 5.0, 9.0, 5.0],
            decoding_ms: [9.0, 8.0, 0.2, 0.1],
            loopback: vec![4e8, 2e8, 5e8],
            queries,
            versions: vec!["sqlite 3.40.1".to_owned()],
        }
    }

    #[test]
    fn goals_are_judged_by_the_medians() {
        let measurements = findings(&runs(), &measurements()).expect("a page");
        let figure =
            |name: &str| measurements.summary.figures().iter().find(|(key, _)| key == name).map(|(_, figure)| *figure);
        // 500 answers of 250 kB per second are 125 MB/s, which is 31.25% of 400 MB/s.
        assert_eq!(figure("loopback_bytes_per_second"), Some(4e8));
        assert_eq!(figure("record_loopback_share"), Some(0.3125));
        assert_eq!(figure("search_speed_up"), Some(25.0));
        assert_eq!(figure("record_per_byte"), Some(1.0));
        assert_eq!(figure("sqlite_rows_ms"), Some(30.0));
        assert!(figure("duckdb_rows_ms").is_none());
    }

    #[test]
    fn every_run_and_every_query_is_a_row() {
        let runs = runs();
        let measurements = findings(&runs, &measurements()).expect("a page");
        let rows = |name: &str| {
            let (_, text) = measurements.csvs.iter().find(|(file, _)| *file == name).expect("written");
            csv::Reader::from_reader(text.as_bytes()).into_records().flatten().count()
        };
        assert_eq!(rows("runs.csv"), runs.all().len());
        assert_eq!(rows("queries.csv"), 6);
    }
}
