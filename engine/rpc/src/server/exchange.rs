//! One call as request and response of the `http` crate, on a connection managed elsewhere: by hyper's HTTP/1.1, or by
//! the server around a tower service.
//!
//! Counterpart of `Calls` for a single call.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Extensions;
use quire_http2::Head;
use tokio::time::{Instant, Sleep, sleep_until};

use super::discard::REFUSED_BYTES_MAX;
use super::http_calls::{self, Unserved};
use super::memory::Charge;
use super::method::{Incoming, Intake, Started};
use super::observer::{self, CallReport};
use super::origin::Origin;
use super::plan::CallPlan;
use super::reply::{Reply, ReplyState, Templates};
use super::running::Running;
use super::shared::Shared;
use super::shares::{CallPlaces, Caller, Client};
use super::sink::{Outbox, Sink};
use super::slot::Feed;
use crate::body::Body;
use crate::envelope::{Peer, Request};
use crate::interceptor::Ending;
use crate::message::{Assembler, Framed};
use crate::protocol::Dialect;
use crate::status::{Code, Status};
use crate::transcode::Reading;
use crate::wake::WakeSet;

/// Longest time an answer waits for the end of its request.
const LINGER: Duration = Duration::from_secs(1);

/// Answer to a request that reaches no handler.
pub(super) enum Refused {
    Call(Status),
    Http(Unserved),
    Preflight,
}

/// Plan for a request that is a call, or a refused one.
pub(super) struct Task {
    pub(super) dialect: Dialect,
    /// The call, and its message if it came in the head.
    pub(super) call: Result<(CallPlan, Option<Bytes>), Refused>,
}

/// State of the request.
pub(super) enum Stage {
    /// The handler needs the whole message.
    Gathering(Assembler, Option<Framed<Bytes>>),
    Running(Box<dyn Running>, Feed),
    Over,
}

/// A call from head to end; also the body of its response.
pub(super) struct Exchange {
    pub(super) shared: Arc<Shared>,
    peer: Arc<Peer>,
    pub(super) head: Arc<Head>,
    /// Memory that the head holds.
    pub(super) head_bytes: usize,
    extensions: Extensions,
    /// The request without its message, once the interceptors have accepted it.
    request: Option<Box<Request<()>>>,
    pub(super) plan: Option<CallPlan>,
    pub(super) stage: Stage,
    pub(super) body: Body,
    pub(super) body_is_over: bool,
    /// Request bytes that may still be discarded after the answer, so that the client can finish.
    pub(super) discard_bytes: usize,
    /// Woken by a stream's handler; each poll sets the task.
    pub(super) wakes: Option<Arc<WakeSet>>,
    /// Request bytes held by the call, in the memory account.
    pub(super) charge: Charge,
    /// The connection already counts the call.
    is_counted: bool,
    places: Option<CallPlaces>,
    pub(super) state: ReplyState,
    templates: Templates,
    pub(super) outbox: Outbox,
    started_at: Instant,
    pub(super) timer: Pin<Box<Sleep>>,
    /// Ends the call from outside.
    ending: Option<Ending>,
    is_reported: bool,
}

