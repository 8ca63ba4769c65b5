//! Equality queries on the columns of a CSV file.
//!
//! A file is loaded once: its columns by distinct values, each value's rows listed, and each row encoded in every form
//! that answers have. An answer then is a list of places in what lies ready. [`grpc`] and [`rest`] speak to clients.
//! Nothing here opens a socket, reads a configuration file or prints.

mod answer;
mod encode;
mod fault;
pub mod generate;
pub mod grpc;
mod kept;
mod load;
mod packing;
mod pool;
mod query;
pub mod rest;
mod selection;
mod service;
mod settings;
mod table;

pub use fault::Fault;
pub use load::{LoadError, Problem};
pub use query::Query;
pub use service::{Levels, Records};
pub use settings::{Encode, Keep, Limits, Scan, Settings};
