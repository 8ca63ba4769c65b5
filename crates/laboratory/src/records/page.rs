//! What the record queries' experiment found: the page, the rows and the named figures, beside what was published.

use super::loads::{Call, Load, POINTS};
use super::{AS_PUBLISHED, Measurements, NGINX, QUIRE, SLOWEST, SUBJECTS, rows, tables};
use crate::lab::{Measured, requests_csv};
use crate::{Findings, experiment_page};
use bench::report::page::{Banner, Card, Figure, Page, Table, Tone, Value};
use bench::report::plot::{Across, Axis, Chart, Colour, Rule, Series, Shape, Unit};
use bench::report::units;
use bench::stats::interval;

/// Puts everything together.
pub(super) fn findings(measured: &Measurements) -> anyhow::Result<Findings> {
    let bulk = loopback(measured);
    let page = experiment_page("Record queries")
        .lead(format!(
            "{} of {} rows, by the value of a column, over gRPC and over REST, through the same clock.",
            units::count(measured.matching),
            units::count(measured.rows)
        ))
        .cards(cards(measured))
        .heading("Goals")
        .table(goals(measured))
        .heading("The published questions")
        .paragraph(
            "Milliseconds, one request at a time, all matching rows. The published figures are of a scan made parallel \
             with every answer encoded anew, of another file on another machine, and each side with a tool of its own: \
             compare the two protocols with each other, not the columns. Medians over the rounds.",
        )
        .table(tables::published(measured))
        .heading("Three scans, encoded each time and once")
        .paragraph("Median milliseconds and the server's CPU time a request; each pair of a scan and an encoding is a server of its own.")
        .table(tables::ways(measured))
        .heading("Where the time goes")
        .paragraph(
            "Median milliseconds of a request, by differences between servers: a scan is what a server that scans takes \
             beyond one that looks up; encoding what a server that encodes takes beyond one that has encoded; collecting \
             what a server that keeps no answer in one piece takes to gather its rows. What is left is the transport, of both ends. To make rows of the answer is the client's own work and is not in the \
             times above: it was timed apart.",
        )
        .table(tables::stages(measured))
        .heading("A part of the rows")
        .table(tables::parts(measured))
        .heading("Compressed")
        .paragraph("The answer is compressed when it is first asked for, and kept: what is timed here is what the next callers see.")
        .table(tables::packed(measured))
        .heading("One to twenty clients")
        .paragraph(format!(
            "Loopback carried {}/s over one connection with nothing but bytes to send; client and server share the \
             machine's cores.",
            units::bytes(bulk)
        ))
        .charts(Call::ALL.map(|call| curve(measured, call)).into())
        .chart(rates(measured))
        .heading("Beside others")
        .paragraph(
            "The same query, to databases through Python on the same file, and nginx with the finished answer of \
             /search as a file: who only sends bytes, and a limit for who has to find them first. Databases are asked \
             in their own process, so no answer is sent anywhere.",
        )
        .table(tables::others(measured))
        .table(tables::facts(measured));
    let page = doubts(measured).into_iter().fold(page, Page::banner);
    let csvs = vec![
        ("runs.csv".to_owned(), rows::runs(&measured.results)?),
        ("requests.csv".to_owned(), requests_csv(measured.results.all().iter())?),
        ("queries.csv".to_owned(), rows::queries(measured)?),
    ];
    Ok(Findings { page: page.finish(), csvs, summary: summary(measured) })
}

fn doubts(measured: &Measurements) -> Vec<Banner> {
    let doubtful = measured.results.doubts();
    let banner = |key: &str, title: &str, words: &str, reasons: &[String]| Banner {
        tone: Tone::Warning,
        key: key.to_owned(),
        title: title.to_owned(),
        words: words.to_owned(),
        reasons: reasons.to_vec(),
    };
    let missing = banner("missing", "Not measured", "These could not be measured here:", &measured.missing);
    let words = "These runs do not meet every condition of a valid one; their figures are shown all the same.";
    let doubtful = banner("doubtful", "Runs with a doubt", words, &doubtful);
    [missing, doubtful].into_iter().filter(|banner| !banner.reasons.is_empty()).collect()
}

