//! `quire-bench ab`: alternates two commands and compares them.

use anyhow::{Context as _, anyhow, ensure};
use clap::Args;

use super::child::{Children, CommandLine, Interrupt, Measured};
use super::compare::{Comparison, FORMAT};
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
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::child::stub::Stub;
    use crate::stats::compare::Verdict;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: AbArgs,
    }

    fn args(words: &[&str]) -> AbArgs {
        Line::try_parse_from([&["ab"], words].concat()).expect("arguments").args
    }

    fn run(stub: &Stub, words: &[&str]) -> anyhow::Result<Comparison> {
        Plan::new(&args(words))?.run(&stub.children, &Interrupt::default(), &mut |_| {})
    }

    fn page(effects: &Comparison) -> String {
        let mut page = Vec::new();
        effects.write(false, &mut page).expect("written");
        String::from_utf8(page).expect("text")
    }

    #[test]
    fn loads_are_compared_round_by_round() {
        // Each call is a little slower than the last; tcp is also twice as fast.
        let stub = Stub::new(r#"rate=$((10000 - turn * 100)); case "$1" in tcp) rate=$((rate * 2)) time=200;; esac"#);
        let effects = run(&stub, &["grpc x a.B/C", "quire-bench tcp y", "--rounds", "8"]).expect("compared");
        let seen: Vec<_> = effects.effects.iter().map(|effect| (effect.metric, effect.verdict)).collect();
        let different = Verdict::Different;
        assert_eq!(seen, [(Metric::Rate, different), (Metric::P50, different), (Metric::P99, different)]);
        let rate = &effects.effects[0];
        assert!(rate.low.is_some_and(|low| low > 1.9) && rate.high.is_some_and(|high| high < 2.1), "{rate:?}");
        assert!(page(&effects).contains("8 rounds, paired by round"), "{}", page(&effects));
        assert_eq!(stub.calls().len(), 16);
    }

    #[test]
    fn the_order_within_rounds_is_random_and_the_seed_repeats_it() {
        let order = |seed| {
            let stub = Stub::new("");
            run(&stub, &["grpc x", "tcp y", "--rounds", "12", "--seed", seed]).expect("compared");
            let calls = stub.calls();
            for round in calls.chunks(2) {
                let mut sides: Vec<_> = round.iter().map(|call| call.split(' ').next()).collect();
                sides.sort_unstable();
                assert_eq!(sides, [Some("grpc"), Some("tcp")], "{round:?}");
            }
            calls
        };
        let first = order("1");
        assert_eq!(first, order("1"));
        assert_ne!(first, order("2"));
        let begun_by_a = first.chunks(2).filter(|round| round[0].starts_with("grpc")).count();
        assert!((1..12).contains(&begun_by_a), "{first:?}");
    }

    #[test]
    fn the_same_load_twice_is_not_seen_to_differ() {
        let stub = Stub::new("rate=$((100000 + turn * 7919 % 1000))");
        let effects = run(&stub, &["grpc x", "grpc x", "--rounds", "6"]).expect("compared");
        assert!(effects.effects.iter().all(|effect| effect.verdict == Verdict::NoDifferenceSeen), "{}", page(&effects));
    }

    #[test]
    fn other_commands_are_measured_as_a_whole() {
        let busy = "sh -c 'i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done'";
        let effects = run(&Stub::new(""), &["true", busy, "--rounds", "5"]).expect("compared");
        let metrics: Vec<_> = effects.effects.iter().map(|effect| effect.metric).collect();
        assert_eq!(metrics, [Metric::Wall, Metric::Cpu]);
        assert!(effects.effects.iter().all(|effect| effect.runs_a == 5 && effect.runs_b == 5));
    }

    #[test]
    fn one_round_is_said_to_be_too_few() {
        let effects = run(&Stub::new(""), &["grpc x", "tcp y", "--rounds", "1"]).expect("compared");
        assert!(page(&effects).contains("too few runs to tell"), "{}", page(&effects));
    }

    #[test]
    fn runs_that_cannot_be_believed_are_counted_and_decide_the_exit() {
        let stub = Stub::new(r#"case "$1" in tcp) reason="the client was busy";; esac"#);
        let effects = run(&stub, &["grpc x", "tcp y", "--rounds", "3"]).expect("compared");
        let expected = "warning: 3 of 3 rounds of B are INVALID, the first since: the client was busy";
        assert!(page(&effects).contains(expected), "{}", page(&effects));
        assert_eq!(effects.exit(), Exit::Invalid);
    }

    #[test]
    fn a_command_before_each_side_is_run_before_each_side() {
        let stub = Stub::new("");
        let marks = stub.path("marks");
        let before = format!("sh -c 'echo mark >> {}'", marks.display());
        run(&stub, &["grpc x", "tcp y", "--rounds", "3", "--before", &before]).expect("compared");
        assert_eq!(std::fs::read_to_string(marks).expect("marks").lines().count(), 6);
        let error = format!("{:#}", run(&stub, &["grpc x", "tcp y", "--before", "false"]).expect_err("failed"));
        assert!(error.starts_with("--before: \"false\" failed"), "{error}");
    }

    #[test]
    fn an_interrupted_comparison_tells_of_complete_rounds_and_says_so() {
        let stub = Stub::new("");
        let plan = Plan::new(&args(&["grpc x", "tcp y", "--rounds", "9"])).expect("a plan");
        let interrupt = Interrupt::default();
        let mut rounds = 0;
        let effects = plan
            .run(&stub.children, &interrupt, &mut |_| {
                rounds += 1;
                if rounds == 2 {
                    interrupt.press();
                }
            })
            .expect("two rounds");
        assert!(effects.interrupted && effects.effects[0].runs_a == 2);
        assert!(page(&effects).contains("interrupted: only 2 of 9 rounds are complete"), "{}", page(&effects));
        let at_once = plan.run(&stub.children, &interrupt, &mut |_| {}).expect_err("nothing measured").to_string();
        assert!(at_once.contains("nothing was measured"), "{at_once}");
    }

    #[test]
    fn what_cannot_be_compared_is_refused_before_anything_runs() {
        let stub = Stub::new("");
        for (words, expected) in [
            (vec!["grpc x", "tcp y", "--rounds", "0"], "--rounds 0: it must be between 1 and 10000"),
            (vec!["grpc x", "tcp y", "--rounds", "10001"], "between 1 and 10000"),
            (vec!["grpc x", "true", "--metric", "rate"], "only loads of this program report it"),
            (vec!["grpc x", "tcp y", "--metric", "p50,p50"], "names p50 twice"),
            (vec!["", "true"], "a command is empty"),
            (vec!["true", "true", "--before", ""], "--before: a command is empty"),
        ] {
            let error = format!("{:#}", run(&stub, &words).expect_err(expected));
            assert!(error.contains(expected), "{words:?}: {error}");
        }
        assert!(stub.calls().is_empty());
        let error =
            format!("{:#}", run(&stub, &["grpc x", "tcp y", "--metric", "server-cpu"]).expect_err("not measured"));
        assert!(error.contains("did not measure server-cpu"), "{error}");
        assert!(Line::try_parse_from(["ab", "x", "y", "--metric", "p95"]).is_err());
    }
}
