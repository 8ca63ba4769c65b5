//! A sweep in its saved form, and the findings from its curve.

use std::collections::BTreeMap;

use serde::Serialize;

use super::axis::Axis;
use crate::measurement::Run;
use crate::stats::curve::{self, Usl};
use crate::stats::curve::{AtRate, Served, kneedle, last_served};
use crate::stats::interval::{Interval, geometric_mean, geometric_mean_interval, mean, mean_interval};
use crate::stats::metric::Metric;

/// Value of `format` in the JSON.
pub(super) const FORMAT: &str = "quire-bench-sweep/1";

/// Confidence of each interval of the curve and the law: they show uncertainty and decide nothing.
pub(super) const CONFIDENCE: f64 = 0.95;

pub(super) const FIGURES: [Metric; 9] = [
    Metric::Rate,
    Metric::P50,
    Metric::P90,
    Metric::P99,
    Metric::P999,
    Metric::Mean,
    Metric::Errors,
    Metric::ClientCpu,
    Metric::ServerCpu,
];

/// A load measured at several points.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sweep {
    pub(crate) format: &'static str,
    /// The load, without the varied flag.
    pub(crate) load: String,
    pub(crate) axis: Axis,
    pub(crate) points: Vec<Point>,
    pub(crate) confidence: f64,
    /// True if interrupted: points then have fewer runs, or none.
    pub(crate) interrupted: bool,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Point {
    /// Clients, or requests a second.
    pub(crate) at: f64,
    /// Replicates.
    pub(crate) runs: Vec<PointRun>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct PointRun {
    pub(crate) seconds: f64,
    pub(crate) figures: BTreeMap<Metric, f64>,
    /// Reasons that they are invalid; empty if valid.
    pub(crate) invalid: Vec<String>,
}

impl From<&Run> for PointRun {
    fn from(run: &Run) -> Self {
        let figures = FIGURES.into_iter().filter_map(|metric| Some((metric, metric.of(run)?))).collect();
        Self { seconds: run.seconds, figures, invalid: run.verdict.reasons.clone() }
    }
}

impl Point {
    /// A figure over all runs that have it; NaN if none has.
    pub(crate) fn figure(&self, metric: Metric) -> f64 {
        self.interval(metric).map_or_else(|| centre(&self.values(metric)), |interval| interval.estimate)
    }

    /// Its confidence interval over runs; `None` for fewer than two.
    pub(crate) fn interval(&self, metric: Metric) -> Option<Interval> {
        let values = self.values(metric);
        geometric_mean_interval(&values, CONFIDENCE).or_else(|| mean_interval(&values, CONFIDENCE))
    }

    /// Reason of the first invalid run.
    pub(crate) fn invalid(&self) -> Option<&str> {
        self.runs.iter().flat_map(|run| &run.invalid).next().map(String::as_str)
    }

    fn values(&self, metric: Metric) -> Vec<f64> {
        self.runs.iter().filter_map(|run| run.figures.get(&metric).copied()).collect()
    }
}

fn centre(values: &[f64]) -> f64 {
    let geometric = geometric_mean(values);
    if geometric.is_nan() { mean(values) } else { geometric }
}

impl Sweep {
    /// Points with at least one run.
    pub(crate) fn measured(&self) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(|point| !point.runs.is_empty())
    }

    /// The knee, beyond which more clients add little throughput; `None` for rates. Points with invalid runs are left
    /// out: with the client as the bottleneck, the knee would be the client's.
    pub(crate) fn knee(&self) -> Option<f64> {
        if self.axis != Axis::Clients {
            return None;
        }
        let curve: Vec<(f64, f64)> = self
            .measured()
            .filter(|point| point.invalid().is_none())
            .map(|point| (point.at, point.figure(Metric::Rate)))
            .collect();
        kneedle(&curve).map(|at| curve[at].0)
    }

    /// The universal scalability law, fitted to valid runs; `None` for rates.
    pub(crate) fn usl(&self) -> Option<Result<Usl, curve::NoFit>> {
        if self.axis != Axis::Clients {
            return None;
        }
        let mut points = Vec::new();
        for point in self.measured() {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clients are whole and few")]
            let clients = point.at as u32;
            let valid = point.runs.iter().filter(|run| run.invalid.is_empty());
            points.extend(valid.filter_map(|run| Some((clients, *run.figures.get(&Metric::Rate)?))));
        }
        Some(curve::fit(&points, CONFIDENCE))
    }

    /// The rates that were served; `None` for clients. A run that did not reach its rate is INVALID as a measurement of
    /// that rate, but it is the answer here.
    pub(crate) fn served(&self) -> Option<Served> {
        let at_rate = |point: &Point| AtRate {
            asked: point.at,
            achieved: point.figure(Metric::Rate),
            seconds: point.runs.iter().map(|run| run.seconds).sum(),
            p99_us: point.figure(Metric::P99),
        };
        (self.axis == Axis::Rate).then(|| last_served(&self.measured().map(at_rate).collect::<Vec<_>>()))
    }

    /// True if a point that the findings rest on is invalid: any point of clients, or a served rate.
    pub(crate) fn is_invalid(&self) -> bool {
        let end = self.served().map_or(f64::INFINITY, |served| served.last.unwrap_or(0.0));
        self.measured().any(|point| point.at <= end && point.invalid().is_some())
    }
}
