//! A game: options, progress, and outcome.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;
use std::{fmt, io};

use quire_rpc::Status;
use quire_rpc::client::ConnectError;
use quire_rpc::rustls::ClientConfig;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::game::{Checksum, Sums};
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

/// Time without an answer that is reported.
pub const SILENCE: Duration = Duration::from_secs(5);

/// State of a game that makes no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The first unanswered message.
    pub serial: u64,
    /// Number of unanswered messages.
    pub under_way: u64,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message {} is not answered", self.serial)?;
        if self.under_way > 1 {
            write!(
                f,
                ", and {} are under way; a server that blocks a thread for each message that comes before its turn may \
                 have none left for this one: use a smaller --window, or --transport unary",
                self.under_way
            )?;
        }
        Ok(())
    }
}

/// An event of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alarm {
    /// No answer for [`SILENCE`].
    Silent,
    /// The game's time is over.
    Over,
}

/// A clock that is polled with the game.
pub(super) struct Watch {
    deadline: Option<Instant>,
    began_at: Instant,
    answered_at: Instant,
    /// True once the silence was reported.
    is_told: bool,
    sleep: Pin<Box<Sleep>>,
}

impl Watch {
    pub(super) fn new(deadline: Option<Instant>) -> Self {
        let now = Instant::now();
        Self { deadline, began_at: now, answered_at: now, is_told: false, sleep: Box::pin(sleep_until(now)) }
    }

    /// Records an answer. Returns the time since the watch began.
    pub(super) fn answered(&mut self) -> Duration {
        self.answered_at = Instant::now();
        self.is_told = false;
        self.answered_at - self.began_at
    }

    /// Returns an event that is due; otherwise registers the task to be woken.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Option<Alarm> {
        loop {
            let now = Instant::now();
            if self.deadline.is_some_and(|deadline| deadline <= now) {
                return Some(Alarm::Over);
            }
            let silent_at = (!self.is_told).then(|| self.answered_at + SILENCE);
            if silent_at.is_some_and(|at| at <= now) {
                self.is_told = true;
                return Some(Alarm::Silent);
            }
            let wake_at = silent_at.into_iter().chain(self.deadline).min()?;
            // Answers only move the time later; the timer follows when it expires.
            if wake_at < self.sleep.deadline() || self.sleep.is_elapsed() {
                self.sleep.as_mut().reset(wake_at);
            }
            if self.sleep.as_mut().poll(cx).is_pending() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;

    async fn alarm(watch: &mut Watch) -> Alarm {
        poll_fn(|cx| watch.poll(cx).map_or(Poll::Pending, Poll::Ready)).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_silence_is_told_once_and_again_after_an_answer() {
        let start = Instant::now();
        let mut watch = Watch::new(Some(start + 10 * SILENCE));
        assert_eq!((alarm(&mut watch).await, start.elapsed()), (Alarm::Silent, SILENCE));
        tokio::time::advance(SILENCE).await;
        assert_eq!(watch.answered(), 2 * SILENCE);
        assert_eq!((alarm(&mut watch).await, start.elapsed()), (Alarm::Silent, 3 * SILENCE));
        assert_eq!((alarm(&mut watch).await, start.elapsed()), (Alarm::Over, 10 * SILENCE));
    }

    #[tokio::test(start_paused = true)]
    async fn answers_in_time_are_no_silence() {
        let start = Instant::now();
        let mut watch = Watch::new(None);
        for _ in 0..5 {
            let early = tokio::time::timeout(SILENCE / 2, alarm(&mut watch)).await;
            assert!(early.is_err(), "{early:?}");
            watch.answered();
        }
        assert_eq!((alarm(&mut watch).await, start.elapsed()), (Alarm::Silent, 5 * SILENCE / 2 + SILENCE));
    }

    #[test]
    fn only_a_window_is_advised_against() {
        let alone = Standing { serial: 3, under_way: 1 }.to_string();
        assert_eq!(alone, "message 3 is not answered");
        assert!(Standing { serial: 3, under_way: 2 }.to_string().contains("--transport unary"));
    }
}
