//! Runs a load of any protocol, shows its figures and judges them.

use std::collections::HashSet;
use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use super::exit::Exit;
use super::load::{LoadArgs, Multiplexing};
use crate::measurement::{FORMAT, Load, Report, Run};
use crate::plan::{End, Pace, Plan};
use crate::probe::{Probe, Reading};
use crate::report::csv::RowWriter;
use crate::report::pending::Pending;
use crate::report::{html, json, origin, summary, units};
use crate::run::{Progress, Watch, run_with_rows};
use crate::stats::slo::{self, Judged, Measure, Objective, Outcome};
use crate::workload::Workload;
use crate::{recorder, verdict};

/// Performs the runs. `load` describes the target; its other fields are filled in here.
pub(crate) fn measure<W: Workload>(
    args: &LoadArgs,
    multiplexing: Multiplexing,
    mut load: Load,
    workload: &W,
    probe: Option<Probe>,
) -> anyhow::Result<Exit> {
    let objectives = args.slo.as_deref().map(slo::parse).transpose().context("--slo")?;
    let plan = args.plan(multiplexing)?;
    ensure!(args.csv.is_none() || args.runs == 1, "--csv writes the rows of one run; leave out --runs");
    let mut outputs = prepare_outputs(args)?;
    describe(&plan, &mut load);
    let mut observer = Observer { probe, before: None, after: None, bar: bar(args.quiet), name: String::new() };
    let labels = workload.clone();
    let is_open = load.is_open();
    let rows = outputs
        .rows
        .take()
        .map(|rows| RowWriter::start(rows, is_open, move |ending| recorder::label(&labels, ending)))
        .transpose()?;
    let mut runs: Vec<Run> = Vec::new();
    for number in 1..=args.runs {
        observer.name = if args.runs > 1 { format!("run {number} of {}", args.runs) } else { "run".to_owned() };
        let mut seen = run_with_rows(&plan, workload, &mut observer, rows.as_ref().map(RowWriter::sink))?;
        seen.server = observer.server_side();
        let compared = seen.server.as_ref().and_then(|server| verdict::compare_with_server(&seen, server));
        seen.verdict.doubts.extend(compared);
        let interrupted = seen.interrupted;
        runs.push(seen);
        if interrupted {
            break;
        }
    }
    observer.bar.finish_and_clear();
    if let Some(rows) = rows {
        let rows = rows.finish(runs.iter().any(|run| run.interrupted))?;
        eprintln!("{} rows in {}", rows.written, rows.path.display());
    }
    let report = Report {
        format: FORMAT.to_owned(),
        tool: origin::TOOL.to_owned(),
        machine: origin::this_machine(),
        load,
        runs,
    };
    outputs.write(&report)?;
    Ok(exit(&report.runs, objectives.as_deref()))
}

fn exit(runs: &[Run], objectives: Option<&[Objective]>) -> Exit {
    if runs.iter().any(|run| !run.verdict.is_valid()) {
        return Exit::Invalid;
    }
    let Some(objectives) = objectives else { return Exit::Done };
    let judged = slo::judge(objectives, runs);
    for one in &judged {
        eprintln!("{}", judged_line(one));
    }
    match slo::outcome(&judged) {
        Outcome::Fail => Exit::Missed,
        Outcome::Inconclusive => Exit::Inconclusive,
        Outcome::Pass => Exit::Done,
    }
}

fn describe(plan: &Plan, load: &mut Load) {
    (load.connections, load.in_flight, load.workers) = (plan.connections, plan.in_flight, plan.workers);
    let time = humantime::format_duration;
    load.set("warm_up", Some(time(plan.warm_up)));
    load.set("timeout", Some(time(plan.timeout)));
    load.set("seed", Some(plan.seed));
    let seconds = match plan.end {
        End::After(duration) => {
            load.set("duration", Some(time(duration)));
            duration.as_secs_f64()
        }
        End::Count(count) => {
            load.set("count", Some(count));
            1.0
        }
    };
    match &plan.pace {
        Pace::Closed => "closed".clone_into(&mut load.pace),
        Pace::Open { arrivals, profile } => {
            load.set("rate", Some(profile));
            load.pace = format!("{arrivals:?}").to_lowercase();
            load.rate = Some(profile.mean_rate(seconds));
        }
    }
}

/// Reads the server's metrics before and after the run, and shows progress.
struct Observer {
    probe: Option<Probe>,
    before: Option<Reading>,
    after: Option<Reading>,
    bar: ProgressBar,
    name: String,
}

impl Observer {
    fn server_side(&mut self) -> Option<crate::measurement::ServerSide> {
        let (before, after) = (self.before.take()?, self.after.take()?);
        after.since(&before)
    }

