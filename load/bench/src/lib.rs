//! A load generator: one scheduler, one clock and one recorder for gRPC, HTTP and lines over TCP.
//!
//! The path of a run: [`cli`] reads the flags, [`workload`] makes single requests of a protocol, [`schedule`] computes
//! their due times, [`run`] makes them on a thread per core and [`recorder`] records them; [`verdict`] judges validity;
//! [`report`] shows it; [`stats`] compares runs.
//!
//! Must not know the services it measures.

#![allow(missing_docs, reason = "only the laboratory uses it; a name that says it all needs no comment")]

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
