//! The attempts of a unary call: one, retries after failures, or hedges beside unanswered ones.
//!
//! Implements: "gRPC Retry Design" (A6) for unary calls.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use super::attempt::{Body, Failure, Form, ReplyTo, UnaryResponse};
use super::prepared::{PreparedCall, perform};
use crate::client::channel::Channel;
use crate::client::service_config::{HedgingPolicy, Pushback, Repeat, RetryPolicy};
use crate::status::{Reach, Status};

/// A unary call with its encoded message.
pub(super) struct Attempts<'a> {
    pub(super) channel: &'a Channel,
    pub(super) call: PreparedCall,
    pub(super) framed: Vec<u8>,
    pub(super) get_target: Option<String>,
}

/// An attempt under way; dropping it cancels it.
type Running<'a> = Pin<Box<dyn Future<Output = Result<UnaryResponse, Failure>> + Send + 'a>>;

impl<'a> Attempts<'a> {
    pub(super) async fn response(self, repeat: Option<&Repeat>) -> Result<UnaryResponse, Status> {
        match repeat {
            None => self.retried(None).await,
            Some(Repeat::Retry(policy)) => self.retried(Some(policy)).await,
            Some(Repeat::Hedge(policy)) => Box::pin(self.hedged(policy)).await,
        }
    }

    /// Begins an attempt after `before` others.
    fn attempt(
        &mut self,
        before: u32,
        is_last: bool,
    ) -> impl Future<Output = Result<UnaryResponse, Failure>> + Send + use<'a> {
        let (sender, receiver) = oneshot::channel();
        let body = Body::Message(if is_last { std::mem::take(&mut self.framed) } else { self.framed.clone() });
        let mut attempt = self.call.clone().attempt(body, ReplyTo::unary(sender));
        if let Some(target) = &self.get_target {
            attempt.form = Form::Get(target.clone());
        }
        if before > 0 {
            // The name and digits are always valid.
            let _ = attempt.metadata.insert("grpc-previous-rpc-attempts", &before.to_string());
        }
        perform(self.channel, attempt, receiver)
    }

    async fn retried(mut self, policy: Option<&RetryPolicy>) -> Result<UnaryResponse, Status> {
        let attempts_max = policy.map_or(1, |policy| policy.attempts_max);
        let (mut attempts, mut pauses) = (1, 0);
        loop {
            let Failure { status, is_committed, .. } = match self.attempt(attempts - 1, attempts >= attempts_max).await
            {
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

    async fn hedged(mut self, policy: &HedgingPolicy) -> Result<UnaryResponse, Status> {
        let mut running: Vec<Running<'a>> = vec![Box::pin(self.attempt(0, policy.attempts_max < 2))];
        let mut attempts = 1;
        let mut may_send = policy.attempts_max > 1;
        let mut next = Box::pin(sleep(policy.delay));
        let mut failure = None;
        loop {
            // `None`: the next attempt is due.
            let ended = poll_fn(|cx| {
                for index in 0..running.len() {
                    if let Poll::Ready(response) = running[index].as_mut().poll(cx) {
                        drop(running.swap_remove(index));
                        return Poll::Ready(Some(response));
                    }
                }
                if may_send { next.as_mut().poll(cx).map(|()| None) } else { Poll::Pending }
            });
            match ended.await {
                None if self.is_throttled_after(false) => {
                    may_send = false;
                    if let Some(status) = failure.take().filter(|_| running.is_empty()) {
                        return Err(status);
                    }
                }
                None => {
                    attempts += 1;
                    may_send = attempts < policy.attempts_max;
                    running.push(Box::pin(self.attempt(attempts - 1, !may_send)));
                    next.set(sleep(policy.delay));
                }
                Some(Ok(response)) => {
                    self.succeeded();
                    return Ok(response);
                }
                Some(Err(Failure { status, is_committed, .. })) => {
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
