//! `quire-bench compare`: compares two saved reports.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum as _};
use serde::Serialize;

use super::exit::Exit;
use crate::measurement::{Load, Machine, Report};
use crate::report::table::table;
use crate::report::{json, units};
use crate::stats::compare::{CONFIDENCE, Design, Effect, RUNS_MIN, Sides, Verdict, compare};
use crate::stats::metric::{Metric, Scale};

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

/// Value of `format` in the JSON.
pub(crate) const FORMAT: &str = "quire-bench-effects/1";

/// A comparison as a text table and as JSON, for `compare` and `ab`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) format: &'static str,
    pub(crate) a: String,
    pub(crate) b: String,
    pub(crate) design: Design,
    /// Joint confidence of all verdicts.
    pub(crate) confidence: f64,
    pub(crate) effects: Vec<Effect>,
    /// Reasons to doubt the comparison.
    pub(crate) warnings: Vec<String>,
    /// True if any run is invalid.
    pub(crate) invalid: bool,
    pub(crate) interrupted: bool,
}

impl Comparison {
    /// Writes the table, or JSON.
    pub(crate) fn write(&self, as_json: bool, out: &mut dyn Write) -> io::Result<()> {
        if as_json {
            serde_json::to_writer_pretty(&mut *out, self)?;
            writeln!(out)
        } else {
            out.write_all(self.page().as_bytes())
        }
    }

    /// Writes to standard output; returns the exit code.
    pub(crate) fn print(&self, as_json: bool) -> anyhow::Result<Exit> {
        let mut out = io::stdout().lock();
        self.write(as_json, &mut out).and_then(|()| out.flush()).context("cannot write to standard output")?;
        Ok(self.exit())
    }

    pub(crate) fn exit(&self) -> Exit {
        if self.invalid { Exit::Invalid } else { Exit::Done }
    }

    fn page(&self) -> String {
        let mut page = String::new();
        for warning in &self.warnings {
            writeln!(page, "warning: {warning}").expect("a string takes everything");
        }
        writeln!(page, "A  {}\nB  {}\n\n{}\n\n{}", self.a, self.b, self.table(), self.legend())
            .expect("a string takes everything");
        page
    }

    fn table(&self) -> String {
        let heads = ["metric", "A", "B", "B/A", "interval", ""];
        let rows = self.effects.iter().map(|effect| {
            [
                effect.metric.name().to_owned(),
                effect.metric.show(effect.a),
                effect.metric.show(effect.b),
                change(effect, effect.change),
                effect.interval().map_or_else(
                    || "none".to_owned(),
                    |interval| format!("{} to {}", change(effect, interval.low), change(effect, interval.high)),
                ),
                words(effect),
            ]
        });
        table(&heads, rows)
    }

    fn legend(&self) -> String {
        let Some(first) = self.effects.first() else { return "no metric was measured on both sides".to_owned() };
        let (unit, how) = match self.design {
            Design::Independent => (format!("{} and {} runs", first.runs_a, first.runs_b), "Welch"),
            Design::Paired => (format!("{} rounds", first.runs_a), "paired by round"),
        };
        let of = self.effects.len();
        let shared = if of == 1 { String::new() } else { format!(" of all {of} verdicts together (Bonferroni)") };
        format!("{unit}, {how}; confidence {}%{shared}", self.confidence * 100.0)
    }
}

fn change(effect: &Effect, value: f64) -> String {
    match effect.scale {
        Scale::Ratio => ratio(value),
        Scale::Difference => {
            let sign = if value < 0.0 { "−" } else { "+" };
            format!("{sign}{}", effect.metric.show(value.abs()))
        }
    }
}

fn ratio(value: f64) -> String {
    // Less than a thousandth is below the noise between runs.
    if value < 10.0 { format!("{value:.3}") } else { units::number(value) }
}

