//! Connection pool of a channel over HTTP/1.1, driven by hyper, with one call at a time on each connection; excess calls
//! wait in one queue.
//!
//! Implements: RFC 9112 section 9 (connection management); gRPC's "Connection Backoff".

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, Sleep, sleep, sleep_until, timeout};

use super::call::attempt::{Attempt, untouched};
use super::call::http::{CarrierSettings, RequestBody, carry, connection_ended};
use super::channel::subchannel::{Command, State, Subchannel, WaitingCalls};
use super::channel::target::{Counters, Target};
use super::service_config::LoadBalancing;
use super::settings::{ConnectBackoff, ConnectError, Settings};
use crate::failure::{TransportError, TransportFailure};
use crate::lifetime::Lifetime;
use crate::status::Status;

/// Limit of a response's head, and of one read.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Time for a connection to become ready for its next request.
const LINGER: Duration = Duration::from_secs(1);

/// A connection that is ready for a request.
struct Connection {
    requests: SendRequest<RequestBody>,
    /// Time at which it gets no more requests.
    ends_at: Option<Instant>,
    idle_max: Option<Duration>,
    /// End of its idle time, since its last request.
    idle_until: Option<Instant>,
}

impl Connection {
    fn new(requests: SendRequest<RequestBody>, settings: &Settings) -> Self {
        let Lifetime { age_max, idle_max } = settings.lifetime();
        let ends_at = age_max.and_then(|age| Instant::now().checked_add(age));
        Self { requests, ends_at, idle_max, idle_until: None }
    }

    /// Begins its idle time.
    fn rest(mut self) -> Self {
        self.idle_until = self.idle_max.and_then(|idle| Instant::now().checked_add(idle));
        self
    }

    /// Time at which it is closed if it stays idle.
    fn closes_at(&self) -> Option<Instant> {
        self.ends_at.into_iter().chain(self.idle_until).min()
    }
}

/// Result of a task of the pool.
enum Event {
    Opened(Result<Connection, TransportError>),
    /// The call of this number has ended; another may reuse its connection.
    Ended(u64, Option<Connection>),
}

/// Pause between attempts to connect: its end, and the failure before it.
struct Pause {
    until: Pin<Box<Sleep>>,
    status: Status,
}

/// State shared by a channel's calls.
#[derive(Clone)]
struct Shared {
    target: Arc<Target>,
    settings: Arc<Settings>,
    counters: Arc<Counters>,
    carrier: Arc<CarrierSettings>,
}

struct Pool {
    subchannel: Arc<Subchannel>,
    shared: Shared,
    commands: VecDeque<Command>,
    waiting: WaitingCalls,
    idle: Vec<Connection>,
    /// Set for the idle connection that closes next.
    closing: Option<Pin<Box<Sleep>>>,
    opening: usize,
    /// Calls on a connection, by number; dropping the sender cancels one.
    running: HashMap<u64, oneshot::Sender<()>>,
    tasks: JoinSet<Event>,
    /// True if a caller wants a connection without having a call.
    is_wanted: bool,
    backoff: ConnectBackoff,
    pause: Option<Pause>,
}

/// Creates a subchannel and spawns its task, which manages the connections.
pub(super) fn spawn(target: &Arc<Target>, settings: &Arc<Settings>) -> Arc<Subchannel> {
    let subchannel = Subchannel::new(settings, None);
    let shared = Shared {
        target: Arc::clone(target),
        settings: Arc::clone(settings),
        counters: Arc::clone(subchannel.counters()),
        carrier: Arc::new(CarrierSettings::new(http::Version::HTTP_11, settings)),
    };
    let mut pool = Pool {
        subchannel: Arc::clone(&subchannel),
        shared,
        commands: VecDeque::new(),
        waiting: WaitingCalls::new(settings),
        idle: Vec::new(),
        closing: None,
        opening: 0,
        running: HashMap::new(),
        tasks: JoinSet::new(),
        is_wanted: false,
        backoff: ConnectBackoff::new(settings),
        pause: None,
    };
    tokio::spawn(async move {
        poll_fn(|cx| pool.poll(cx)).await;
        pool.subchannel.end();
    });
    subchannel
}

