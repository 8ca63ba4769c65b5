//! The task of one connection: reads, handles, writes, and timers.
//!
//! One round reads available bytes, handles every frame, polls the handlers that became ready, and writes all answers
//! at once.
//!
//! Implements: RFC 9113 sections 6.7 (PING, for keepalive) and 6.8 (GOAWAY, for the drain).

mod calls;
pub(crate) mod in_flight;
pub(crate) mod time_slice;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use quire_http2::ConnectionError;
use quire_net::Standing;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep};

use crate::envelope::Peer;
use crate::io::{Inlet, give_back, lend, poll_write, read_failed};
use crate::lifetime::Lifetime;
use crate::server::accept::role::{Draining, Role};
use crate::server::call::Shared;
use crate::server::limits::Limits;
use crate::server::memory::{self, Charge};
use crate::server::registry::Turn;
use calls::Calls;

/// Time for the peer to read our last bytes and close.
const LINGER: Duration = Duration::from_secs(1);
/// Time for a peer without calls to acknowledge the first GOAWAY of a drain, and for a new one to begin. A process that
/// is busy elsewhere does not read; the second GOAWAY lists later which of its calls were not begun.
pub(crate) const DRAIN_ANSWER_MAX: Duration = Duration::from_millis(500);
/// Payload of our keepalive PING.
const KEEPALIVE: [u8; 8] = *b"alive\0\0\0";

enum Stage {
    Open,
    /// Everything is written; the peer has until then to close.
    Lingering(Instant),
}

