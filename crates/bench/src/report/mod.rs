//! What a run leaves behind: the saved model, and the forms it is shown in.

pub mod model;
pub mod plot;
pub mod units;

pub use model::{Report, Run};
