//! One of a channel's connections over its lives: calls queue here, a task connects, serves them, and connects again.
//!
//! Callers hand over through a queue under a lock that is held for a push; the task takes all of it at once and is
//! woken once for whatever came together.
//!
//! Implements: gRPC's "Connection Backoff".

use std::collections::VecDeque;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use atomic_waker::AtomicWaker;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::builder::{ConnectError, Settings, Target};
use super::call::Command;
use super::connection::Connection;
use super::retry::{exponential, jitter};
use super::traffic::{Counters, Traffic};
use crate::status::Status;

/// Where a lane stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Idle,
    Connecting,
    Ready,
    /// The last try failed, for this reason; the next is due.
    Failing(String),
    Closed,
}

pub(super) struct Lane {
    queue: Mutex<VecDeque<Command>>,
    task: AtomicWaker,
    state: watch::Sender<State>,
    is_failing: AtomicBool,
    is_closing: AtomicBool,
    waiting_calls_max: usize,
    counters: Arc<Counters>,
}

impl Lane {
    pub(super) fn spawn(target: &Arc<Target>, settings: &Arc<Settings>) -> Arc<Self> {
        let lane = Arc::new(Self {
            queue: Mutex::default(),
            task: AtomicWaker::new(),
            state: watch::Sender::new(State::Idle),
            is_failing: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            waiting_calls_max: settings.waiting_calls_max,
            counters: Arc::default(),
        });
        tokio::spawn(run(Arc::clone(&lane), Arc::clone(target), Arc::clone(settings)));
        lane
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Command>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a command to the task.
    pub(super) fn push(&self, command: Command) {
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
            return command.fail(&status, true);
        }
        queue.push_back(command);
        drop(queue);
        self.task.wake();
    }

    /// Takes all commands into an empty queue of the task's.
    pub(super) fn take(&self, into: &mut VecDeque<Command>) {
        debug_assert!(into.is_empty(), "what was taken before is done");
        std::mem::swap(&mut *self.lock(), into);
    }

    pub(super) fn register(&self, task: &Waker) {
        self.task.register(task);
    }

    /// What the sockets of this lane's connections carried, over all its lives.
    pub(super) fn traffic(&self) -> Traffic {
        self.counters.read()
    }

    pub(super) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.task.wake();
    }

    pub(super) async fn closed(&self) {
        let _ = self.state.subscribe().wait_for(|state| *state == State::Closed).await;
    }

    /// Waits for a connection, or the first failure to make one.
    pub(super) async fn ready(&self) -> Result<(), ConnectError> {
        self.push(Command::Connect);
        let mut state = self.state.subscribe();
        match state.wait_for(|state| !matches!(state, State::Idle | State::Connecting)).await.as_deref() {
            Ok(State::Ready) => Ok(()),
            Ok(State::Failing(reason)) => Err(ConnectError(reason.clone())),
            _ => Err(ConnectError("the channel is closed".to_owned())),
        }
    }

    pub(super) fn set_state(&self, state: State) {
        self.is_failing.store(matches!(state, State::Failing(_)), Ordering::Relaxed);
        self.state.send_replace(state);
    }

    /// Waits until there is something to do.
    async fn wanted(&self) {
        std::future::poll_fn(|cx| {
            self.register(cx.waker());
            let wanted = !self.lock().is_empty() || self.is_closing();
            if wanted { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }

    /// While the server cannot be reached, only calls that want to wait do.
    fn fail_impatient(&self, status: &Status) {
        let (patient, impatient): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut *self.lock()).into_iter().partition(Command::waits_for_ready);
        let mut queue = self.lock();
        for command in patient.into_iter().rev() {
            queue.push_front(command);
        }
        drop(queue);
        for command in impatient {
            command.fail(status, true);
        }
    }
}

async fn run(lane: Arc<Lane>, target: Arc<Target>, settings: Arc<Settings>) {
    let mut failures = 0;
    while !lane.is_closing() {
        lane.wanted().await;
        if lane.is_closing() && lane.lock().is_empty() {
            break;
        }
        lane.set_state(State::Connecting);
        let deadline = Instant::now() + settings.connect_timeout;
        let connected = timeout_at(deadline, target.connect(&lane.counters)).await;
        let reason = match connected {
            Err(_) => "no connection in time".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Ok(Ok(io)) => {
                let mut connection = Connection::new(io, Arc::clone(&lane), Arc::clone(&target), Arc::clone(&settings));
                let reason = connection.run().await;
                if connection.is_retired() {
                    tokio::spawn(connection.finish());
                    failures = 0;
                    lane.set_state(State::Idle);
                    continue;
                }
                if connection.was_ready() {
                    failures = 0;
                    lane.set_state(State::Idle);
                    continue;
                }
                reason
            }
        };
        let reason = format!("cannot reach {}: {reason}", target.authority);
        lane.set_state(State::Failing(reason.clone()));
        let pause = jitter(exponential(settings.reconnect_first, settings.reconnect_max, failures));
        failures += 1;
        back_off(&lane, Instant::now() + pause, &Status::unavailable(reason)).await;
    }
    lane.fail_impatient(&Status::unavailable("the channel is closed"));
    let left = std::mem::take(&mut *lane.lock());
    for command in left {
        command.fail(&Status::unavailable("the channel is closed"), true);
    }
    lane.set_state(State::Closed);
}

/// Waits for the next try, and tells calls that come meanwhile why they fail.
async fn back_off(lane: &Lane, until: Instant, status: &Status) {
    let mut sleep = std::pin::pin!(sleep_until(until));
    std::future::poll_fn(|cx| {
        lane.register(cx.waker());
        lane.fail_impatient(status);
        if lane.is_closing() { std::task::Poll::Ready(()) } else { sleep.as_mut().poll(cx) }
    })
    .await;
}
