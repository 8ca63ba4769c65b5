//! The command line: which command, and what every load has in common.
//!
//! Must not know a protocol: each has a file of its own.

pub mod http;
pub mod input;
pub mod load;
pub mod null;
pub mod tcp;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use load::LoadArgs;

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
pub enum Command {}
