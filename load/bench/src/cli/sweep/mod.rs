//! `quire-bench sweep`: measures a load at many points and analyses the curve.

mod axis;
mod model;
mod show;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::Args;

use self::axis::Axis;
pub(crate) use self::model::{Point, PointRun, Sweep};
use super::child::{Children, CommandLine, Interrupt};
use super::exit::Exit;
use crate::report::pending::Pending;
use crate::stats::metric::Metric;
use crate::stats::order::Orders;

/// Maximum runs of each point.
pub(crate) const RUNS_MAX: usize = 1_000;

/// Measures a load at many numbers of clients or rates: the curve, its knee and the universal scalability law
#[derive(Clone, Debug, Args)]
#[command(group = clap::ArgGroup::new("axis").required(true).args(["clients", "rate"]))]
pub(crate) struct SweepArgs {
    /// Clients of a closed loop, as 1..20 or 1,2,4,8
    #[arg(long, value_name = "RANGE")]
    pub(crate) clients: Option<String>,
    /// Requests a second of an open loop, as 1000..20000 or 1000,5000
    #[arg(long, value_name = "RANGE")]
    pub(crate) rate: Option<String>,
    /// Distance between points of a range [default: every number of clients up to 20 points; 10 rates]
    #[arg(long, value_name = "N")]
    pub(crate) step: Option<f64>,
    /// Number of points of a range, equally spaced
    #[arg(long, value_name = "N")]
    pub(crate) points: Option<usize>,
    /// Runs of each point, in random order over all points
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) runs: usize,
    /// Seed of the order, and of the seeds that the runs get unless the load has one
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Write every run's figures and the findings as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write a CSV row per point
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write a self-contained page with the curve
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// No progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// The load, without the varied flag: grpc ADDRESS METHOD -d 2s
    #[arg(last = true, required = true, value_name = "LOAD")]
    pub(crate) load: Vec<String>,
}

/// Runs the sweep; the table goes to standard output unless another output does.
pub(crate) fn command(args: &SweepArgs) -> anyhow::Result<Exit> {
    let plan = Plan::new(args)?;
    // A file that cannot be written is reported now, not after the sweep.
    let open = |path: &Option<PathBuf>| path.as_deref().map(Pending::create).transpose();
    let outputs = [open(&args.json)?, open(&args.csv)?, open(&args.html)?];
    let is_taken = outputs.iter().flatten().any(Pending::is_standard_output);
    let quiet = args.quiet;
    let sweep = plan.run(&Children::new()?, &Interrupt::listen()?, &mut |progress| {
        if !quiet {
            eprintln!("{progress}");
        }
    })?;
    if !is_taken {
        Pending::create(Path::new("-"))?.write_whole(show::text(&sweep).as_bytes())?;
    }
    let forms: [&dyn Fn() -> anyhow::Result<String>; 3] =
        [&|| show::json(&sweep), &|| show::csv(&sweep), &|| Ok(show::page(&sweep))];
    for (output, form) in outputs.into_iter().zip(forms) {
        if let Some(output) = output {
            output.write_whole(form()?.as_bytes())?;
        }
    }
    Ok(if sweep.is_invalid() { Exit::Invalid } else { Exit::Done })
}

#[derive(Debug)]
pub(crate) struct Plan {
    load: CommandLine,
    axis: Axis,
    points: Vec<f64>,
    runs: usize,
    seed: u64,
}

impl Plan {
    pub(crate) fn new(args: &SweepArgs) -> anyhow::Result<Self> {
        let (axis, range) = match (&args.clients, &args.rate) {
            (Some(clients), None) => (Axis::Clients, clients),
            (None, Some(rate)) => (Axis::Rate, rate),
            _ => anyhow::bail!("a sweep is over --clients or over --rate"),
        };
        let points = axis::points(axis, range, args.step, args.points)?;
        ensure!((1..=RUNS_MAX).contains(&args.runs), "--runs {}: it must be between 1 and {RUNS_MAX}", args.runs);
        let text = args.load.join(" ");
        let load = CommandLine::from_words(args.load.clone(), text.clone())?;
        ensure!(load.is_load, "{text:?} is not a load: begin it with one of {}", super::child::LOADS.join(", "));
        ensure!(
            !load.mentions(None, "slo"),
            "leave --slo out of the load: a sweep shows the curve and judges no objective; give it to a load of one rate"
        );
        match axis {
            Axis::Clients => {
                ensure!(!load.mentions(Some('c'), "clients"), "leave --clients out of the load: the sweep sets it");
                ensure!(
                    !load.mentions(Some('r'), "rate"),
                    "leave --rate out of the load: clients are swept in a closed loop"
                );
            }
            Axis::Rate => ensure!(!load.mentions(Some('r'), "rate"), "leave --rate out of the load: the sweep sets it"),
        }
        Ok(Self { load, axis, points, runs: args.runs, seed: args.seed })
    }

    /// Runs all points once in random order, then again in another, so that changes of the machine affect all points
    /// alike. On interrupt, the current run is dropped.
    pub(crate) fn run(
        &self,
        children: &Children,
        interrupt: &Interrupt,
        show: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Sweep> {
        let mut orders = Orders::new(self.seed);
        let mut points: Vec<Point> = self.points.iter().map(|&at| Point { at, runs: Vec::new() }).collect();
        let turns: Vec<usize> = (0..self.runs).flat_map(|_| orders.order(self.points.len())).collect();
        let mut done = 0;
        for &turn in &turns {
            let point = &mut points[turn];
            let mut line = self.load.with([self.axis.flag().to_owned(), point.at.to_string()]);
            if !self.load.mentions(None, "seed") {
                // Arrivals of its own for each run: else their chance would be the same in all, and no interval would show it.
                line = line.with(["--seed".to_owned(), self.seed.wrapping_add(done as u64).to_string()]);
            }
            let measured = children.measure(&line);
            // The signal reaches the children too, so their errors are no failures.
            if interrupt.was_pressed() {
                break;
            }
            let report = measured?.report.context("a load reports")?;
            point.runs.extend(report.runs.iter().map(PointRun::from));
            done += 1;
            let rate = report.runs.last().map_or(0.0, |run| run.rate);
            show(&format!("{done} of {}: {} {}: {}", turns.len(), self.axis.flag(), point.at, Metric::Rate.show(rate)));
        }
        ensure!(done > 0, "interrupted before the first run was complete: nothing was measured");
        Ok(Sweep {
            format: model::FORMAT,
            load: self.load.text.clone(),
            axis: self.axis,
            points,
            confidence: model::CONFIDENCE,
            interrupted: done < turns.len(),
        })
    }
}

#[cfg(test)]
mod tests;
