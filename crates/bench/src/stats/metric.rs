//! The figures of a run that can be compared, by name.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::measurement::Run;
use crate::report::units::float;

/// A figure of a run, or of a whole command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Metric {
    Rate,
    P50,
    P90,
    P99,
    P999,
    Mean,
    /// Share of the requests that ended as errors, 0 to 1.
    Errors,
    /// CPU time of the client for a request, in microseconds.
    ClientCpu,
    /// CPU time of the server for a call, in microseconds.
    ServerCpu,
    /// From the beginning of a command to its end, in seconds.
    Wall,
    /// CPU time of a command, in seconds.
    Cpu,
}

/// How two sides of a metric are set against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scale {
    /// Second over first: for what is positive and has multiplying noise.
    Ratio,
    /// Second less first: for shares, which may be 0.
    Difference,
}

impl Metric {
    pub(crate) const ALL: [Self; 11] = [
        Self::Rate,
        Self::P50,
        Self::P90,
        Self::P99,
        Self::P999,
        Self::Mean,
        Self::Errors,
        Self::ClientCpu,
        Self::ServerCpu,
        Self::Wall,
        Self::Cpu,
    ];

    /// As a person types it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Mean => "mean",
            Self::Errors => "errors",
            Self::ClientCpu => "client-cpu",
            Self::ServerCpu => "server-cpu",
            Self::Wall => "wall",
            Self::Cpu => "cpu",
        }
    }

    /// As a program reads it, with its unit.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::P50 => "p50_us",
            Self::P90 => "p90_us",
            Self::P99 => "p99_us",
            Self::P999 => "p999_us",
            Self::Mean => "mean_us",
            Self::Errors => "errors_share",
            Self::ClientCpu => "client_cpu_us",
            Self::ServerCpu => "server_cpu_us",
            Self::Wall => "wall_seconds",
            Self::Cpu => "cpu_seconds",
        }
    }

    /// Whether it is measured of a whole command; the others are of a run.
    pub(crate) fn is_of_command(self) -> bool {
        matches!(self, Self::Wall | Self::Cpu)
    }

    /// The figure of a run; none where it was not measured.
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

    /// How its two sides are set against each other, where the values allow it.
    pub(crate) fn scale(self) -> Scale {
        if self == Self::Errors { Scale::Difference } else { Scale::Ratio }
    }

    /// Smallest relative difference that its measurement tells apart: histograms keep three digits.
    pub(crate) fn resolution(self) -> f64 {
        if matches!(self, Self::P50 | Self::P90 | Self::P99 | Self::P999) { 1.0 / 1024.0 } else { 0.0 }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|metric| metric.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|metric| metric.name()).collect();
            format!("there is no metric {name:?}: write {}", names.join(", "))
        })
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
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
    fn every_metric_is_found_by_its_name_and_an_unknown_one_names_them_all() {
        for metric in Metric::ALL {
            assert_eq!(metric.name().parse(), Ok(metric));
        }
        let error = "p95".parse::<Metric>().expect_err("there is no p95");
        assert!(error.contains("\"p95\"") && error.contains("p99.9, mean"), "{error}");
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