fn words(effect: &Effect) -> String {
    match (effect.verdict, effect.scale) {
        (Verdict::TooFewRuns, _) => "too few runs to tell: make at least 2 of each".to_owned(),
        (Verdict::NoDifferenceSeen, _) => "no difference seen".to_owned(),
        (Verdict::Different, Scale::Difference) if effect.change > 0.0 => "B is higher".to_owned(),
        (Verdict::Different, Scale::Difference) => "B is lower".to_owned(),
        (Verdict::Different, Scale::Ratio) if effect.change >= 2.0 => {
            format!("B is {} times A", units::number(effect.change))
        }
        (Verdict::Different, Scale::Ratio) if effect.change > 1.0 => {
            format!("B is {}% higher", percent(effect.change - 1.0))
        }
        (Verdict::Different, Scale::Ratio) if effect.change > 0.5 => {
            format!("B is {}% lower", percent(1.0 - effect.change))
        }
        (Verdict::Different, Scale::Ratio) => format!("A is {} times B", units::number(1.0 / effect.change)),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::measurement::{self, Distribution, Run, Verdict as Believed};
    use crate::stats::compare::Verdict;

    fn run(rate: f64, time_us: u64) -> Run {
        let mut response = Distribution::default();
        for part in 1..=1_000 {
            response.histogram.record(time_us * part).expect("within bounds");
        }
        Run { requests: 1_000, completed: 1_000, rate, response, client_cpu_seconds: 0.01, ..Run::default() }
    }

    fn report(runs: Vec<Run>) -> Report {
        let load = Load { protocol: "grpc".into(), target: "127.0.0.1:1".into(), connections: 10, ..Load::default() };
        Report { format: measurement::FORMAT.into(), tool: String::new(), machine: Machine::default(), load, runs }
    }

    /// Saves two reports and returns their comparison, also as text.
    fn check(a: &Report, b: &Report) -> (Comparison, String) {
        let folder = TempDir::new().expect("a folder");
        let paths = [("a.json", a), ("b.json", b)].map(|(name, report)| {
            let path = folder.path().join(name);
            std::fs::write(&path, serde_json::to_vec(report).expect("a report is JSON")).expect("written");
            path
        });
        let effects = effects(&paths[0], &paths[1]).expect("compared");
        let mut page = Vec::new();
        effects.write(false, &mut page).expect("written");
        (effects, String::from_utf8(page).expect("text"))
    }

    #[test]
    fn a_clear_difference_is_told_with_its_ratio_and_the_rest_is_not_seen_to_differ() {
        let a = report([1000.0, 1010.0, 990.0, 1005.0, 995.0].map(|rate| run(rate, 100)).into());
        let b = report([1503.0, 1490.0, 1500.0, 1510.0, 1497.0].map(|rate| run(rate, 100)).into());
        let (effects, page) = check(&a, &b);
        let metrics: Vec<_> = effects.effects.iter().map(|effect| effect.metric.name()).collect();
        assert_eq!(metrics, ["rate", "p50", "p90", "p99", "p99.9", "mean", "errors", "client-cpu"]);
        assert_eq!(effects.effects[0].verdict, Verdict::Different);
        assert!(effects.effects[1..].iter().all(|effect| effect.verdict == Verdict::NoDifferenceSeen), "{page}");
        assert!(page.contains("B is 50.0% higher") && page.contains("no difference seen"), "{page}");
        assert!(page.contains("5 and 5 runs, Welch; confidence 99% of all 8 verdicts together (Bonferroni)"), "{page}");
        assert!(effects.warnings.is_empty() && effects.exit() == Exit::Done, "{page}");
    }

    #[test]
    fn one_run_a_side_is_said_to_be_too_few() {
        let (effects, page) = check(&report(vec![run(1_000.0, 100)]), &report(vec![run(5_000.0, 100)]));
        assert!(effects.effects.iter().all(|effect| effect.verdict == Verdict::TooFewRuns && effect.low.is_none()));
        assert!(page.contains("too few runs to tell") && page.contains("A has one run"), "{page}");
    }

    #[test]
    fn loads_that_differ_and_runs_that_cannot_be_believed_are_warned_of() {
        let a = report(vec![run(1_000.0, 100), run(1_000.0, 100)]);
        let mut b = a.clone();
        b.load.connections = 20;
        b.load.target = "127.0.0.1:2".into();
        b.load.settings.insert("timeout".into(), "5s".into());
        b.runs[1].verdict = Believed::invalid("the client was busy");
        b.runs[0].interrupted = true;
        let (effects, page) = check(&a, &b);
        let expected = [
            "warning: run 1 of B was interrupted",
            "warning: run 2 of B is INVALID: the client was busy",
            "warning: the loads are not the same: connections 10 in A, 20 in B; --timeout not set in A, 5s in B",
        ];
        for warning in expected {
            assert!(page.contains(warning), "{page}");
        }
        assert_eq!(effects.exit(), Exit::Invalid);
    }

    #[test]
    fn the_json_form_has_every_effect() {
        let a = report(vec![run(1_000.0, 100), run(1_001.0, 100)]);
        let (effects, _) = check(&a, &a);
        let mut json = Vec::new();
        effects.write(true, &mut json).expect("written");
        let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        assert_eq!(json["format"], FORMAT);
        assert_eq!(json["effects"][0]["metric"], "rate");
        assert_eq!(json["effects"][0]["verdict"], "no-difference-seen");
        assert_eq!(json["effects"][6]["scale"], "difference");
        assert_eq!(json["design"], "independent");
    }

    #[test]
    fn a_file_that_is_no_report_is_named_with_what_is_wrong() {
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("x.json");
        let check = |content: Option<String>, expected: &str| {
            if let Some(content) = content {
                std::fs::write(&path, content).expect("written");
            }
            let error = format!("{:#}", effects(&path, &path).expect_err("no report"));
            assert!(error.contains("x.json") && error.contains(expected), "{error}");
        };
        check(None, "cannot read the report");
        check(Some("[1, 2".into()), "it is not a report that --json wrote");
        check(Some(r#"{"format": "other"}"#.into()), "this version reads \"quire-bench/1\"");
        check(Some(serde_json::to_string(&report(Vec::new())).expect("JSON")), "holds no run");
    }
}
