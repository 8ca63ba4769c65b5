//! The client: sends the pairs of an input as messages, takes the values, and compares the checksums of both sides.
//!
//! Every message is hashed as it is sent, and every value as it was received: nothing is worked out that the server
//! should have said. Must not print; whoever plays is told of the progress.

mod input;
mod lean;
mod stream;
mod unary;

use std::fmt;
use std::time::{Duration, Instant};

use ::grpc::Status;
use ::grpc::client::{Channel, ConnectError, Settings};

pub use input::{Input, InputError, Pair};

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
    /// Messages sent and not yet answered, at most; [`Transport::Unary`] has one.
    pub window: u64,
    /// The longest time for the whole game.
    pub timeout: Option<Duration>,
}

impl Transport {
    /// A window that suits the transport.
    pub fn window_default(self) -> u64 {
        match self {
            Self::Unary => 1,
            Self::Windowed => 1024,
            Self::Stream | Self::Lean => 65_536,
        }
    }
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
        write!(f, "{} messages in {seconds:.3} s: {:.0} a second", self.messages, self.rate())
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
    /// Nothing came for too long.
    #[error("the game did not end within {0:?}")]
    Late(Duration),
}

/// Messages between two reports of the progress.
pub const PROGRESS_MESSAGES: u64 = 10_000;

/// Plays one game. `progress` is called with the number of answered messages at every [`PROGRESS_MESSAGES`].
pub async fn play(input: &Input, options: &Options, progress: impl FnMut(u64) + Send) -> Result<Outcome, Failure> {
    let timeout = options.timeout;
    let playing = play_on(input, options, progress);
    match timeout {
        None => playing.await,
        Some(timeout) => tokio::time::timeout(timeout, playing).await.unwrap_or(Err(Failure::Late(timeout))),
    }
}

async fn play_on(input: &Input, options: &Options, progress: impl FnMut(u64) + Send) -> Result<Outcome, Failure> {
    let window = if options.transport == Transport::Unary { 1 } else { options.window.max(1) };
    let tally = Received::new(progress);
    if options.transport == Transport::Lean {
        return lean::play(input, options, window, tally).await;
    }
    let channel = connect(&options.address, window).await?;
    let outcome = match options.transport {
        Transport::Stream => stream::play(&channel, input, options.messages, window, tally).await,
        _ => unary::play(&channel, input, options.messages, window, tally).await,
    };
    channel.close().await;
    outcome
}

/// The window is ours to hold; the channel's own queue only has to take it.
async fn connect(address: &str, window: u64) -> Result<Channel, Failure> {
    let failed = |error| Failure::Connect { address: address.to_owned(), error };
    let calls = usize::try_from(window).unwrap_or(usize::MAX);
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

impl<F: FnMut(u64)> Received<F> {
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
            (self.progress)(self.count);
        }
    }

    fn outcome(&self, client: u64, theirs: Sums) -> Outcome {
        let ours = Sums { client, server: self.server.value() };
        Outcome { messages: self.count, ours, theirs, elapsed: self.started_at.elapsed() }
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
