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
