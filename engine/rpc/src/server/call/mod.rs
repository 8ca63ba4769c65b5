//! The life of a call, the same on every transport: admitted by its head, started, polled, and reported at its end.
//!
//! A transport moves the bytes and keeps the call between two polls: `Calls` for HTTP/2, `Exchange` for the `http`
//! crate. A handler that panics fails its own call with `INTERNAL`; the connection and its other calls go on.
//!
//! Implements: gRPC over HTTP/2, "Timeout" and "Status".

pub(crate) mod plan;
pub(crate) mod request;
pub(crate) mod running;
pub(crate) mod service;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Extensions;
use quire_http2::Head;
use tokio::time::Instant;
#[cfg(feature = "tls")]
use tokio_rustls::rustls::ServerConfig;

use crate::body::HttpService;
use crate::envelope::{Peer, Request};
use crate::interceptor::{Ending, Until};
use crate::message::codec::Payload;
use crate::message::compression::Encoding;
use crate::message::framing::Framed;
use crate::message::transcode::{Json, Reading};
use crate::protocol::Dialect;
use crate::server::browser::{Cors, Hosts};
use crate::server::limits::Limits;
use crate::server::observer::{CallReport, Notes, Observer, Refusal};
use crate::server::registry::ConnectionRegistry;
use crate::server::reply::sink::Sink;
use crate::server::reply::{Reply, ReplyState, Templates};
#[cfg(feature = "channelz")]
use crate::server::shown_servers::ShownServer;
use crate::status::{Code, Status};
use plan::{Route, Routes};
use quire_net::Permits;
use quire_net::{CallPermits, Caller, Shares};
use request::{CallHead, CallPlan, Feed, Gathering, Intake};
use running::Running;
use service::{Incoming, Started};

/// State shared by all connections of a server.
pub(crate) struct Shared {
    pub(crate) routes: Routes,
    pub(crate) limits: Arc<Limits>,
    pub(crate) observer: Arc<dyn Observer>,
    /// [`Observer::wants_details`].
    pub(crate) wants_details: Arc<AtomicBool>,
    /// [`Observer::wants_traces`].
    pub(crate) has_traces: bool,
    pub(crate) http: Option<Arc<dyn HttpService>>,
    /// The layers around calls, if any.
    pub(crate) layered: Option<Arc<dyn HttpService>>,
    pub(crate) compression: Option<(Encoding, usize)>,
    pub(crate) cors: Cors,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) permits: Permits,
    pub(crate) connections: ConnectionRegistry,
    /// Set if the channelz service shows the server.
    #[cfg(feature = "channelz")]
    pub(crate) shown: Option<Arc<ShownServer>>,
    pub(crate) hosts: Hosts,
    /// Paths answered even on excess connections, such as health.
    pub(crate) always: Vec<String>,
    /// Paths of calls that free memory.
    pub(crate) freeing: Vec<String>,
    /// Shares of the waiting calls, over all connections.
    pub(crate) calls: Shares,
}

/// A call that may start.
pub(crate) struct Admitted {
    request: Option<Box<Request<()>>>,
    request_json: Option<Json>,
    answer_json: Option<Json>,
    /// Ends the call from outside.
    pub(crate) ending: Option<Ending>,
}

/// A call that may not start.
pub(crate) struct Rejected {
    pub(crate) status: Status,
    /// An interceptor rejected it: little of its body is worth reading.
    pub(crate) is_by_interceptor: bool,
}

impl From<Status> for Rejected {
    fn from(status: Status) -> Self {
        Self { status, is_by_interceptor: false }
    }
}

/// A started call that waits for something.
pub(crate) struct Active {
    /// The method's number; `None` for other HTTP.
    pub(crate) method: Option<usize>,
    pub(crate) running: Box<dyn Running>,
    pub(crate) reply: ReplyState,
    pub(crate) feed: Feed,
    /// Bytes received and not yet returned to the stream's window.
    pub(crate) unreleased: usize,
    pub(crate) deadline: Option<Instant>,
    /// Limit on the time between messages of a stream.
    pub(crate) quiet: Option<Quiet>,
    /// Ends the call from outside.
    pub(crate) ending: Option<Ending>,
    /// Counts the call among those that wait.
    pub(crate) shares: Option<CallPermits>,
}

/// Time that a stream may be without a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quiet {
    allowed: Duration,
    until: Instant,
}

