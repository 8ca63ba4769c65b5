//! Runs a load of any protocol, shows its figures and judges them.

use anyhow::{Context as _, ensure};

use super::exit::Exit;
use super::load::{LoadArgs, Multiplexing};
use super::outputs::prepare_outputs;
use super::progress::Line;
use super::shown;
use crate::measurement::{FORMAT, Load, Report, Run};
use crate::plan::{End, Pace, Plan};
use crate::probe::{Probe, Reading};
use crate::recorder;
use crate::report::csv::RowWriter;
use crate::report::origin;
use crate::run::{Progress, Watch, run_with_rows};
use crate::stats::slo::{self, Objectives, Outcome};
use crate::verdict;
use crate::workload::Workload;

/// Performs the runs. `load` describes the target; its other fields are filled in here.
pub(crate) fn measure<W: Workload>(
    args: &LoadArgs,
    multiplexing: Multiplexing,
    mut load: Load,
    workload: &W,
    probe: Option<Probe>,
) -> anyhow::Result<Exit> {
    let objectives: Option<Objectives> = args.slo.as_deref().map(str::parse).transpose().context("--slo")?;
    let plan = args.plan(multiplexing)?;
    ensure!(args.csv.is_none() || args.runs == 1, "--csv writes the rows of one run; leave out --runs");
    let mut outputs = prepare_outputs(args)?;
    describe(&plan, &mut load);
    let mut observer = Observer { probe, before: None, after: None, line: Line::new(args.quiet), name: String::new() };
    let labels = workload.clone();
    let is_open = load.is_open();
    let rows = outputs
        .rows
        .take()
        .map(|rows| RowWriter::start(rows, is_open, move |ending| label(&labels, ending)))
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
    observer.line.finish();
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
    Ok(exit(&report.runs, objectives.as_ref()))
}

fn exit(runs: &[Run], objectives: Option<&Objectives>) -> Exit {
    if runs.iter().any(|run| !run.verdict.is_valid()) {
        return Exit::Invalid;
    }
    let Some(Objectives(objectives)) = objectives else { return Exit::Done };
    let judged = slo::judge(objectives, runs);
    for one in &judged {
        eprintln!("{}", shown::judged(one));
    }
    match slo::outcome(&judged) {
        Outcome::Fail => Exit::Missed,
        Outcome::Inconclusive => Exit::Inconclusive,
        Outcome::Pass => Exit::Done,
    }
}

fn label<W: Workload>(workload: &W, ending: u16) -> String {
    recorder::own_label(ending).map_or_else(|| workload.label(ending), str::to_owned)
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
        Pace::Closed { ramp_up } => {
            load.set("ramp_up", (!ramp_up.is_zero()).then(|| time(*ramp_up)));
            "closed".clone_into(&mut load.pace);
        }
        Pace::Open { arrivals, profile } => {
            load.set("rate", Some(profile));
            load.pace = format!("{arrivals:?}").to_lowercase();
            load.rate = Some(profile.due_between(0.0, seconds) / seconds);
        }
    }
}

/// Reads the server's metrics before and after the run, and shows progress.
struct Observer {
    probe: Option<Probe>,
    before: Option<Reading>,
    after: Option<Reading>,
    line: Line,
    name: String,
}

impl Observer {
    fn server_side(&mut self) -> Option<crate::measurement::ServerSide> {
        let (before, after) = (self.before.take()?, self.after.take()?);
        after.since(&before, None)
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
        self.line.show(&self.name, progress);
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
