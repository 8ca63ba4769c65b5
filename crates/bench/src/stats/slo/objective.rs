//! Objectives, and what became of them.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::stats::interval::Interval;

/// Confidence of an objective's interval.
pub const CONFIDENCE: f64 = 0.99;

/// What is bounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measure {
    /// Response time that this share (0 to 1, the ends left out) of the requests needed at most.
    Quantile(f64),
    /// Mean response time.
    Mean,
    /// Longest response time seen.
    Max,
    /// Share of the requests that ended as errors.
    Errors,
    /// Requests a second.
    Rate,
}

/// On which side of the bound is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// `<`
    Below,
    /// `<=`
    AtMost,
    /// `>`
    Above,
    /// `>=`
    AtLeast,
}

impl Relation {
    pub(super) fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Self::Below => value < bound,
            Self::AtMost => value <= bound,
            Self::Above => value > bound,
            Self::AtLeast => value >= bound,
        }
    }
}

/// One objective.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    /// As it was given.
    pub text: String,
    /// What is bounded.
    pub measure: Measure,
    /// On which side of the bound is right.
    pub relation: Relation,
    /// Microseconds for times, 0 to 1 for errors, requests a second for the rate.
    pub bound: f64,
}

impl fmt::Display for Objective {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.text)
    }
}

impl Serialize for Objective {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// What became of an objective, or of all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Kept.
    Pass,
    /// What was seen allows both.
    Inconclusive,
    /// Missed.
    Fail,
}

/// One objective and what was seen.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// The objective.
    pub objective: Objective,
    /// In the unit of the bound; none if nothing was measured.
    pub seen: Option<f64>,
    /// Of what was seen; its upper end may be infinite. None where the figure is a plain fact of the runs.
    pub interval: Option<Interval>,
    /// What became of it.
    pub outcome: Outcome,
    /// Why it is inconclusive, if it is.
    pub reason: Option<&'static str>,
}

/// Missed if one was missed, else inconclusive if one is, else kept.
pub fn outcome(judged: &[Judged]) -> Outcome {
    judged.iter().map(|judged| judged.outcome).max().unwrap_or(Outcome::Pass)
}
