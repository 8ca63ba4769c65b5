//! Tasks over TCP lines: CPU-bound and I/O-bound work whose results are pure functions of a type and a seed.
//!
//! The way of a request: [`line`] turns bytes into a [`Task`], a connection looks for its result in the cache and
//! otherwise lets it run, CPU work on threads of its own and I/O work as a timer, and replies leave in the order of
//! their requests. [`chain`] is a client that asks chains of requests, and knows how fast they can possibly be.
//! Nothing here binds a socket or reads a configuration file.

pub mod chain;
pub mod line;
pub mod metrics;
pub mod server;
pub mod settings;
pub mod task;
pub mod work;

mod cache;
mod connection;
mod cpu;
mod places;
mod runner;
mod socket;

pub use metrics::Metrics;
pub use server::Server;
pub use settings::{Concurrency, Limits, Settings};
pub use task::{Kind, Task};
