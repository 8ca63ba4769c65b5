//! Code shared by the Rust engines, so that only the engine differs: the command line, certificates, and the store of
//! fortunes with its client. Must not know any engine.

mod fortunes;
mod options;

pub use fortunes::{Absent, Fortunes};
pub use options::{Options, Pem};
pub use rustls;
