//! Queue between callers and a connection's task: calls wait here while it connects and reconnects.
//!
//! A caller holds the queue's lock for one push. The task takes the whole queue at once, and one wake-up serves all
//! calls of a burst.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use atomic_waker::AtomicWaker;
use tokio::sync::{Notify, watch};

use super::target::{Counters, Traffic};
use crate::client::call::attempt::{Attempt, untouched};
use crate::client::settings::{ConnectError, Settings};
use crate::status::Status;

/// A command to a connection.
pub(crate) enum Command {
    /// Connects, without a call.
    Connect,
    Start(Attempt),
    /// Cancels the call of this number, whose caller no longer waits for its response.
    Cancel(u64),
}

impl Command {
    pub(crate) fn waits_for_ready(&self) -> bool {
        matches!(self, Self::Start(attempt) if attempt.waits_for_ready)
    }

    /// True if there is nothing to do while there is no connection.
    fn is_over(&self) -> bool {
        match self {
            Self::Connect => false,
            Self::Start(attempt) => attempt.reply_to.is_abandoned(),
            Self::Cancel(_) => true,
        }
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

/// Notices from round robin's subchannels.
#[derive(Default)]
pub(crate) struct Reports {
    /// Changes with each state of a subchannel that a waiting call may act on.
    pub(crate) states: watch::Sender<()>,
    /// Notified when the resolver should run again.
    pub(crate) resolving: Notify,
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
    /// Set for one of round robin: it takes calls only while it is ready, so that none waits here for one server.
    reports: Option<Arc<Reports>>,
    waiting_calls_max: usize,
    /// Calls given up since the queue was last purged.
    given_up: AtomicUsize,
    counters: Arc<Counters>,
}

impl Subchannel {
    pub(crate) fn new(settings: &Settings, reports: Option<Arc<Reports>>) -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::default(),
            task: AtomicWaker::new(),
            state: watch::Sender::new(State::Idle),
            is_failing: AtomicBool::new(false),
            failed: Mutex::new((0, ConnectError::new(""))),
            is_ready: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            reports,
            waiting_calls_max: settings.waiting_calls_max,
            given_up: AtomicUsize::new(0),
            counters: Arc::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Command>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a command for the task.
    pub(crate) fn push(&self, command: Command) {
        let mut queue = self.lock();
        let takes_calls = self.reports.is_none() || self.is_ready() && !self.is_closing();
        if !takes_calls && let Command::Start(attempt) = command {
            drop(queue);
            return attempt.turn_back();
        }
        let mut purged = VecDeque::new();
        let refusal = if matches!(command, Command::Cancel(_)) {
            // Each accepted call is cancelled at most once, which bounds the queue.
            self.given_up.fetch_add(1, Ordering::Relaxed);
            None
        } else if self.is_closing.load(Ordering::Acquire) {
            Some(Status::unavailable("the channel is closed"))
        } else {
            if queue.len() >= self.waiting_calls_max {
                purged = self.purge(&mut queue);
            }
            let is_full = queue.len() >= self.waiting_calls_max;
            is_full.then(|| Status::resource_exhausted("too many calls wait in this channel"))
        };
        if let Some(status) = refusal {
            drop((queue, purged));
            return command.fail(&untouched(status));
        }
        queue.push_back(command);
        drop((queue, purged));
        self.task.wake();
    }

    /// Takes calls that were given up out of a full queue, once there are enough of them to be worth the search.
    fn purge(&self, queue: &mut VecDeque<Command>) -> VecDeque<Command> {
        if self.given_up.load(Ordering::Relaxed) <= self.waiting_calls_max / 8 {
            return VecDeque::new();
        }
        self.given_up.store(0, Ordering::Relaxed);
        let abandoned = |command: &Command| match command {
            Command::Start(attempt) if attempt.reply_to.is_abandoned() => Some(attempt.number),
            _ => None,
        };
        let abandoned: HashSet<u64> = queue.iter().filter_map(abandoned).collect();
        let (purged, left) = std::mem::take(queue).into_iter().partition(|command| match command {
            Command::Connect => false,
            Command::Start(Attempt { number, .. }) | Command::Cancel(number) => abandoned.contains(number),
        });
        *queue = left;
        purged
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

    /// True if it neither has nor makes a connection.
    pub(crate) fn is_idle(&self) -> bool {
        *self.state.borrow() == State::Idle
    }

    /// True if it is closed and its calls have ended.
    pub(crate) fn has_ended(&self) -> bool {
        *self.state.borrow() == State::Closed
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
        if *self.state.borrow() == State::Failing {
            return;
        }
        // Other commands may be those of a caller that is gone.
        let is_wanted = self.lock().iter().any(|command| matches!(command, Command::Connect));
        if !is_wanted {
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
            Ok(State::Failing | State::Idle | State::Connecting) => Err(self.failure()),
            Ok(State::Closed) | Err(_) => Err(ConnectError::new("the channel is closed")),
        }
    }

    /// The last failure to connect.
    pub(crate) fn failure(&self) -> ConnectError {
        self.failed().1.clone()
    }

    fn failed(&self) -> MutexGuard<'_, (u64, ConnectError)> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a failed attempt to connect.
    pub(crate) fn set_failing(&self, failure: ConnectError) {
        let mut failed = self.failed();
        *failed = (failed.0 + 1, failure);
        // A caller that sees this finds the failure.
        let was_failing = self.is_failing.swap(true, Ordering::Relaxed);
        drop(failed);
        // A further failure changes nothing for calls that wait.
        self.change(State::Failing, !was_failing);
    }

    pub(crate) fn set_state(&self, state: State) {
        let wakes = state != State::Connecting;
        self.change(state, wakes);
    }

    /// Changes the state, and wakes the calls that wait for a server.
    fn change(&self, state: State, wakes: bool) {
        let is_ready = state == State::Ready;
        if is_ready {
            self.is_failing.store(false, Ordering::Relaxed);
        }
        let was_ready = self.is_ready.swap(is_ready, Ordering::AcqRel);
        let is_lost = (state == State::Failing || was_ready && state == State::Idle) && !self.is_closing();
        self.state.send_replace(state);
        let Some(reports) = &self.reports else { return };
        if !is_ready {
            // A call that is pushed from now on is turned back there.
            for command in self.extract(|command| matches!(command, Command::Start(_))) {
                if let Command::Start(attempt) = command {
                    attempt.turn_back();
                }
            }
        }
        if is_lost {
            reports.resolving.notify_one();
        }
        if wakes {
            reports.states.send_replace(());
        }
    }

    /// Removes some commands, which are dropped without the lock: a request's stream may own a call of this channel.
    fn extract(&self, which: impl Fn(&Command) -> bool) -> VecDeque<Command> {
        let mut queue = self.lock();
        let (extracted, left) = std::mem::take(&mut *queue).into_iter().partition(which);
        *queue = left;
        extracted
    }

    /// Waits until there is a command that needs a connection.
    pub(crate) async fn wanted(&self) {
        std::future::poll_fn(|cx| {
            self.register(cx.waker());
            drop(self.extract(Command::is_over));
            let wanted = !self.is_empty() || self.is_closing();
            if wanted { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }

    /// Fails calls that do not wait for a connection, while the server is unreachable.
    pub(crate) fn fail_fast(&self, status: &Status) {
        let failing = self.extract(|command| !command.waits_for_ready() || command.is_over());
        for command in failing {
            command.fail(status);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll};

    use super::*;

    #[test]
    fn a_queue_of_given_up_calls_keeps_no_one_from_connecting() {
        let subchannel = Subchannel::new(&Settings::default(), None);
        subchannel.push(Command::Cancel(1));
        subchannel.want();
        subchannel.want();
        let mut wanted = pin!(subchannel.wanted());
        assert!(wanted.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        assert_eq!(subchannel.lock().len(), 1, "one request to connect");
    }

    #[test]
    fn the_resolver_and_waiting_calls_get_only_news_that_they_can_act_on() {
        let reports = Arc::new(Reports::default());
        let subchannel = Subchannel::new(&Settings::default(), Some(Arc::clone(&reports)));
        let mut states = reports.states.subscribe();
        let mut news = || {
            let resolving = pin!(reports.resolving.notified());
            let asks = resolving.poll(&mut Context::from_waker(Waker::noop())).is_ready();
            let wakes = states.has_changed().unwrap();
            states.mark_unchanged();
            (asks, wakes)
        };
        let fail = || subchannel.set_failing(ConnectError::new("gone"));
        let mut after = |change: &dyn Fn()| {
            change();
            news()
        };
        assert_eq!(after(&|| subchannel.set_state(State::Connecting)), (false, false));
        assert_eq!(after(&fail), (true, true));
        assert_eq!(after(&fail), (true, false), "nothing new for calls");
        assert_eq!(after(&|| subchannel.set_state(State::Connecting)), (false, false), "asked after the failure");
        assert_eq!(after(&|| subchannel.set_state(State::Ready)), (false, true));
        assert_eq!(after(&|| subchannel.set_state(State::Idle)), (true, true));
        subchannel.set_state(State::Ready);
        subchannel.close();
        assert_eq!(after(&|| subchannel.set_state(State::Idle)), (false, true), "the resolver no longer has it");
        assert_eq!(after(&fail), (false, true));
    }

    #[test]
    fn a_caller_that_is_polled_after_the_pause_of_a_failure_gets_its_reason() {
        let subchannel = Subchannel::new(&Settings::default(), None);
        let mut cx = Context::from_waker(Waker::noop());
        let mut ready = pin!(subchannel.ready());
        assert!(ready.as_mut().poll(&mut cx).is_pending());
        subchannel.set_failing(ConnectError::new("it does not speak TLS"));
        subchannel.set_state(State::Idle);
        let Poll::Ready(Err(error)) = ready.poll(&mut cx) else { panic!("still waiting") };
        assert_eq!(error.to_string(), "it does not speak TLS");
    }
}