impl Pool {
    /// Works until the channel is closed and every call has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.subchannel.register(cx.waker());
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
                self.subchannel.set_state(if has_connection { State::Ready } else { State::Idle });
            }
            self.start_waiting();
            self.open();
            if self.subchannel.is_closing() && self.waiting.calls.is_empty() && self.running.is_empty() {
                return Poll::Ready(());
            }
            if !progress && self.poll_idle(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Ready if the time of an idle connection is over.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(next) = self.idle.iter().filter_map(Connection::closes_at).min() else { return Poll::Pending };
        let closing = self.closing.get_or_insert_with(|| Box::pin(sleep_until(next)));
        if closing.deadline() != next {
            closing.as_mut().reset(next);
        }
        closing.as_mut().poll(cx)
    }

    fn take_commands(&mut self) -> bool {
        self.subchannel.take(&mut self.commands);
        let any = !self.commands.is_empty();
        while let Some(command) = self.commands.pop_front() {
            match command {
                Command::Connect => self.is_wanted |= self.live() == 0,
                Command::Start(attempt) => self.waiting.push(attempt),
                Command::Cancel(number) => {
                    self.waiting.cancel(number);
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
                self.backoff.reset();
                self.is_wanted = false;
                self.subchannel.set_state(State::Ready);
                self.idle.push(connection.rest());
            }
            Event::Opened(Err(failure)) => {
                self.opening -= 1;
                self.is_wanted = false;
                let failure = ConnectError::unreachable(&self.shared.target.authority, failure);
                self.subchannel.set_failing(failure.clone());
                let until = Box::pin(sleep(self.backoff.pause()));
                self.pause = Some(Pause { until, status: failure.into() });
            }
            Event::Ended(number, connection) => {
                self.running.remove(&number);
                self.idle.extend(connection.map(Connection::rest));
            }
        }
    }

    fn start_waiting(&mut self) {
        let now = Instant::now();
        self.idle.retain(|connection| {
            !connection.requests.is_closed() && connection.closes_at().is_none_or(|closes_at| closes_at > now)
        });
        while !self.waiting.calls.is_empty()
            && let Some(connection) = self.idle.pop()
            && let Some(attempt) = self.waiting.calls.pop_front()
        {
            let number = attempt.number;
            let (cancel, cancelled) = oneshot::channel();
            self.running.insert(number, cancel);
            let call = run(connection, attempt, self.shared.clone(), cancelled);
            self.tasks.spawn(async move { Event::Ended(number, call.await) });
        }
    }

    /// Opens connections for waiting calls.
    fn open(&mut self) {
        if let Some(pause) = &self.pause {
            if self.live() == 0 {
                // While the server is unreachable, calls fail unless they wait for a connection.
                let (waiting, failing): (VecDeque<_>, VecDeque<_>) =
                    std::mem::take(&mut self.waiting.calls).into_iter().partition(|attempt| attempt.waits_for_ready);
                self.waiting.calls = waiting;
                for attempt in failing {
                    attempt.reply_to.fail(pause.status.clone());
                }
            }
            return;
        }
        let wanted = self.waiting.calls.len().max(usize::from(self.is_wanted));
        let most = self.shared.settings.http1_connections_max.max(1);
        while self.opening < wanted && self.live() < most {
            self.opening += 1;
            let Shared { target, settings, counters, .. } = self.shared.clone();
            let connecting = connect(target, counters, settings);
            self.tasks.spawn(async move { Event::Opened(connecting.await) });
        }
    }
}

async fn connect(
    target: Arc<Target>,
    counters: Arc<Counters>,
    settings: Arc<Settings>,
) -> Result<Connection, TransportError> {
    let mut servers = target.resolve(settings.connect_timeout).await?;
    if target.policy == LoadBalancing::RoundRobin {
        let turn = target.turn.fetch_add(1, Ordering::Relaxed) % servers.len();
        servers.rotate_left(turn);
    }
    let io = target.connect(&mut servers, &counters, settings.connect_timeout).await?;
    let mut builder = Builder::new();
    builder.max_buf_size(BUFFER_BYTES_MAX);
    let (sender, connection) =
        builder.handshake(TokioIo::new(io)).await.map_err(|error| TransportError::of(TransportFailure::Io, error))?;
    tokio::spawn(connection);
    Ok(Connection::new(sender, &settings))
}

/// Makes a call, unless its caller cancels it. Returns the connection if it can be reused.
async fn run(
    mut connection: Connection,
    attempt: Attempt,
    shared: Shared,
    mut cancelled: oneshot::Receiver<()>,
) -> Option<Connection> {
    let mut call = std::pin::pin!(async move {
        let carried =
            carry(attempt, &shared.target, &shared.carrier, |request| send(&mut connection, request, &shared));
        let is_free = carried.await;
        let is_ready = is_free && matches!(timeout(LINGER, connection.requests.ready()).await, Ok(Ok(())));
        is_ready.then_some(connection)
    });
    poll_fn(|cx| {
        if Pin::new(&mut cancelled).poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        call.as_mut().poll(cx)
    })
    .await
}

/// Sends the request; on a new connection if the server has closed this one in the meantime.
async fn send(
    connection: &mut Connection,
    request: http::Request<RequestBody>,
    shared: &Shared,
) -> Result<http::Response<Incoming>, Status> {
    let mut error = match connection.requests.try_send_request(request).await {
        Ok(response) => return Ok(response),
        Err(error) => error,
    };
    let Some(request) = error.take_message() else { return Err(connection_ended(error.into_error().into())) };
    let Shared { target, settings, counters, .. } = shared.clone();
    let connected = connect(target, counters, settings).await;
    let failed =
        |failure: TransportError| untouched(Status::unavailable(failure.reason().to_owned()).with_transport(failure));
    *connection = connected.map_err(failed)?;
    connection.requests.try_send_request(request).await.map_err(|mut error| {
        let is_unsent = error.take_message().is_some();
        let status = connection_ended(error.into_error().into());
        if is_unsent { untouched(status) } else { status }
    })
}
