//! Statistics over runs: intervals, comparisons, curves and objectives.
//!
//! The run is the replicate: requests within a run share its circumstances (one process, one placement on the cores),
//! so their great number is no evidence about the next run.

pub(crate) mod compare;
pub(crate) mod curve;
pub mod interval;
pub(crate) mod metric;
pub mod order;
pub(crate) mod slo;
