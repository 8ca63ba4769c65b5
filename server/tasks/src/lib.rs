//! Tasks over TCP lines: CPU-bound and I/O-bound work whose results are pure functions of a type and a seed.
//!
//! Path of a request: [`line`] parses bytes into a [`Task`]; a connection looks up its result in the cache or else runs
//! it, CPU work on separate threads and I/O work as a timer; replies are sent in request order. [`chain`] is a client
//! for chains of requests, and computes the shortest time they can take.

pub mod chain;
pub mod line;
pub mod metrics;
pub mod server;
pub mod task;
pub mod work;

mod connection;
mod cpu;
mod fault;
mod runner;
mod service;
mod settings;
mod socket;
mod turns;

pub use metrics::{Answered, Levels, Metrics};
pub use server::Server;
pub use service::TasksService;
pub use settings::{Concurrency, Limits, PORT, Settings};
pub use task::{Kind, Task};
