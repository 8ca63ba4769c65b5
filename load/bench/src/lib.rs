//! A load generator: one scheduler, one clock and one recorder for gRPC, HTTP and lines over TCP.
//!
//! A run's path through the crate: [`cli`] reads what is wanted, [`workload`] knows how to make one request of a
//! protocol, [`schedule`] says when requests are due, [`run`] makes them on a thread per core and [`recorder`] keeps
//! what was seen; [`verdict`] says whether to believe it; [`report`] shows it; [`stats`] compares runs.
//!
//! Must not know the services it measures.

pub mod cli;
pub mod cores;
pub mod measurement;
pub mod null;
pub mod plan;
pub mod probe;
mod recorder;
pub mod report;
pub mod run;
pub mod schedule;
pub mod stats;
pub mod template;
pub mod tls;
mod values;
mod verdict;
pub mod workload;