impl Active {
    /// Time at which the call ends unless a message comes or goes.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.deadline.into_iter().chain(self.quiet.map(|quiet| quiet.until)).min()
    }

    /// Notes that a message came in or, by the state of the answer, went out.
    #[inline]
    pub(crate) fn note_messages(&mut self, came_in: bool, now: Instant) {
        if let Some(quiet) = &mut self.quiet
            && (std::mem::take(&mut self.reply.has_sent) | came_in)
        {
            quiet.until = now.checked_add(quiet.allowed).unwrap_or(quiet.until);
        }
    }

    /// Status of a call that is due.
    pub(crate) fn overdue(&self) -> Status {
        match self.quiet {
            Some(quiet) if self.deadline.is_none_or(|deadline| quiet.until < deadline) => {
                Status::deadline_exceeded(format!("the stream had no message for {:?}", quiet.allowed))
            }
            _ => time_is_up(),
        }
    }

    /// Polls the call; ready once it is answered.
    pub(crate) fn poll(
        &mut self,
        sink: Sink<'_>,
        templates: &mut Templates,
        output_bytes_max: usize,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let mut reply = Reply { sink, templates, state: &mut self.reply, output_bytes_max };
        if let Poll::Ready(status) = poll_ending(&mut self.ending, cx) {
            reply.finish(&status);
            return Poll::Ready(());
        }
        let running = &mut self.running;
        catch_unwind(AssertUnwindSafe(|| running.poll(cx, &mut reply))).unwrap_or_else(|_| {
            fail_panicked(&mut reply);
            Poll::Ready(())
        })
    }

    /// Bytes of the request and the answer that wait for their reader.
    pub(crate) fn held_bytes(&self) -> usize {
        self.feed.unread_bytes() + self.running.held_bytes()
    }
}

impl Shared {
    /// True for paths answered even on excess connections.
    pub(crate) fn is_always_answered(&self, path: &[u8]) -> bool {
        self.always.iter().any(|always| always.as_bytes() == path)
    }

    /// True for paths answered even while memory is full.
    pub(crate) fn is_answered_when_full(&self, path: &[u8]) -> bool {
        self.is_always_answered(path) || self.freeing.iter().any(|freeing| freeing.as_bytes() == path)
    }

    /// State of an answer without messages.
    pub(crate) fn bare(&self, dialect: Dialect, head: &Head) -> ReplyState {
        ReplyState::new(dialect, None, None, self.cors.allowed(head))
    }

    /// True if calls that begin now may have details.
    #[inline]
    pub(crate) fn may_note(&self) -> bool {
        self.has_traces || self.wants_details.load(Relaxed)
    }

    /// Begins the details of a call, or of another request, if the observer wants them.
    pub(crate) fn notes(&self, head: &Arc<Head>, is_call: bool, now: Instant) -> Option<Box<Notes>> {
        let traced = (self.has_traces && is_call).then(|| Notes::traced(head, &*self.observer, now)).flatten();
        let notes = traced.or_else(|| self.wants_details.load(Relaxed).then(|| Notes::new(Arc::clone(head), now)));
        notes.map(Box::new)
    }

    /// The request without its message, after the interceptors; `None` if it holds nothing beyond the head.
    #[inline]
    pub(crate) fn intercept(
        &self,
        call: &CallHead<'_>,
        extensions: Extensions,
    ) -> Result<Option<Box<Request<()>>>, Rejected> {
        let route = &self.routes.table[call.plan.method];
        if route.interceptors.is_empty() && extensions.is_empty() {
            return Ok(None);
        }
        let mut request = call.request(());
        *request.extensions_mut() = extensions;
        match intercepted(route, request) {
            Ok(request) => Ok(Some(Box::new(request))),
            Err(status) => Err(Rejected { status, is_by_interceptor: true }),
        }
    }

    /// Time by which a request must be complete if its handler needs it whole.
    pub(crate) fn request_deadline(&self, plan: Option<&CallPlan>, now: Instant) -> Instant {
        let allowed = self.limits.request_timeout;
        let allowed = plan.and_then(|plan| plan.terms.timeout).map_or(allowed, |timeout| timeout.min(allowed));
        now.checked_add(allowed).unwrap_or(now)
    }

