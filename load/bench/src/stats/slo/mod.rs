//! Objectives such as `p99<5ms,errors<0.1%,rate>1000`, judged against runs.
//!
//! An objective passes if the whole interval of its value meets it, fails if the whole interval misses it, and is
//! inconclusive otherwise: luck alone does not pass.

mod judge;
mod objective;
mod parse;

pub(crate) use judge::judge;
pub(crate) use objective::{Judged, Measure, Outcome, outcome};
pub(crate) use parse::Objectives;
#[cfg(test)]
pub(crate) use parse::parse;
