//! Queue between callers and a connection's task: calls wait here while it connects and reconnects.
//!
//! A caller holds the queue's lock for one push. The task takes the whole queue at once, and one wake-up serves all
//! calls of a burst.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use atomic_waker::AtomicWaker;
use tokio::sync::watch;

use super::target::{Counters, Traffic};
use crate::client::call::attempt::{Attempt, untouched};
use crate::client::settings::{ConnectError, Settings};
use crate::status::Status;

/// A command to a connection.
pub(crate) enum Command {
    /// Connects, without a call.
    Connect,
    Start(Attempt),
    /// Cancels the call of this number.
    Cancel(u64),
}

impl Command {
    pub(crate) fn waits_for_ready(&self) -> bool {
        matches!(self, Self::Start(attempt) if attempt.waits_for_ready)
    }

    pub(crate) fn fail(self, status: &Status) {
        if let Self::Start(attempt) = self {
            attempt.reply_to.fail(status.clone());
        }
    }
}

/// Calls that a connection has taken and cannot start yet.
pub(crate) struct WaitingCalls {
    pub(crate) calls: VecDeque<Attempt>,
    calls_max: usize,
}

impl WaitingCalls {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self { calls: VecDeque::new(), calls_max: settings.waiting_calls_max }
    }

    /// Appends a call; fails it if too many wait.
    pub(crate) fn push(&mut self, attempt: Attempt) {
        if self.calls.len() >= self.calls_max {
            let status = Status::resource_exhausted("too many calls wait for their turn");
            return attempt.reply_to.fail(untouched(status));
        }
        self.calls.push_back(attempt);
    }

    pub(crate) fn cancel(&mut self, number: u64) {
        self.calls.retain(|attempt| attempt.number != number);
    }
}

/// State of a subchannel's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Idle,
    Connecting,
    Ready,
    /// The last attempt to connect failed, and the pause before the next is not over.
    Failing,
    Closed,
}

pub(crate) struct Subchannel {
    queue: Mutex<VecDeque<Command>>,
    task: AtomicWaker,
    state: watch::Sender<State>,
    /// True from a failed attempt to connect until one succeeds.
    is_failing: AtomicBool,
    /// Number of failed attempts to connect, and the last failure. A caller that is polled only after the pause
    /// that follows a failure finds it here, no longer in the state.
    failed: Mutex<(u64, ConnectError)>,
    is_ready: AtomicBool,
    is_closing: AtomicBool,
    waiting_calls_max: usize,
    counters: Arc<Counters>,
}

impl Subchannel {
    pub(crate) fn new(settings: &Settings) -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::default(),
            task: AtomicWaker::new(),
            state: watch::Sender::new(State::Idle),
            is_failing: AtomicBool::new(false),
            failed: Mutex::new((0, ConnectError::new(""))),
            is_ready: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            waiting_calls_max: settings.waiting_calls_max,
            counters: Arc::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Command>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a command for the task.
    pub(crate) fn push(&self, command: Command) {
        let mut queue = self.lock();
        let refusal = if self.is_closing.load(Ordering::Acquire) {
            Some(Status::unavailable("the channel is closed"))
        } else if queue.len() >= self.waiting_calls_max {
            Some(Status::resource_exhausted("too many calls wait in this channel"))
        } else {
            None
        };
        if let Some(status) = refusal {
            drop(queue);
            return command.fail(&untouched(status));
        }
        queue.push_back(command);
        drop(queue);
        self.task.wake();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    pub(crate) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Takes all commands; `into` must be empty.
    pub(crate) fn take(&self, into: &mut VecDeque<Command>) {
        debug_assert!(into.is_empty(), "the commands taken before are done");
        std::mem::swap(&mut *self.lock(), into);
    }

    pub(crate) fn register(&self, task: &Waker) {
        self.task.register(task);
    }

    /// Bytes over the sockets of this subchannel's connections so far.
    pub(crate) fn traffic(&self) -> Traffic {
        self.counters.read()
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.task.wake();
    }

    /// Marks the subchannel as closed and fails the remaining commands.
    pub(crate) fn end(&self) {
        let status = untouched(Status::unavailable("the channel is closed"));
        for command in std::mem::take(&mut *self.lock()) {
            command.fail(&status);
        }
        self.set_state(State::Closed);
    }

    pub(crate) async fn closed(&self) {
        let _ = self.state.subscribe().wait_for(|state| *state == State::Closed).await;
    }

    /// Makes the task connect, unless it is connected or pauses after a failure.
    pub(crate) fn want(&self) {
        let pauses = matches!(*self.state.borrow(), State::Failing);
        // A waiting command already makes it connect.
        if !pauses && self.is_empty() {
            self.push(Command::Connect);
        }
    }

    /// Waits for a connection or the first failure to connect; fails at once during the pause after a failure.
    pub(crate) async fn ready(&self) -> Result<(), ConnectError> {
        let before = self.failed().0;
        self.want();
        let mut state = self.state.subscribe();
        let is_over = |state: &State| !matches!(state, State::Idle | State::Connecting) || self.failed().0 != before;
        match state.wait_for(is_over).await.as_deref() {
            Ok(State::Ready) => Ok(()),
            Ok(State::Failing | State::Idle | State::Connecting) => Err(self.failed().1.clone()),
            Ok(State::Closed) | Err(_) => Err(ConnectError::new("the channel is closed")),
        }
    }

    fn failed(&self) -> MutexGuard<'_, (u64, ConnectError)> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a failed attempt to connect.
    pub(crate) fn set_failing(&self, failure: ConnectError) {
        self.is_failing.store(true, Ordering::Relaxed);
        let mut failed = self.failed();
        *failed = (failed.0 + 1, failure);
        drop(failed);
        self.set_state(State::Failing);
    }

    pub(crate) fn set_state(&self, state: State) {
        if state == State::Ready {
            self.is_failing.store(false, Ordering::Relaxed);
        }
        self.is_ready.store(state == State::Ready, Ordering::Release);
        self.state.send_replace(state);
    }

    /// Waits until there is a command.
    pub(crate) async fn wanted(&self) {
        std::future::poll_fn(|cx| {
            self.register(cx.waker());
            let wanted = !self.is_empty() || self.is_closing();
            if wanted { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }

    /// Fails calls that do not wait for a connection, while the server is unreachable.
    pub(crate) fn fail_fast(&self, status: &Status) {
        let (waiting, failing): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut *self.lock()).into_iter().partition(Command::waits_for_ready);
        let mut queue = self.lock();
        for command in waiting.into_iter().rev() {
            queue.push_front(command);
        }
        drop(queue);
        for command in failing {
            command.fail(status);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll};

    use super::*;

    #[test]
    fn a_caller_that_is_polled_after_the_pause_of_a_failure_gets_its_reason() {
        let subchannel = Subchannel::new(&Settings::default());
        let mut cx = Context::from_waker(Waker::noop());
        let mut ready = pin!(subchannel.ready());
        assert!(ready.as_mut().poll(&mut cx).is_pending());
        subchannel.set_failing(ConnectError::new("it does not speak TLS"));
        subchannel.set_state(State::Idle);
        let Poll::Ready(Err(error)) = ready.poll(&mut cx) else { panic!("still waiting") };
        assert_eq!(error.to_string(), "it does not speak TLS");
    }
}
