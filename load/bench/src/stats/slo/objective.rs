//! Objectives, and what became of them.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::stats::interval::Interval;

/// Confidence of an objective's interval.
pub(crate) const CONFIDENCE: f64 = 0.99;

/// What is bounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Measure {
    /// Response time that this share (0 to 1, the ends left out) of the requests needed at most.
    Quantile(f64),
    Mean,
    /// Longest response time seen.
    Max,
    /// Share of the requests that ended as errors.
    Errors,
    Rate,
}

/// On which side of the bound is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Below,
    AtMost,
    Above,
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

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Objective {
    /// As it was given.
    pub(crate) text: String,
    /// What is bounded.
    pub(crate) measure: Measure,
    /// On which side of the bound is right.
    pub(crate) relation: Relation,
    /// Microseconds for times, 0 to 1 for errors, requests a second for the rate.
    pub(crate) bound: f64,
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
pub(crate) enum Outcome {
    Pass,
    /// What was seen allows both.
    Inconclusive,
    Fail,
}

/// One objective and what was seen.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Judged {
    pub(crate) objective: Objective,
    /// In the unit of the bound; none if nothing was measured.
    pub(crate) seen: Option<f64>,
    /// Of what was seen; its upper end may be infinite. None where the figure is a plain fact of the runs.
    pub(crate) interval: Option<Interval>,
    pub(crate) outcome: Outcome,
    /// Why it is inconclusive, if it is.
    pub(crate) reason: Option<&'static str>,
}

/// Missed if one was missed, else inconclusive if one is, else kept.
pub(crate) fn outcome(judged: &[Judged]) -> Outcome {
    judged.iter().map(|judged| judged.outcome).max().unwrap_or(Outcome::Pass)
}
