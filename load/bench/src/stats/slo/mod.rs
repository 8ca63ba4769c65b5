//! Objectives: `p99<5ms,errors<0.1%,rate>1000`, and whether runs meet them.
//!
//! An objective passes when the whole interval of what was seen keeps it, fails when the whole interval misses it, and
//! is inconclusive otherwise: luck alone does not pass. Must not know how the outcome is used.

mod judge;
mod objective;
mod parse;

pub(crate) use judge::judge;
pub(crate) use objective::{Judged, Measure, Outcome, outcome};
pub(crate) use parse::Objectives;
#[cfg(test)]
pub(crate) use parse::parse;
