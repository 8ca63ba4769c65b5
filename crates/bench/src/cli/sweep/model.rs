//! A sweep as it is saved, and what its curve says.

use std::collections::BTreeMap;

use serde::Serialize;

use super::axis::Axis;
use crate::measurement::Run;
use crate::stats::interval::{Interval, geometric_mean, geometric_mean_interval, mean, mean_interval};
use crate::stats::knee::{AtRate, Served, kneedle, last_served};
use crate::stats::metric::Metric;
use crate::stats::usl::{self, Usl};

/// What the JSON's `format` says.
pub(super) const FORMAT: &str = "quire-bench-sweep/1";

/// Confidence of the curve's and the law's intervals, each by itself: they show how sure a figure is and decide nothing.
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
    /// The load, without what is varied.
    pub(crate) load: String,
    pub(crate) axis: Axis,
    pub(crate) points: Vec<Point>,
    pub(crate) confidence: f64,
    /// Whether it was ended early from outside: points then have fewer runs, or none.
    pub(crate) interrupted: bool,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Point {
    /// Clients, or requests a second.
    pub(crate) at: f64,
    /// Each a replicate.
    pub(crate) runs: Vec<PointRun>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct PointRun {
    /// How long it was measured.
    pub(crate) seconds: f64,
    /// Those that were measured.
    pub(crate) figures: BTreeMap<Metric, f64>,
    /// Why they cannot be believed; empty: they can.
    pub(crate) invalid: Vec<String>,
}

impl From<&Run> for PointRun {
    fn from(run: &Run) -> Self {
        let figures = FIGURES.into_iter().filter_map(|metric| Some((metric, metric.of(run)?))).collect();
        Self { seconds: run.seconds, figures, invalid: run.verdict.reasons.clone() }
    }
}

impl Point {
    /// A figure over all runs that have it; not a number if none has.
    pub(crate) fn figure(&self, metric: Metric) -> f64 {
        self.interval(metric).map_or_else(|| centre(&self.values(metric)), |interval| interval.estimate)
    }

    /// Its interval over runs; none for fewer than two.
    pub(crate) fn interval(&self, metric: Metric) -> Option<Interval> {
        let values = self.values(metric);
        geometric_mean_interval(&values, CONFIDENCE).or_else(|| mean_interval(&values, CONFIDENCE))
    }

    /// Why the first of its runs that cannot be believed cannot.
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
    /// The points at which something was measured.
    pub(crate) fn measured(&self) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(|point| !point.runs.is_empty())
    }

    /// Where more clients stop paying; none for rates. Points with runs that cannot be believed are left out: of a
    /// client that was the bottleneck the curve would tell the client's knee.
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

    /// The universal scalability law, over runs that can be believed; none for rates.
    pub(crate) fn usl(&self) -> Option<Result<Usl, usl::NoFit>> {
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
        Some(usl::fit(&points, CONFIDENCE))
    }

    /// How far rates were served; none for clients. A run that did not reach its rate is INVALID as a measurement of
    /// that rate, and it is the answer here.
    pub(crate) fn served(&self) -> Option<Served> {
        let at_rate = |point: &Point| AtRate {
            asked: point.at,
            achieved: point.figure(Metric::Rate),
            seconds: point.runs.iter().map(|run| run.seconds).sum(),
            p99_us: point.figure(Metric::P99),
        };
        (self.axis == Axis::Rate).then(|| last_served(&self.measured().map(at_rate).collect::<Vec<_>>()))
    }

    /// Whether a point that the answer rests on cannot be believed: any of clients, of rates one that was served.
    pub(crate) fn is_invalid(&self) -> bool {
        let end = self.served().map_or(f64::INFINITY, |served| served.last.unwrap_or(0.0));
        self.measured().any(|point| point.at <= end && point.invalid().is_some())
    }
}