    fn read(&self) -> Option<Reading> {
        // If the server stops answering, the figures show it; only its own counts are missing.
        self.probe.as_ref()?.read().ok()
    }
}

impl Watch for Observer {
    fn began(&mut self) {
        self.before = self.read();
    }

    fn progress(&mut self, progress: &Progress) {
        if self.bar.is_hidden() {
            return;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a thousand")]
        let parts = (done(progress).clamp(0.0, 1.0) * units::float(PARTS)) as u64;
        self.bar.set_position(parts);
        self.bar.set_message(line(&self.name, progress));
    }

    fn measured(&mut self) {
        self.after = self.read();
    }

    fn ended(&mut self) {
        // A server that was too busy may have time to answer now; its figures carry the time that they cover.
        if self.after.is_none() {
            self.after = self.read();
        }
    }
}

/// Output files, opened before the run: a file that cannot be written is reported then, and not after an hour.
#[derive(Debug)]
pub(crate) struct Outputs {
    /// For a row per request, written by the run.
    pub(crate) rows: Option<Pending>,
    json: Option<Pending>,
    html: Option<Pending>,
}

/// Opens the files that the flags name; an error is one line with the flag.
pub(crate) fn prepare_outputs(args: &LoadArgs) -> anyhow::Result<Outputs> {
    let paths = [("--json", &args.json), ("--csv", &args.csv), ("--html", &args.html)];
    let mut taken = HashSet::new();
    for (flag, path) in paths.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?))) {
        if !taken.insert(path) {
            bail!("{flag} {}: another flag already names this file", path.display());
        }
    }
    let open = |flag: &'static str, path: &Option<std::path::PathBuf>| {
        path.as_deref().map(|path| Pending::create(path).context(flag)).transpose()
    };
    let [json, rows, html] = [open("--json", &args.json)?, open("--csv", &args.csv)?, open("--html", &args.html)?];
    for (flag, output) in [("--csv", &rows), ("--html", &html)] {
        if output.as_ref().is_some_and(Pending::is_standard_output) {
            bail!("{flag} -: only --json can write to standard output; name a file");
        }
    }
    Ok(Outputs { rows, json, html })
}

impl Outputs {
    /// Writes the page and the JSON and prints the summary, to standard error if the JSON goes to standard output.
    pub(crate) fn write(self, report: &Report) -> anyhow::Result<()> {
        let summary = summary::text(report);
        let json_is_printed = self.json.as_ref().is_some_and(Pending::is_standard_output);
        if let Some(into) = self.html {
            into.write_whole(html::page(report).as_bytes())?;
        }
        if let Some(into) = self.json {
            json::write(report, into)?;
        }
        let printed = if json_is_printed {
            io::stderr().write_all(summary.as_bytes())
        } else {
            io::stdout().write_all(summary.as_bytes())
        };
        match printed {
            // A reader like `head` closes the pipe when it has enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            printed => printed.context("cannot print the summary"),
        }
    }
}

const PARTS: u64 = 1000;

/// A progress line on standard error if that is a terminal and `quiet` is not set; otherwise hidden.
fn bar(quiet: bool) -> ProgressBar {
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(PARTS) };
    if let Ok(style) = ProgressStyle::with_template("{bar:20} {msg}") {
        bar.set_style(style);
    }
    bar
}

/// Completed share of the run, by time or by requests.
fn done(progress: &Progress) -> f64 {
    match progress.end {
        End::After(total) => progress.elapsed.as_secs_f64() / total.as_secs_f64(),
        End::Count(total) => units::share(progress.requests, total),
    }
}

fn line(name: &str, progress: &Progress) -> String {
    let time = |micros| if progress.rate > 0.0 { units::micros(micros) } else { "–".to_owned() };
    let errors = format!("{} error{}", units::count(progress.errors), if progress.errors == 1 { "" } else { "s" });
    let left = match progress.end {
        End::After(total) => Some(total.saturating_sub(progress.elapsed)),
        End::Count(_) => {
            Duration::try_from_secs_f64(progress.elapsed.as_secs_f64() * (1.0 / done(progress) - 1.0)).ok()
        }
    };
    let left = left.map(|left| format!("  {} s left", left.as_secs_f64().ceil())).unwrap_or_default();
    let (rate, p50, p99) = (units::rate(progress.rate), time(progress.p50_us), time(progress.p99_us));
    format!("{name}: {rate}  p50 {p50}  p99 {p99}  {errors}{left}")
}

