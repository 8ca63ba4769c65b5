//! Equality queries on the columns of a CSV file.
//!
//! A file is loaded once: its columns by distinct values, each value's rows listed, and each row encoded in every form
//! of answers. An answer is then a list of slices of those encoded rows. [`grpc`] and [`rest`] serve clients. Nothing
//! here opens a socket, reads a configuration file or prints.

mod answer;
mod cache;
mod encode;
mod fault;
pub mod generate;
pub mod grpc;
mod load;
mod metrics;
mod pool;
mod query;
mod records;
pub mod rest;
mod service;
mod settings;
mod table;

pub use fault::Fault;
pub use load::{LoadError, Problem};
pub use query::Query;
pub use records::{Levels, Records, Rows};
pub use service::RecordsService;
pub use settings::{Delimiter, Encode, Keep, Limits, Scan, Settings};
