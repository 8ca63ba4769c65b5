//! Objectives: `p99<5ms,errors<0.1%,rate>1000`, and whether runs meet them.
//!
//! An objective passes when the whole interval of what was seen keeps it, fails when the whole interval misses it, and
//! is inconclusive otherwise: luck alone does not pass. Must not know how the outcome is used.

mod judge;
mod objective;
mod parse;

pub use judge::judge;
pub use objective::{CONFIDENCE, Judged, Measure, Objective, Outcome, Relation, outcome};
pub use parse::{OBJECTIVES_MAX, Objectives, SloError, parse};
