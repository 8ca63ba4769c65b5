//! Record queries: the rows of a file of a million that have a value which one in two hundred has, over gRPC and over
//! REST, one request at a time and from 1 to 20 clients.
//!
//! Servers have the same file, one for each way of finding rows and of encoding them. Both protocols are measured
//! by the same clock, beside what the machine's loopback carries, nginx with the finished answer as a file, and the
//! same query put to `SQLite` and `DuckDB`.

mod answers;
mod loads;
mod page;
mod peers;
mod rows;
mod tables;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use self::answers::Decoding;
use self::loads::{Call, Coding, Load, POINTS, SHARES};
use self::peers::{Asked, Engines, Nginx};
use crate::lab::{self, Results};
use crate::server::Server;
use crate::{Findings, Options, loopback};

/// The published file's size is not known; this is the size that the goals name.
const ROWS: u64 = 1_000_000;
/// The column and the value, and the share of the rows that have it.
const COLUMN: &str = "locations1";
const VALUE: &str = "Jacobs";
const ONE_OF: u64 = 200;

/// A server for each way of finding rows and of encoding them, the best first; the last keeps no answer in one piece.
const SUBJECTS: [&str; 7] = [
    "indexed_once",
    "indexed_each",
    "parallel_once",
    "parallel_each",
    "sequential_once",
    "sequential_each",
    "indexed_once_collected",
];
/// As the service is unless it is told otherwise.
const QUIRE: &str = SUBJECTS[0];
/// As the published server was when it was measured.
const AS_PUBLISHED: &str = SUBJECTS[3];
/// As the published server was at first.
const SLOWEST: &str = SUBJECTS[5];
/// Collects the rows of every answer.
const COLLECTED: &str = SUBJECTS[6];
const NGINX: &str = "nginx";

/// The other services stay out, with the ports they would take.
const ALONE: [&str; 3] = ["kv.enabled=false", "rpcgame.enabled=false", "tasks.enabled=false"];

/// How long loopback is measured at a time, and an engine asked.
const LOOPBACK: Duration = Duration::from_millis(500);
const ENGINE: Duration = Duration::from_secs(1);
/// What a run takes, more or less.
const RUN_SHOULD_TAKE: Duration = Duration::from_millis(1500);

/// Everything that was measured.
struct Measurements {
    rows: u64,
    matching: u64,
    csv_bytes: u64,
    generated_seconds: f64,
    /// From the start of each server until it listens.
    started_seconds: Vec<f64>,
    results: Results,
    /// What it takes a client to make rows of each answer.
    decoding: Decoding,
    loopback: Vec<f64>,
    engines: Vec<Asked>,
    /// What could not be measured and why.
    missing: Vec<String>,
    versions: Vec<(String, String)>,
}

/// Starts the servers, measures, and says what was found.
pub(super) fn run_experiment(options: &Options) -> anyhow::Result<Findings> {
    let folder = tempfile::Builder::new().prefix("data-").tempdir_in(&options.out).context("no folder for data")?;
    let folder = std::fs::canonicalize(folder.path()).map(|path| (folder, path)).context("no folder for data")?;
    let (_kept_until_the_end, folder) = folder;
    let rows = options.rows.unwrap_or(ROWS);
    let csv = folder.join("tickets.csv");
    let began = Instant::now();
    generate(options, &csv, rows)?;
    let generated_seconds = began.elapsed().as_secs_f64();
    let (servers, started_seconds) = start(options, &folder, &csv)?;
    let answers = answers::of_all(&servers)?;
    let matching = answers.rows;
    ensure!(
        (rows / ONE_OF..=rows.div_ceil(ONE_OF)).contains(&matching),
        "{matching} of {rows} rows have {COLUMN} {VALUE}; it should be one of {ONE_OF}"
    );
    let mut missing = Vec::new();
    let nginx = note(Nginx::start(&folder, &answers.bodies[Call::Search.place()]), "nginx", &mut missing);
    let engines = note(Engines::load(options, &folder, &csv), "SQLite and DuckDB", &mut missing);
    let mut measurements = Measurements {
        rows,
        matching,
        csv_bytes: std::fs::metadata(&csv)?.len(),
        generated_seconds,
        started_seconds,
        results: Results::default(),
        decoding: answers::decoding(&answers)?,
        loopback: Vec::new(),
        engines: Vec::new(),
        missing,
        versions: versions(nginx.as_ref(), engines.as_ref()),
    };
    measurements.missing.extend(engines.iter().flat_map(|engines| engines.missing.clone()));
    let runs: usize = series(nginx.is_some()).iter().map(|(subjects, loads)| subjects.len() * loads.len()).sum();
    options.progress.expect(options.rounds * runs, RUN_SHOULD_TAKE);
    let asked = engines.as_ref().map_or(0, Engines::count);
    options.progress.expect(options.rounds * asked, ENGINE);
    for round in 0..options.rounds {
        measure_round(options, round, &servers, nginx.as_ref(), engines.as_ref(), &mut measurements)?;
    }
    for server in servers {
        server.stop()?;
    }
    page::findings(&measurements)
}

