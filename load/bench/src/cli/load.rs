//! Flags of every load, the plan they make, and the input they name: rows for templates, and data as text or a file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use clap::Args;

use crate::cores::cores;
use crate::plan::{End, Pace, Plan};
use crate::schedule::{Arrivals, Profile};
use crate::template::{Rows, Sources};

/// Pace, duration and output of a load.
#[derive(Clone, Debug, Args)]
pub struct LoadArgs {
    /// Connections; each is one client of a closed loop
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub clients: usize,
    /// Requests in flight on each connection; in an open loop the maximum [default: 1; in an open loop what the protocol allows]
    #[arg(short = 'm', long, value_name = "N", help_heading = "Load")]
    pub in_flight: Option<usize>,
    /// Open loop: requests a second, timed from when they are due; steps and ramps as 1000x10s,2000x10s,2000..9000x30s
    #[arg(short = 'r', long, value_name = "RATE", help_heading = "Load")]
    pub rate: Option<String>,
    /// Gaps between due times
    #[arg(long, value_enum, default_value_t = Arrivals::Poisson, requires = "rate", help_heading = "Load")]
    pub arrivals: Arrivals,
    /// Time to measure [default: 10s unless --count is given or the steps of --rate set it]
    #[arg(short = 'd', long, value_name = "TIME", value_parser = humantime::parse_duration, help_heading = "Load")]
    pub duration: Option<Duration>,
    /// Number of requests to measure
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "duration", help_heading = "Load")]
    pub count: Option<u64>,
    /// Load before measuring begins [default: 1s; none with --count]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, help_heading = "Load")]
    pub warm_up: Option<Duration>,
    /// Longest wait of a request to be sent, and then for its answer; a run ends in --duration plus this
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration, help_heading = "Load")]
    pub timeout: Duration,
    /// Threads that make requests [default: one a core, at most one a connection]
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub workers: Option<usize>,
    /// Pin the workers to these cores, as 1 or 0,2; `none` leaves them to the system [default: pinned, one a core]
    #[arg(long, value_name = "CORES", help_heading = "Load")]
    pub cores: Option<String>,
    /// Seed of the random values and arrivals
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub seed: u64,
    /// Number of runs; comparisons count runs, not requests
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub runs: usize,
    /// Objectives that decide the exit code, as in p99<5ms,errors<0.1%,rate>1000
    #[arg(long, value_name = "LIST", help_heading = "Output")]
    pub slo: Option<String>,
    /// Write everything measured as JSON, for `compare`; - is standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Write a row for each request: scheduled, sent, first byte, done, status
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub csv: Option<PathBuf>,
    /// Write a page with plots, in one file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// No progress on the terminal
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

