//! What a run leaves behind: the saved model, and the forms it is shown in.

pub mod charts;
pub mod csv;
pub mod figures;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod html;
pub mod json;
pub mod origin;
pub mod page;
pub mod pending;
pub mod plot;
pub mod summary;
pub mod units;
