//! A measurement and its saved form, written by `--json` and read by `compare` and the page.
//!
//! Times are in microseconds unless the name has another unit, with three significant digits, like the histograms
//! behind them.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2Serializer};
use serde::{Deserialize, Serialize};

/// Value of [`Report::format`].
pub const FORMAT: &str = "quire-bench/1";

/// Measurement of one command: one run, or several of the same load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub format: String,
    /// Version of the tool, with its commit if known.
    pub tool: String,
    pub machine: Machine,
    pub load: Load,
    /// Runs, each a replicate; comparisons count runs, not requests.
    pub runs: Vec<Run>,
}

/// The measuring machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    /// Cores available to the process.
    pub cores: usize,
    /// Operating system and its version.
    pub system: String,
}

/// The requested load, by which two reports are compared.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Load {
    /// `grpc`, `http` or `tcp`.
    pub protocol: String,
    /// Address or URL.
    pub target: String,
    /// Method, path or line.
    pub what: String,
    /// `closed`, `constant` or `poisson`.
    pub pace: String,
    /// Requested rate per second, in an open loop; the mean for a profile.
    pub rate: Option<f64>,
    pub connections: usize,
    /// Requests in flight on a connection.
    pub in_flight: usize,
    /// Worker threads, which made requests.
    pub workers: usize,
    /// All other settings, by flag name.
    pub settings: BTreeMap<String, String>,
}

impl Load {
    /// True for an open loop, in which requests arrive on connections and there are no clients.
    pub fn is_open(&self) -> bool {
        !matches!(self.pace.as_str(), "closed" | "")
    }

    /// Records a setting under its flag's name, if it has a value.
    pub fn set(&mut self, flag: &str, value: Option<impl ToString>) {
        self.settings.extend(value.map(|value| (flag.to_owned(), value.to_string())));
    }

    /// Title in one line: the request and its target.
    pub fn title(&self) -> String {
        match self.protocol.as_str() {
            "grpc" | "grpc-web" | "connect" if !self.what.is_empty() => self.what.clone(),
            _ if self.what.is_empty() => self.target.clone(),
            "http" => format!("{} {}", self.what, self.target),
            _ => format!("{} to {}", self.what, self.target),
        }
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// Start of measuring, in milliseconds since 1970.
    pub began_unix_ms: u64,
    /// Measured time, in seconds.
    pub seconds: f64,
    /// Requests that were due (in a closed loop: sent) within the measured time; each has one ending.
    pub requests: u64,
    /// Those of them that were sent.
    #[serde(default)]
    pub sent: u64,
    /// Those that failed, timed out or were never sent.
    pub errors: u64,
    /// Answers within the measured time, whenever their requests were due. Bytes and CPU are of the same time.
    #[serde(default)]
    pub completed: u64,
    /// [`Self::completed`] a second.
    pub rate: f64,
    /// Number of [`Self::requests`] by ending.
    pub endings: BTreeMap<String, u64>,
    /// Response time: from due (in a closed loop: sent) to the whole answer.
    pub response: Distribution,
    /// Service time: from sent to the whole answer.
    pub service: Distribution,
    /// Send lag: from due to sent; empty in a closed loop.
    pub lag: Distribution,
    /// From sent to the first byte of the answer, where the transport reports it.
    pub first_byte: Distribution,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// CPU time of the workers within the measured time.
    pub client_cpu_seconds: f64,
    /// Largest share of its time that a worker was running: 1 is a full core.
    pub client_busy_max: f64,
    /// Largest share of its time that a worker was ready to run while others had the cores.
    #[serde(default)]
    pub client_waiting_max: f64,
    /// The server's own counts, if they can be read.
    pub server: Option<ServerSide>,
    /// The run over time, in equal intervals.
    pub series: Vec<Interval>,
    /// Finish times of each client's requests, thinned to a bounded number.
    pub finishes: Vec<Finish>,
    pub verdict: Verdict,
    pub interrupted: bool,
}

/// Counts of a server between the beginning and the end of the measured time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ServerSide {
    /// From the first query to the second answer: no less than the time between the server's two readings.
    #[serde(default)]
    pub seconds: f64,
    /// CPU time of its process, in seconds.
    pub cpu_seconds: f64,
    /// Calls it finished.
    pub calls: u64,
    /// Its own latency histogram: upper bounds in seconds (the last is infinite) and calls within each.
    #[serde(with = "buckets")]
    pub latency: Vec<(f64, u64)>,
}

