//! `quire-bench ab`: alternates two commands and compares them.

use anyhow::{Context as _, anyhow, ensure};
use clap::Args;

use super::child::{Children, CommandLine, Interrupt, Measured};
use super::comparison::{Comparison, FORMAT};
use super::exit::Exit;
use crate::stats::compare::{CONFIDENCE, Design, Sides, compare};
use crate::stats::interval::{geometric_mean, mean};
use crate::stats::metric::Metric;
use crate::stats::order::Orders;

/// Maximum rounds of one comparison.
pub(crate) const ROUNDS_MAX: usize = 10_000;

/// Alternates two commands in random order and compares them
///
/// A command is a load of this program ('grpc ADDRESS METHOD -c 10 -d 2s') or any other, which is timed as a whole.
/// No shell expands it; for that, write sh -c '...'.
#[derive(Clone, Debug, Args)]
pub(crate) struct AbArgs {
    /// The first command, the base of the ratios
    #[arg(value_name = "CMD_A")]
    pub(crate) a: String,
    /// The second command
    #[arg(value_name = "CMD_B")]
    pub(crate) b: String,
    /// Number of rounds; each runs both commands once
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) rounds: usize,
    /// Metrics to compare [default: rate, p50 and p99 of loads, wall and cpu of other commands]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    pub(crate) metric: Vec<Metric>,
    /// Seed of the order within the rounds
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// A command to run before each of the two, for example to fill a store again
    #[arg(long, value_name = "CMD")]
    pub(crate) before: Option<String>,
    /// Write the comparison as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

pub(crate) fn command(args: &AbArgs) -> anyhow::Result<Exit> {
    let plan = Plan::new(args)?;
    let quiet = args.quiet;
    let effects = plan.run(&Children::new()?, &Interrupt::listen()?, &mut |progress| {
        if !quiet {
            eprintln!("{progress}");
        }
    })?;
    effects.print(args.json)
}

#[derive(Debug)]
pub(crate) struct Plan {
    sides: [CommandLine; 2],
    before: Option<CommandLine>,
    metrics: Vec<Metric>,
    rounds: usize,
    seed: u64,
}

impl Plan {
    pub(crate) fn new(args: &AbArgs) -> anyhow::Result<Self> {
        ensure!(
            (1..=ROUNDS_MAX).contains(&args.rounds),
            "--rounds {}: it must be between 1 and {ROUNDS_MAX}",
            args.rounds
        );
        let sides = [CommandLine::parse(&args.a)?, CommandLine::parse(&args.b)?];
        let before = args.before.as_deref().map(CommandLine::parse).transpose().context("--before")?;
        let both_loads = sides.iter().all(|side| side.is_load);
        let mut metrics = args.metric.clone();
        if metrics.is_empty() {
            metrics =
                if both_loads { vec![Metric::Rate, Metric::P50, Metric::P99] } else { vec![Metric::Wall, Metric::Cpu] };
        }
        for (at, metric) in metrics.iter().enumerate() {
            ensure!(!metrics[..at].contains(metric), "--metric names {metric} twice");
            ensure!(
                both_loads || metric.is_of_command(),
                "--metric {metric}: only loads of this program report it; of other commands there is wall and cpu"
            );
        }
        Ok(Self { sides, before, metrics, rounds: args.rounds, seed: args.seed })
    }

    /// Runs the comparison. On interrupt, the incomplete round is dropped.
    pub(crate) fn run(
        &self,
        children: &Children,
        interrupt: &Interrupt,
        show: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Comparison> {
        let mut orders = Orders::new(self.seed);
        let mut rounds: Vec<[Measured; 2]> = Vec::new();
        while rounds.len() < self.rounds {
            let round = match self.round(children, &orders.order(2)) {
                // The signal reaches the children too, so their errors are no failures.
                _ if interrupt.was_pressed() => break,
                round => round?,
            };
            show(&self.progress(rounds.len() + 1, &round)?);
            rounds.push(round);
        }
        ensure!(!rounds.is_empty(), "interrupted before the first round was complete: nothing was measured");
        self.effects(&rounds)
    }

    fn round(&self, children: &Children, order: &[usize]) -> anyhow::Result<[Measured; 2]> {
        let mut measured = [None, None];
        for &side in order {
            if let Some(before) = &self.before {
                children.measure(before).context("--before")?;
            }
            measured[side] = Some(children.measure(&self.sides[side])?);
        }
        let [Some(a), Some(b)] = measured else { return Err(anyhow!("an order of two has both sides")) };
        Ok([a, b])
    }

    fn progress(&self, number: usize, round: &[Measured; 2]) -> anyhow::Result<String> {
        let metric = self.metrics[0];
        let [a, b] = [self.value(metric, round, 0)?, self.value(metric, round, 1)?];
        Ok(format!("round {number} of {}: {metric} A {}, B {}", self.rounds, metric.show(a), metric.show(b)))
    }

    /// A side's value in a round; for a load with several runs, their mean.
    fn value(&self, metric: Metric, round: &[Measured; 2], side: usize) -> anyhow::Result<f64> {
        let measured = &round[side];
        let runs = measured.report.as_ref().map_or(&[][..], |report| &report.runs);
        match metric {
            Metric::Wall => Ok(measured.wall_seconds),
            Metric::Cpu => Ok(measured.cpu_seconds),
            _ => {
                let values: Option<Vec<f64>> = runs.iter().map(|run| metric.of(run)).collect();
                let values = values.with_context(|| format!("{:?} did not measure {metric}", self.sides[side].text))?;
                let geometric = geometric_mean(&values);
                Ok(if geometric.is_finite() && metric != Metric::Errors { geometric } else { mean(&values) })
            }
        }
    }

    fn effects(&self, rounds: &[[Measured; 2]]) -> anyhow::Result<Comparison> {
        let values = |metric, side| {
            rounds.iter().map(|round| self.value(metric, round, side)).collect::<anyhow::Result<Vec<f64>>>()
        };
        let sides = self
            .metrics
            .iter()
            .map(|&metric| Ok(Sides { metric, a: values(metric, 0)?, b: values(metric, 1)? }))
            .collect::<anyhow::Result<Vec<Sides>>>()?;
        let mut warnings: Vec<String> =
            ["A", "B"].into_iter().enumerate().filter_map(|(side, name)| invalid(name, side, rounds)).collect();
        let invalid = !warnings.is_empty();
        let interrupted = rounds.len() < self.rounds;
        if interrupted {
            warnings.push(format!("interrupted: only {} of {} rounds are complete", rounds.len(), self.rounds));
        }
        Ok(Comparison {
            format: FORMAT,
            a: self.sides[0].text.clone(),
            b: self.sides[1].text.clone(),
            design: Design::Paired,
            confidence: CONFIDENCE,
            effects: compare(&sides, Design::Paired, CONFIDENCE),
            warnings,
            invalid,
            interrupted,
        })
    }
}

/// Number of a side's invalid rounds, with the reason of the first; `None` if all are valid.
fn invalid(name: &str, side: usize, rounds: &[[Measured; 2]]) -> Option<String> {
    let reasons: Vec<&str> = rounds
        .iter()
        .filter_map(|round| {
            let mut runs = round[side].report.iter().flat_map(|report| &report.runs);
            runs.find(|run| !run.verdict.is_valid()).map(|run| run.verdict.reasons[0].as_str())
        })
        .collect();
    let first = reasons.first()?;
    Some(format!("{} of {} rounds of {name} are INVALID, the first since: {first}", reasons.len(), rounds.len()))
}

#[cfg(test)]
#[path = "ab_tests.rs"]
mod tests;
