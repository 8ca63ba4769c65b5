//! Attempts of a call: tries the servers until one answers or the time is over, and classifies the failure.

use std::{
    future::Future,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use quire_rpc::{Code, Reach, Request, Response, Status};
use rand_core::{OsRng, RngCore as _};
use tokio::time::{Instant, sleep};

use crate::{
    error::{Error, Fault},
    lanes::{Lane, Lanes},
};

/// Pause before the second attempt; doubles with each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Time that a call without a deadline waits for a connection or for another attempt.
const PATIENCE: Duration = Duration::from_secs(5);
/// Share of an attempt that may be spent on connecting, so that an attempt that times out was sent.
const CONNECT_SHARE: f64 = 0.8;

/// Effect of sending a call twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// None, as it changes nothing.
    Read,
    /// None, as its key makes the change happen once.
    Keyed,
    /// A second change: it is sent again only if the server did nothing.
    Write,
}

/// Default terms of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    kind: Kind,
    timeout: Option<Duration>,
}

pub(crate) const READ: Plan = Plan { kind: Kind::Read, timeout: Some(Duration::from_secs(5)) };
/// A quarter of the timeout exceeds the 5 s that the server waits for a locked file.
pub(crate) const PURCHASE: Plan = Plan { kind: Kind::Keyed, timeout: Some(Duration::from_secs(30)) };
pub(crate) const WRITE: Plan = Plan { kind: Kind::Write, timeout: Some(Duration::from_secs(5)) };
pub(crate) const WATCH: Plan = Plan { kind: Kind::Read, timeout: None };

/// Time limits and retries of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) timeout: Option<Duration>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) retries: u32,
}

impl Terms {
    fn deadline(&self, plan: Plan, now: Instant) -> Option<Instant> {
        let timeout = self.timeout.or(plan.timeout).and_then(|timeout| now.checked_add(timeout));
        self.deadline.into_iter().chain(timeout).min()
    }
}

/// Conclusion from an attempt without an answer of the store's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// No connection was ready, or the server is known to have done nothing.
    NotSent,
    /// The server is overloaded and did nothing.
    Busy,
    /// The server, or a proxy on the way, may have lost the call.
    Lost,
    Refused,
}

fn judge(status: &Status) -> Verdict {
    match (status.reach(), status.code()) {
        (Reach::Untouched, _) => Verdict::NotSent,
        (Reach::Answered, Code::ResourceExhausted) => Verdict::Busy,
        (_, Code::Unavailable | Code::Unknown | Code::DeadlineExceeded | Code::Cancelled) => Verdict::Lost,
        (Reach::Answered, _) => Verdict::Refused,
        _ => Verdict::Lost,
    }
}

/// True if the server itself answered that it did nothing.
fn is_undone(status: &Status) -> bool {
    status.reach() == Reach::Answered
        && status.code() == Code::Unavailable
        && status.message().contains("nothing was done")
}

/// Repeats a call until the store answers, as plan and terms allow. `in_doubt` is true while the server may have
/// executed it.
pub(crate) async fn ask_noting<'a, A, F>(
    lanes: &'a Lanes,
    terms: &Terms,
    plan: Plan,
    in_doubt: &AtomicBool,
    call: impl Fn(&'a Lane, Option<Instant>) -> F,
) -> Result<A, Error>
where
    F: Future<Output = Result<Response<A>, Status>>,
{
    let mut now = Instant::now();
    let deadline = terms.deadline(plan, now);
    let mut share = deadline.map(|deadline| deadline.saturating_duration_since(now));
    if plan.kind == Kind::Keyed {
        // At least a quarter, however many retries are allowed.
        share = share.map(|share| share / (terms.retries.min(3) + 1));
    }
    let (mut tries, mut pause, mut doubt) = (0, PAUSE_FIRST, None);
    loop {
        let end = deadline.zip(share).map(|(deadline, share)| deadline.min(now + share));
        let time = end.map_or(PATIENCE, |end| end.saturating_duration_since(now));
        let answered = match lanes.ready(now + time.mul_f64(CONNECT_SHARE)).await {
            Ok(lane) => {
                in_doubt.store(true, Ordering::Relaxed);
                call(lane, end).await
            }
            Err(status) => Err(status),
        };
        let status = match answered {
            Ok(response) => return Ok(response.into_inner()),
            Err(status) => status,
        };
        let verdict = judge(&status);
        tries += 1;
        if verdict == Verdict::Lost && plan.kind != Kind::Read && !is_undone(&status) {
            doubt = Some(status.clone());
        }
        in_doubt.store(doubt.is_some(), Ordering::Relaxed);
        let may_repeat = match (plan.kind, verdict) {
            // In doubt only the store's own answer counts, and attempts continue until the deadline.
            (Kind::Keyed, Verdict::Lost) => terms.retries > 0,
            (Kind::Keyed, _) if doubt.is_some() => terms.retries > 0,
            (_, Verdict::NotSent | Verdict::Busy) => tries <= terms.retries,
            (Kind::Read, Verdict::Lost) => {
                tries <= terms.retries && matches!(status.code(), Code::Unavailable | Code::Unknown)
            }
            _ => false,
        };
        now = Instant::now();
        let left = deadline.map_or(PATIENCE, |deadline| deadline.saturating_duration_since(now));
        match pause_before_next(&status, pause).filter(|pause| may_repeat && *pause < left) {
            Some(pause_now) => sleep(pause_now).await,
            None => return Err(ended(lanes.address(), plan.kind, verdict, &status, doubt.as_ref())),
        }
        pause = (pause * 2).min(PAUSE_MAX);
        now = Instant::now();
    }
}

