//! Detects missing answers, and the end of the game's time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

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
