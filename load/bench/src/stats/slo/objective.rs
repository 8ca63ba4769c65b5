//! Objectives and their outcomes.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::stats::interval::Interval;

/// Confidence of an objective's interval.
pub(crate) const CONFIDENCE: f64 = 0.99;

/// The bounded figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Measure {
    /// Response-time percentile: the time that this share (0 to 1, ends excluded) of the requests needed at most.
    Quantile(f64),
    Mean,
    /// Longest response time seen.
    Max,
    /// Share of the requests that ended as errors.
    Errors,
    Rate,
}

/// Comparison with the bound.
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
    /// Text as given.
    pub(crate) text: String,
    /// The bounded figure.
    pub(crate) measure: Measure,
    /// Comparison with the bound.
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

/// Outcome of an objective, or of all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    Pass,
    /// The interval allows both.
    Inconclusive,
    Fail,
}

/// An objective with its result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Judged {
    pub(crate) objective: Objective,
    /// Value in the unit of the bound; `None` if nothing was measured.
    pub(crate) seen: Option<f64>,
    /// Interval of the value; its upper end may be infinite. `None` if the value is exact.
    pub(crate) interval: Option<Interval>,
    pub(crate) outcome: Outcome,
    /// Reason, if inconclusive.
    pub(crate) reason: Option<&'static str>,
}

/// Fail if any failed, else inconclusive if any is, else pass.
pub(crate) fn outcome(judged: &[Judged]) -> Outcome {
    judged.iter().map(|judged| judged.outcome).max().unwrap_or(Outcome::Pass)
}
