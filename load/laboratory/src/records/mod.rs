//! Record queries: rows with a value that one in 200 of a million rows has, over gRPC and REST, sequentially and from 1
//! to 20 clients.
//!
//! Servers have the same file, one for each way of finding rows and of encoding them. Both protocols are measured by
//! the same clock, and compared with the machine's loopback, nginx with the finished answer as a file, and the same
//! query in `SQLite` and `DuckDB`.

mod answers;
mod loads;
mod page;
mod peers;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use kit::Server;

use self::loads::{COLUMN, Call, LIMITS, Load, ONE_OF, PACKED, POINTS, SHARES, VALUE};
use self::page::{AS_PUBLISHED, Measurements, NGINX, QUIRE, SLOWEST, SUBJECTS};
use self::peers::Engines;
use crate::lab::{Lab, named};
use crate::machine;
use crate::results::{Findings, Results};

/// Size named by the goals; the published file's size is unknown.
const ROWS: u64 = 1_000_000;

/// Duration of one measurement of loopback, and of an engine's queries.
const LOOPBACK: Duration = Duration::from_millis(500);
const ENGINE: Duration = Duration::from_secs(1);
/// Approximate duration of a run.
const RUN_SHOULD_TAKE: Duration = Duration::from_millis(1500);

/// Starts the servers, measures, and returns the findings.
pub(crate) fn run(lab: &mut Lab) -> anyhow::Result<Findings> {
    let rows = lab.options.rows.unwrap_or(ROWS);
    let csv = lab.folder().join("tickets.csv");
    let began = Instant::now();
    generate(lab, &csv, rows)?;
    let generated_seconds = began.elapsed().as_secs_f64();
    let (mut servers, started_seconds) = start(lab, &csv)?;
    let answers = answers::of_all(&servers)?;
    let matching = answers.rows;
    ensure!(
        (rows / ONE_OF..=rows.div_ceil(ONE_OF)).contains(&matching),
        "{matching} of {rows} rows have {COLUMN} {VALUE}; it should be one of {ONE_OF}"
    );
    let nginx = peers::nginx(lab, &answers.bodies[Call::Search as usize]);
    let has_nginx = nginx.is_ok();
    match nginx {
        Ok(nginx) => servers.push(nginx),
        Err(error) => lab.missing.push(format!("nginx: {error:#}")),
    }
    let engines = Engines::load(lab, &csv).unwrap_or_else(|error| {
        lab.missing.push(format!("SQLite and DuckDB: {error:#}"));
        Engines::default()
    });
    let mut measurements = Measurements {
        rows,
        matching,
        csv_bytes: std::fs::metadata(&csv)?.len(),
        generated_seconds,
        started_seconds,
        decoding_ms: answers::decoding_ms(&answers)?,
        loopback: Vec::new(),
        queries: Results::default(),
        versions: lab.versions.clone(),
    };
    let runs: usize = series(has_nginx).iter().map(|(subjects, loads)| subjects.len() * loads.len()).sum();
    lab.progress.expect(lab.options.rounds * runs, RUN_SHOULD_TAKE);
    lab.progress.expect(lab.options.rounds * engines.count(), ENGINE);
    for round in lab.rounds() {
        for (subjects, loads) in series(has_nginx) {
            measurements
                .loopback
                .push(machine::loopback_bytes_per_second(LOOPBACK).context("loopback carries nothing")?);
            let loads: Vec<_> = loads.into_iter().map(|load| (load.name(), load)).collect();
            lab.in_turns(round, &subjects, &loads, |subject, load| match (subject, named(&servers, subject)) {
                (NGINX, nginx) => loads::get(nginx, load, peers::ANSWER),
                (_, server) => loads::ask(server, load),
            })?;
        }
        engines.ask_all(&mut lab.progress, round, ENGINE, &mut measurements.queries)?;
        measurements.loopback.push(machine::loopback_bytes_per_second(LOOPBACK).context("loopback carries nothing")?);
    }
    page::findings(&lab.results, &measurements)
}

fn generate(lab: &Lab, csv: &Path, rows: u64) -> anyhow::Result<()> {
    let (quire, rows, seed) = (&lab.options.quire, rows.to_string(), lab.options.seed.to_string());
    let mut command = Command::new(quire);
    command.args(["generate", "records", "--rows", &rows, "--seed", &seed, "--out"]).arg(csv);
    let status = command.status().with_context(|| format!("cannot start {}", quire.display()))?;
    ensure!(status.success(), "{} did not make the file: {status}", quire.display());
    Ok(())
}

/// Starts the servers one after another, so that each loads with the whole machine; also returns the seconds until each
/// listened.
fn start(lab: &Lab, csv: &Path) -> anyhow::Result<(Vec<Server>, Vec<f64>)> {
    let start = |name: &'static str| {
        let way = name.strip_suffix("_collected");
        let (scan, encode) = way.unwrap_or(name).split_once('_').unwrap_or((name, "once"));
        let csv = format!("records.csv={}", csv.display());
        let (scan, encode) = (format!("records.scan={scan}"), format!("records.encode={encode}"));
        let settings: Vec<&str> =
            [&*csv, &scan, &encode].into_iter().chain(way.map(|_| "records.kept_bytes=0")).collect();
        let began = Instant::now();
        let server = lab.quire(name, "records", &settings)?;
        let seconds = began.elapsed().as_secs_f64();
        eprintln!("server {name} listens after {seconds:.1} s");
        Ok((server, seconds))
    };
    let started = SUBJECTS.into_iter().map(start).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(started.into_iter().unzip())
}

/// Series of a round: subjects, and the loads run on them in turns.
fn series(has_nginx: bool) -> Vec<(Vec<&'static str>, Vec<Load>)> {
    fn each<const N: usize, T>(of: [T; N], load: impl Fn(Call, T) -> Load + Copy) -> Vec<Load>
    where
        T: Copy,
    {
        Call::ALL.into_iter().flat_map(|call| of.map(|what| load(call, what))).collect()
    }
    let mut parts = each(SHARES, |call, share| Load::one_at_a_time(call).share(share));
    parts.retain(|load| load.share < 1.0);
    let mut series = vec![
        (SUBJECTS.into(), Call::ALL.map(Load::one_at_a_time).into()),
        (vec![QUIRE, SLOWEST], parts),
        (vec![QUIRE], each(PACKED, |call, coding| Load::one_at_a_time(call).coded(coding))),
        (vec![QUIRE, AS_PUBLISHED], each(POINTS, Load::point)),
    ];
    if has_nginx {
        series.push((vec![QUIRE, NGINX], LIMITS.map(Load::limit).into()));
    }
    series
}