/// An objective with the value seen, its interval and its outcome, as a line.
fn judged_line(judged: &Judged) -> String {
    let show = |value: f64| match judged.objective.measure {
        Measure::Errors => units::percent(value),
        Measure::Rate => units::rate(value),
        Measure::Quantile(_) | Measure::Mean | Measure::Max => time(value),
    };
    let outcome = match judged.outcome {
        Outcome::Pass => "pass",
        Outcome::Fail => "FAIL",
        Outcome::Inconclusive => "inconclusive",
    };
    let seen = judged.seen.map_or_else(|| "nothing seen".to_owned(), |seen| format!("{} seen", show(seen)));
    let interval = judged
        .interval
        .map(|interval| format!(" ({} to {})", show(interval.low), show(interval.high)))
        .unwrap_or_default();
    let reason = judged.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{}: {seen}{interval}: {outcome}{reason}", judged.objective.text)
}

fn time(micros: f64) -> String {
    if micros.is_infinite() { "no upper limit".to_owned() } else { units::micros(micros) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::*;
    use crate::report::fixtures;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        load: LoadArgs,
    }

    fn prepared(flags: &[&str]) -> anyhow::Result<Outputs> {
        let flags = ["load"].iter().chain(flags);
        prepare_outputs(&Flags::try_parse_from(flags).expect("flags that there are").load)
    }

    fn wrong(flags: &[&str]) -> String {
        format!("{:#}", prepared(flags).expect_err("not writable"))
    }

    #[test]
    fn an_output_that_cannot_be_written_is_named_with_its_flag() {
        assert_eq!(wrong(&["--html", "/"]), "--html: cannot write /: it does not name a file");
        assert!(
            wrong(&["--csv", "/no/such/rows.csv"])
                .starts_with("--csv: cannot write /no/such/rows.csv: there is no folder")
        );
        assert!(wrong(&["--csv", "-"]).starts_with("--csv -: only --json can write to standard output"));
        assert!(wrong(&["--html", "-"]).starts_with("--html -: "));
        assert_eq!(wrong(&["--json", "a", "--html", "a"]), "--html a: another flag already names this file");
    }

    #[test]
    fn outputs_are_there_when_they_are_whole_and_not_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let [json, html] = ["report.json", "report.html"].map(|name| folder.path().join(name));
        let text = |path: &Path| path.to_str().expect("text").to_owned();
        let outputs = prepared(&["--json", &text(&json), "--html", &text(&html)]).expect("writable");
        assert!(!json.exists() && !html.exists());
        outputs.write(&fixtures::report(vec![fixtures::busy()])).expect("written");
        assert_eq!(json::read(&json).expect("a report").runs.len(), 1);
        assert!(std::fs::read_to_string(&html).expect("there").starts_with("<!DOCTYPE html>"));
    }
}

#[cfg(test)]
mod progress_tests {
    use super::*;

    #[test]
    fn the_line_says_the_last_seconds_figures_and_what_is_left() {
        let progress = Progress {
            elapsed: Duration::from_millis(1_800),
            end: End::After(Duration::from_secs(10)),
            requests: 7,
            errors: 1,
            rate: 123_456.7,
            p50_us: 81.2,
            p99_us: 1_234.0,
        };
        assert_eq!(
            line("run 2 of 5", &progress),
            "run 2 of 5: 123,457 /s  p50 81.2 µs  p99 1.23 ms  1 error  9 s left"
        );
        let counted = Progress { end: End::Count(70), rate: 0.0, errors: 0, ..progress };
        assert_eq!(line("run", &counted), "run: 0 /s  p50 –  p99 –  0 errors  17 s left");
        let nothing = Progress { requests: 0, ..counted };
        assert_eq!(line("run", &nothing), "run: 0 /s  p50 –  p99 –  0 errors");
    }
}

#[cfg(test)]
mod shown_tests {
    use super::*;
    use crate::measurement::Distribution;
    use crate::measurement::Run;
    use crate::stats::slo::{judge, parse};

    #[test]
    fn an_objective_is_a_line_with_what_was_seen_and_why_it_is_open() {
        let mut response = Distribution::default();
        response.histogram.record_n(1_000_000, 100).expect("within bounds");
        let run = Run { requests: 100, response, ..Run::default() };
        let lines = |list: &str| {
            judge(&parse(list).expect(list), std::slice::from_ref(&run)).iter().map(judged_line).collect::<Vec<_>>()
        };
        assert_eq!(
            lines("p99<5ms,max<=2ms,errors<=0"),
            [
                "p99<5ms: 1.00 ms seen (1.00 ms to no upper limit): inconclusive: too few requests to tell",
                "max<=2ms: 1.00 ms seen: pass",
                "errors<=0: 0% seen: pass",
            ]
        );
        assert_eq!(
            judge(&parse("rate>1").expect("an objective"), &[]).iter().map(judged_line).collect::<Vec<_>>(),
            ["rate>1: nothing seen: inconclusive: no request was measured"]
        );
    }
}