impl Exchange {
    /// Begins the call of a request with this `head`.
    pub(super) fn begin(
        shared: &Arc<Shared>,
        peer: &Arc<Peer>,
        task: Task,
        head: Arc<Head>,
        request: http::Request<Body>,
    ) -> Box<Self> {
        let (parts, body) = request.into_parts();
        let Task { dialect, call } = task;
        let plan = call.as_ref().ok().map(|(plan, _)| *plan);
        let started_at = Instant::now();
        let allowed = shared.limits.request_timeout;
        let allowed = plan.and_then(|plan| plan.terms.timeout).map_or(allowed, |timeout| timeout.min(allowed));
        let mut exchange = Box::new(Self {
            shared: Arc::clone(shared),
            peer: Arc::clone(peer),
            state: shared.bare(dialect, &head),
            head_bytes: head.fields().iter().map(|field| field.name().len() + field.value().len()).sum(),
            head,
            extensions: parts.extensions,
            request: None,
            plan,
            stage: Stage::Over,
            body,
            body_is_over: false,
            // An HTTP/1.1 client that is still sending may not read the answer, and take the close for a reset.
            discard_bytes: if parts.version < http::Version::HTTP_2 { shared.limits.discarded_bytes_max } else { 0 },
            wakes: None,
            charge: shared.limits.memory.charge(peer.address),
            is_counted: false,
            places: None,
            templates: Templates::default(),
            outbox: Outbox::default(),
            started_at,
            timer: Box::pin(sleep_until(started_at.checked_add(allowed).unwrap_or(started_at))),
            ending: None,
            is_reported: false,
        });
        match call {
            Ok((plan, None)) => exchange.stage = Stage::Gathering(Assembler::of(plan.dialect.framing()), None),
            Ok((plan, Some(bytes))) => {
                let framed = Framed { compressed: plan.terms.encoding.is_some(), bytes };
                exchange.stage = Stage::Gathering(Assembler::default(), Some(framed));
            }
            Err(Refused::Call(status)) => exchange.refuse(&status),
            Err(Refused::Http(why)) => {
                http_calls::refuse(&mut exchange.reply(), why);
                exchange.end_uncalled();
            }
            Err(Refused::Preflight) => {
                let head = Arc::clone(&exchange.head);
                exchange.reply().preflight(&head, &shared.cors);
                exchange.end_uncalled();
            }
        }
        exchange
    }

    /// Marks the call as counted by its connection.
    #[cfg(feature = "tower")]
    pub(super) fn counted(mut self: Box<Self>) -> Box<Self> {
        self.is_counted = true;
        self
    }

    /// Ends the call with a failure in any state; `is_reported` if that was reported elsewhere.
    #[cfg(feature = "tower")]
    pub(super) fn refused(mut self: Box<Self>, status: &Status, is_reported: bool) -> Box<Self> {
        self.is_reported |= is_reported;
        self.refuse(status);
        self
    }

    /// Runs until the outbox has something; pending if there is nothing to do.
    pub(super) fn poll_on(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(wakes) = &self.wakes {
            wakes.register(cx.waker());
        }
        loop {
            if self.outbox.head.is_some() || !self.outbox.body.is_empty() || self.outbox.is_ended {
                return Poll::Ready(());
            }
            if self.timer.as_mut().poll(cx).is_ready() {
                self.refuse(&Status::deadline_exceeded("time is up"));
                continue;
            }
            if let Some(ending) = &mut self.ending
                && let Poll::Ready(status) = ending.as_mut().poll(cx)
            {
                self.refuse(&status);
                continue;
            }
            let mut progress = self.read(cx);
            if let Stage::Running(running, _) = &mut self.stage {
                let mut reply = Reply {
                    sink: Sink::Outbox(&mut self.outbox),
                    templates: &mut self.templates,
                    state: &mut self.state,
                    output_bytes_max: self.shared.limits.output_bytes_max,
                };
                match catch_unwind(AssertUnwindSafe(|| running.poll(cx, &mut reply))) {
                    Ok(Poll::Pending) => {}
                    Ok(Poll::Ready(())) => self.end(),
                    Err(_) => self.refuse(&Status::internal("the handler panicked")),
                }
                progress |= !self.outbox.body.is_empty();
            }
            self.account(cx);
            if !progress && self.outbox.head.is_none() && !self.outbox.is_ended {
                return Poll::Pending;
            }
        }
    }

    pub(super) fn refuse_for(&mut self, limit: observer::Refusal) {
        self.shared.observer.refused(limit);
        let status = self.shared.limits.refusal(limit);
        self.refuse(&status);
    }

    fn deadline(&self, plan: &CallPlan) -> Option<Instant> {
        plan.terms.timeout.and_then(|timeout| self.started_at.checked_add(timeout))
    }