    /// Takes body data of an incomplete request; returns its message at the end.
    #[inline]
    pub(crate) fn gather<'a>(
        &self,
        gathering: &mut Gathering,
        data: &'a [u8],
        end: bool,
    ) -> Result<Option<Framed<Payload<'a>>>, Status> {
        gathering.push(data, end, self.limits.message_bytes_max).map_err(|status| match status.code() {
            Code::ResourceExhausted => self.refusal(Refusal::MessageBytes),
            _ => status,
        })
    }

    /// Limit that ends incomplete requests of together `held_bytes`, if any.
    pub(crate) fn gathered_limit(&self, path: &[u8], held_bytes: usize) -> Option<Refusal> {
        if held_bytes > self.limits.gathered_bytes_max {
            return Some(Refusal::GatheredBytes);
        }
        if held_bytes == 0 { None } else { self.memory_limit(path, held_bytes) }
    }

    /// Memory limit that refuses work to a connection with `held_bytes`. Health and metrics report the limit, and other
    /// calls free memory, so they are exempt unless they are what fills it.
    #[inline]
    pub(crate) fn memory_limit(&self, path: &[u8], held_bytes: usize) -> Option<Refusal> {
        let limit = self.limits.memory.refusal(held_bytes)?;
        let is_exempt = held_bytes < self.limits.unread_bytes_max && self.is_answered_when_full(path);
        (!is_exempt).then_some(limit)
    }

    /// Status of a call that a limit refuses, which is reported.
    pub(crate) fn refusal(&self, limit: Refusal) -> Status {
        self.observer.refused(limit);
        self.limits.refusal(limit)
    }

    /// Admits a call whose message, or message stream, is available. `request` has passed the interceptors; if there is
    /// none, one with these `extensions` does. Without `caller` the call is counted elsewhere.
    #[expect(clippy::inline_always, reason = "it is most of what a short call costs, and has two callers")]
    #[inline(always)]
    pub(crate) fn admit(
        &self,
        call: &CallHead<'_>,
        request: Option<Box<Request<()>>>,
        extensions: Extensions,
        now: Instant,
        caller: Option<&mut Caller>,
        cx: &mut Context<'_>,
    ) -> Result<Admitted, Rejected> {
        if call.deadline.is_some_and(|deadline| deadline <= now) {
            return Err(self.too_late(call.plan).into());
        }
        let (request_json, answer_json) = self.routes.json(call.plan)?.unzip();
        let request = if request.is_some() { request } else { self.intercept(call, extensions)? };
        if let Some(caller) = caller {
            caller.set(request.as_ref().and_then(|request| request.extensions().get()));
            if let Some(limit) = self.calls_limit(caller, Some(call.plan.method)) {
                return Err(self.limits.refusal(limit).into());
            }
        }
        let mut ending = self.ending(call.plan, request.as_deref());
        match poll_ending(&mut ending, cx) {
            Poll::Ready(status) => Err(status.into()),
            Poll::Pending => Ok(Admitted { request, request_json, answer_json, ending }),
        }
    }

    #[cold]
    fn too_late(&self, plan: &CallPlan) -> Status {
        match self.routes.table[plan.method].deadlines.least {
            Some(least) if plan.terms.timeout == Some(Duration::ZERO) => {
                Status::deadline_exceeded(format!("the method needs more time: allow it {least:?} at least"))
            }
            _ => Status::deadline_exceeded("time was up before work began"),
        }
    }

    /// Limit on the time between messages of a stream that begins.
    #[inline]
    pub(crate) fn quiet(&self, plan: &CallPlan, now: Instant) -> Option<Quiet> {
        let route = &self.routes.table[plan.method];
        let allowed = route.deadlines.between_messages.filter(|_| route.streams())?;
        Some(Quiet { allowed, until: now.checked_add(allowed)? })
    }

    /// Limit that refuses the caller another call of the method, if any.
    #[inline]
    pub(crate) fn calls_limit(&self, caller: &mut Caller, method: Option<usize>) -> Option<Refusal> {
        let own = method.and_then(|method| self.routes.table[method].shares.as_ref());
        let limit = match caller.has_room(&self.calls, own.map(|(_, shares)| shares)) {
            [true, true] => return None,
            [false, _] => Refusal::Calls,
            [true, false] => own.map_or(Refusal::Calls, |(limit, _)| *limit),
        };
        self.observer.refused_client(limit, caller.client());
        Some(limit)
    }

    /// Takes the shares of a waiting call.
    pub(crate) fn take_shares(&self, caller: &mut Caller, method: Option<usize>) -> CallPermits {
        let own = method.and_then(|method| self.routes.table[method].shares.as_ref());
        caller.take(&self.calls, own.map(|(_, shares)| shares))
    }

    /// The future that ends a streaming call from outside, if an interceptor wants one.
    #[inline]
    fn ending(&self, plan: &CallPlan, request: Option<&Request<()>>) -> Option<Ending> {
        let request = request.filter(|_| self.routes.table[plan.method].streams())?;
        request.extensions().get::<Until>().map(Until::begin)
    }

    /// State of an admitted call's answer.
    #[inline]
    pub(crate) fn reply_state(&self, call: &CallHead<'_>, admitted: &mut Admitted) -> ReplyState {
        let plan = call.plan;
        let compression = self.compression.filter(|(encoding, _)| plan.terms.accepted.has(*encoding));
        ReplyState::new(plan.dialect, admitted.answer_json.take(), compression, self.cors.allowed(call.head))
    }

    /// Starts an admitted call's handler, in the box of an earlier call if there is any.
    #[expect(clippy::inline_always, reason = "it is most of what a short call costs, and has two callers")]
    #[inline(always)]
    pub(crate) fn start(
        &self,
        call: &CallHead<'_>,
        admitted: &mut Admitted,
        intake: Intake<'_>,
        spare: Option<Box<dyn Running>>,
        cx: &mut Context<'_>,
        reply: &mut Reply<'_>,
    ) -> Started {
        let mut incoming = Incoming {
            call: *call,
            request: admitted.request.take(),
            intake,
            reading: Reading {
                encoding: call.plan.terms.encoding,
                json: admitted.request_json.take(),
                message_bytes_max: self.limits.message_bytes_max,
                budget: call.plan.terms.encoding.map(|_| Arc::clone(&call.peer.budget)),
            },
        };
        let handler = &self.routes.table[call.plan.method].handler;
        catch_unwind(AssertUnwindSafe(|| handler.start(spare, &mut incoming, cx, reply))).unwrap_or_else(|_| {
            fail_panicked(reply);
            Started::Done(None)
        })
    }

    /// Counts equal calls that ended for the channelz service.
    #[inline]
    #[cfg_attr(not(feature = "channelz"), expect(unused_variables, clippy::unused_self, reason = "nothing is counted"))]
    fn count(&self, code: Code, calls: u32, peer: &Peer) {
        #[cfg(feature = "channelz")]
        if let Some(shown) = &self.shown {
            shown.count(code, calls, peer.connection.as_deref());
        }
    }

    /// Reports equal calls that ended; the method is `None` if it does not exist.
    pub(crate) fn report(&self, method: Option<usize>, code: Code, elapsed: Duration, calls: u32, peer: &Peer) {
        self.count(code, calls, peer);
        let path = method.map_or("unknown", |method| &self.routes.table[method].path);
        let report = CallReport { method, path, code, elapsed, details: None };
        (0..calls).for_each(|_| self.observer.call_finished(&report));
    }

    /// Reports a call with its details.
    #[cold]
    pub(crate) fn report_details(
        &self,
        method: Option<usize>,
        code: Code,
        elapsed: Duration,
        notes: &Notes,
        peer: &Peer,
    ) {
        self.count(code, 1, peer);
        let path = method.map_or("unknown", |method| &self.routes.table[method].path);
        let details = Some(notes.details(peer.address, elapsed));
        self.observer.call_finished(&CallReport { method, path, code, elapsed, details });
    }
}

/// Status of a call that is not answered by its deadline.
pub(crate) fn time_is_up() -> Status {
    Status::deadline_exceeded("time is up")
}

/// Ready if a call is ended from outside; otherwise the task is woken when it is.
#[inline]
fn poll_ending(ending: &mut Option<Ending>, cx: &mut Context<'_>) -> Poll<Status> {
    ending.as_mut().map_or(Poll::Pending, |ending| ending.as_mut().poll(cx))
}

fn intercepted(route: &Route, mut request: Request<()>) -> Result<Request<()>, Status> {
    let Route { path, interceptors, .. } = route;
    let accepted = catch_unwind(AssertUnwindSafe(|| {
        interceptors.iter().try_for_each(|interceptor| interceptor.intercept(path, &mut request))
    }));
    accepted.unwrap_or_else(|_| Err(Status::internal("an interceptor panicked"))).map(|()| request)
}

#[cold]
fn fail_panicked(reply: &mut Reply<'_>) {
    reply.flush();
    reply.finish(&Status::internal("the handler panicked"));
    reply.state.code = Code::Internal;
}