/// Maximum requests in flight that a protocol allows on a connection, and the reason, shown to a user who exceeds it.
pub(crate) type Multiplexing = (usize, &'static str);

const CONNECTIONS_MAX: usize = 16_384;
/// Maximum requests in flight over all connections.
const IN_FLIGHT_TOTAL_MAX: usize = 1 << 20;
/// Default requests in flight on a connection of an open loop.
const IN_FLIGHT_OPEN: usize = 1024;
/// Default measured time.
const DURATION: Duration = Duration::from_secs(10);
/// Default warm-up; a counted run has none, so that it makes exactly that many requests.
const WARM_UP: Duration = Duration::from_secs(1);

impl LoadArgs {
    /// Returns the plan, or an error that names the wrong flag.
    pub(crate) fn plan(&self, (in_flight_max, reason): Multiplexing) -> anyhow::Result<Plan> {
        ensure!((1..=CONNECTIONS_MAX).contains(&self.clients), "--clients must be from 1 to {CONNECTIONS_MAX}");
        ensure!(self.runs > 0, "--runs must be at least 1");
        ensure!(!self.timeout.is_zero(), "--timeout must be above 0s");
        let usual = if self.rate.is_some() { IN_FLIGHT_OPEN.min(in_flight_max) } else { 1 };
        let in_flight = self.in_flight.unwrap_or(usual);
        ensure!(in_flight > 0, "--in-flight must be at least 1");
        ensure!(in_flight <= in_flight_max, "--in-flight {in_flight} is more than {in_flight_max}: {reason}");
        ensure!(
            in_flight * self.clients <= IN_FLIGHT_TOTAL_MAX,
            "--clients times --in-flight must be at most {IN_FLIGHT_TOTAL_MAX}"
        );
        let available = cores();
        let workers = self.workers.unwrap_or(available.len()).min(self.clients);
        ensure!(workers > 0, "--workers must be at least 1");
        let (pace, steps) = self.pace()?;
        let end = match (self.count, self.duration, steps) {
            (Some(count), ..) => {
                ensure!(count > 0, "--count must be at least 1");
                End::Count(count)
            }
            (None, Some(duration), _) => {
                ensure!(!duration.is_zero(), "--duration must be above 0s");
                End::After(duration)
            }
            (None, None, Some(steps)) => End::After(steps),
            (None, None, None) => End::After(DURATION),
        };
        let usual = if matches!(end, End::Count(_)) { Duration::ZERO } else { WARM_UP };
        Ok(Plan {
            pace,
            end,
            warm_up: self.warm_up.unwrap_or(usual),
            connections: self.clients,
            in_flight,
            workers,
            cores: self.cores(available)?,
            timeout: self.timeout,
            seed: self.seed,
        })
    }

    /// The pace, and the length of its steps if they end.
    fn pace(&self) -> anyhow::Result<(Pace, Option<Duration>)> {
        let Some(rate) = &self.rate else { return Ok((Pace::Closed, None)) };
        let profile: Profile = rate.parse().context("--rate")?;
        let seconds = profile.seconds();
        let steps = seconds.is_finite().then(|| Duration::try_from_secs_f64(seconds)).transpose()?;
        if let (Some(steps), Some(duration)) = (steps, self.duration) {
            ensure!(duration <= steps, "--duration is longer than the steps of --rate, which end after {seconds} s");
        }
        Ok((Pace::Open { arrivals: self.arrivals, profile }, steps))
    }

    fn cores(&self, available: Vec<usize>) -> anyhow::Result<Option<Vec<usize>>> {
        let wrong = |text: &str| {
            let known = available.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            anyhow!("--cores {text}: write `none` or some of {known}")
        };
        match self.cores.as_deref() {
            None => Ok(Some(available)),
            Some("none") => Ok(None),
            Some(text) => {
                let cores = text.split(',').map(|core| core.trim().parse().map_err(|_| wrong(text)));
                let cores: Vec<usize> = cores.collect::<Result<_, _>>()?;
                ensure!(cores.iter().all(|core| available.contains(core)), wrong(text));
                Ok(Some(cores))
            }
        }
    }
}

/// Sources of placeholder values.
pub(crate) fn sources(seed: u64, rows: Option<&Path>) -> anyhow::Result<Sources> {
    let rows = rows.map(Rows::read).transpose()?.map(Arc::new);
    Ok(Sources { seed, rows })
}

/// Returns the argument itself, the content of the file after `@`, or standard input for `-`.
pub(crate) fn read_input(argument: &str, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    let named = || format!("--data {argument}");
    let from: Box<dyn Read> = match argument.strip_prefix('@') {
        Some(path) => Box::new(File::open(path).with_context(named)?),
        None if argument == "-" => Box::new(std::io::stdin()),
        None => return Ok(argument.as_bytes().to_vec()),
    };
    let mut bytes = Vec::new();
    from.take(bytes_max + 1).read_to_end(&mut bytes).with_context(named)?;
    ensure!(bytes.len() as u64 <= bytes_max, "{}: more than {bytes_max} bytes", named());
    Ok(bytes)
}

/// Runs requests to a server before a load, when there is no runtime yet.
pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start a runtime")?.block_on(work)
}
