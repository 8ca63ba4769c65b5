//! The tables of the record queries' page. Must not know how anything was measured.

use super::loads::{Call, Coding, Load, SHARES};
use super::page::{bytes_per_second, loopback, one, quantile_ms};
use super::peers::ENGINES;
use super::{AS_PUBLISHED, COLLECTED, Measurements, NGINX, QUIRE, SLOWEST, SUBJECTS};
use bench::report::page::{Table, Value};
use bench::report::units;
use bench::stats::interval;

use crate::lab::Measured;

/// p50, p90 and p99 in milliseconds as published, by [`Call::place`].
const PUBLISHED_MS: [[f64; 3]; 4] =
    [[149.0, 158.0, 254.0], [141.0, 156.0, 204.0], [138.0, 171.0, 330.0], [127.0, 146.0, 233.0]];

const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];

/// What the ways of finding and encoding are called, in the order of [`SUBJECTS`].
const NAMES: [&str; 7] = [
    "indexed, encoded once",
    "indexed, encoded each time",
    "parallel, encoded once",
    "parallel, encoded each time",
    "sequential, encoded once",
    "sequential, encoded each time",
    "indexed, encoded once, collected each time",
];

fn ms(key: String, value: f64) -> Value {
    Value::figure(key, value, units::number(value))
}

pub(super) fn published(measured: &Measurements) -> Table {
    let heads = ["question", "", "published", "Quire", "parallel, encoded each time", "sequential, encoded each time"];
    let mut table = Table::of_numbers("Milliseconds, one request at a time", heads);
    for call in Call::ALL {
        for (place, ((name, quantile), published)) in QUANTILES.into_iter().zip(PUBLISHED_MS[call.place()]).enumerate()
        {
            let cells = [QUIRE, AS_PUBLISHED, SLOWEST].map(|subject| {
                ms(format!("{}_{subject}_{name}_ms", call.key()), quantile_ms(measured, subject, &one(call), quantile))
            });
            let question = if place == 0 { call.name() } else { "" };
            let first = [Value::text(question), Value::text(name), Value::text(units::number(published))];
            table = table.row(first.into_iter().chain(cells));
        }
    }
    table
}

pub(super) fn ways(measured: &Measurements) -> Table {
    let heads: Vec<String> = std::iter::once("server".to_owned())
        .chain(Call::ALL.into_iter().flat_map(|call| [format!("{}, ms", call.name()), "CPU, ms".to_owned()]))
        .collect();
    let table = Table::of_numbers("Median and CPU a request", heads.iter().map(String::as_str));
    SUBJECTS.into_iter().zip(NAMES).fold(table, |table, (subject, name)| {
        let cells = Call::ALL.into_iter().flat_map(|call| {
            let cpu = measured.results.median(subject, &one(call), Measured::server_cpu_us) / 1e3;
            [
                ms(format!("{}_{subject}_p50_ms", call.key()), quantile_ms(measured, subject, &one(call), 0.5)),
                ms(format!("{}_{subject}_cpu_ms", call.key()), cpu),
            ]
        });
        table.row(std::iter::once(Value::text(name)).chain(cells))
    })
}

/// By differences of medians.
pub(super) fn stages(measured: &Measurements) -> Table {
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
    Call::ALL.into_iter().fold(Table::of_numbers("Milliseconds", heads), |table, call| {
        let p50 = |subject| quantile_ms(measured, subject, &one(call), 0.5);
        let ready = p50(QUIRE);
        let median = |figure: fn(&Measured) -> f64| measured.results.median(QUIRE, &one(call), figure) / 1e3;
        let cells = [
            ("sequential_scan", p50("sequential_once") - ready),
            ("parallel_scan", p50("parallel_once") - ready),
            ("encoding", p50("indexed_each") - ready),
            ("collecting", p50(COLLECTED) - ready),
            ("transport", ready),
            ("first_byte", median(|one| one.run.first_byte.quantile_us(0.5))),
            ("server_cpu", median(Measured::server_cpu_us)),
            ("client_cpu", median(Measured::client_cpu_us)),
            ("decoding", measured.decoding[call.place()]),
        ];
        let cells = cells.map(|(name, value)| ms(format!("{}_{name}_ms", call.key()), value));
        table.row(std::iter::once(Value::text(call.name())).chain(cells))
    })
}

pub(super) fn parts(measured: &Measurements) -> Table {
    let heads =
        ["call", "result_size", "Quire, p50", "p99", "sequential, encoded each time, p50", "p99", "MB an answer"];
    let mut table = Table::of_numbers("Milliseconds, one request at a time", heads);
    for call in Call::ALL {
        for share in SHARES {
            let load = Load::one_at_a_time(call).share(share).name();
            let cells = [(QUIRE, 0.5), (QUIRE, 0.99), (SLOWEST, 0.5), (SLOWEST, 0.99)].map(|(subject, quantile)| {
                let key = format!("{load}_{subject}_p{:.0}_ms", quantile * 100.0);
                ms(key, quantile_ms(measured, subject, &load, quantile))
            });
            let bytes = measured.results.median(QUIRE, &load, Measured::bytes_a_request) / 1e6;
            let name = if share < 1.0 { "" } else { call.name() };
            let first = [Value::text(name), Value::text(units::number(share))];
            table = table.row(first.into_iter().chain(cells).chain([ms(format!("{load}_megabytes"), bytes)]));
        }
    }
    table
}

