//! Output of runs: figures, charts and files.

pub(crate) mod charts;
pub(crate) mod csv;
pub(crate) mod figures;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod html;
pub mod json;
pub mod origin;
pub mod page;
pub mod pending;
pub mod plot;
pub(crate) mod summary;
pub mod table;
pub mod units;
