//! What every load's command does once its requests can be made: runs them, shows what was seen, and judges it.
//!
//! Must not know the protocol.

use std::io::Write as _;

use anyhow::Context as _;

use super::load::{LoadArgs, Multiplexing};
use super::{Exit, shown};
use crate::plan::{End, Pace, Plan};
use crate::probe::{Probe, Reading};
use crate::report::model::{FORMAT, Load, Machine, Report, Run};
use crate::report::pending::Pending;
use crate::report::{html, json, summary};
use crate::run::{Progress, Watch, run};
use crate::stats::slo::{self, Objectives, Outcome};
use crate::workload::Workload;

/// Where the figures go; opened before anything is measured.
struct Outputs {
    json: Option<Pending>,
    html: Option<Pending>,
}

impl Outputs {
    fn open(args: &LoadArgs) -> anyhow::Result<Self> {
        let open = |path: &Option<std::path::PathBuf>| path.as_deref().map(Pending::create).transpose();
        Ok(Self { json: open(&args.json)?, html: open(&args.html)? })
    }

    fn write(self, report: &Report) -> anyhow::Result<()> {
        // Standard output belongs to the report alone if that goes there.
        let taken = [&self.json, &self.html].into_iter().flatten().any(Pending::is_standard_output);
        if let Some(pending) = self.json {
            json::write(report, pending)?;
        }
        if let Some(pending) = self.html {
            pending.write_whole(html::page(report).as_bytes())?;
        }
        let text = summary::text(report);
        let shown = if taken {
            std::io::stderr().write_all(text.as_bytes())
        } else {
            std::io::stdout().write_all(text.as_bytes())
        };
        shown.context("cannot show the summary")
    }
}

/// Makes the runs that the flags ask for. `load` says what is loaded; how is filled in here.
pub fn measure<W: Workload>(
    args: &LoadArgs,
    multiplexing: Multiplexing,
    mut load: Load,
    workload: &W,
    probe: Option<Probe>,
) -> anyhow::Result<Exit> {
    let objectives: Option<Objectives> = args.slo.as_deref().map(str::parse).transpose().context("--slo")?;
    let plan = args.plan(multiplexing)?;
    let outputs = Outputs::open(args)?;
    describe(&plan, &mut load);
    let mut observer = Observer { probe, before: None, after: None, is_quiet: args.quiet };
    let mut runs = Vec::new();
    for _ in 0..args.runs {
        let mut seen = run(&plan, workload, &mut observer)?;
        seen.server = observer.server_side();
        let interrupted = seen.interrupted;
        runs.push(seen);
        if interrupted {
            break;
        }
    }
    let report = Report {
        format: FORMAT.to_owned(),
        tool: concat!(env!("CARGO_PKG_VERSION"), " (", env!("BUILD_COMMIT"), ")").to_owned(),
        machine: machine(),
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
    match judged.iter().map(|one| one.outcome).max() {
        Some(Outcome::Fail) => Exit::Missed,
        Some(Outcome::Inconclusive) => Exit::Inconclusive,
        Some(Outcome::Pass) | None => Exit::Done,
    }
}

fn describe(plan: &Plan, load: &mut Load) {
    load.connections = plan.connections;
    load.in_flight = plan.in_flight;
    load.workers = plan.workers;
    let mut set = |name: &str, value: String| load.settings.insert(name.to_owned(), value);
    set("warm_up", humantime::format_duration(plan.warm_up).to_string());
    set("timeout", humantime::format_duration(plan.timeout).to_string());
    set("seed", plan.seed.to_string());
    let seconds = match plan.end {
        End::After(duration) => {
            set("duration", humantime::format_duration(duration).to_string());
            Some(duration.as_secs_f64())
        }
        End::Count(count) => {
            set("count", count.to_string());
            None
        }
    };
    match &plan.pace {
        Pace::Closed { ramp_up } => {
            if !ramp_up.is_zero() {
                set("ramp_up", humantime::format_duration(*ramp_up).to_string());
            }
            "closed".clone_into(&mut load.pace);
        }
        Pace::Open { arrivals, profile } => {
            set("rate", profile.to_string());
            load.pace = format!("{arrivals:?}").to_lowercase();
            let seconds = seconds.unwrap_or(1.0);
            load.rate = Some(profile.due_between(0.0, seconds) / seconds);
        }
    }
}

fn machine() -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let model = read("/proc/cpuinfo");
    let model = model.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let release = read("/proc/sys/kernel/osrelease");
    Machine {
        cpu: model.trim_start_matches([' ', '\t', ':']).to_owned(),
        cores: crate::run::cores().len(),
        system: format!("{} {}", std::env::consts::OS, release.trim()),
    }
}

/// Asks the server before and after, and shows how the run goes on.
struct Observer {
    probe: Option<Probe>,
    before: Option<Reading>,
    after: Option<Reading>,
    is_quiet: bool,
}

impl Observer {
    fn server_side(&mut self) -> Option<crate::report::model::ServerSide> {
        let (before, after) = (self.before.take()?, self.after.take()?);
        after.since(&before, None)
    }

    fn read(&self) -> Option<Reading> {
        // A server that stops answering is seen in the figures; what it would have said of itself is missing then.
        self.probe.as_ref()?.read().ok()
    }
}

impl Watch for Observer {
    fn began(&mut self) {
        self.before = self.read();
    }

    fn progress(&mut self, _: &Progress) {
        let _ = self.is_quiet;
    }

    fn ended(&mut self) {
        self.after = self.read();
    }
}
