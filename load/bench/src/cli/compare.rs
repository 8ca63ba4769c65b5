//! `quire-bench compare`: compares two saved reports.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::{Args, ValueEnum as _};

use super::comparison::{Comparison, FORMAT};
use super::exit::Exit;
use crate::measurement::Report;
use crate::measurement::{Load, Machine};
use crate::report::json;
use crate::stats::compare::{CONFIDENCE, Design, RUNS_MIN, Sides, compare};
use crate::stats::metric::Metric;

/// Compares two saved reports, run by run
///
/// A change of the machine between the two looks like a difference, too: `ab` alternates both instead.
#[derive(Clone, Debug, Args)]
pub(crate) struct CompareArgs {
    /// Report of --json; the base of the ratios
    #[arg(value_name = "A.json")]
    pub(crate) a: PathBuf,
    /// Report of --json
    #[arg(value_name = "B.json")]
    pub(crate) b: PathBuf,
    /// Write the comparison as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn command(args: &CompareArgs) -> anyhow::Result<Exit> {
    effects(&args.a, &args.b)?.print(args.json)
}

pub(crate) fn effects(a: &Path, b: &Path) -> anyhow::Result<Comparison> {
    let (report_a, report_b) = (read(a)?, read(b)?);
    let sides: Vec<Sides> = Metric::value_variants()
        .iter()
        .filter_map(|&metric| {
            // A metric is compared only if every run has it: a part of the runs would be another sample.
            let values = |report: &Report| report.runs.iter().map(|run| metric.of(run)).collect::<Option<Vec<f64>>>();
            Some(Sides { metric, a: values(&report_a)?, b: values(&report_b)? })
        })
        .collect();
    let invalid = [&report_a, &report_b].iter().any(|report| report.runs.iter().any(|run| !run.verdict.is_valid()));
    Ok(Comparison {
        format: FORMAT,
        a: name(a, &report_a.load),
        b: name(b, &report_b.load),
        design: Design::Independent,
        confidence: CONFIDENCE,
        effects: compare(&sides, Design::Independent, CONFIDENCE),
        warnings: warnings(&report_a, &report_b),
        invalid,
        interrupted: [&report_a, &report_b].iter().any(|report| report.runs.iter().any(|run| run.interrupted)),
    })
}

fn name(path: &Path, load: &Load) -> String {
    format!("{}: {} {} {}", path.display(), load.protocol, load.target, load.what).trim_end().to_owned()
}

fn read(path: &Path) -> anyhow::Result<Report> {
    let report = json::read(path)?;
    ensure!(!report.runs.is_empty(), "{} holds no run", path.display());
    Ok(report)
}

fn warnings(a: &Report, b: &Report) -> Vec<String> {
    let mut warnings = Vec::new();
    for (side, report) in [("A", a), ("B", b)] {
        for (number, run) in report.runs.iter().enumerate() {
            if !run.verdict.is_valid() {
                warnings.push(format!("run {} of {side} is INVALID: {}", number + 1, run.verdict.reasons.join("; ")));
            }
            if run.interrupted {
                warnings.push(format!("run {} of {side} was interrupted", number + 1));
            }
        }
        if report.runs.len() < RUNS_MIN {
            warnings.push(format!(
                "{side} has one run; measure with --runs 5 or more, since only runs tell how runs differ"
            ));
        }
    }
    let differing = differing(a, b);
    if !differing.is_empty() {
        warnings.push(format!("the loads are not the same: {}", differing.join("; ")));
    }
    warnings
}

/// Differences between loads and machines, except the target, which is what is compared.
fn differing(a: &Report, b: &Report) -> Vec<String> {
    let mut pairs: Vec<(String, String, String)> = Vec::new();
    let (of_a, of_b) = (described(&a.load, &a.machine), described(&b.load, &b.machine));
    pairs.extend(of_a.into_iter().zip(of_b).map(|((name, a), (_, b))| (name.to_owned(), a, b)));
    let names: std::collections::BTreeSet<_> = a.load.settings.keys().chain(b.load.settings.keys()).collect();
    let setting = |load: &Load, name: &String| load.settings.get(name).map_or("not set".to_owned(), Clone::clone);
    pairs.extend(names.into_iter().map(|name| (format!("--{name}"), setting(&a.load, name), setting(&b.load, name))));
    pairs.retain(|(_, a, b)| a != b);
    pairs.into_iter().map(|(name, a, b)| format!("{name} {a} in A, {b} in B")).collect()
}

fn described(load: &Load, machine: &Machine) -> [(&'static str, String); 10] {
    [
        ("protocol", load.protocol.clone()),
        ("request", load.what.clone()),
        ("pace", load.pace.clone()),
        ("rate", load.rate.map_or("not set".to_owned(), |rate| rate.to_string())),
        ("connections", load.connections.to_string()),
        ("in flight", load.in_flight.to_string()),
        ("workers", load.workers.to_string()),
        ("processor", machine.cpu.clone()),
        ("cores", machine.cores.to_string()),
        ("system", machine.system.clone()),
    ]
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
