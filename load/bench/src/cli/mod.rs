//! The command line. Each protocol has a file of its own.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::null::{Null, NullServer};
use crate::report::pending::Pending;
use crate::report::{html, json, summary};

mod ab;
mod child;
mod compare;
mod exit;
pub mod grpc;
pub mod http;
mod load;
mod measure;
mod sweep;
pub mod tcp;

pub use exit::Exit;
pub use load::LoadArgs;

/// Measures gRPC, HTTP and line-based TCP services with one clock.
#[derive(Debug, Parser)]
#[command(name = "quire-bench", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub struct Cli {
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
    pub fn run(&self) -> anyhow::Result<Exit> {
        match &self.command {
            Command::Grpc(args) => grpc::command(args),
            Command::Http(args) => http::command(args),
            Command::Tcp(args) => tcp::command(args),
            Command::Null(args) => null(args),
            Command::Compare(args) => compare::command(args),
            Command::Ab(args) => ab::command(args),
            Command::Sweep(args) => sweep::command(args),
            Command::Report(args) => report(args),
        }
    }
}

/// Prints the address and serves until Ctrl-C.
fn null(server: &NullServer) -> anyhow::Result<Exit> {
    let null = Null::start(server.clone())?;
    let mut out = io::stdout().lock();
    if let Some(first) = null.first_stall_unix_ms {
        writeln!(out, "first stall at {first} ms since 1970")?;
    }
    writeln!(out, "listening on {}", null.address)?;
    out.flush()?;
    drop(out);
    load::block_on(async { Ok(tokio::signal::ctrl_c().await?) })?;
    Ok(Exit::Done)
}

/// Show a report that --json wrote
#[derive(Clone, Debug, Args)]
struct ReportArgs {
    /// The report
    #[arg(value_name = "REPORT.json")]
    report: PathBuf,
    /// Write a page with plots, in one file, instead of the summary; - is standard output
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn report(args: &ReportArgs) -> anyhow::Result<Exit> {
    let report = json::read(&args.report)?;
    match &args.html {
        Some(path) => Pending::create(path)?.write_whole(html::page(&report).as_bytes())?,
        None => io::stdout().write_all(summary::text(&report).as_bytes())?,
    }
    // The exit code is about the file, not about the validity of its figures.
    Ok(Exit::Done)
}
