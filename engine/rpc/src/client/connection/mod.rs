//! Task of one subchannel over HTTP/2: connects, takes calls, reads, writes, sends keepalive PINGs, and reconnects.
//!
//! Implements: RFC 9113 sections 3.4 (preface), 6.7 (PING, for keepalive) and 9.1 (connection management); gRPC's
//! "Connection Backoff".

mod health;
mod multiplexer;

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use quire_http2::ConnectionError;
use tokio::io::AsyncWrite;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep_until};

use self::health::Watch;
use self::multiplexer::{Multiplexer, WATCH};
use super::call::attempt::untouched;
use super::channel::subchannel::{Command, Reports, State, Subchannel};
use super::channel::target::{Connected, ONLY_TLS, ServerAddress, Target};
use super::settings::{ConnectBackoff, ConnectError, Settings};
use crate::failure::{TransportError, TransportFailure};
use crate::io::{Inlet, poll_write};
use crate::lifetime::Lifetime;
use crate::status::Status;

/// Time without input after which a connection is checked before a call is sent.
const SILENCE_MAX: Duration = Duration::from_millis(100);
/// Rounds in one poll before other tasks get their turn.
const ROUNDS_MAX: usize = 16;
const KEEPALIVE: [u8; 8] = *b"alive\0\0\0";
/// Reason of a connection's end after the server's GOAWAY.
const SERVER_LEAVES: &str = "the server takes no more calls";

/// Creates a subchannel and spawns its task. For round robin, `place` is its server.
pub(super) fn spawn(
    target: &Arc<Target>,
    settings: &Arc<Settings>,
    place: Option<(ServerAddress, Arc<Reports>)>,
) -> Arc<Subchannel> {
    let (server, reports) = place.unzip();
    let subchannel = Subchannel::new(settings, reports);
    tokio::spawn(run(Arc::clone(&subchannel), Arc::clone(target), Arc::clone(settings), server));
    subchannel
}

async fn run(subchannel: Arc<Subchannel>, target: Arc<Target>, settings: Arc<Settings>, server: Option<ServerAddress>) {
    let mut backoff = ConnectBackoff::new(&settings);
    // Servers that have not failed since the subchannel began to connect, and the first failure of one that was
    // reached.
    let (mut servers, mut refusal) = (VecDeque::new(), None);
    let mut is_lazy = server.is_none();
    while !subchannel.is_closing() {
        if servers.is_empty() {
            if is_lazy {
                subchannel.wanted().await;
            }
            if subchannel.is_closing() && subchannel.is_empty() {
                break;
            }
            subchannel.set_state(State::Connecting);
        }
        let opening = open(&subchannel, &target, &settings, server.as_slice(), &mut servers);
        let failure = match opening.await {
            Err(failure) => failure,
            Ok(io) => {
                let mut connection = ConnectionTask::new(io, &subchannel, &target, &settings, servers.len());
                let failure = connection.run().await;
                // Round robin connects without a call, so not without a pause.
                let resumes_at = server.is_some().then(|| connection.opened_at + backoff.first);
                let was_useful = connection.was_useful(resumes_at);
                let was_long = connection.is_ready && connection.opened_at.elapsed() >= settings.reconnect_max;
                is_lazy = server.is_none() || connection.is_resting();
                if connection.is_retired {
                    tokio::spawn(connection.finish());
                }
                if was_useful || was_long {
                    backoff.reset();
                }
                if was_useful {
                    (servers, refusal) = (VecDeque::new(), None);
                    subchannel.set_state(State::Idle);
                    if let Some(until) = resumes_at {
                        back_off(&subchannel, until, None).await;
                    }
                    continue;
                }
                refusal.get_or_insert(failure).clone()
            }
        };
        if servers.is_empty() {
            is_lazy = server.is_none();
            let failure = ConnectError::unreachable(&target.authority, refusal.take().unwrap_or(failure));
            subchannel.set_failing(failure.clone());
            let until = Instant::now() + backoff.pause();
            back_off(&subchannel, until, Some(&failure.into())).await;
            if is_lazy {
                subchannel.set_state(State::Idle);
            }
        }
    }
    subchannel.end();
}

/// Opens a connection to the first of the servers that can be reached; if there are none, to the first of `own`, or
/// else of the resolver's. Stops if the subchannel is closed and has no calls.
async fn open(
    subchannel: &Subchannel,
    target: &Target,
    settings: &Settings,
    own: &[ServerAddress],
    servers: &mut VecDeque<ServerAddress>,
) -> Result<Connected, TransportError> {
    let mut opening = pin!(async {
        if servers.is_empty() {
            servers.extend(own.iter().cloned());
        }
        if servers.is_empty() {
            *servers = target.resolve(settings.connect_timeout).await?;
        }
        target.connect(servers, subchannel.counters(), settings.connect_timeout).await
    });
    poll_fn(|cx| {
        subchannel.register(cx.waker());
        if subchannel.is_closing() && (!own.is_empty() || subchannel.is_empty()) {
            return Poll::Ready(Err(TransportError::new(TransportFailure::Drained, "the channel is closed")));
        }
        opening.as_mut().poll(cx)
    })
    .await
}

