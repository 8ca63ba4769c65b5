//! The client: sends the pairs of an input as messages, takes the values, and compares the checksums of both sides.
//!
//! Every message is hashed as it is sent, and every value as it was received: nothing is worked out that the server
//! should have said. Must not print; whoever plays is told of the progress.

mod growth;
mod input;
mod lean;
mod silence;
mod stream;
mod unary;

use std::fmt;
use std::time::{Duration, Instant};

use ::grpc::Status;
use ::grpc::client::{Channel, ConnectError, Settings};
use tokio::time::{Instant as Deadline, timeout_at};

pub use input::{Input, InputError, Pair};
pub use silence::{SILENCE, Standing};

use crate::checksum::{Checksum, Sums};
use crate::driver::lean::LeanFailure;

/// How messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A gRPC call for each, the next when the one before was answered.
    Unary,
    /// A gRPC call for each, many at a time.
    Windowed,
    /// Many to a frame of one gRPC stream.
    Stream,
    /// The lean protocol.
    Lean,
}

/// What to play.
#[derive(Clone, Debug)]
pub struct Options {
    /// `host:port`; of the lean protocol's port for [`Transport::Lean`].
    pub address: String,
    /// How messages travel.
    pub transport: Transport,
    /// How many messages to send.
    pub messages: u64,
    /// Messages sent and not yet answered, at most; [`Transport::Unary`] has one. If none is given,
    /// [`Transport::Windowed`] looks for the one that suits the server, beginning with one message.
    pub window: Option<u64>,
    /// The longest time for the whole game.
    pub timeout: Option<Duration>,
}

/// A window for transports that a server follows without a thread for each message.
const WINDOW_WIDE: u64 = 65_536;

impl Options {
    fn unserved(&self, what: &'static str) -> Failure {
        Failure::Unserved { address: self.address.clone(), what }
    }

    fn late(&self, standing: Option<Standing>) -> Failure {
        Failure::Late { after: self.timeout.unwrap_or_default(), standing }
    }
}

/// What is told while a game is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// So many messages were answered, a multiple of [`PROGRESS_MESSAGES`].
    Answered(u64),
    /// No call was answered for [`SILENCE`]; an answer may still come.
    Silent(Standing),
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Messages sent and answered.
    pub messages: u64,
    /// The checksums as the client has them.
    pub ours: Sums,
    /// The checksums as the server says them.
    pub theirs: Sums,
    /// From the first message to the server's checksums.
    pub elapsed: Duration,
    /// The window that was found to suit the server, if it was looked for.
    pub window_found: Option<u64>,
}

impl Outcome {
    /// Whether nothing was lost, doubled or swapped.
    pub fn matches(&self) -> bool {
        self.ours == self.theirs
    }

    /// Messages a second.
    #[expect(clippy::cast_precision_loss, reason = "a rate is shown with far fewer digits")]
    pub fn rate(&self) -> f64 {
        self.messages as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ours, theirs) = (self.ours, self.theirs);
        writeln!(f, "client's checksums: client {:016x}, server {:016x}", ours.client, ours.server)?;
        writeln!(f, "server's checksums: client {:016x}, server {:016x}", theirs.client, theirs.server)?;
        writeln!(f, "{}", if self.matches() { "they match" } else { "THEY DO NOT MATCH" })?;
        let seconds = self.elapsed.as_secs_f64();
        write!(f, "{} messages in {seconds:.3} s: {:.0} a second", self.messages, self.rate())?;
        match self.window_found {
            None => Ok(()),
            Some(window) => write!(
                f,
                "\nthe window grew from 1 to {window}, as far as that raised the rate and is safe; --window sets another"
            ),
        }
    }
}

/// Why a game was not played to its end.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// No connection.
    #[error("cannot play at {address}: {error}")]
    Connect {
        /// Where.
        address: String,
        /// Why.
        error: ConnectError,
    },
    /// The server refused something.
    #[error("the server refused {what}: {}", .status.message())]
    Refused {
        /// What.
        what: String,
        /// Why.
        status: Status,
    },
    /// The lean protocol failed.
    #[error("cannot play at {address}: {error}")]
    Lean {
        /// Where.
        address: String,
        /// Why.
        error: LeanFailure,
    },
    /// What the server says makes no sense.
    #[error("the server answered what it cannot: {0}")]
    Nonsense(String),
    /// A name that this transport cannot carry.
    #[error("the name of pair {place} is not UTF-8: unary calls carry text only; use --transport stream or lean")]
    NotText {
        /// From 1.
        place: usize,
    },
    /// The server lacks what the transport needs.
    #[error("{address} does not serve {what}")]
    Unserved {
        /// Where.
        address: String,
        /// What it lacks, and what to do.
        what: &'static str,
    },
    /// A lean port was taken for a gRPC port.
    #[error(
        "{address} speaks the lean protocol and not gRPC: use --transport lean, or name the server's gRPC port \
         (rpcgame.listen, 29381 unless it is set)"
    )]
    LeanPort {
        /// Where.
        address: String,
    },
    /// The game's time is over.
    #[error("the game did not end within {after:?}{}", .standing.map(|s| format!(": {s}")).unwrap_or_default())]
    Late {
        /// Its time.
        after: Duration,
        /// Where it stands, for calls.
        standing: Option<Standing>,
    },
}