/// Loopback's bulk rate, the median of the measurements between the series.
pub(super) fn loopback(measured: &Measurements) -> f64 {
    interval::median(&measured.loopback)
}

pub(super) fn one(call: Call) -> String {
    Load::one_at_a_time(call).name()
}

/// A quantile of the response time in milliseconds; the median over the rounds.
pub(super) fn quantile_ms(measured: &Measurements, subject: &str, load: &str, quantile: f64) -> f64 {
    measured.results.median(subject, load, |one| one.run.response.quantile_us(quantile)) / 1e3
}

pub(super) fn bytes_per_second(measured: &Measurements, subject: &str, load: &str) -> f64 {
    measured.results.median(subject, load, Measured::bytes_per_second)
}

fn first_byte_us(measured: &Measurements, call: Call) -> f64 {
    measured.results.median(QUIRE, &one(call), |one| one.run.first_byte.quantile_us(0.5))
}

/// How many times the bytes a second of the REST side the gRPC side sends.
fn per_byte(measured: &Measurements, grpc: Call, rest: Call) -> f64 {
    bytes_per_second(measured, QUIRE, &one(grpc)) / bytes_per_second(measured, QUIRE, &one(rest))
}

fn speed_up(measured: &Measurements, call: Call) -> f64 {
    let rate = |subject| measured.results.median(subject, &one(call), |one| one.run.rate);
    rate(QUIRE) / rate(SLOWEST)
}

fn cards(measured: &Measurements) -> Vec<Card> {
    let call = Call::Record;
    let rate = bytes_per_second(measured, QUIRE, &one(call));
    let share = rate / loopback(measured);
    let first = first_byte_us(measured, call);
    let times = speed_up(measured, call);
    let card = |name: &str, value, note: String| Card { name: name.to_owned(), value, note, tone: Tone::Main };
    vec![
        card(
            "GetRecord, one at a time",
            Value::figure("record_bytes_per_second", rate, format!("{}/s", units::bytes(rate))),
            format!("{} of loopback's bulk rate", units::percent(share)),
        ),
        card("First byte", Value::figure("record_first_byte_us", first, units::micros(first)), "the median".to_owned()),
        card(
            "Against a sequential scan, encoded each time",
            Value::figure("record_speed_up", times, format!("{} times", units::number(times))),
            String::new(),
        ),
    ]
}

fn goals(measured: &Measurements) -> Table {
    let heads = ["goal", "GetRecord", "/search", "GetRecordString", "/search_string"];
    let bulk = loopback(measured);
    let share = |call: Call| {
        let share = bytes_per_second(measured, QUIRE, &one(call)) / bulk;
        Value::figure(format!("{}_loopback_share", call.key()), share, units::percent(share)).bad(share < 0.5)
    };
    let first = |call: Call| {
        let first = first_byte_us(measured, call);
        Value::figure(format!("{}_first_byte_us", call.key()), first, units::micros(first)).bad(first >= 200.0)
    };
    let times = |call: Call| {
        let times = speed_up(measured, call);
        Value::figure(format!("{}_speed_up", call.key()), times, units::number(times)).bad(times < 20.0)
    };
    let pair = |grpc: Call, rest: Call| {
        let ratio = per_byte(measured, grpc, rest);
        Value::figure(format!("{}_per_byte", grpc.key()), ratio, units::number(ratio)).bad((ratio - 1.0).abs() > 0.2)
    };
    let row = |name: &str, of: &dyn Fn(Call) -> Value| {
        std::iter::once(Value::text(name)).chain(Call::ALL.map(of)).collect::<Vec<_>>()
    };
    let pairs = [
        Value::text("gRPC's bytes a second over REST's, 0.8 to 1.2"),
        pair(Call::Record, Call::Search),
        Value::text(""),
        pair(Call::RecordString, Call::SearchString),
        Value::text(""),
    ];
    Table::of_numbers("One request at a time, all matching rows; what misses its goal is marked", heads)
        .row(row("share of loopback's bulk rate, 50% or more", &share))
        .row(row("first byte, under 200 µs", &first))
        .row(row("times a sequential scan that encodes each time, 20 or more", &times))
        .row(pairs)
}

