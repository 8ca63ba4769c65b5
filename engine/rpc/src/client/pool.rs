//! Connection pool of a channel over HTTP/1.1, with one call at a time on each connection; excess calls wait in one
//! queue.
//!
//! Implements: RFC 9112 section 9 (connection management); gRPC's "Connection Backoff".

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep};

use super::command::{Command, Start};
use super::exchange::{self, Connection, Shared};
use super::lane::{Lane, State};
use super::retry::{exponential, jitter};
use super::settings::Settings;
use super::target::Target;
use crate::compression;
use crate::status::Status;

/// Result of a task of the pool.
enum Event {
    Opened(Result<Connection, String>),
    /// The call of this number has ended; another may reuse its connection.
    Ended(u64, Option<Connection>),
}

/// Pause between attempts to connect: its end, and the failure before it.
struct Pause {
    until: Pin<Box<Sleep>>,
    status: Status,
}

struct Pool {
    lane: Arc<Lane>,
    shared: Shared,
    commands: VecDeque<Command>,
    waiting: VecDeque<Start>,
    idle: Vec<Connection>,
    opening: usize,
    /// Calls on a connection, by number; dropping the sender cancels one.
    running: HashMap<u64, oneshot::Sender<()>>,
    tasks: JoinSet<Event>,
    /// True if a caller wants a connection without having a call.
    is_wanted: bool,
    failures: u32,
    pause: Option<Pause>,
}

/// Creates a lane and spawns its task, which manages the connections.
pub(super) fn spawn(target: &Arc<Target>, settings: &Arc<Settings>) -> Arc<Lane> {
    let lane = Lane::new(settings);
    let shared = Shared {
        target: Arc::clone(target),
        settings: Arc::clone(settings),
        counters: Arc::clone(lane.counters()),
        accepted: compression::accepted(&settings.accepts).into(),
    };
    let mut pool = Pool {
        lane: Arc::clone(&lane),
        shared,
        commands: VecDeque::new(),
        waiting: VecDeque::new(),
        idle: Vec::new(),
        opening: 0,
        running: HashMap::new(),
        tasks: JoinSet::new(),
        is_wanted: false,
        failures: 0,
        pause: None,
    };
    tokio::spawn(async move {
        poll_fn(|cx| pool.poll(cx)).await;
        pool.lane.end();
    });
    lane
}

impl Pool {
    /// Works until the channel is closed and every call has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.lane.register(cx.waker());
        loop {
            let mut progress = self.take_commands();
            while let Poll::Ready(Some(event)) = self.tasks.poll_join_next(cx) {
                progress = true;
                // A task that panicked has dropped its caller's sender, so the caller gets an error.
                if let Ok(event) = event {
                    self.take(event);
                }
            }
            if let Some(pause) = &mut self.pause
                && pause.until.as_mut().poll(cx).is_ready()
            {
                self.pause = None;
                progress = true;
                let has_connection = !self.idle.is_empty() || !self.running.is_empty();
                self.lane.set_state(if has_connection { State::Ready } else { State::Idle });
            }
            self.start_waiting();
            self.open();
            if self.lane.is_closing() && self.waiting.is_empty() && self.running.is_empty() {
                return Poll::Ready(());
            }
            if !progress {
                return Poll::Pending;
            }
        }
    }

    fn take_commands(&mut self) -> bool {
        self.lane.take(&mut self.commands);
        let any = !self.commands.is_empty();
        while let Some(command) = self.commands.pop_front() {
            match command {
                Command::Connect => self.is_wanted |= self.live() == 0,
                Command::Start(start) if self.waiting.len() >= self.shared.settings.waiting_calls_max => {
                    start.reply_to.fail(Status::resource_exhausted("too many calls wait for their turn"), true);
                }
                Command::Start(start) => self.waiting.push_back(start),
                Command::Cancel(number) => {
                    self.waiting.retain(|start| start.number != number);
                    self.running.remove(&number);
                }
            }
        }
        any
    }

    /// Number of connections that are open or being opened.
    fn live(&self) -> usize {
        self.idle.len() + self.opening + self.running.len()
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Opened(Ok(connection)) => {
                self.opening -= 1;
                (self.failures, self.is_wanted) = (0, false);
                self.lane.set_state(State::Ready);
                self.idle.push(connection);
            }
            Event::Opened(Err(reason)) => {
                self.opening -= 1;
                self.is_wanted = false;
                let reason = format!("cannot reach {}: {reason}", self.shared.target.authority);
                self.lane.set_state(State::Failing(reason.clone()));
                let Settings { reconnect_first, reconnect_max, .. } = *self.shared.settings;
                let pause = jitter(exponential(reconnect_first, reconnect_max, self.failures));
                self.failures += 1;
                self.pause = Some(Pause { until: Box::pin(sleep(pause)), status: Status::unavailable(reason) });
            }
            Event::Ended(number, connection) => {
                self.running.remove(&number);
                self.idle.extend(connection);
            }
        }
    }

    fn start_waiting(&mut self) {
        self.idle.retain(|connection| !connection.is_closed());
        while !self.waiting.is_empty()
            && let Some(connection) = self.idle.pop()
            && let Some(start) = self.waiting.pop_front()
        {
            let number = start.number;
            let (cancel, cancelled) = oneshot::channel();
            self.running.insert(number, cancel);
            let call = exchange::run(connection, start, self.shared.clone(), cancelled);
            self.tasks.spawn(async move { Event::Ended(number, call.await) });
        }
    }

    /// Opens connections for waiting calls.
    fn open(&mut self) {
        if let Some(pause) = &self.pause {
            if self.live() == 0 {
                // While the server is unreachable, calls fail unless they wait for a connection.
                let (waiting, failing): (VecDeque<_>, VecDeque<_>) =
                    std::mem::take(&mut self.waiting).into_iter().partition(|start| start.waits_for_ready);
                self.waiting = waiting;
                for start in failing {
                    start.reply_to.fail(pause.status.clone(), true);
                }
            }
            return;
        }
        let wanted = self.waiting.len().max(usize::from(self.is_wanted));
        let most = self.shared.settings.http1_connections_max.max(1);
        while self.opening < wanted && self.live() < most {
            self.opening += 1;
            let Shared { target, settings, counters, .. } = self.shared.clone();
            let connecting = exchange::connect(target, counters, settings);
            self.tasks.spawn(async move { Event::Opened(connecting.await) });
        }
    }
}