pub(crate) struct Driver<T> {
    io: T,
    inlet: Inlet,
    calls: Calls,
    limits: Arc<Limits>,
    lifetime: Lifetime,
    stage: Stage,
    failure: Option<ConnectionError>,
    timer: Pin<Box<Sleep>>,
    draining: Option<Draining>,
    standing: Arc<Standing>,
    opened_at: Instant,
    read_at: Instant,
    busy_at: Instant,
    ping_sent_at: Option<Instant>,
    /// Start of the time in which the peer accepted no output.
    stuck_since: Option<Instant>,
    /// Deadline of the drain.
    cut_at: Option<Instant>,
    /// End of the drain for a peer without calls that has not answered.
    unanswered_at: Option<Instant>,
    /// Next check for stalled streams.
    stall_check_at: Instant,
    charge: Charge,
    /// Bytes read and written so far.
    moved: u64,
    /// Of these, the written ones.
    written: u64,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Driver<T> {
    pub(crate) fn boxed(io: T, first_bytes: Vec<u8>, shared: Arc<Shared>, peer: Arc<Peer>, role: Role) -> Box<Self> {
        let now = Instant::now();
        let charge = shared.limits.memory.charge(peer.address);
        let lifetime = shared.limits.lifetime();
        Box::new(Self {
            io,
            inlet: Inlet::new(first_bytes),
            limits: Arc::clone(&shared.limits),
            lifetime,
            calls: Calls::new(shared, peer, role.refusing, charge.lender()),
            charge,
            stage: Stage::Open,
            failure: None,
            timer: Box::pin(tokio::time::sleep_until(now)),
            draining: Some(role.draining),
            standing: role.standing,
            opened_at: now,
            read_at: now,
            busy_at: now,
            ping_sent_at: None,
            stuck_since: None,
            cut_at: None,
            unanswered_at: None,
            stall_check_at: now,
            moved: 0,
            written: 0,
        })
    }

    /// Runs the connection to its end; returns the reason, for a log.
    pub(crate) async fn run(mut self: Box<Self>) -> String {
        let driver = &mut *self;
        let first = driver.inlet.begin(|input| driver.calls.take_in(input));
        self.failure = first.err();
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        if self.charge.is_cut() {
            return Poll::Ready(memory::CUT.to_owned());
        }
        self.calls.wakes.register(cx.waker());
        self.calls.now = Instant::now();
        time_slice::begin();
        lend(self.calls.connection.output());
        if let Some(draining) = &mut self.draining
            && draining.as_mut().poll(cx).is_ready()
        {
            self.draining = None;
            self.drain();
            if self.standing.is_leaving() && !self.calls.is_busy() {
                // It waits for nothing but its peer, and another waits for what it holds.
                self.unanswered_at = Some(self.calls.now);
                self.cut_at = self.calls.now.checked_add(LINGER);
            }
        }
        loop {
            match self.round(cx) {
                Ok(true) if time_slice::is_over() => {
                    time_slice::yield_now(cx);
                    break;
                }
                Ok(true) => {}
                Ok(false) => break,
                Err(reason) => return Poll::Ready(reason),
            }
        }
        give_back(self.calls.connection.output());
        let held = self.calls.held_bytes(self.moved) + self.inlet.held_bytes();
        self.note_turn(held);
        let is_lent = self.calls.connection.lent_bytes_total() > 0;
        if is_lent || held > 0 {
            self.charge.belongs_to(self.calls.caller.client());
        }
        if is_lent {
            self.charge.set_with_shared(held, cx.waker());
        } else {
            self.charge.set(held, cx.waker());
        }
        if self.charge.is_cut() {
            return Poll::Ready(memory::CUT.to_owned());
        }
        self.poll_clock(cx)
    }

    /// Notes the figures of the turn that ends, for operators.
    fn note_turn(&self, held_bytes: usize) {
        let Some(listed) = &self.calls.peer.connection else { return };
        listed.note_client(self.calls.caller.client());
        let turn = Turn {
            bytes_read: self.moved - self.written,
            bytes_written: self.written,
            calls_in_flight: self.calls.active,
            buffered_bytes: held_bytes + self.calls.connection.lent_bytes_total(),
        };
        listed.note(turn, self.calls.now);
    }

    /// Runs one round; true if anything happened.
    fn round(&mut self, cx: &mut Context<'_>) -> Result<bool, String> {
        let mut progress = self.read(cx)?;
        if self.failure.is_some() {
            // A handler that answers a closed stream would face no backpressure.
            self.calls.cancel_all();
        }
        progress |= self.calls.poll_woken();
        progress |= self.write(cx)?;
        Ok(progress)
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, String> {
        // Backpressure: nothing is read from a peer that does not read our answers.
        if self.calls.connection.output().len() >= self.limits.output_bytes_max {
            return Ok(false);
        }
        let (calls, failed) = (&mut self.calls, self.failure.is_some());
        let is_interrupted = calls.pace.is_interrupted;
        let take_in = |input: &mut &[u8]| {
            if failed {
                *input = &[];
                return Ok(());
            }
            // Excludes earlier rounds of the poll, and the read itself, from the calls' time.
            calls.now = Instant::now();
            calls.take_in(input)
        };
        if is_interrupted {
            let taken = self.inlet.begin(take_in);
            self.failure = self.failure.or(taken.err());
            return Ok(true);
        }
        let frame_bytes_max = self.limits.http2.frame_bytes_max as usize;
        match self.inlet.poll_read(&mut self.io, cx, frame_bytes_max, take_in) {
            Poll::Pending => Ok(false),
            Poll::Ready(Err(error)) => Err(read_failed(&error)),
            Poll::Ready(Ok((0, _))) => Err("closed by the peer".to_owned()),
            Poll::Ready(Ok((count, taken))) => {
                self.moved += count as u64;
                self.read_at = self.calls.now;
                self.ping_sent_at = self.ping_sent_at.filter(|_| !std::mem::take(&mut self.calls.pong_seen));
                self.failure = self.failure.or(taken.err());
                Ok(true)
            }
        }
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Result<bool, String> {
        let mut progress = false;
        self.calls.report();
        loop {
            self.calls.connection.pump();
            progress |= self.calls.poll_unblocked();
            let output = self.calls.connection.output();
            if output.is_empty() {
                self.stuck_since = None;
                break;
            }
            match poll_write(&mut self.io, cx, output) {
                Poll::Ready(Ok(0)) | Poll::Pending => {
                    self.stuck_since.get_or_insert(self.calls.now);
                    return Ok(progress);
                }
                Poll::Ready(Ok(count)) => {
                    progress = true;
                    self.moved += count as u64;
                    self.written += count as u64;
                    self.stuck_since = None;
                }
                Poll::Ready(Err(error)) => return Err(format!("write: {error}")),
            }
        }
        if matches!(self.stage, Stage::Open) && (self.failure.is_some() || self.calls.connection.is_drained()) {
            if Pin::new(&mut self.io).poll_shutdown(cx).is_ready() {
                self.stage = Stage::Lingering(self.calls.now + LINGER);
            }
            progress = true;
        }
        Ok(progress)
    }

    fn drain(&mut self) {
        if self.cut_at.is_none() {
            self.calls.connection.drain();
            self.cut_at = self.calls.now.checked_add(self.limits.drain_timeout);
            self.unanswered_at = self.calls.now.checked_add(DRAIN_ANSWER_MAX);
        }
    }

    /// Handles due timers, and arms the next.
    fn poll_clock(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        loop {
            if let Err(reason) = self.clock().and_then(|()| self.write(cx)) {
                return Poll::Ready(reason);
            }
            let wake_at = self.next_time();
            if wake_at < self.timer.deadline() || self.timer.is_elapsed() {
                self.timer.as_mut().reset(wake_at);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.calls.now = Instant::now();
        }
    }

    fn clock(&mut self) -> Result<(), String> {
        let now = self.calls.now;
        self.standing.note(self.calls.is_busy(), now);
        let reached = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if let Stage::Lingering(until) = self.stage {
            return if until <= now { Err(self.reason()) } else { Ok(()) };
        }
        if reached(self.cut_at) {
            return Err("cut off when the drain's time was up".to_owned());
        }
        if reached(after(self.stuck_since, self.limits.write_timeout)) {
            return Err("the peer does not read".to_owned());
        }
        if reached(after(self.ping_sent_at, self.limits.keepalive_timeout)) {
            return Err("no answer to a keepalive ping".to_owned());
        }
        if !self.calls.is_idle() {
            self.busy_at = now;
        } else if reached(self.unanswered_at) {
            self.unanswered_at = None;
            self.calls.connection.drain_now();
        }
        self.calls.expire();
        self.reset_stalled();
        let now_ms = self.calls.elapsed_ms();
        if let Err(error) = self.calls.connection.tick(now_ms) {
            self.failure = self.failure.or(Some(error));
        }
        if reached(self.ping_due()) {
            self.calls.connection.ping(KEEPALIVE);
            self.ping_sent_at = Some(now);
            self.calls.connection.output().shrink();
        }
        let too_old = reached(after(Some(self.opened_at), self.lifetime.age_max));
        let too_idle = self.calls.is_idle() && reached(after(Some(self.busy_at), self.lifetime.idle_max));
        if too_old || too_idle {
            self.drain();
        }
        Ok(())
    }

    /// Resets streams whose peer accepts nothing of their pending data, even if it accepts other streams' data.
    fn reset_stalled(&mut self) {
        let now = self.calls.now;
        if self.calls.connection.queued_bytes_total() == 0 || now < self.stall_check_at {
            return;
        }
        let timeout = self.limits.stream_stall_timeout;
        self.stall_check_at = now + timeout / 4;
        let allowed_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        if let Some(since_ms) = self.calls.elapsed_ms().checked_sub(allowed_ms) {
            self.calls.reset_stalled(since_ms);
        }
    }

    fn ping_due(&self) -> Option<Instant> {
        if self.ping_sent_at.is_some() {
            return None;
        }
        after(Some(self.read_at), self.limits.keepalive_interval)
    }

    fn next_time(&self) -> Instant {
        if let Stage::Lingering(until) = self.stage {
            return until;
        }
        let handshake = Duration::from_millis(self.limits.http2.handshake_ms_max / 2 + 1);
        let open = self.cut_at.is_none();
        let times = [
            self.cut_at,
            self.unanswered_at.filter(|_| self.calls.is_idle()),
            after(self.stuck_since, self.limits.write_timeout),
            after(self.ping_sent_at, self.limits.keepalive_timeout),
            self.ping_due(),
            (self.calls.connection.queued_bytes_total() > 0).then_some(self.stall_check_at),
            self.calls.earliest_deadline,
            self.calls.connection.is_awaiting_peer().then(|| self.calls.now + handshake),
            after(Some(self.opened_at), self.lifetime.age_max).filter(|_| open),
            after(Some(self.busy_at), self.lifetime.idle_max).filter(|_| open),
        ];
        let far = self.calls.now + Duration::from_hours(1);
        let soonest = times.into_iter().flatten().min().unwrap_or(far);
        // A past idle time is checked again once the calls may have ended.
        soonest.max(self.calls.now + Duration::from_millis(1))
    }

    fn reason(&self) -> String {
        match self.failure {
            Some(error) => error.to_string(),
            None => "drained".to_owned(),
        }
    }
}

fn after(start: Option<Instant>, allowed: impl Into<Option<Duration>>) -> Option<Instant> {
    start?.checked_add(allowed.into()?)
}