/// Waits for the next attempt; after a failure new calls fail meanwhile, unless they wait for a connection.
async fn back_off(subchannel: &Subchannel, until: Instant, failure: Option<&Status>) {
    let mut sleep = pin!(sleep_until(until));
    poll_fn(|cx| {
        subchannel.register(cx.waker());
        failure.inspect(|status| subchannel.fail_fast(status));
        if subchannel.is_closing() { Poll::Ready(()) } else { sleep.as_mut().poll(cx) }
    })
    .await;
}

/// Task of one connection.
struct ConnectionTask {
    io: Connected,
    inlet: Inlet,
    calls: Multiplexer,
    subchannel: Arc<Subchannel>,
    settings: Arc<Settings>,
    commands: VecDeque<Command>,
    failure: Option<ConnectionError>,
    is_ready: bool,
    /// Servers that are left to try. If there are none, calls are sent before the server's first frame.
    others: usize,
    /// If calls depend on the server's health: its watch, or the pause before the next.
    health: Option<Watch>,
    timer: Pin<Box<Sleep>>,
    lifetime: Lifetime,
    opened_at: Instant,
    read_at: Instant,
    /// Time since which the connection has no calls.
    idle_since: Option<Instant>,
    ping_sent_at: Option<Instant>,
    /// Set while a call waits for the runtime to poll the socket; see [`ConnectionTask::is_stale`].
    looking: Option<JoinHandle<()>>,
    looked_at: Instant,
    /// True once the server takes no more calls, or the connection's time is over: the subchannel uses another
    /// connection, and this one only finishes its calls.
    is_retired: bool,
    /// The server's first bytes were an alert of TLS.
    is_tls: bool,
}

/// The first bytes of an alert: a record of that type, version 3 (RFC 8446 section 5.1).
const TLS_ALERT: [u8; 2] = [0x15, 0x03];

impl ConnectionTask {
    fn new(
        io: Connected,
        subchannel: &Arc<Subchannel>,
        target: &Arc<Target>,
        settings: &Arc<Settings>,
        others: usize,
    ) -> Self {
        let now = Instant::now();
        let lifetime = settings.lifetime();
        Self {
            io,
            inlet: Inlet::default(),
            calls: Multiplexer::new(Arc::clone(target), Arc::clone(settings)),
            subchannel: Arc::clone(subchannel),
            settings: Arc::clone(settings),
            commands: VecDeque::new(),
            failure: None,
            is_ready: false,
            others,
            health: None,
            timer: Box::pin(sleep_until(now)),
            lifetime,
            opened_at: now,
            read_at: now,
            idle_since: None,
            ping_sent_at: None,
            looking: None,
            looked_at: now,
            is_retired: false,
            is_tls: false,
        }
    }

    /// True if the connection has not failed: the subchannel was ready to the end. In round robin one that the server
    /// ends early and before any call has failed, or calls would wait for the server for ever.
    fn was_useful(&self, resumes_at: Option<Instant>) -> bool {
        let now = Instant::now();
        let is_early = resumes_at.is_some_and(|at| now < at) && self.time_ends().is_none_or(|at| now < at);
        self.subchannel.is_ready() && !(is_early && self.calls.is_unused())
    }

    /// True if the connection had no calls for so long that the next call should open another.
    fn is_resting(&self) -> bool {
        self.is_retired && self.idle_ends().is_some_and(|at| at <= self.calls.now)
    }

    /// Runs until the connection ends; calls that have not begun return to the subchannel, for the next connection.
    async fn run(&mut self) -> TransportError {
        let failure = poll_fn(|cx| self.poll(cx)).await;
        let failure = if self.is_tls { TransportError::new(TransportFailure::Tls, ONLY_TLS) } else { failure };
        if self.is_retired {
            self.calls.retire();
        } else {
            self.fail_calls(&failure);
        }
        let waiting = self.calls.take_waiting().into_iter().chain(std::mem::take(&mut self.commands));
        if self.is_ready {
            waiting.for_each(|command| self.subchannel.push(command));
        } else {
            let status = untouched(Status::unavailable(failure.reason().to_owned()).with_transport(failure.clone()));
            waiting.for_each(|command| match command {
                command if command.waits_for_ready() => self.subchannel.push(command),
                command => command.fail(&status),
            });
        }
        failure
    }

