//! A game: how it is to be played, its progress, and how it ended. Must not know how messages travel.

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
    /// For a server that asks for one.
    pub token: Option<String>,
    /// For a server that speaks TLS.
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
    /// So many messages were answered, a multiple of [`PROGRESS_MESSAGES`].
    Answered(u64),
    /// No call was answered for [`SILENCE`]; an answer may still come.
    Silent(Standing),
}

/// The end of a game.
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
    /// The server's answer makes no sense.
    #[error("the server's answer makes no sense: {0}")]
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

/// Why a game by the lean protocol failed.
#[derive(Debug, thiserror::Error)]
pub enum LeanFailure {
    /// The socket.
    #[error("{0}")]
    Socket(#[from] io::Error),
    /// A fault of the protocol that one side told.
    #[error("{0}")]
    Fault(#[from] Fault),
    /// The server closed the connection.
    #[error("the server closed the connection before the end of the game")]
    Closed,
    /// Something other than a lean server answers.
    #[error(
        "what listens there {0} and does not speak the lean protocol: name the server's lean port \
         (rpcgame.lean_listen, 29382 unless it is set), or use --transport windowed for gRPC"
    )]
    Stranger(&'static str),
    /// The server counts another number of messages.
    #[error("the server counts {theirs} messages, and {ours} were sent")]
    Count {
        /// What was sent.
        ours: u64,
        /// What the server says.
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

    /// Connected; the time runs from here.
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

/// Reads a checksum as the contract has it.
pub(super) fn checksum(digits: &[u8]) -> Result<u64, Failure> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.len() == 16);
    let number = text.and_then(|text| u64::from_str_radix(text, 16).ok());
    number.ok_or_else(|| {
        let shown = digits.escape_ascii();
        Failure::Nonsense(format!("the checksum '{shown}', which must be 16 hexadecimal digits"))
    })
}