/// The page says what is missing.
fn note<T>(found: anyhow::Result<T>, name: &str, missing: &mut Vec<String>) -> Option<T> {
    found.inspect_err(|error| missing.push(format!("{name}: {error:#}"))).ok()
}

fn versions(nginx: Option<&Nginx>, engines: Option<&Engines>) -> Vec<(String, String)> {
    let nginx = nginx.map(|nginx| ("nginx".to_owned(), nginx.version.clone()));
    nginx.into_iter().chain(engines.into_iter().flat_map(|engines| engines.versions.clone())).collect()
}

fn generate(options: &Options, csv: &Path, rows: u64) -> anyhow::Result<()> {
    let (rows, seed) = (rows.to_string(), options.seed.to_string());
    let mut command = Command::new(&options.quire);
    command.args(["generate", "records", "--rows", &rows, "--seed", &seed, "--out"]).arg(csv);
    let status = command.status().with_context(|| format!("cannot start {}", options.quire.display()))?;
    ensure!(status.success(), "{} did not make the file: {status}", options.quire.display());
    Ok(())
}

/// One server after the other, so that each loads with the whole machine.
fn start(options: &Options, folder: &Path, csv: &Path) -> anyhow::Result<(Vec<Server>, Vec<f64>)> {
    let mut seconds = Vec::new();
    let servers = SUBJECTS.map(|name| {
        let way = name.strip_suffix("_collected");
        let (scan, encode) = way.unwrap_or(name).split_once('_').unwrap_or((name, "once"));
        let data = folder.join(name);
        std::fs::create_dir_all(&data).with_context(|| format!("cannot make {}", data.display()))?;
        let mut command = Command::new(&options.quire);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data);
        command.args(["--set", &format!("records.csv={}", csv.display())]);
        let ways = [format!("records.scan={scan}"), format!("records.encode={encode}")];
        let collected = way.map(|_| "records.kept_bytes=0");
        for setting in ALONE.into_iter().chain(ways.iter().map(String::as_str)).chain(collected) {
            command.args(["--set", setting]);
        }
        let began = Instant::now();
        let server = Server::start(name, &mut command)?;
        seconds.push(began.elapsed().as_secs_f64());
        eprintln!("server {name} listens after {:.1} s", began.elapsed().as_secs_f64());
        Ok(server)
    });
    Ok((servers.into_iter().collect::<anyhow::Result<_>>()?, seconds))
}

/// What is measured in a round: subjects, and the loads that are put to them in turns.
fn series(has_nginx: bool) -> Vec<(Vec<&'static str>, Vec<Load>)> {
    let parts = Call::ALL.into_iter().flat_map(|call| SHARES.map(|share| Load::one_at_a_time(call).share(share)));
    let coded =
        Call::ALL.into_iter().flat_map(|call| Coding::PACKED.map(|coding| Load::one_at_a_time(call).coded(coding)));
    let curve = Call::ALL.into_iter().flat_map(|call| POINTS.map(|clients| Load::point(call, clients)));
    let mut series = vec![
        (SUBJECTS.into(), Call::ALL.map(Load::one_at_a_time).into()),
        (vec![QUIRE, SLOWEST], parts.filter(|load| load.share < 1.0).collect()),
        (vec![QUIRE], coded.collect()),
        (vec![QUIRE, AS_PUBLISHED], curve.collect()),
    ];
    if has_nginx {
        series.push((vec![QUIRE, NGINX], [1, 8].map(|clients| Load::limit(Call::Search, clients)).into()));
    }
    series
}

fn measure_round(
    options: &Options,
    round: usize,
    servers: &[Server],
    nginx: Option<&Nginx>,
    engines: Option<&Engines>,
    into: &mut Measurements,
) -> anyhow::Result<()> {
    let seed = options.seed + round as u64;
    for (subjects, loads) in series(nginx.is_some()) {
        into.loopback.push(loopback::bytes_per_second(LOOPBACK).context("loopback carries nothing")?);
        let loads: Vec<_> = loads.into_iter().map(|load| (load.name(), load)).collect();
        let measured = lab::in_turns(
            &options.progress,
            1,
            seed,
            &subjects,
            &loads,
            &mut |subject, load| match subjects[subject] {
                NGINX => nginx.context("nginx has gone")?.measure(load),
                name => loads::measure(&servers[place(name)], load),
            },
        )?;
        into.results.extend(measured.in_round(round));
    }
    if let Some(engines) = engines {
        into.engines.extend(engines.ask_all(&options.progress, round, ENGINE)?);
    }
    into.loopback.push(loopback::bytes_per_second(LOOPBACK).context("loopback carries nothing")?);
    Ok(())
}

fn place(name: &str) -> usize {
    SUBJECTS.iter().position(|subject| *subject == name).unwrap_or(0)
}