    /// Runs until the calls in flight have ended.
    async fn finish(mut self) {
        let failure = poll_fn(|cx| self.poll(cx)).await;
        self.fail_calls(&failure);
    }

    fn fail_calls(&mut self, failure: &TransportError) {
        self.calls.fail_all(&Status::connection_ended(failure.clone()));
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<TransportError> {
        if !self.is_retired {
            self.subchannel.register(cx.waker());
        }
        self.calls.wakes.register(cx.waker());
        self.poll_health(cx);
        // The first resumed caller has made its next call, and others answered by the same read are about to: tokio
        // runs what a task wakes right after it, before them. Yielding once lets all their calls leave in one write.
        if std::mem::take(&mut self.calls.ended) > 1 && !self.subchannel.is_empty() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.calls.now = Instant::now();
        for round in 0.. {
            match self.round(cx) {
                Ok(true) if round < ROUNDS_MAX => {}
                Ok(true) => {
                    cx.waker().wake_by_ref();
                    break;
                }
                Ok(false) => break,
                Err(failure) => return Poll::Ready(failure),
            }
        }
        if !self.is_retired && self.calls.connection.is_going_away() && !self.subchannel.is_closing() {
            self.is_retired = true;
            return Poll::Ready(TransportError::new(TransportFailure::Drained, SERVER_LEAVES));
        }
        self.poll_clock(cx)
    }

    /// Follows the server's health until the connection gets no more calls.
    fn poll_health(&mut self, cx: &mut Context<'_>) {
        let Some(health) = &mut self.health else { return };
        if self.is_retired || self.subchannel.is_closing() {
            self.health = None;
            self.calls.command(Command::Cancel(WATCH));
        } else if let Poll::Ready(again) = health.as_mut().poll(cx) {
            self.health = None;
            if let Some(backoff) = again {
                self.calls.command(Command::Cancel(WATCH));
                self.watch(backoff, cx);
            }
        }
    }

    fn watch(&mut self, backoff: ConnectBackoff, cx: &Context<'_>) {
        let Some(service) = self.settings.service_config.health_check() else { return };
        let (attempt, watch) = health::watch(&self.subchannel, &self.settings, service, backoff);
        self.health = Some(watch);
        self.calls.watch(attempt);
        // It is polled at the beginning of a turn, and this one may read its first report.
        cx.waker().wake_by_ref();
    }

    fn round(&mut self, cx: &mut Context<'_>) -> Result<bool, TransportError> {
        let mut progress = self.read(cx)?;
        if !self.is_retired && !self.is_stale(cx) {
            progress |= self.take_commands();
        }
        progress |= self.calls.poll_woken();
        progress |= self.write(cx)?;
        Ok(progress)
    }

    /// True while a call waits for a check of a connection that has long been silent and has no other call. If the
    /// runtime was paused, a GOAWAY or the connection's end may be unread, and a call sent to a dead server could only
    /// be reported as unknown. A runtime polls its sockets before it resumes a task that has yielded. (With other calls
    /// in flight it has polled them.)
    fn is_stale(&mut self, cx: &mut Context<'_>) -> bool {
        let silence = self.calls.now.duration_since(self.read_at.max(self.looked_at));
        let is_silent = self.is_ready && silence > SILENCE_MAX;
        if !is_silent || self.subchannel.is_empty() || !self.calls.is_idle() {
            self.looking = None;
            return false;
        }
        let looking = self.looking.get_or_insert_with(|| tokio::spawn(tokio::task::yield_now()));
        if Pin::new(looking).poll(cx).is_pending() {
            return true;
        }
        // Pending input has been read by now.
        self.looking = None;
        self.looked_at = self.calls.now;
        false
    }

    fn take_commands(&mut self) -> bool {
        let takes_calls = self.is_ready || self.others == 0;
        // Before the queue is taken: each call that was accepted is in it by then.
        let is_closing = self.subchannel.is_closing();
        if takes_calls {
            self.subchannel.take(&mut self.commands);
        }
        let any = !self.commands.is_empty();
        self.idle_since = self.idle_since.filter(|_| !any);
        while let Some(command) = self.commands.pop_front() {
            self.calls.command(command);
        }
        if is_closing && (takes_calls || self.subchannel.is_empty()) {
            self.calls.drain();
        }
        any
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, TransportError> {
        let calls = &mut self.calls;
        let frame_bytes_max = self.settings.http2.frame_bytes_max as usize;
        let (is_ready, is_tls) = (self.is_ready, &mut self.is_tls);
        let take_in = |input: &mut &[u8]| {
            *is_tls |= !is_ready && input.starts_with(&TLS_ALERT);
            calls.take_in(input)
        };
        let polled = self.inlet.poll_read(&mut self.io, cx, frame_bytes_max, take_in);
        match polled {
            Poll::Pending => Ok(false),
            Poll::Ready(Err(error)) => Err(TransportError::io(TransportFailure::Io, error)),
            Poll::Ready(Ok((0, _))) => Err(TransportError::new(TransportFailure::Closed, "closed by the server")),
            Poll::Ready(Ok((_, taken))) => {
                self.read_at = self.calls.now;
                self.ping_sent_at = self.ping_sent_at.filter(|_| !std::mem::take(&mut self.calls.pong_seen));
                self.failure = self.failure.or(taken.err());
                if let Some(error) = self.failure {
                    // Requests that wait in the output are written before the GOAWAY.
                    self.calls.written = u64::MAX;
                    self.fail_calls(&TransportError::of(TransportFailure::Protocol, error));
                }
                if !self.is_ready && !self.calls.connection.is_awaiting_peer() && self.failure.is_none() {
                    self.is_ready = true;
                    if self.settings.service_config.health_check().is_some() {
                        self.watch(ConnectBackoff::new(&self.settings), cx);
                    } else {
                        self.subchannel.set_state(State::Ready);
                    }
                }
                Ok(true)
            }
        }
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Result<bool, TransportError> {
        let mut progress = false;
        loop {
            self.calls.connection.pump();
            progress |= self.calls.unblock();
            let output = self.calls.connection.output();
            if output.is_empty() {
                break;
            }
            match poll_write(&mut self.io, cx, output) {
                Poll::Ready(Ok(0)) | Poll::Pending => return Ok(progress),
                Poll::Ready(Ok(count)) => {
                    self.calls.written = self.calls.written.saturating_add(count as u64);
                    progress = true;
                }
                Poll::Ready(Err(error)) => {
                    // Anything may have left before the error.
                    self.calls.written = u64::MAX;
                    return Err(TransportError::io(TransportFailure::Io, error));
                }
            }
        }
        if let Some(error) = self.failure {
            return Err(TransportError::of(TransportFailure::Protocol, error));
        }
        if self.calls.connection.is_drained() && self.calls.is_idle() {
            let _ = Pin::new(&mut self.io).poll_shutdown(cx);
            return Err(TransportError::new(TransportFailure::Drained, SERVER_LEAVES));
        }
        Ok(progress)
    }

    /// Time at which the connection gets no more calls: it is old, or has long had none.
    fn retires_at(&mut self) -> Option<Instant> {
        if !self.is_ready || self.is_retired || self.subchannel.is_closing() {
            return None;
        }
        self.idle_since = self.calls.is_idle().then(|| self.idle_since.unwrap_or(self.calls.now));
        self.time_ends()
    }

    fn idle_ends(&self) -> Option<Instant> {
        self.idle_since?.checked_add(self.lifetime.idle_max?)
    }

    fn time_ends(&self) -> Option<Instant> {
        let age_ends = self.lifetime.age_max.and_then(|age| self.opened_at.checked_add(age));
        [self.idle_ends(), age_ends].into_iter().flatten().min()
    }

    fn poll_clock(&mut self, cx: &mut Context<'_>) -> Poll<TransportError> {
        loop {
            let now = self.calls.now;
            let retires_at = self.retires_at();
            if retires_at.is_some_and(|at| at <= now) {
                self.calls.connection.drain();
                self.is_retired = true;
                return Poll::Ready(TransportError::new(TransportFailure::Drained, "its time was over"));
            }
            let handshake_ends = (!self.is_ready).then(|| self.opened_at + self.settings.connect_timeout);
            if handshake_ends.is_some_and(|at| at <= now) {
                let text = "no answer from the server in time";
                return Poll::Ready(TransportError::new(TransportFailure::Timeout, text));
            }
            let answer_due = self.ping_sent_at.map(|at| at + self.settings.keepalive_timeout);
            if answer_due.is_some_and(|at| at <= now) {
                return Poll::Ready(TransportError::new(TransportFailure::Keepalive, "no answer to a keepalive ping"));
            }
            let interval = self.settings.keepalive_interval.filter(|_| self.ping_sent_at.is_none());
            let ping_due = interval
                .filter(|_| !self.calls.is_idle() || self.calls.has_watch())
                .map(|interval| self.read_at + interval);
            if ping_due.is_some_and(|at| at <= now) {
                self.calls.connection.ping(KEEPALIVE);
                self.ping_sent_at = Some(now);
                if let Err(failure) = self.write(cx) {
                    return Poll::Ready(failure);
                }
                continue;
            }
            let soonest = [handshake_ends, answer_due, ping_due, retires_at].into_iter().flatten().min();
            let wake_at = soonest.unwrap_or(now + Duration::from_hours(1));
            if wake_at < self.timer.deadline() || self.timer.is_elapsed() {
                self.timer.as_mut().reset(wake_at);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.calls.now = Instant::now();
        }
    }
}
