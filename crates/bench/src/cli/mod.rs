//! The command line: which command, and what every load has in common.
//!
//! Must not know a protocol: each has a file of its own.

pub mod ab;
pub mod child;
pub mod compare;
pub mod effects;
pub mod grpc;
pub mod http;
pub mod input;
pub mod load;
pub mod measure;
pub mod null;
pub mod report;
pub mod shown;
#[cfg(test)]
mod stub;
pub mod sweep;
pub mod tcp;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use load::LoadArgs;
pub use report::ReportArgs;

/// Measures gRPC, HTTP and line-based TCP services with one clock.
#[derive(Debug, Parser)]
#[command(name = "quire-bench", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done (with --slo: held); 1 --slo missed; 2 usage or nothing could be measured; 3 the run is INVALID;
4 --slo inconclusive.";

/// What a command ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Measured; objectives, if any, held.
    Done = 0,
    /// An objective was missed.
    Missed = 1,
    /// Nothing could be measured.
    Failed = 2,
    /// Measured, and not to be believed.
    Invalid = 3,
    /// Too little was seen to say whether the objectives hold.
    Inconclusive = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load a method of a gRPC service, found by reflection or in a .proto file
    Grpc(Box<grpc::GrpcArgs>),
    /// Load an HTTP service
    Http(Box<http::HttpArgs>),
    /// Load a service that answers lines over TCP
    Tcp(Box<tcp::TcpArgs>),
    /// Serve constant answers: shows what a load costs without any service
    Null(null::NullArgs),
    /// Compare two saved reports
    Compare(compare::CompareArgs),
    /// Run two commands in turns, in random order, and tell whether they differ
    Ab(ab::AbArgs),
    /// Run a load at several numbers of clients or rates: curve, knee and scalability law
    Sweep(sweep::SweepArgs),
    /// Show a saved report again, on the terminal or as a page
    Report(ReportArgs),
}

impl Command {
    /// Does it.
    pub fn run(&self) -> anyhow::Result<Exit> {
        match self {
            Self::Grpc(args) => grpc::command(args),
            Self::Http(args) => http::command(args),
            Self::Tcp(args) => tcp::command(args),
            Self::Null(args) => null::run(args),
            Self::Compare(args) => compare::command(args),
            Self::Ab(args) => ab::command(args),
            Self::Sweep(args) => sweep::command(args),
            Self::Report(args) => report::command(args),
        }
    }
}