#[expect(clippy::cast_precision_loss, reason = "clients are few")]
fn points(measured: &Measurements, subject: &str, call: Call, figure: fn(&Measured) -> f64) -> Vec<(f64, f64)> {
    let at =
        |clients: usize| (clients as f64, measured.results.median(subject, &Load::point(call, clients).name(), figure));
    POINTS.map(at).into()
}

/// Median and 99th percentile against the number of clients.
fn curve(measured: &Measurements, call: Call) -> Figure {
    let p50 = |one: &Measured| one.run.response.quantile_us(0.5);
    let p99 = |one: &Measured| one.run.response.quantile_us(0.99);
    let line = |name: &str, colour, subject, figure| {
        Series::new(name, Colour::Series(colour), Shape::Line(points(measured, subject, call, figure)))
    };
    Figure {
        title: format!("{}: response time against number of clients", call.name()),
        caption: "Medians over the rounds.".to_owned(),
        chart: Chart {
            x: Axis::linear("clients", Unit::Count).from(0.0),
            y: Axis::log("response time", Unit::Micros),
            series: vec![
                line("p50", 0, QUIRE, p50),
                line("p99", 1, QUIRE, p99),
                line("p50, parallel scan, encoded each time", 2, AS_PUBLISHED, p50),
                line("p99, parallel scan, encoded each time", 3, AS_PUBLISHED, p99),
            ],
            ..Chart::default()
        },
    }
}

/// Bytes a second as shares of loopback's, against the number of clients.
fn rates(measured: &Measurements) -> Figure {
    let bulk = loopback(measured);
    let series = Call::ALL.into_iter().enumerate().map(|(colour, call)| {
        let points = points(measured, QUIRE, call, Measured::bytes_per_second);
        let points = points.into_iter().map(|(clients, rate)| (clients, rate / bulk)).collect();
        Series::new(call.name(), Colour::Series(colour), Shape::Line(points))
    });
    Figure {
        title: "Bytes of answers a second, as a share of loopback's bulk rate".to_owned(),
        caption: "Loopback's rate is that of one connection; several can carry more where there are more cores."
            .to_owned(),
        chart: Chart {
            x: Axis::linear("clients", Unit::Count).from(0.0),
            y: Axis::linear("share of the bulk rate", Unit::Share).from(0.0),
            series: series.collect(),
            rules: vec![Rule { across: Across::Y, at: 0.5, label: "the goal".to_owned() }],
            ..Chart::default()
        },
    }
}

