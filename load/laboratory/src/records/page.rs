//! Findings of the record queries' experiment: page, rows and named figures, compared with the published ones.

use bench::report::page::{Card, Page, Table, Value};
use bench::report::plot::{Across, Axis, Chart, Rule, Unit};
use bench::report::units;

use super::loads::{Call, Load, POINTS};
use super::tables::{self, AS_PUBLISHED, ENGINES, Found, QUIRE, SLOWEST};
use crate::findings::{Findings, Show, Summary, card, page, requests_csv, row, runs_csv, table, value};
use crate::results::Results;

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

/// Assembles the findings.
pub(super) fn findings(results: &Results, found: &Found) -> anyhow::Result<Findings> {
    let csvs = vec![
        ("runs.csv", runs_csv(results.all(), &RUNS)?),
        ("requests.csv", requests_csv(results)?),
        ("queries.csv", runs_csv(found.queries.all(), &QUERIES)?),
    ];
    Ok(Findings { page: the_page(results, found), csvs, summary: summary(results, found) })
}

fn the_page(results: &Results, found: &Found) -> Page {
    page("Record queries")
        .lead(format!(
            "{} of {} rows, by the value of a column, over gRPC and over REST, through the same clock.",
            units::count(found.matching),
            units::count(found.rows)
        ))
        .cards(cards(results, found))
        .heading("Goals")
        .table(goals(results, found))
        .heading("The published questions")
        .paragraph(
            "Milliseconds, one request at a time, all matching rows. The published figures are of a scan made parallel \
             with every answer encoded anew, of another file on another machine, and each side with a tool of its own: \
             compare the two protocols with each other, not the columns. Medians over the rounds.",
        )
        .table(tables::published(results))
        .heading("Three scans, encoded each time and once")
        .paragraph("Median milliseconds and the server's CPU time a request; each pair of a scan and an encoding is a server of its own.")
        .table(tables::ways(results))
        .heading("Where the time goes")
        .paragraph(
            "Median milliseconds of a request, as differences between servers. A scan: a server that scans, less one that \
             looks up. Encoding: a server that encodes each time, less one that encodes once. Collecting: a server that \
             keeps no answer in one piece, less one that does. The rest is the transport, at both ends. To make rows of \
             the answer is the client's own work: it is timed apart and is not in these times.",
        )
        .table(tables::stages(results, found))
        .heading("A part of the rows")
        .table(tables::parts(results))
        .heading("Compressed")
        .paragraph("The server compresses an answer for its first caller and keeps it; these are the times of the next callers.")
        .table(tables::packed(results))
        .heading("One to twenty clients")
        .paragraph(format!(
            "Loopback carried {}/s over one connection with nothing but bytes to send; client and server share the \
             machine's cores.",
            units::bytes(found.bulk())
        ))
        .charts(Call::ALL.map(|call| curve(results, call)).into())
        .chart(rates(results, found))
        .heading("Beside others")
        .paragraph(
            "The same query, to databases through Python on the same file, and to nginx with the finished answer of \
             /search as a file. nginx only sends bytes: no server that has to find them first can be faster. Databases \
             run in the process that asks them, so no answer is sent anywhere.",
        )
        .table(tables::others(results, found))
        .table(tables::facts(found))
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

fn cards(results: &Results, found: &Found) -> Vec<Card> {
    let call = Call::Record;
    let rate = rate(results, call);
    let a_second: Show = |rate| format!("{}/s", units::bytes(rate));
    let times: Show = |times| format!("{} times", units::number(times));
    let first_byte = results.median(call.key(), QUIRE, "first_byte_us");
    vec![
        card(
            "GetRecord, one at a time",
            value("record_bytes_per_second", rate, a_second),
            format!("{} of loopback's bulk rate", units::percent(rate / found.bulk())),
        ),
        card("First byte", value("record_first_byte_us", first_byte, units::micros), "the median"),
        card(
            "Against a sequential scan, encoded each time",
            value("record_speed_up", speed_up(results, call), times),
            "",
        ),
    ]
}

fn goals(results: &Results, found: &Found) -> Table {
    let heads = ["goal", "GetRecord", "/search", "GetRecordString", "/search_string"];
    let of_call = |name: &str, figure: &dyn Fn(Call) -> f64, show: Show, misses: fn(f64) -> bool| {
        Call::ALL.map(|call| value(format!("{}_{name}", call.key()), figure(call), show).bad(misses(figure(call))))
    };
    let share = |call| rate(results, call) / found.bulk();
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
    table(
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
fn rates(results: &Results, found: &Found) -> Chart {
    let share = |call: Call| (call.name(), points(results, QUIRE, call, "bytes_per_second", found.bulk()));
    let chart = Chart::of_lines(
        "Bytes of answers a second, as a share of loopback's bulk rate",
        "Loopback's rate is that of one connection; several can carry more where there are more cores.",
        (clients_axis(), Axis::linear("share of the bulk rate", Unit::Share).from(0.0)),
        Call::ALL.map(share),
    );
    chart.rules(vec![Rule { across: Across::Y, at: 0.5, label: "the goal".to_owned() }])
}

fn summary(results: &Results, found: &Found) -> Summary {
    let mut summary = Summary::default();
    summary.add("rows", units::float(found.rows));
    summary.add("matching_rows", units::float(found.matching));
    summary.add("loopback_bytes_per_second", found.bulk());
    summary.add("record_per_byte", per_byte(results, Call::Record, Call::Search));
    summary.add("record_string_per_byte", per_byte(results, Call::RecordString, Call::SearchString));
    for (call, decoding_ms) in Call::ALL.into_iter().zip(found.decoding_ms) {
        let key = call.key();
        summary.add(format!("{key}_loopback_share"), rate(results, call) / found.bulk());
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
    summary.medians(&found.queries, "", &ENGINES.map(|(engine, _)| engine), &["rows_ms", "json_ms"]);
    summary
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bench::measurement::Run;

    use super::super::loads::{LIMITS, PACKED, SHARES};
    use super::super::tables::{NGINX, SUBJECTS};
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

    fn found() -> Found {
        let mut queries = Results::default();
        for round in 0..2 {
            for (query, rows_ms) in [(0.0, 20.0), (1.0, 30.0), (2.0, 40.0)] {
                let figures = [("query", query), ("rows", 5_000.0), ("rows_ms", rows_ms), ("json_ms", rows_ms + 30.0)];
                queries.push("", "sqlite", round, Observed::new(figures));
            }
        }
        Found {
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
        let found = findings(&runs(), &found()).expect("a page");
        let figure =
            |name: &str| found.summary.figures().iter().find(|(key, _)| key == name).map(|(_, figure)| *figure);
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
        let found = findings(&runs, &found()).expect("a page");
        let rows = |name: &str| {
            let (_, text) = found.csvs.iter().find(|(file, _)| *file == name).expect("written");
            csv::Reader::from_reader(text.as_bytes()).into_records().flatten().count()
        };
        assert_eq!(rows("runs.csv"), runs.all().len());
        assert_eq!(rows("queries.csv"), 6);
    }
}
