//! What figures of several runs say together: intervals, comparisons, curves and objectives.
//!
//! The run is the replicate: requests within a run share its luck (one process, one placement on the cores), so
//! their great number says nothing about the next run. Must not know how runs are made, nor how anything is shown.

pub(crate) mod compare;
pub mod interval;
pub(crate) mod knee;
pub(crate) mod metric;
pub mod order;
pub(crate) mod share;
pub(crate) mod slo;
pub(crate) mod usl;
