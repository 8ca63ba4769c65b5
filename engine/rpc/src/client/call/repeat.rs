//! The attempts of a unary call: one, retries after failures, or hedges beside unanswered ones.
//!
//! Implements: "gRPC Retry Design" (A6) for unary calls.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::attempt::{Body, Failure, Form, ReplyTo, UnaryResponse};
use super::prepared::{PreparedCall, perform_transparently};
use crate::client::channel::Channel;
use crate::client::service_config::{HedgingPolicy, Pushback, Repeat, RetryPolicy};
use crate::status::{Reach, Status};

/// A unary call.
pub(super) struct Attempts<'a> {
    pub(super) channel: &'a Channel,
    pub(super) call: PreparedCall,
    pub(super) get_target: Option<String>,
    /// True once an attempt that the server refused was repeated outside the policy.
    pub(super) was_refused: AtomicBool,
}

/// An attempt under way; dropping it cancels it.
type Running<'a> = Pin<Box<dyn Future<Output = Result<UnaryResponse, Failure>> + Send + 'a>>;

/// Event of a hedged call.
enum Event {
    Due,
    /// The response to this attempt has begun.
    Begun(u32),
    Ended(Result<UnaryResponse, Failure>),
}

/// The message for an attempt; the last takes it.
fn message(framed: &mut Vec<u8>, is_last: bool) -> Body {
    Body::Message(if is_last { std::mem::take(framed) } else { framed.clone() })
}

impl Attempts<'_> {
    pub(super) async fn response(self, framed: Vec<u8>, repeat: Option<&Repeat>) -> Result<UnaryResponse, Status> {
        match repeat {
            None => self.retried(framed, None).await,
            Some(Repeat::Retry(policy)) => self.retried(framed, Some(policy)).await,
            Some(Repeat::Hedge(policy)) => Box::pin(self.hedged(framed, policy)).await,
        }
    }

    /// Makes an attempt after `before` others.
    fn attempt(
        &self,
        before: u32,
        message: Body,
        begun: Option<mpsc::UnboundedSender<u32>>,
    ) -> impl Future<Output = Result<UnaryResponse, Failure>> + Send {
        perform_transparently(self.channel, &self.was_refused, message, move |body, to| {
            let begun = begun.clone().map(|begun| (begun, before));
            let reply_to = ReplyTo::Unary { to, is_timed: false, is_unread: false, begun };
            let mut attempt = self.call.attempt(body, reply_to);
            if let Some(target) = &self.get_target {
                attempt.form = Form::Get(target.clone());
            }
            if before > 0 {
                // The name and digits are always valid.
                let _ = attempt.metadata.insert("grpc-previous-rpc-attempts", &before.to_string());
            }
            attempt
        })
    }

    async fn retried(&self, mut framed: Vec<u8>, policy: Option<&RetryPolicy>) -> Result<UnaryResponse, Status> {
        let attempts_max = policy.map_or(1, |policy| policy.attempts_max);
        let (mut attempts, mut pauses) = (1, 0);
        loop {
            let message = message(&mut framed, attempts >= attempts_max);
            let Failure { status, is_committed, .. } = match self.attempt(attempts - 1, message, None).await {
                Ok(response) => {
                    self.succeeded();
                    return Ok(response);
                }
                Err(failure) => failure,
            };
            let Some(policy) = policy else { return Err(status) };
            let pushback = Pushback::of(&status);
            let is_retryable = policy.codes.contains(&status.code());
            let is_safe = !policy.is_for_marked || self.call.is_safe_to_retry || status.reach() == Reach::Untouched;
            let is_throttled = self.is_throttled_after(is_retryable || pushback == Pushback::Never);
            if attempts >= attempts_max || is_committed || !is_retryable || !is_safe || is_throttled {
                return Err(status);
            }
            let pause = match pushback {
                Pushback::Never => return Err(status),
                Pushback::After(pause) => {
                    pauses = 0;
                    pause
                }
                Pushback::None => {
                    pauses += 1;
                    policy.pause(pauses)
                }
            };
            if self.is_over(Instant::now() + pause) {
                return Err(status);
            }
            sleep(pause).await;
            attempts += 1;
        }
    }

    async fn hedged(&self, mut framed: Vec<u8>, policy: &HedgingPolicy) -> Result<UnaryResponse, Status> {
        let (begin, mut begun) = mpsc::unbounded_channel();
        let mut attempts = 0;
        let mut begin_next = || {
            attempts += 1;
            let is_last = attempts >= policy.attempts_max;
            let attempt = self.attempt(attempts - 1, message(&mut framed, is_last), Some(begin.clone()));
            ((attempts - 1, Box::pin(attempt) as Running<'_>), !is_last)
        };
        let (first, mut may_send) = begin_next();
        let mut running = vec![first];
        let mut next = Box::pin(sleep(policy.delay));
        let mut failure = None;
        loop {
            let event = poll_fn(|cx| {
                for index in 0..running.len() {
                    if let Poll::Ready(response) = running[index].1.as_mut().poll(cx) {
                        drop(running.swap_remove(index));
                        return Poll::Ready(Event::Ended(response));
                    }
                }
                if let Poll::Ready(Some(number)) = begun.poll_recv(cx) {
                    return Poll::Ready(Event::Begun(number));
                }
                if may_send { next.as_mut().poll(cx).map(|()| Event::Due) } else { Poll::Pending }
            });
            match event.await {
                // The call is committed to this attempt; dropping the others cancels them.
                Event::Begun(number) => {
                    running.retain(|(other, _)| *other == number);
                    may_send = false;
                }
                Event::Due if self.is_throttled_after(false) => {
                    may_send = false;
                    if let Some(status) = failure.take().filter(|_| running.is_empty()) {
                        return Err(status);
                    }
                }
                Event::Due => {
                    let (attempt, may_follow) = begin_next();
                    running.push(attempt);
                    may_send = may_follow;
                    next.set(sleep(policy.delay));
                }
                Event::Ended(Ok(response)) => {
                    self.succeeded();
                    return Ok(response);
                }
                Event::Ended(Err(Failure { status, is_committed, .. })) => {
                    let pushback = Pushback::of(&status);
                    let is_fatal = !policy.codes.contains(&status.code());
                    let is_throttled = self.is_throttled_after(!is_fatal || pushback == Pushback::Never);
                    may_send &= pushback != Pushback::Never && !is_throttled;
                    let due =
                        Instant::now() + if let Pushback::After(pause) = pushback { pause } else { Duration::ZERO };
                    let is_left = !running.is_empty() || may_send && !self.is_over(due);
                    if is_fatal || is_committed || !is_left {
                        return Err(status);
                    }
                    next.set(sleep_until(due));
                    failure = Some(status);
                }
            }
        }
    }

    fn succeeded(&self) {
        if let Some(throttle) = self.channel.throttle() {
            throttle.succeeded();
        }
    }

    /// Counts a failure that the policy covers. True if no further attempt may be sent.
    fn is_throttled_after(&self, is_failure: bool) -> bool {
        let Some(throttle) = self.channel.throttle() else { return false };
        if is_failure {
            throttle.failed();
        }
        !throttle.is_open()
    }

    /// True if the call's deadline comes before a time.
    fn is_over(&self, time: Instant) -> bool {
        self.call.deadline.is_some_and(|deadline| time >= deadline)
    }
}