/// Messages between two reports of the progress.
pub const PROGRESS_MESSAGES: u64 = 10_000;

/// Plays one game; `progress` is told how it goes.
pub async fn play(input: &Input, options: &Options, progress: impl FnMut(Progress) + Send) -> Result<Outcome, Failure> {
    let deadline = options.timeout.and_then(|timeout| Deadline::now().checked_add(timeout));
    let playing = play_on(input, options, deadline, progress);
    match deadline {
        None => playing.await,
        Some(deadline) => timeout_at(deadline, playing).await.unwrap_or_else(|_| Err(options.late(None))),
    }
}

async fn play_on(
    input: &Input,
    options: &Options,
    deadline: Option<Deadline>,
    progress: impl FnMut(Progress) + Send,
) -> Result<Outcome, Failure> {
    let wide = options.window.unwrap_or(WINDOW_WIDE).max(1);
    let tally = Received::new(progress);
    if options.transport == Transport::Lean {
        return lean::play(input, options, wide, tally).await;
    }
    let calls = unary::window(options).size_max();
    let channel = match connect(&options.address, calls).await {
        Err(_) if lean::is_spoken_at(&options.address).await => {
            return Err(Failure::LeanPort { address: options.address.clone() });
        }
        connected => connected?,
    };
    let outcome = match options.transport {
        Transport::Stream => stream::play(&channel, input, options, wide, tally).await,
        _ => unary::play(&channel, input, options, deadline, tally).await,
    };
    // After a failure there may be calls that no one answers, and nothing to wait for.
    if outcome.is_ok() {
        channel.close().await;
    }
    outcome
}

/// The window is ours to hold; the channel's own queue only has to take it.
async fn connect(address: &str, calls: u64) -> Result<Channel, Failure> {
    let failed = |error| Failure::Connect { address: address.to_owned(), error };
    let calls = usize::try_from(calls).unwrap_or(usize::MAX);
    let usual = Settings::default();
    let settings = Settings {
        calls_per_connection_max: calls.clamp(1, CALLS_MAX),
        waiting_calls_max: calls.saturating_add(1).max(usual.waiting_calls_max),
        ..usual
    };
    let url = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    Channel::builder(&url).map_err(failed)?.settings(settings).connect().await.map_err(failed)
}

/// Calls at once on a connection; a wider window waits in the channel.
const CALLS_MAX: usize = 16_384;

/// What came back: values in the order of their serials.
struct Received<F> {
    server: Checksum,
    count: u64,
    progress: F,
    started_at: Instant,
}

impl<F: FnMut(Progress)> Received<F> {
    fn new(progress: F) -> Self {
        Self { server: Checksum::default(), count: 0, progress, started_at: Instant::now() }
    }

    /// Connected; the time runs from here.
    fn start(&mut self) {
        self.started_at = Instant::now();
    }

    #[inline]
    fn value(&mut self, value: u64) {
        self.server.add_number(value);
        self.count += 1;
        if self.count.is_multiple_of(PROGRESS_MESSAGES) {
            (self.progress)(Progress::Answered(self.count));
        }
    }

    fn outcome(&self, client: u64, theirs: Sums) -> Outcome {
        let ours = Sums { client, server: self.server.value() };
        Outcome { messages: self.count, ours, theirs, elapsed: self.started_at.elapsed(), window_found: None }
    }
}

/// Reads a checksum as the contract has it.
fn checksum(digits: &[u8]) -> Result<u64, Failure> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.len() == 16);
    let number = text.and_then(|text| u64::from_str_radix(text, 16).ok());
    number.ok_or_else(|| {
        let shown = digits.escape_ascii();
        Failure::Nonsense(format!("the checksum '{shown}', which must be 16 hexadecimal digits"))
    })
}