    /// Runs the interceptors on the head, before the body is read; true if they accept it.
    pub(super) fn is_let_in(&mut self) -> bool {
        let Some(plan) = self.plan else { return false };
        if self.request.is_some() {
            return true;
        }
        let origin = Origin::new(plan.accepted(), &self.head, self.deadline(&plan), &self.peer);
        let mut request = origin.request(());
        *request.extensions_mut() = std::mem::take(&mut self.extensions);
        match self.shared.intercept(&plan, request) {
            Ok(request) => self.request = Some(Box::new(request)),
            Err(status) => {
                // Reading the body would make a client that sent `Expect` send it.
                let asks = self.head.get(b"expect").is_some();
                self.discard_bytes = self.discard_bytes.min(if asks { 0 } else { REFUSED_BYTES_MAX });
                self.refuse(&status);
            }
        }
        self.request.is_some()
    }

    pub(super) fn start(&mut self, cx: &mut Context<'_>, intake: Intake<'_>, feed: Feed) {
        let Some(plan) = self.plan else { return };
        let deadline = self.deadline(&plan);
        let far = self.started_at + Duration::from_hours(24 * 365);
        self.timer.as_mut().reset(deadline.unwrap_or(far));
        let _ = self.timer.as_mut().poll(cx);
        let request = self.request.take();
        let mut caller = Caller::new(request.as_deref().map(Client::of).unwrap_or_default());
        if !self.is_counted
            && let Some(limit) = self.shared.calls_limit(&mut caller, Some(plan.method))
        {
            return self.refuse(&self.shared.limits.refusal(limit));
        }
        let (request_json, answer_json) = match plan.json(&self.shared.routes) {
            Ok(json) => json.unzip(),
            Err(status) => return self.refuse(&status),
        };
        let origin = self.shared.cors.allowed(&self.head);
        self.state = ReplyState::new(plan.dialect, answer_json, self.shared.compression_for(&plan), origin);
        let (head, peer) = (Arc::clone(&self.head), Arc::clone(&self.peer));
        self.ending = self.shared.ending(&plan, request.as_deref());
        let mut incoming = Incoming {
            origin: Origin::new(plan.accepted(), &head, deadline, &peer),
            request,
            intake,
            reading: Reading {
                encoding: plan.terms.encoding,
                json: request_json,
                message_bytes_max: self.shared.limits.message_bytes_max,
                budget: plan.terms.encoding.map(|_| Arc::clone(&self.peer.budget)),
            },
        };
        let handler = Arc::clone(&self.shared.routes.table[plan.method].handler);
        let mut reply = self.reply();
        match catch_unwind(AssertUnwindSafe(|| handler.start(None, &mut incoming, cx, &mut reply))) {
            Ok(Started::Running(running)) => {
                self.places = (!self.is_counted).then(|| self.shared.call_places(&mut caller, Some(plan.method)));
                self.stage = Stage::Running(running, feed);
            }
            Ok(Started::Done(_)) => self.end(),
            Err(_) => self.refuse(&Status::internal("the handler panicked")),
        }
    }

    /// Ends the call with a failure.
    pub(super) fn refuse(&mut self, status: &Status) {
        self.reply().finish(status);
        self.end();
    }

    fn reply(&mut self) -> Reply<'_> {
        Reply {
            sink: Sink::Outbox(&mut self.outbox),
            templates: &mut self.templates,
            state: &mut self.state,
            output_bytes_max: self.shared.limits.output_bytes_max,
        }
    }

    /// Ends a request that is no call.
    fn end_uncalled(&mut self) {
        self.is_reported = true;
        self.end();
    }

    fn end(&mut self) {
        self.outbox.is_ended = true;
        self.ending = None;
        self.timer.as_mut().reset(Instant::now() + LINGER);
        self.report(self.state.code);
    }

    fn report(&mut self, code: Code) {
        self.stage = Stage::Over;
        self.places = None;
        if std::mem::replace(&mut self.is_reported, true) {
            return;
        }
        let method = self.plan.map(|plan| plan.method);
        let path = method.map_or("unknown", |method| &self.shared.routes.table[method].path);
        let elapsed = self.started_at.elapsed();
        self.shared.observer.call_finished(&CallReport { method, path, code, elapsed });
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.report(Code::Cancelled);
    }
}