/// Buckets with an infinite upper bound, which is `null` in JSON.
mod buckets {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(super) fn serialize<S: Serializer>(buckets: &[(f64, u64)], serializer: S) -> Result<S::Ok, S::Error> {
        let finite = |bound: f64| bound.is_finite().then_some(bound);
        let saved: Vec<(Option<f64>, u64)> = buckets.iter().map(|&(bound, calls)| (finite(bound), calls)).collect();
        saved.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(f64, u64)>, D::Error> {
        let saved = Vec::<(Option<f64>, u64)>::deserialize(deserializer)?;
        Ok(saved.into_iter().map(|(bound, calls)| (bound.unwrap_or(f64::INFINITY), calls)).collect())
    }
}

/// Validity of figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Reasons that they are invalid; empty if valid.
    pub reasons: Vec<String>,
    /// Doubts: the figures are right, but may be the client's or the machine's rather than the server's.
    #[serde(default)]
    pub doubts: Vec<String>,
}

impl Verdict {
    /// Figures invalid for this reason.
    pub fn invalid(reason: impl Into<String>) -> Self {
        Self { reasons: vec![reason.into()], doubts: Vec::new() }
    }

    pub fn is_valid(&self) -> bool {
        self.reasons.is_empty()
    }
}

/// One of the equal intervals of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Interval {
    /// Start, in seconds from the beginning of the run.
    pub at_seconds: f64,
    pub seconds: f64,
    /// Answers received.
    pub requests: u64,
    /// Requests due at the requested rate; 0 in a closed loop.
    #[serde(default)]
    pub due: f64,
    /// Requests that ended as errors.
    pub errors: u64,
    /// Median response time in microseconds.
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

/// End of one request.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Finish {
    /// Client number; in an open loop, connection number.
    pub client: u32,
    /// Number among the client's requests, from 0; in an open loop, among the worker's.
    pub turn: u64,
    /// Seconds from the beginning of the run.
    pub at_seconds: f64,
    /// Response time in microseconds.
    pub response_us: f64,
}

/// A distribution of times.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "SavedDistribution", into = "SavedDistribution")]
pub struct Distribution {
    /// In nanoseconds, three significant digits.
    pub histogram: Histogram<u64>,
}

/// Longest time that a histogram distinguishes: an hour, in nanoseconds.
pub const TIME_NS_MAX: u64 = 3_600_000_000_000;

/// A histogram for times in nanoseconds.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, TIME_NS_MAX, 3).expect("the bounds are in order and three digits are allowed")
}

impl Default for Distribution {
    fn default() -> Self {
        Self { histogram: histogram() }
    }
}

impl Distribution {
    /// Adds the times of `other`, which a run recorded.
    pub(crate) fn add(&mut self, other: &Self) {
        // Many are empty, and adding walks the whole histogram.
        if other.count() > 0 {
            self.histogram.add(&other.histogram).expect("all histograms of runs have the same bounds");
        }
    }

    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Quantile at `share` (0 to 1) in microseconds; 0 if nothing was recorded.
    pub fn quantile_us(&self, share: f64) -> f64 {
        if self.histogram.is_empty() { 0.0 } else { micros(self.histogram.value_at_quantile(share)) }
    }

    /// Mean in microseconds; 0 if nothing was recorded.
    pub fn mean_us(&self) -> f64 {
        self.histogram.mean() / 1e3
    }

    /// Largest in microseconds; 0 if nothing was recorded.
    pub fn max_us(&self) -> f64 {
        micros(self.histogram.max())
    }
}

#[expect(clippy::cast_precision_loss, reason = "an hour in nanoseconds is far below 2^53")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

/// Saved form: common figures, and the histogram they come from.
#[derive(Serialize, Deserialize)]
struct SavedDistribution {
    count: u64,
    mean_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    /// `HdrHistogram`'s V2 form in base64, in nanoseconds.
    histogram: String,
}

impl From<Distribution> for SavedDistribution {
    fn from(distribution: Distribution) -> Self {
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&distribution.histogram, &mut bytes).expect("a vector takes every byte");
        Self {
            count: distribution.count(),
            mean_us: distribution.mean_us(),
            p50_us: distribution.quantile_us(0.5),
            p90_us: distribution.quantile_us(0.9),
            p99_us: distribution.quantile_us(0.99),
            p999_us: distribution.quantile_us(0.999),
            max_us: distribution.max_us(),
            histogram: BASE64.encode(bytes),
        }
    }
}

impl TryFrom<SavedDistribution> for Distribution {
    type Error = String;

    fn try_from(saved: SavedDistribution) -> Result<Self, String> {
        let bytes = BASE64.decode(&saved.histogram).map_err(|error| format!("histogram is not base64: {error}"))?;
        let histogram = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| format!("histogram is not in HdrHistogram's form: {error:?}"))?;
        Ok(Self { histogram })
    }
}
