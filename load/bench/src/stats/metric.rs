//! The figures of a run that can be compared, by name.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

use crate::measurement::Run;
use crate::report::units::{self, float};

/// A figure of a run, or of a whole command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Metric {
    /// Answers a second
    Rate,
    /// Response time
    P50,
    /// Response time
    P90,
    /// Response time
    P99,
    /// Response time
    #[serde(rename = "p99.9")]
    #[value(name = "p99.9")]
    P999,
    /// Response time
    Mean,
    /// Share of the requests that ended as errors
    Errors,
    /// CPU time of the client for a request
    ClientCpu,
    /// CPU time of the server for a call
    ServerCpu,
    /// From the beginning of a command to its end
    Wall,
    /// CPU time of a command
    Cpu,
}

/// Comparison of the two sides of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scale {
    /// Second over first: for positive values with multiplicative noise.
    Ratio,
    /// Second minus first: for shares, which may be 0.
    Difference,
}

impl Metric {
    /// Name for people, name with its unit for programs, and formatter.
    fn facts(self) -> (&'static str, &'static str, fn(f64) -> String) {
        let seconds = |value: f64| units::micros(value * 1e6);
        match self {
            Self::Rate => ("rate", "rate", units::rate),
            Self::P50 => ("p50", "p50_us", units::micros),
            Self::P90 => ("p90", "p90_us", units::micros),
            Self::P99 => ("p99", "p99_us", units::micros),
            Self::P999 => ("p99.9", "p999_us", units::micros),
            Self::Mean => ("mean", "mean_us", units::micros),
            Self::Errors => ("errors", "errors_share", units::percent),
            Self::ClientCpu => ("client-cpu", "client_cpu_us", units::micros),
            Self::ServerCpu => ("server-cpu", "server_cpu_us", units::micros),
            Self::Wall => ("wall", "wall_seconds", seconds),
            Self::Cpu => ("cpu", "cpu_seconds", seconds),
        }
    }

    /// Name for people.
    pub(crate) fn name(self) -> &'static str {
        self.facts().0
    }

    /// Name with its unit, for programs.
    pub(crate) fn key(self) -> &'static str {
        self.facts().1
    }

    /// Formats a value in its unit.
    pub(crate) fn show(self, value: f64) -> String {
        self.facts().2(value)
    }

    /// True if it is measured for a whole command; the others are of a run.
    pub(crate) fn is_of_command(self) -> bool {
        matches!(self, Self::Wall | Self::Cpu)
    }

    /// Figure of a run; `None` if it was not measured.
    pub(crate) fn of(self, run: &Run) -> Option<f64> {
        let quantile = |share| (run.response.count() > 0).then(|| run.response.quantile_us(share));
        match self {
            Self::Rate => Some(run.rate),
            Self::P50 => quantile(0.5),
            Self::P90 => quantile(0.9),
            Self::P99 => quantile(0.99),
            Self::P999 => quantile(0.999),
            Self::Mean => (run.response.count() > 0).then(|| run.response.mean_us()),
            Self::Errors => each(float(run.errors), run.requests),
            Self::ClientCpu => {
                (run.client_cpu_seconds > 0.0).then_some(())?;
                each(run.client_cpu_seconds * 1e6, run.completed)
            }
            Self::ServerCpu => run.server.as_ref().and_then(|server| each(server.cpu_seconds * 1e6, server.calls)),
            Self::Wall | Self::Cpu => None,
        }
    }

    /// Scale of a comparison, where the values allow it.
    pub(crate) fn scale(self) -> Scale {
        if self == Self::Errors { Scale::Difference } else { Scale::Ratio }
    }

    /// Smallest relative difference that its measurement resolves: histograms keep three digits.
    pub(crate) fn resolution(self) -> f64 {
        if matches!(self, Self::P50 | Self::P90 | Self::P99 | Self::P999) { 1.0 / 1024.0 } else { 0.0 }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

fn each(total: f64, of: u64) -> Option<f64> {
    (of > 0).then(|| total / float(of))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::ServerSide;

    #[test]
    fn every_metric_is_found_and_saved_by_its_name() {
        for metric in Metric::value_variants() {
            assert_eq!(Metric::from_str(metric.name(), false), Ok(*metric));
            assert_eq!(serde_json::to_value(metric).expect("JSON"), metric.name());
        }
        assert!(Metric::from_str("p95", false).is_err());
    }

    #[test]
    fn values_are_shown_in_the_unit_that_suits_them() {
        assert_eq!(Metric::P99.show(12.5), "12.5 µs");
        assert_eq!(Metric::P99.show(1_234.5), "1.23 ms");
        assert_eq!(Metric::Rate.show(123_456.7), "123,457 /s");
        assert_eq!(Metric::Errors.show(0.001), "0.100%");
        assert_eq!(Metric::Wall.show(2.0), "2.00 s");
    }

    #[test]
    fn what_was_not_measured_has_no_figure() {
        let empty = Run::default();
        for metric in [Metric::P50, Metric::Mean, Metric::Errors, Metric::ClientCpu, Metric::ServerCpu, Metric::Wall] {
            assert_eq!(metric.of(&empty), None, "{metric}");
        }
        let mut run = Run { requests: 200, completed: 200, errors: 1, client_cpu_seconds: 0.01, ..Run::default() };
        run.server = Some(ServerSide { cpu_seconds: 0.002, calls: 100, ..ServerSide::default() });
        assert_eq!(Metric::Errors.of(&run), Some(0.005));
        assert_eq!(Metric::ClientCpu.of(&run), Some(50.0));
        assert_eq!(Metric::ServerCpu.of(&run), Some(20.0));
    }
}
