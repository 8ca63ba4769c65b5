//! A measurement and its saved form: a load makes it, `--json` writes it, `compare` and the page read it.
//!
//! Times are in microseconds unless a name says otherwise; they are kept to three significant digits, as the
//! histograms behind them are. Must not know how anything is shown.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2Serializer};
use serde::{Deserialize, Serialize};

/// What [`Report::format`] says.
pub const FORMAT: &str = "quire-bench/1";

/// One command's measurement: one run, or several of the same load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: String,
    /// Version of the tool, with the commit it was built from where that is known.
    pub tool: String,
    /// Where it was measured.
    pub machine: Machine,
    /// What was asked for.
    pub load: Load,
    /// Each a replicate; comparisons count runs, not requests.
    pub runs: Vec<Run>,
}

/// Where it was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// As the kernel names the processor.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Operating system and its version.
    pub system: String,
}

/// The load that was asked for; two reports are compared by it.
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
    /// Requests a second asked for, in an open loop; of a profile, its mean.
    pub rate: Option<f64>,
    /// Connections.
    pub connections: usize,
    /// Requests at once on a connection.
    pub in_flight: usize,
    /// Threads that made requests.
    pub workers: usize,
    /// Everything else that was set, by the name of its flag.
    pub settings: BTreeMap<String, String>,
}

impl Load {
    /// Whether the loop was open: then requests arrive on connections, and there are no clients.
    pub fn is_open(&self) -> bool {
        !matches!(self.pace.as_str(), "closed" | "")
    }

    /// Notes a setting by the name of its flag, if it has a value.
    pub fn set(&mut self, flag: &str, value: Option<impl ToString>) {
        self.settings.extend(value.map(|value| (flag.to_owned(), value.to_string())));
    }

    /// What was asked for and where, in a line.
    pub fn title(&self) -> String {
        match self.protocol.as_str() {
            "grpc" | "grpc-web" | "connect" if !self.what.is_empty() => self.what.clone(),
            _ if self.what.is_empty() => self.target.clone(),
            "http" => format!("{} {}", self.what, self.target),
            _ => format!("{} to {}", self.what, self.target),
        }
    }
}

/// One run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// When measuring began, in milliseconds since 1970.
    pub began_unix_ms: u64,
    /// How long was measured, in seconds.
    pub seconds: f64,
    /// Requests that were due (in a closed loop: sent) within the measured time; each has an ending.
    pub requests: u64,
    /// Those of them that were sent.
    #[serde(default)]
    pub sent: u64,
    /// Those that ended as errors: failed, timed out, or never sent.
    pub errors: u64,
    /// Answers that came within the measured time, whenever their requests were due. Bytes and CPU are of the same time.
    #[serde(default)]
    pub completed: u64,
    /// [`Self::completed`] a second.
    pub rate: f64,
    /// How many of [`Self::requests`] ended how.
    pub endings: BTreeMap<String, u64>,
    /// From when it was due (in a closed loop: sent) to the whole answer.
    pub response: Distribution,
    /// From when it was sent to the whole answer.
    pub service: Distribution,
    /// From when it was due to when it was sent; empty in a closed loop.
    pub lag: Distribution,
    /// From when it was sent to the first byte of the answer, where the transport tells.
    pub first_byte: Distribution,
    /// Bytes to the server within the measured time, as the sockets carried them.
    pub sent_bytes: u64,
    /// Bytes from the server within the measured time.
    pub received_bytes: u64,
    /// CPU time of the threads that made requests, within the measured time.
    pub client_cpu_seconds: f64,
    /// The largest share of its time that one of these threads was running: 1 is a full core.
    pub client_busy_max: f64,
    /// The largest share of its time that one of them was ready to run while others had the cores.
    #[serde(default)]
    pub client_waiting_max: f64,
    /// What the server counted, if it is one that can be asked.
    pub server: Option<ServerSide>,
    /// By time, in equal parts.
    pub series: Vec<Interval>,
    /// When requests of each client finished, thinned to a bounded number.
    pub finishes: Vec<Finish>,
    /// Whether the figures can be believed.
    pub verdict: Verdict,
    /// Whether the run was ended early from outside.
    pub interrupted: bool,
}

/// What a server counted between the beginning and the end of the measured time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ServerSide {
    /// From asking the first time to the second answer: no less than the time between the server's two readings.
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

/// Buckets with an infinite upper bound, which JSON has no number for: there it is `null`.
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

/// Whether figures can be believed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Why not; empty: they can.
    pub reasons: Vec<String>,
    /// What to bear in mind: the figures are right, but they may be the client's or the machine's rather than the server's.
    #[serde(default)]
    pub doubts: Vec<String>,
}

impl Verdict {
    /// Figures that cannot be believed, for this reason.
    pub fn invalid(reason: impl Into<String>) -> Self {
        Self { reasons: vec![reason.into()], doubts: Vec::new() }
    }

    /// Whether the figures can be believed.
    pub fn is_valid(&self) -> bool {
        self.reasons.is_empty()
    }
}

/// An equal part of a run's time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Interval {
    /// Where it begins, in seconds from the beginning of the run.
    pub at_seconds: f64,
    /// How long it is.
    pub seconds: f64,
    /// Answers that came in it.
    pub requests: u64,
    /// Requests that were due in it by the rate asked for; 0 in a closed loop.
    #[serde(default)]
    pub due: f64,
    /// Requests that ended as errors in it.
    pub errors: u64,
    /// Response times in microseconds.
    pub p50_us: f64,
    /// See above.
    pub p90_us: f64,
    /// See above.
    pub p99_us: f64,
    /// See above.
    pub p999_us: f64,
    /// See above.
    pub max_us: f64,
}

/// One request's end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Finish {
    /// Number of the client; in an open loop, of the connection.
    pub client: u32,
    /// Number of the request among this client's, from 0; in an open loop, among the worker's.
    pub turn: u64,
    /// Seconds from the beginning of the run.
    pub at_seconds: f64,
    /// Its response time in microseconds.
    pub response_us: f64,
}

/// A distribution of times.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "SavedDistribution", into = "SavedDistribution")]
pub struct Distribution {
    /// In nanoseconds, three significant digits.
    pub histogram: Histogram<u64>,
}

/// Longest time a histogram tells apart: an hour, in nanoseconds.
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
    /// Counts the times of `other` in, which a run recorded.
    pub(crate) fn add(&mut self, other: &Self) {
        // Many are empty, and adding a histogram walks all of it.
        if other.count() > 0 {
            self.histogram.add(&other.histogram).expect("all histograms of runs have the same bounds");
        }
    }

    /// How many times were recorded.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The time that `share` (0 to 1) of the requests needed at most, in microseconds; 0 if nothing was recorded.
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

/// The figures that a reader wants at hand, and the histogram they come from.
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
