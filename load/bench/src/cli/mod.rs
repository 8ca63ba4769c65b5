//! The command line. Each protocol has a file of its own.

mod ab;
mod child;
mod compare;
mod comparison;
mod exit;
pub mod grpc;
pub mod http;
mod input;
mod load;
mod measure;
mod null;
mod outputs;
mod progress;
mod report;
mod shown;
#[cfg(test)]
mod stub;
mod sweep;
pub mod tcp;

use clap::{Parser, Subcommand};

pub use exit::Exit;
pub use load::LoadArgs;
use report::ReportArgs;

use crate::null::NullServer;

/// Measures gRPC, HTTP and line-based TCP services with one clock.
#[derive(Debug, Parser)]
#[command(name = "quire-bench", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done (and every --slo held); 1 --slo missed; 2 usage or nothing could be measured; 3 the run is INVALID;
4 --slo inconclusive.";

/// The subcommands.
#[derive(Debug, Subcommand)]
enum Command {
    /// Load a method of a gRPC, gRPC-Web or Connect service, found by reflection or in a .proto file
    Grpc(Box<grpc::GrpcArgs>),
    /// Load an HTTP service
    Http(Box<http::HttpArgs>),
    /// Load a service that answers lines over TCP
    Tcp(Box<tcp::TcpArgs>),
    /// Serve constant answers: shows the cost of a load without any service
    #[command(subcommand)]
    Null(NullServer),
    /// Compare two saved reports
    Compare(compare::CompareArgs),
    /// Run two commands alternately, in random order, and compare them
    Ab(ab::AbArgs),
    /// Run a load at several numbers of clients or rates: curve, knee and scalability law
    Sweep(sweep::SweepArgs),
    /// Show a saved report again, on the terminal or as a page
    Report(ReportArgs),
}

impl Cli {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<Exit> {
        match &self.command {
            Command::Grpc(args) => grpc::command(args),
            Command::Http(args) => http::command(args),
            Command::Tcp(args) => tcp::command(args),
            Command::Null(args) => null::run(args),
            Command::Compare(args) => compare::command(args),
            Command::Ab(args) => ab::command(args),
            Command::Sweep(args) => sweep::command(args),
            Command::Report(args) => report::command(args),
        }
    }
}