fn summary(measured: &Measurements) -> Vec<(String, f64)> {
    let mut summary = vec![
        ("rows".to_owned(), units::float(measured.rows)),
        ("matching_rows".to_owned(), units::float(measured.matching)),
        ("loopback_bytes_per_second".to_owned(), loopback(measured)),
        ("record_per_byte".to_owned(), per_byte(measured, Call::Record, Call::Search)),
        ("record_string_per_byte".to_owned(), per_byte(measured, Call::RecordString, Call::SearchString)),
    ];
    for call in Call::ALL {
        let key = call.key();
        let rate = bytes_per_second(measured, QUIRE, &one(call));
        summary.push((format!("{key}_loopback_share"), rate / loopback(measured)));
        summary.push((format!("{key}_first_byte_us"), first_byte_us(measured, call)));
        summary.push((format!("{key}_speed_up"), speed_up(measured, call)));
        summary.push((format!("{key}_decoding_ms"), measured.decoding[call.place()]));
    }
    let mut seen = std::collections::BTreeSet::new();
    for Measured { load, subject, .. } in measured.results.all() {
        if !seen.insert((load, subject)) {
            continue;
        }
        for (name, quantile) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
            summary.push((format!("{load}_{subject}_{name}_ms"), quantile_ms(measured, subject, load, quantile)));
        }
        summary.push((format!("{load}_{subject}_bytes_per_second"), bytes_per_second(measured, subject, load)));
        let cpu = measured.results.median(subject, load, Measured::server_cpu_us);
        summary.push((format!("{load}_{subject}_cpu_us"), cpu));
    }
    for engine in super::peers::ENGINES {
        if let Some(found) = tables::engine(measured, engine) {
            summary.push((format!("{engine}_rows_ms"), found.rows_ms));
            summary.push((format!("{engine}_json_ms"), found.json_ms));
        }
    }
    debug_assert!(SUBJECTS.contains(&QUIRE) && !SUBJECTS.contains(&NGINX));
    summary
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::loads::{Coding, SHARES};
    use super::super::peers::Asked;
    use super::*;
    use crate::fixtures;
    use crate::lab::Results;
    use bench::measurement::Run;

    /// Two rounds in which every load ran on every server, with 250 kB an answer.
    fn measured(missing: &[&str]) -> Measurements {
        let mut results = Results::default();
        let one = Call::ALL.map(Load::one_at_a_time).into_iter();
        let parts = Call::ALL.into_iter().flat_map(|call| SHARES.map(|share| Load::one_at_a_time(call).share(share)));
        let packed =
            Call::ALL.into_iter().flat_map(|call| Coding::PACKED.map(|how| Load::one_at_a_time(call).coded(how)));
        let curve = Call::ALL.into_iter().flat_map(|call| POINTS.map(|clients| Load::point(call, clients)));
        let limit = [1, 8].map(|clients| Load::limit(Call::Search, clients)).into_iter();
        for load in one.chain(parts.filter(|load| load.share < 1.0)).chain(packed).chain(curve).chain(limit) {
            for round in 0..2 {
                for subject in SUBJECTS.into_iter().chain([NGINX]) {
                    let rate = if subject == SLOWEST { 20.0 } else { 500.0 };
                    let run = Run { rate, received_bytes: 250_000_000, ..fixtures::busy() };
                    let server_cpu = Duration::from_millis(10);
                    results.push(Measured { subject, load: load.name(), round, run, server_cpu });
                }
            }
        }
        let asked = |round| Asked {
            engine: "sqlite".to_owned(),
            round,
            rows: 5_000,
            json_bytes: 2e6,
            cpu_ms: 30.0,
            rows_ms: vec![20.0, 30.0, 40.0],
            json_ms: vec![50.0, 60.0, 70.0],
        };
        Measurements {
            rows: 1_000_000,
            matching: 5_000,
            csv_bytes: 200_000_000,
            generated_seconds: 2.0,
            started_seconds: vec![9.0, 5.0, 9.0, 5.0, 9.0, 5.0],
            results,
            decoding: [9.0, 8.0, 0.2, 0.1],
            loopback: vec![4e8, 2e8, 5e8],
            engines: vec![asked(0), asked(1)],
            missing: missing.iter().map(|&reason| reason.to_owned()).collect(),
            versions: vec![("sqlite".to_owned(), "3.40.1".to_owned())],
        }
    }

    #[test]
    fn goals_are_judged_by_the_medians() {
        let found = findings(&measured(&[])).expect("a page");
        let figure = |name: &str| found.summary.iter().find(|(key, _)| key == name).map(|(_, figure)| *figure);
        // 500 answers a second of 250 kB are 125 MB/s, which is 31.25% of 400 MB/s.
        assert_eq!(figure("loopback_bytes_per_second"), Some(4e8));
        assert_eq!(figure("record_loopback_share"), Some(0.3125));
        assert_eq!(figure("search_speed_up"), Some(25.0));
        assert_eq!(figure("record_per_byte"), Some(1.0));
        assert_eq!(figure("sqlite_rows_ms"), Some(30.0));
        assert!(figure("duckdb_rows_ms").is_none());
    }

    #[test]
    fn what_is_missing_is_said_in_the_page() {
        let found = findings(&measured(&["duckdb: no module"])).expect("a page");
        assert!(found.page.contains("duckdb: no module"));
        assert!(!findings(&measured(&[])).expect("a page").page.contains("Not measured"));
    }

    #[test]
    fn every_run_and_every_query_is_a_row() {
        let measured = measured(&[]);
        let found = findings(&measured).expect("a page");
        let rows = |name: &str| {
            let (_, text) = found.csvs.iter().find(|(file, _)| file == name).expect("written");
            csv::Reader::from_reader(text.as_bytes()).into_records().flatten().count()
        };
        assert_eq!(rows("runs.csv"), measured.results.all().len());
        assert_eq!(rows("queries.csv"), 6);
    }
}
