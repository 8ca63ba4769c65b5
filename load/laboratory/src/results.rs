//! Measurements: each run as named figures, and statistics over the runs of one load on one subject.

use std::collections::BTreeMap;
use std::time::Duration;

use bench::measurement::Finish;
use bench::measurement::Run;
use bench::report::units::float;
use bench::stats::interval::{self, Interval};

/// Confidence of every interval that an experiment states.
const CONFIDENCE: f64 = 0.95;

/// Doubtful runs named for each reason; the CSV of runs has all of them.
const DOUBTS_NAMED: usize = 8;

/// Measurements of one run.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    figures: BTreeMap<String, f64>,
    /// Completion of every request; empty if only a sample was kept.
    pub finishes: Vec<Finish>,
    /// Reasons to doubt the figures.
    pub doubts: Vec<String>,
}

impl Observed {
    /// Creates a run from figures by name; a name ends with its unit.
    pub fn new<'a>(figures: impl IntoIterator<Item = (&'a str, f64)>) -> Self {
        let figures = figures.into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect();
        Self { figures, ..Self::default() }
    }

    /// Figures of a load generator's run: its outcomes by label, and the CPU time of the server's process.
    pub fn of_run(run: &Run, server_cpu: Duration) -> Self {
        let completed = float(run.completed.max(1));
        let quantile = |share| run.response.quantile_us(share);
        let bytes = float(run.received_bytes) / completed;
        let mut observed = Self::new([
            ("requests", float(run.requests)),
            ("errors", float(run.errors)),
            ("failed", float(run.errors)),
            ("seconds", run.seconds),
            ("per_second", run.rate),
            // The run's time divided by its requests, as published figures state it.
            ("ms", 1e3 / run.rate),
            ("mean_us", run.response.mean_us()),
            ("p50_us", quantile(0.5)),
            ("p90_us", quantile(0.9)),
            ("p99_us", quantile(0.99)),
            ("p999_us", quantile(0.999)),
            ("first_byte_us", run.first_byte.quantile_us(0.5)),
            ("first_byte_p99_us", run.first_byte.quantile_us(0.99)),
            // As carried by the sockets.
            ("bytes_a_request", bytes),
            ("bytes_per_second", run.rate * bytes),
            ("megabytes", bytes / 1e6),
            ("cpu_us", server_cpu.as_secs_f64() * 1e6 / completed),
            // Share of the time in which the server's process was on a core.
            ("busy", server_cpu.as_secs_f64() / run.seconds.max(1e-9)),
            ("client_cpu_us", run.client_cpu_seconds * 1e6 / completed),
            ("client_busy_max", run.client_busy_max),
        ]);
        observed.figures.extend(run.endings.iter().map(|(label, count)| (label.clone(), float(*count))));
        if usize::try_from(run.requests).is_ok_and(|requests| requests == run.finishes.len()) {
            observed.finishes.clone_from(&run.finishes);
        }
        observed.doubts.clone_from(&run.verdict.reasons);
        observed
    }

    /// Adds a figure.
    #[must_use]
    pub fn with(mut self, name: &str, figure: f64) -> Self {
        self.figures.insert(name.to_owned(), figure);
        self
    }

    /// A figure; NaN if it was not measured. Every time in microseconds also exists in milliseconds.
    pub fn figure(&self, name: &str) -> f64 {
        let direct = self.figures.get(name).copied();
        let scaled = || self.figures.get(&format!("{}_us", name.strip_suffix("_ms")?)).map(|us| us / 1e3);
        direct.or_else(scaled).unwrap_or(f64::NAN)
    }
}

/// A run of a load on a subject.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Name of the load; empty if the subject has only one.
    pub load: String,
    /// Name of the subject.
    pub subject: &'static str,
    /// Round number, from 0.
    pub round: usize,
    /// The measurements.
    pub seen: Observed,
}

/// Runs, in order.
#[derive(Clone, Debug, Default)]
pub struct Results {
    measured: Vec<Measured>,
}

impl Results {
    /// Adds a run.
    pub fn push(&mut self, load: impl Into<String>, subject: &'static str, round: usize, seen: Observed) {
        self.measured.push(Measured { load: load.into(), subject, round, seen });
    }

    /// Every run.
    pub fn all(&self) -> &[Measured] {
        &self.measured
    }

    /// Runs of a load on a subject, by round.
    pub fn of<'a>(&'a self, load: &'a str, subject: &'a str) -> impl Iterator<Item = &'a Measured> {
        self.measured.iter().filter(move |one| one.subject == subject && one.load == load)
    }

    /// A figure of each run of a load on a subject.
    pub fn figures(&self, load: &str, subject: &str, figure: &str) -> Vec<f64> {
        self.of(load, subject).map(|one| one.seen.figure(figure)).collect()
    }

    /// Median of a figure; NaN if the load was not run on the subject.
    pub fn median(&self, load: &str, subject: &str, figure: &str) -> f64 {
        interval::median(&self.figures(load, subject, figure))
    }

    /// Ratio of the rate of `subject` to that of `other`, paired by round; none with fewer than two rounds.
    pub fn ratio(&self, load: &str, subject: &str, other: &str) -> Option<Interval> {
        self.ratio_of("per_second", load, subject, other)
    }

    /// Like [`Results::ratio`], for any figure.
    pub fn ratio_of(&self, figure: &str, load: &str, subject: &str, other: &str) -> Option<Interval> {
        let figures = |subject| self.figures(load, subject, figure);
        interval::paired_ratio(&figures(other), &figures(subject), CONFIDENCE)
    }

    /// Reasons to doubt runs, each once, with the affected runs.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = BTreeMap::<&str, Vec<String>>::new();
        for one in &self.measured {
            for reason in &one.seen.doubts {
                // Figures in a reason differ from run to run; the text before them does not.
                let kind = reason.split(':').next().unwrap_or(reason);
                let kind = kind.trim_start_matches(|letter: char| !letter.is_alphabetic()).trim_start_matches("of ");
                doubts.entry(kind).or_default().push(format!("{} of {}", one.load, one.subject));
            }
        }
        let line = |(kind, runs): (&str, Vec<String>)| {
            let named = runs[..runs.len().min(DOUBTS_NAMED)].join(", ");
            let more = runs.len().saturating_sub(DOUBTS_NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{kind}, in {} of {} runs: {named}{more}", runs.len(), self.measured.len())
        };
        doubts.into_iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use bench::measurement::Verdict;

    use super::*;

    #[test]
    fn doubts_are_told_by_reason_with_the_first_runs_and_how_many_more() {
        let mut results = Results::default();
        for round in 0..20 {
            let verdict = if round > 0 {
                Verdict::invalid(format!("{round}.5% of the time was stolen"))
            } else {
                Verdict::default()
            };
            let run = Run { verdict, ..Run::default() };
            results.push("buy", "quire", round, Observed::of_run(&run, Duration::ZERO));
        }
        let named = ["buy of quire"; DOUBTS_NAMED].join(", ");
        assert_eq!(results.doubts(), [format!("the time was stolen, in 19 of 20 runs: {named} and 11 more")]);
    }

    #[test]
    fn a_time_can_be_asked_for_in_milliseconds_and_a_figure_that_is_not_there_is_not_a_number() {
        let seen = Observed::new([("p50_us", 1500.0)]);
        assert!((seen.figure("p50_ms") - 1.5).abs() < 1e-9);
        assert!(seen.figure("p90_ms").is_nan() && seen.figure("done").is_nan());
    }
}
