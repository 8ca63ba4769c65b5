//! What a language costs its users: the clients of `clients/`, each beside the bare stub of its language, look books up and
//! buy them with keys, one call at a time and a hundred in flight, in turns against one server.
//!
//! The loads are made by each language's own driver, because a load generator would measure itself.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bench::report::page::{Card, Page, Table, Value};
use bench::report::units;
use serde::Deserialize;

use crate::bookstore::fill;
use crate::findings::{Findings, Summary, card, fixed, key, page, ratio_cells, row, runs_csv, table, value};
use crate::lab::Lab;
use crate::results::{Observed, Results};
use crate::server::on_core;

/// A language: its folder, its name, and its subjects, the library and the bare stub.
const LANGUAGES: [(&str, &str, [&str; 2]); 6] = [
    ("rust", "Rust", ["rust", "rust_bare"]),
    ("go", "Go", ["go", "go_bare"]),
    ("cpp", "C++", ["cpp", "cpp_bare"]),
    ("java", "Java", ["java", "java_bare"]),
    ("typescript", "TypeScript", ["typescript", "typescript_bare"]),
    ("python", "Python", ["python", "python_bare"]),
];

/// A load: its name, how it is told, the driver's word for the call, and how many are in flight.
const LOADS: [(&str, &str, &str, &str); 4] = [
    ("lookup_1", "lookups, one at a time", "lookup", "1"),
    ("lookup_100", "lookups, 100 in flight", "lookup", "100"),
    ("buy_1", "purchases with keys, one at a time", "buy", "1"),
    ("buy_100", "purchases with keys, 100 in flight", "buy", "100"),
];

/// Long enough for a virtual machine to compile what it runs, which counts as its users pay for it.
const SECONDS: u64 = 3;
/// A driver's start and end.
const SHOULD_TAKE: Duration = Duration::from_secs(SECONDS + 1);

const RUNS: [&str; 7] = ["load", "client=subject", "round", "calls=requests", "seconds", "per_second", "cpu_us"];

/// What a driver prints.
#[derive(Deserialize)]
struct Told {
    calls: f64,
    cpu_seconds: f64,
    seconds: f64,
}

/// Starts the server, measures, and says what was found.
pub(crate) fn run(lab: &mut Lab) -> anyhow::Result<Findings> {
    let server = lab.quire("quire", "bookstore", &[])?;
    fill(&server)?;
    if let Some(core) = lab.cores.server {
        server.pin_to(core)?;
    }
    let subjects: Vec<&str> = LANGUAGES.iter().flat_map(|(_, _, subjects)| *subjects).collect();
    let loads = LOADS.map(|(name, _, call, in_flight)| (name.to_owned(), (call, in_flight)));
    lab.progress.expect(subjects.len() * loads.len() * lab.options.rounds, SHOULD_TAKE);
    let (core, folder) = (lab.cores.client, lab.options.clients.clone());
    for round in lab.rounds() {
        lab.in_turns(round, &subjects, &loads, |subject, (call, in_flight)| {
            let (language, bare) = subject.strip_suffix("_bare").map_or((subject, false), |language| (language, true));
            let mut command = Command::new(folder.join(language).join("driver"));
            command.args(["bench", &server.address.to_string(), "--call", call, "--in-flight", in_flight]);
            command.args(["--seconds", &SECONDS.to_string()]).args(bare.then_some("--bare"));
            on_core(core, || driven(&mut command))
        })?;
    }
    findings(&lab.results)
}

fn driven(command: &mut Command) -> anyhow::Result<Observed> {
    let program = command.get_program().display().to_string();
    let done = command.output().with_context(|| format!("cannot start {program}; `make clients` builds it"))?;
    let told = || String::from_utf8_lossy(&done.stderr).trim().to_owned();
    ensure!(done.status.success(), "{program} ended ({}): {}", done.status, told());
    let Told { calls, cpu_seconds, seconds } = serde_json::from_slice(&done.stdout).with_context(told)?;
    Ok(Observed::new([
        ("requests", calls),
        ("seconds", seconds),
        ("per_second", calls / seconds),
        ("cpu_us", cpu_seconds / calls * 1e6),
    ]))
}

fn findings(results: &Results) -> anyhow::Result<Findings> {
    let page = page("What a language costs its users")
        .lead("Calls to the bookstore by the client of each language, and by the stub that its gRPC library generates.")
        .cards(cards(results))
        .paragraph(format!(
            "Each run is {SECONDS} seconds over one connection, the server on one core and the client on another. The              CPU time is that of the client's process. A ratio is the client's CPU a call over the stub's, with the              95% interval over rounds."
        ));
    let page = LOADS.iter().fold(page, |page: Page, load| page.table(costs(results, load)));
    let csvs = vec![("runs.csv", runs_csv(results.all(), &RUNS)?)];
    Ok(Findings { page, csvs, summary: summary(results) })
}

fn cards(results: &Results) -> Vec<Card> {
    let of = |&(load, told, ..): &(&str, &str, &str, &str)| {
        let cpu = |subject| results.median(load, subject, "cpu_us");
        let next = LANGUAGES[1..].iter().map(|(_, _, [client, _])| cpu(client)).fold(f64::INFINITY, f64::min);
        let ours = cpu(LANGUAGES[0].2[0]);
        let shown = value(format!("{load}_rust_share"), ours / next, |share| format!("{:.0}%", share * 100.0));
        card(&format!("Rust's CPU, {told}"), shown, format!("{ours:.1} µs a call; the next best {next:.1} µs"))
    };
    LOADS.iter().map(of).collect()
}

fn costs(results: &Results, &(load, told, ..): &(&str, &str, &str, &str)) -> Table {
    let heads =
        ["language", "calls/s", "CPU a call, µs", "bare stub: calls/s", "CPU, µs", "ratio of CPU", "95% interval"];
    let rows = LANGUAGES.iter().map(|&(_, name, [client, bare])| {
        let cells = [client, bare]
            .into_iter()
            .flat_map(|subject| results.cells(load, subject, &[("per_second", units::number), ("cpu_us", fixed::<1>)]));
        let ratio = results.ratio_of("cpu_us", load, client, bare);
        let cells: Vec<Value> = cells.chain(ratio_cells(key(load, client, "ratio"), ratio)).collect();
        row([name], cells)
    });
    table(told, heads, rows)
}

fn summary(results: &Results) -> Summary {
    let mut summary = Summary::default();
    for (load, ..) in LOADS {
        for (_, _, subjects) in LANGUAGES {
            summary.medians(results, load, &subjects, &["per_second", "cpu_us"]);
            let [client, bare] = subjects;
            summary.ratio(&key(load, client, "ratio"), results.ratio_of("cpu_us", load, client, bare));
        }
    }
    summary
}
