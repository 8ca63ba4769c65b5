//! What a run leaves behind: the saved model, and the forms it is shown in.

pub mod charts;
pub mod csv;
pub mod figures;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod html;
pub mod json;
pub mod model;
pub mod origin;
pub mod outputs;
pub mod page;
pub mod pending;
pub mod plot;
pub mod progress;
pub mod summary;
pub mod units;

pub use model::{Report, Run};
pub use outputs::prepare_outputs;
