//! What a run leaves behind: the saved model, and the forms it is shown in.

pub mod model;

pub use model::{Report, Run};
