//! Asks a server until it answers or the time is over. A failure is one of three: the server refused, nothing was sent, or
//! the outcome is unknown. Must not know any one call.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use quire_rpc::{Code, Reach, Response, Status, client::Channel};
use serde_json::{Value, json};

use crate::{cli::ConnectionArgs, exit::Exit, screen};

/// The pause before the first retry; it doubles from there.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// What sending a call twice would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It changes nothing.
    Read,
    /// A change with a key, which happens once however often it is sent.
    Keyed,
    /// A change that is sent again only if the server did nothing.
    Write,
}

/// How long and how often to ask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retries {
    timeout: Duration,
    most: u32,
}

/// A command that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub exit: Exit,
    pub status: Status,
}

impl Retries {
    pub(crate) fn new(args: &ConnectionArgs, default: Duration) -> Self {
        Self { timeout: args.timeout.unwrap_or(default), most: args.retries }
    }

    /// The timeout of one attempt. A keyed change without an answer in its share is asked for again; anything else waits for
    /// the whole time.
    fn share(&self, kind: Kind) -> Duration {
        if kind == Kind::Keyed { self.timeout / self.most.saturating_add(1) } else { self.timeout }
    }

    /// The time to connect, shorter than an attempt, so that an attempt whose time is over was sent.
    pub(crate) fn connect_timeout(&self, kind: Kind) -> Duration {
        self.share(kind).mul_f64(0.8)
    }
}

/// Calls with the timeout of each attempt, and again as often as `retries` allows.
pub(crate) async fn ask<A, F>(
    channel: &Channel,
    retries: Retries,
    kind: Kind,
    call: impl Fn(Duration) -> F,
) -> Result<A, Failed>
where
    F: Future<Output = Result<Response<A>, Status>>,
{
    let deadline = Instant::now() + retries.timeout;
    let (mut tries, mut pause, mut in_doubt) = (0, PAUSE_FIRST, None);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let status = tokio::select! {
            answered = attempt(channel, retries.share(kind).min(left), &call) => match answered {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) => status,
            },
            Ok(()) = tokio::signal::ctrl_c(), if kind != Kind::Read => {
                return Err(Failed { exit: Exit::Unknown, status: Status::cancelled("interrupted") });
            }
        };
        let exit = judge(kind, &status);
        tries += 1;
        let is_worth_it = match exit {
            Exit::Unknown => kind == Kind::Keyed && retries.most > 0,
            // While an earlier attempt is in doubt, only its answer counts.
            _ if in_doubt.is_some() => retries.most > 0 && !is_final(&status),
            _ => tries <= retries.most && is_passing(kind, &status),
        };
        if exit == Exit::Unknown {
            in_doubt = Some(status.clone());
        }
        let pause_now = match pushback(&status) {
            Some(Pushback::After(wanted)) => wanted,
            _ => pause,
        };
        if !is_worth_it || deadline.saturating_duration_since(Instant::now()) <= pause_now {
            return Err(match in_doubt {
                Some(doubt) if !is_final(&status) => Failed { exit: Exit::Unknown, status: doubt },
                _ => Failed { exit, status },
            });
        }
        tokio::time::sleep(pause_now).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Calls once the server has spoken on the connection, so that it is certain if a call was not sent.
async fn attempt<A, F>(channel: &Channel, time: Duration, call: impl Fn(Duration) -> F) -> Result<Response<A>, Status>
where
    F: Future<Output = Result<Response<A>, Status>>,
{
    let deadline = Instant::now() + time;
    let ready = tokio::time::timeout(time, channel.ready()).await;
    ready.map_err(|_| Status::unavailable("no connection in time").with_reach(Reach::Untouched))??;
    call(deadline.saturating_duration_since(Instant::now())).await
}

/// How an attempt failed.
pub(crate) fn judge(kind: Kind, status: &Status) -> Exit {
    let is_open = matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown);
    match (status.reach(), kind) {
        // The server refused. A proxy on the way could have said that it is unavailable.
        (Reach::Answered, _) if !is_open => Exit::Refused,
        (Reach::Answered, Kind::Read) if status.code() == Code::Unknown => Exit::Refused,
        (Reach::Untouched, _) | (_, Kind::Read) => Exit::Unreachable,
        (_, Kind::Keyed | Kind::Write) => Exit::Unknown,
    }
}

/// Whether the same request would be refused each time, the first included.
fn is_final(status: &Status) -> bool {
    status.reach() == Reach::Answered && matches!(status.code(), Code::InvalidArgument | Code::Unimplemented)
}

/// Whether another attempt may fare better.
fn is_passing(kind: Kind, status: &Status) -> bool {
    match status.code() {
        // The server may say that it will not.
        _ if pushback(status) == Some(Pushback::Never) => false,
        Code::ResourceExhausted => true,
        Code::Unavailable | Code::Unknown => kind == Kind::Read || status.reach() == Reach::Untouched,
        _ => false,
    }
}

/// When the server wants to be asked again.
#[derive(PartialEq, Eq)]
enum Pushback {
    After(Duration),
    Never,
}

/// What the server says of another attempt; a negative time means never.
fn pushback(status: &Status) -> Option<Pushback> {
    let said = status.metadata().get("grpc-retry-pushback-ms")?;
    Some(said.parse().map_or(Pushback::Never, |wait_ms| Pushback::After(Duration::from_millis(wait_ms))))
}

impl Failed {
    /// In plain words; `address` is the server's.
    pub(crate) fn message(&self, address: &str) -> String {
        let reason = screen::line(self.status.message());
        match (self.exit, self.status.reach()) {
            (Exit::Unreachable, Reach::Untouched) => {
                format!("{address} cannot be reached: {reason}; is a server running there?")
            }
            (Exit::Unreachable, _) => format!("{address} did not answer: {reason}"),
            (Exit::Refused, _) if reason.is_empty() => self.status.code().name().to_owned(),
            _ => reason.into_owned(),
        }
    }

    pub(crate) fn json(&self, address: &str) -> Value {
        let code = format!("{:?}", self.status.code());
        json!({ "success": false, "outcome": self.outcome(), "status": code, "message": self.message(address) })
    }

    fn outcome(&self) -> &'static str {
        match self.exit {
            Exit::Unknown => "UNKNOWN",
            Exit::Unreachable => "UNREACHABLE",
            _ => "REFUSED",
        }
    }
}
