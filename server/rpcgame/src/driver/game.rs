//! A game: options, progress, and outcome.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_rpc::Status;
use quire_rpc::client::ConnectError;
use quire_rpc::rustls::ClientConfig;

use super::silence::Standing;
use crate::checksum::{Checksum, Sums};
use crate::lean::Fault;

/// Transport of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A gRPC call for each, one at a time.
    Unary,
    /// A gRPC call for each, many at a time.
    Windowed,
    /// Frames of many messages in one gRPC stream.
    Stream,
    /// The lean protocol.
    Lean,
}

/// Options of a game.
#[derive(Clone, Debug)]
pub struct Options {
    /// `host:port`; for [`Transport::Lean`], with the lean protocol's port.
    pub address: String,
    /// Transport of messages.
    pub transport: Transport,
    /// Number of messages to send.
    pub messages: u64,
    /// Maximum number of unanswered messages; [`Transport::Unary`] has one. If none is given, [`Transport::Windowed`]
    /// adapts it to the server, starting with one message.
    pub window: Option<u64>,
    /// Time limit of the whole game.
    pub timeout: Option<Duration>,
    /// Token, if the server requires one.
    pub token: Option<String>,
    /// TLS configuration, if the server requires TLS.
    pub tls: Option<Arc<ClientConfig>>,
}

impl Options {
    pub(super) fn unserved(&self, what: &'static str) -> Failure {
        Failure::Unserved { address: self.address.clone(), what }
    }

    pub(super) fn late(&self, standing: Option<Standing>) -> Failure {
        Failure::Late { after: self.timeout.unwrap_or_default(), standing }
    }
}

/// Progress of a game.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Number of messages answered, a multiple of [`PROGRESS_MESSAGES`].
    Answered(u64),
    /// No call was answered for [`SILENCE`]; an answer may still come.
    Silent(Standing),
}

/// Result of a game.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Messages sent and answered.
    pub messages: u64,
    /// The client's checksums.
    pub ours: Sums,
    /// The server's checksums.
    pub theirs: Sums,
    /// Time from the first message to the server's checksums.
    pub elapsed: Duration,
    /// The adapted window, if none was given.
    pub window_found: Option<u64>,
}

impl Outcome {
    /// True if nothing was lost, duplicated or reordered.
    pub fn matches(&self) -> bool {
        self.ours == self.theirs
    }

    /// Messages per second.
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

/// Reason why a game was not completed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Connecting failed.
    #[error("cannot play at {address}: {error}")]
    Connect {
        /// Address of the server.
        address: String,
        /// The connection's error.
        error: ConnectError,
    },
    /// The server refused a call.
    #[error("the server refused {what}: {}", .status.message())]
    Refused {
        /// The refused call.
        what: String,
        /// The server's status.
        status: Status,
    },
    /// The lean protocol failed.
    #[error("cannot play at {address}: {error}")]
    Lean {
        /// Address of the server.
        address: String,
        /// The protocol's failure.
        error: LeanFailure,
    },
    /// The server's answer is invalid.
    #[error("the server's answer makes no sense: {0}")]
    Nonsense(String),
    /// A name that this transport cannot carry.
    #[error("the name of pair {place} is not UTF-8: unary calls carry text only; use --transport stream or lean")]
    NotText {
        /// Number of the pair, from 1.
        place: usize,
    },
    /// The server does not support the transport.
    #[error("{address} does not serve {what}")]
    Unserved {
        /// Address of the server.
        address: String,
        /// The missing part, and what to do.
        what: &'static str,
    },
    /// The address is a lean port, not a gRPC port.
    #[error(
        "{address} speaks the lean protocol and not gRPC: use --transport lean, or name the server's gRPC port \
         (rpcgame.listen, 29381 unless it is set)"
    )]
    LeanPort {
        /// Address of the server.
        address: String,
    },
    /// The game's time limit was exceeded.
    #[error("the game did not end within {after:?}{}", .standing.map(|s| format!(": {s}")).unwrap_or_default())]
    Late {
        /// The time limit.
        after: Duration,
        /// State of the game, for calls.
        standing: Option<Standing>,
    },
}

/// Messages between two progress reports.
pub const PROGRESS_MESSAGES: u64 = 10_000;

/// Reason why a game by the lean protocol failed.
#[derive(Debug, thiserror::Error)]
pub enum LeanFailure {
    /// A socket error.
    #[error("{0}")]
    Socket(#[from] io::Error),
    /// A protocol fault detected by either side.
    #[error("{0}")]
    Fault(#[from] Fault),
    /// The server closed the connection.
    #[error("the server closed the connection before the end of the game")]
    Closed,
    /// The server does not speak the lean protocol.
    #[error(
        "what listens there {0} and does not speak the lean protocol: name the server's lean port \
         (rpcgame.lean_listen, 29382 unless it is set), or use --transport windowed for gRPC"
    )]
    Stranger(&'static str),
    /// The server's count of messages differs.
    #[error("the server counts {theirs} messages, and {ours} were sent")]
    Count {
        /// Messages sent.
        ours: u64,
        /// Messages counted by the server.
        theirs: u64,
    },
}

/// The values received, in the order of their serials.
pub(super) struct Received<F> {
    pub(super) server: Checksum,
    pub(super) count: u64,
    pub(super) progress: F,
    started_at: Instant,
}

impl<F: FnMut(Progress)> Received<F> {
    pub(super) fn new(progress: F) -> Self {
        Self { server: Checksum::default(), count: 0, progress, started_at: Instant::now() }
    }

    /// Starts the clock, once connected.
    pub(super) fn start(&mut self) {
        self.started_at = Instant::now();
    }

    #[inline]
    pub(super) fn value(&mut self, value: u64) {
        self.server.add_number(value);
        self.count += 1;
        if self.count.is_multiple_of(PROGRESS_MESSAGES) {
            (self.progress)(Progress::Answered(self.count));
        }
    }

    pub(super) fn outcome(&self, client: u64, theirs: Sums) -> Outcome {
        let ours = Sums { client, server: self.server.value() };
        Outcome { messages: self.count, ours, theirs, elapsed: self.started_at.elapsed(), window_found: None }
    }
}

/// Parses a checksum in the contract's form.
pub(super) fn checksum(digits: &[u8]) -> Result<u64, Failure> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.len() == 16);
    let number = text.and_then(|text| u64::from_str_radix(text, 16).ok());
    number.ok_or_else(|| {
        let shown = digits.escape_ascii();
        Failure::Nonsense(format!("the checksum '{shown}', which must be 16 hexadecimal digits"))
    })
}