pub(super) fn packed(measured: &Measurements) -> Table {
    let heads = ["call", "coding", "p50, ms", "p99, ms", "MB an answer", "server CPU, ms", "client CPU, ms"];
    let mut table = Table::of_numbers("One request at a time, all matching rows; unpacking is not timed", heads);
    for call in Call::ALL {
        for coding in [Coding::Plain, Coding::Gzip, Coding::Zstd] {
            let load = Load::one_at_a_time(call).coded(coding).name();
            let median = |figure: fn(&Measured) -> f64| measured.results.median(QUIRE, &load, figure);
            let cells = [
                ("p50_ms", quantile_ms(measured, QUIRE, &load, 0.5)),
                ("p99_ms", quantile_ms(measured, QUIRE, &load, 0.99)),
                ("megabytes", median(Measured::bytes_a_request) / 1e6),
                ("server_cpu_ms", median(Measured::server_cpu_us) / 1e3),
                ("client_cpu_ms", median(Measured::client_cpu_us) / 1e3),
            ];
            let cells = cells.map(|(name, value)| ms(format!("{load}_{name}"), value));
            let name = if coding == Coding::Plain { call.name() } else { "" };
            table = table.row([Value::text(name), Value::text(coding.name())].into_iter().chain(cells));
        }
    }
    table
}

/// What an engine took, medians of all rounds' queries.
pub(super) struct Engine {
    pub(super) rows: u64,
    pub(super) rows_ms: f64,
    pub(super) json_ms: f64,
    cpu_ms: f64,
    megabytes: f64,
}

pub(super) fn engine(measured: &Measurements, name: &str) -> Option<Engine> {
    let rounds: Vec<_> = measured.engines.iter().filter(|asked| asked.engine == name).collect();
    let all =
        |figure: fn(&super::Asked) -> f64| interval::median(&rounds.iter().map(|one| figure(one)).collect::<Vec<_>>());
    Some(Engine {
        rows: rounds.first()?.rows,
        rows_ms: all(|asked| interval::median(&asked.rows_ms)),
        json_ms: all(|asked| interval::median(&asked.json_ms)),
        cpu_ms: all(|asked| asked.cpu_ms),
        megabytes: all(|asked| asked.json_bytes / 1e6),
    })
}

pub(super) fn others(measured: &Measurements) -> Table {
    let heads = ["subject", "until the rows are there, ms", "until they are JSON, ms", "CPU, ms", "MB", "rows"];
    let mut table = Table::of_numbers("The same query, median milliseconds", heads);
    let load = Load::limit(Call::Search, 1).name();
    let eight = Load::limit(Call::Search, 8).name();
    for (subject, name) in [(QUIRE, "Quire, /search"), (NGINX, "nginx, the answer as a file")] {
        if measured.results.of(subject, &load).next().is_none() {
            table = table.row([Value::text(name), Value::text("missing")]);
            continue;
        }
        let cpu = measured.results.median(subject, &load, Measured::server_cpu_us) / 1e3;
        let bytes = measured.results.median(subject, &load, Measured::bytes_a_request) / 1e6;
        let rate = bytes_per_second(measured, subject, &eight) / 1e9;
        table = table.row([
            Value::text(format!("{name}; {} GB/s to 8 clients", units::number(rate))),
            Value::text(""),
            ms(format!("limit_{subject}_p50_ms"), quantile_ms(measured, subject, &load, 0.5)),
            ms(format!("limit_{subject}_cpu_ms"), cpu),
            ms(format!("limit_{subject}_megabytes"), bytes),
            Value::text(units::count(measured.matching)),
        ]);
    }
    let names = ["SQLite without an index", "SQLite with an index", "DuckDB"];
    for (key, name) in ENGINES.into_iter().zip(names) {
        table = table.row(match engine(measured, key) {
            None => vec![Value::text(name), Value::text("missing")],
            Some(found) => vec![
                Value::text(name),
                ms(format!("{key}_rows_ms"), found.rows_ms),
                ms(format!("{key}_json_ms"), found.json_ms),
                ms(format!("{key}_cpu_ms"), found.cpu_ms),
                ms(format!("{key}_megabytes"), found.megabytes),
                Value::text(units::count(found.rows)).bad(found.rows != measured.matching),
            ],
        });
    }
    table
}

pub(super) fn facts(measured: &Measurements) -> Table {
    let versions = measured.versions.iter().map(|(name, version)| format!("{name} {version}")).collect::<Vec<_>>();
    let seconds = |name: usize| measured.started_seconds.get(name).copied().unwrap_or(f64::NAN);
    let facts = [
        ("loopback, bulk".to_owned(), format!("{}/s", units::bytes(loopback(measured)))),
        ("the file".to_owned(), units::bytes(units::float(measured.csv_bytes))),
        ("made up in".to_owned(), format!("{} s", units::number(measured.generated_seconds))),
        ("server with rows encoded once listens after".to_owned(), format!("{} s", units::number(seconds(0)))),
        ("server that encodes each time listens after".to_owned(), format!("{} s", units::number(seconds(1)))),
        ("others' versions".to_owned(), versions.join(", ")),
    ];
    Table::of_facts("Beside the queries", facts)
}