fn ended(address: &str, kind: Kind, verdict: Verdict, status: &Status, doubt: Option<&Status>) -> Error {
    match (doubt, verdict) {
        (Some(doubt), _) => Error::OutcomeUnknown(Fault::at(address, doubt, true)),
        (None, Verdict::NotSent) => Error::Unreachable(Fault::at(address, status, false)),
        (None, Verdict::Lost) if kind == Kind::Read => Error::Unreachable(Fault::at(address, status, true)),
        (None, Verdict::Lost) if !is_undone(status) => Error::OutcomeUnknown(Fault::at(address, status, true)),
        (None, Verdict::Lost | Verdict::Busy | Verdict::Refused) => Error::Refused(Fault::new(status, true)),
    }
}

/// Fault of a stream that broke after it had begun.
pub(crate) fn broken(address: &str, status: &Status) -> Error {
    ended(address, Kind::Read, judge(status), status, None)
}

/// Pause before the next attempt; the server's pushback, if any, takes precedence. None if it forbids another attempt.
fn pause_before_next(status: &Status, usual: Duration) -> Option<Duration> {
    match status.metadata().get("grpc-retry-pushback-ms") {
        Some(wanted) => wanted.parse().ok().map(Duration::from_millis),
        None => Some(jitter(usual)),
    }
}

/// Random factor from 0.8 to 1.2, so that clients that failed together do not all return at once.
fn jitter(pause: Duration) -> Duration {
    pause.mul_f64(0.8 + 0.4 * f64::from(OsRng.next_u32()) / f64::from(u32::MAX))
}

/// A request with a deadline.
pub(crate) fn within<Q>(message: Q, deadline: Option<Instant>) -> Request<Q> {
    let mut request = Request::new(message);
    if let Some(deadline) = deadline {
        request.set_deadline(deadline);
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_when_to_come_back_or_never() {
        let said = |value: &str| {
            let mut status = Status::unavailable("");
            status.metadata_mut().insert("grpc-retry-pushback-ms", value).expect("a value");
            pause_before_next(&status, PAUSE_FIRST)
        };
        assert_eq!((said("1500"), said("-1"), said("soon")), (Some(Duration::from_millis(1500)), None, None));
        let unsaid = pause_before_next(&Status::unavailable(""), PAUSE_FIRST).expect("a pause").as_millis();
        assert!((80..=120).contains(&unsaid), "{unsaid}");
    }

    #[test]
    fn only_a_call_that_was_not_sent_or_was_refused_has_done_nothing() {
        for (status, wanted) in [
            (Status::unavailable("").with_reach(Reach::Untouched), Verdict::NotSent),
            (Status::unavailable("").with_reach(Reach::Answered), Verdict::Lost),
            (Status::unavailable(""), Verdict::Lost),
            (Status::internal("a broken frame"), Verdict::Lost),
            (Status::resource_exhausted("a reset"), Verdict::Lost),
            (Status::resource_exhausted("").with_reach(Reach::Answered), Verdict::Busy),
            (Status::internal("").with_reach(Reach::Answered), Verdict::Refused),
        ] {
            assert_eq!(judge(&status), wanted, "{status:?} {:?}", status.reach());
        }
        let refused = Status::unavailable("the store is closing: nothing was done, try again later");
        let kinds = [Reach::Answered, Reach::Unanswered].map(|reach| {
            let status = refused.clone().with_reach(reach);
            matches!(ended("books:1", Kind::Keyed, judge(&status), &status, None), Error::Refused(_))
        });
        assert_eq!(kinds, [true, false], "only an answer counts");
    }

    #[test]
    fn an_unreachable_server_has_its_address_and_the_cause() {
        let refused = Status::unavailable("cannot reach [::1]:1: Connection refused").with_reach(Reach::Untouched);
        let late = Status::unavailable("no server answered in time").with_reach(Reach::Untouched);
        for (status, wanted) in [
            (refused, "a:1,[::1]:1 cannot be reached: Connection refused"),
            (late, "a:1,[::1]:1 cannot be reached: no server answered in time"),
            (Status::unavailable("later").with_reach(Reach::Answered), "a:1,[::1]:1 answered UNAVAILABLE: later"),
            (Status::unavailable("").with_reach(Reach::Answered), "a:1,[::1]:1 answered UNAVAILABLE"),
            (Status::deadline_exceeded("late"), "a:1,[::1]:1 did not answer: time is up"),
            (Status::unavailable("a reset"), "a:1,[::1]:1 did not answer: a reset"),
            (Status::unavailable(""), "a:1,[::1]:1 did not answer: UNAVAILABLE"),
        ] {
            assert_eq!(broken("a:1,[::1]:1", &status).to_string(), wanted);
        }
    }
}
