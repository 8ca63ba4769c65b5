//! The flags that every load has, and the plan they make.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

/// How a load is paced, how long it takes, and where its figures go.
#[derive(Clone, Debug, Args)]
pub struct LoadArgs {
    /// Connections; each is one client of a closed loop
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub clients: usize,
    /// Requests at once on each connection (in an open loop: at most) [default: 1; in an open loop what the protocol allows]
    #[arg(short = 'm', long, value_name = "N", help_heading = "Load")]
    pub in_flight: Option<usize>,
    /// Open loop: requests a second, timed from when they are due; steps and ramps as 1000x10s,2000x10s,2000..9000x30s
    #[arg(short = 'r', long, value_name = "RATE", help_heading = "Load")]
    pub rate: Option<String>,
    /// Gaps between due times
    #[arg(long, value_enum, default_value_t = ArrivalsArg::Poisson, requires = "rate", help_heading = "Load")]
    pub arrivals: ArrivalsArg,
    /// How long to measure [default: 10s unless --count is given or the steps of --rate say it]
    #[arg(short = 'd', long, value_name = "TIME", value_parser = humantime::parse_duration, help_heading = "Load")]
    pub duration: Option<Duration>,
    /// How many requests to measure
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "duration", help_heading = "Load")]
    pub count: Option<u64>,
    /// Load before measuring begins
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration, help_heading = "Load")]
    pub warm_up: Duration,
    /// Closed loop: the clients begin one after another over this time
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = humantime::parse_duration, help_heading = "Load")]
    pub ramp_up: Duration,
    /// Longest time for a request
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration, help_heading = "Load")]
    pub timeout: Duration,
    /// Threads that make requests [default: one a core, at most one a connection]
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub workers: Option<usize>,
    /// Pin the workers to these cores, as 1 or 0,2; `none` leaves them to the system [default: pinned, one a core]
    #[arg(long, value_name = "CORES", help_heading = "Load")]
    pub cores: Option<String>,
    /// The same seed makes the same random values and arrivals
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub seed: u64,
    /// Repeat the run; comparisons count runs
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub runs: usize,
    /// Objectives that decide the exit code, as p99<5ms,errors<0.1%,rate>1000
    #[arg(long, value_name = "LIST", help_heading = "Output")]
    pub slo: Option<String>,
    /// Write everything measured as JSON, for `compare`; - is standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Write a row a request: scheduled, sent, first byte, done, status
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub csv: Option<PathBuf>,
    /// Write one page with plots, complete in itself
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// No progress on the terminal
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

/// Gaps between due times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ArrivalsArg {
    /// Equal
    Constant,
    /// Exponential: independent users
    Poisson,
}
