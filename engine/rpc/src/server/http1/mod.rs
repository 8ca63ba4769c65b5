//! Calls as requests and responses of the `http` crate, on connections managed elsewhere: by hyper's HTTP/1.1, or by
//! the server around a tower service.
//!
//! Implements: RFC 9113 sections 8.2.2 (fields of a connection) and 8.3.1 (request pseudo-header fields).

#[cfg(feature = "http1")]
pub(crate) mod connection;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Extensions;
use http_body::{Body as _, Frame, SizeHint};
use quire_http2::{Field, Head, is_hop_by_hop};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::body::{Body, BoxError, ResponseFuture};
use crate::envelope::{Peer, Request};
use crate::message::framing::{Assembler, Framed};
use crate::message::inbox::Inbox;
use crate::protocol::PLAIN;
use crate::server::call::plan::Plan;
use crate::server::call::request::{CallHead, CallPlan, Feed, Gathering, Intake};
use crate::server::call::service::Started;
use crate::server::call::{Active, Rejected, Shared, time_is_up};
use crate::server::connection::in_flight::REFUSED_BYTES_MAX;
use crate::server::memory::Charge;
use crate::server::observer::{Notes, Observer, Refusal};
use crate::server::reply::plain_http::{self, Unserved};
use crate::server::reply::sink::{Outbox, Sink};
use crate::server::reply::{Reply, ReplyState, Templates};
use crate::status::{Code, Status};
use crate::wake::WakeSet;
use quire_net::{Caller, Client};

/// Longest time an answer waits for the end of its request.
const LINGER: Duration = Duration::from_secs(1);

enum Stage {
    /// The head has arrived, in some calls with the message.
    Begun(CallPlan, Option<Framed<Bytes>>),
    Gathering(Gathering),
    Active(Active),
    Over,
}

/// A call from head to end; also the body of its response.
pub(crate) struct Exchange {
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    head: Arc<Head>,
    /// Memory that the head holds.
    head_bytes: usize,
    extensions: Extensions,
    method: Option<usize>,
    stage: Stage,
    body: Body,
    /// Bytes of it that came before the call ended.
    body_bytes: u64,
    body_is_over: bool,
    /// Request bytes that may still be discarded after the answer, so that the client can finish.
    discard_bytes: usize,
    /// Woken by a stream's handler; each poll sets the task.
    wakes: Option<Arc<WakeSet>>,
    /// Request bytes held by the call, in the memory account.
    charge: Charge,
    /// `None` if the connection already counts the call.
    caller: Option<Caller>,
    /// State of the answer, except while the call is active.
    state: ReplyState,
    templates: Templates,
    outbox: Outbox,
    started_at: Instant,
    timer: Pin<Box<Sleep>>,
    /// Details of the call, if the observer wants them.
    notes: Option<Box<Notes>>,
    is_reported: bool,
}

impl Exchange {
    /// Begins the call of a request with this `head`.
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        peer: &Arc<Peer>,
        plan: Plan,
        head: Arc<Head>,
        request: http::Request<Body>,
    ) -> Box<Self> {
        let (parts, body) = request.into_parts();
        let (call, dialect) = match &plan {
            Plan::Call(call, _) => (Some(*call), call.dialect),
            Plan::Fail(dialect, _) => (None, *dialect),
            Plan::Unserved(_) | Plan::Preflight | Plan::Http => (None, PLAIN),
        };
        let started_at = Instant::now();
        let is_call = matches!(plan, Plan::Call(..) | Plan::Fail(..));
        let notes = shared.may_note().then(|| shared.notes(&head, is_call, started_at)).flatten();
        let mut extensions = parts.extensions;
        if let Some(notes) = &notes {
            extensions.extend(notes.extensions());
        }
        let mut exchange = Box::new(Self {
            shared: Arc::clone(shared),
            peer: Arc::clone(peer),
            state: shared.bare(dialect, &head),
            head_bytes: head.fields().iter().map(|field| field.name().len() + field.value().len()).sum(),
            head,
            extensions,
            method: call.map(|call| call.method),
            stage: Stage::Over,
            body,
            body_bytes: 0,
            body_is_over: false,
            // An HTTP/1.1 client that is still sending may not read the answer, and take the close for a reset.
            discard_bytes: if parts.version < http::Version::HTTP_2 { shared.limits.discarded_bytes_max } else { 0 },
            wakes: None,
            charge: shared.limits.memory.charge(peer.address),
            caller: Some(Caller::new(Client::at(peer.address.map(|address| address.ip())))),
            templates: Templates::default(),
            outbox: Outbox::default(),
            started_at,
            timer: Box::pin(sleep_until(shared.request_deadline(call.as_ref(), started_at))),
            notes,
            is_reported: false,
        });
        match plan {
            Plan::Call(call, message) => exchange.stage = Stage::Begun(call, message),
            Plan::Fail(_, status) => exchange.refuse(&status),
            Plan::Unserved(why) => exchange.end_uncalled(|reply| plain_http::refuse(reply, why)),
            Plan::Preflight => {
                let head = Arc::clone(&exchange.head);
                exchange.end_uncalled(|reply| reply.preflight(&head, &shared.cors));
            }
            Plan::Http => exchange.end_uncalled(|reply| plain_http::refuse(reply, Unserved::NotFound)),
        }
        exchange
    }

    /// Marks the call as counted by its connection.
    #[cfg(feature = "tower")]
    pub(crate) fn counted(mut self: Box<Self>) -> Box<Self> {
        self.caller = None;
        self
    }

    /// Ends the call with a failure in any state; `is_reported` if that was reported elsewhere.
    #[cfg(feature = "tower")]
    pub(crate) fn refused(mut self: Box<Self>, status: &Status, is_reported: bool) -> Box<Self> {
        self.is_reported |= is_reported;
        self.refuse(status);
        self
    }

    /// Runs until the outbox has something; pending if there is nothing to do.
    fn poll_on(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(wakes) = &self.wakes {
            wakes.register(cx.waker());
        }
        loop {
            if self.outbox.head.is_some() || !self.outbox.body.is_empty() || self.outbox.is_ended {
                return Poll::Ready(());
            }
            if self.timer.as_mut().poll(cx).is_ready() {
                self.expire();
                continue;
            }
            let mut progress = self.read(cx);
            if let Stage::Active(active) = &mut self.stage {
                let (sink, output_bytes_max) = (Sink::Outbox(&mut self.outbox), self.shared.limits.output_bytes_max);
                let poll = || active.poll(sink, &mut self.templates, output_bytes_max, cx);
                if measured(&*self.shared.observer, &mut self.notes, poll).is_ready() {
                    self.end();
                } else {
                    active.note_messages(false, Instant::now());
                }
                progress |= !self.outbox.body.is_empty();
            }
            self.account(cx);
            if !progress && self.outbox.head.is_none() && !self.outbox.is_ended {
                return Poll::Pending;
            }
        }
    }

    /// Ends the call, unless a message has put its end off.
    fn expire(&mut self) {
        let (due, status) = match &self.stage {
            Stage::Active(active) => (active.due(), active.overdue()),
            Stage::Begun(..) | Stage::Gathering(_) | Stage::Over => (None, time_is_up()),
        };
        match due.filter(|due| *due > Instant::now()) {
            Some(due) => self.timer.as_mut().reset(due),
            None => self.refuse(&status),
        }
    }

    /// Reads the body for a handler that wants more; true if any came.
    fn read(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progress = false;
        loop {
            match &self.stage {
                Stage::Over => return progress,
                Stage::Begun(..) => {
                    self.open(cx);
                    progress = true;
                    continue;
                }
                Stage::Active(active) if self.body_is_over || active.feed.is_stalled() => return progress,
                Stage::Active(_) | Stage::Gathering(_) => {}
            }
            let data = match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => return progress,
                Poll::Ready(None) => {
                    self.body_is_over = true;
                    Bytes::new()
                }
                Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Poll::Ready(Some(Err(_))) => {
                    self.refuse(&Status::cancelled("the request broke off"));
                    return true;
                }
            };
            progress = true;
            self.take(&data, cx);
        }
    }

    /// Passes the head through the interceptors, before the body is read; then starts the call, unless its handler
    /// needs the whole message.
    fn open(&mut self, cx: &mut Context<'_>) {
        let Stage::Begun(plan, message) = std::mem::replace(&mut self.stage, Stage::Over) else { return };
        let call = CallHead::new(&plan, &self.head, &self.peer, self.started_at);
        let request = match self.shared.intercept(&call, std::mem::take(&mut self.extensions)) {
            Ok(request) => request,
            Err(rejected) => return self.reject(&rejected),
        };
        if let Some(message) = message {
            self.start(&plan, request, Intake::Message(&message.owned()), Feed::None, cx);
        } else if self.shared.routes.table[plan.method].is_streaming_in {
            let wakes = WakeSet::new(1);
            wakes.register(cx.waker());
            let inbox = Inbox::new(wakes.waker(0), self.shared.limits.unread_bytes_max);
            self.wakes = Some(wakes);
            let feed = Feed::Messages(Arc::clone(&inbox), Assembler::of(plan.dialect.framing()));
            self.start(&plan, request, Intake::Stream(&inbox), feed, cx);
        } else {
            // The exchange's own timer ends it.
            let gathering = Gathering::new(plan, Arc::clone(&self.head), request, self.timer.deadline());
            self.stage = Stage::Gathering(gathering);
        }
    }

    /// Handles body data, or the body's end.
    fn take(&mut self, data: &[u8], cx: &mut Context<'_>) {
        self.body_bytes += data.len() as u64;
        match &mut self.stage {
            Stage::Active(active) => {
                let pushed = active.feed.push(data, self.body_is_over, self.shared.limits.message_bytes_max);
                active.note_messages(pushed.has_message, Instant::now());
            }
            Stage::Gathering(gathering) => match self.shared.gather(gathering, data, self.body_is_over) {
                Ok(Some(message)) => {
                    let (plan, request) = (gathering.plan, gathering.request.take());
                    self.start(&plan, request, Intake::Message(&message), Feed::None, cx);
                }
                Ok(None) => {
                    if let Some(limit) = self.shared.gathered_limit(self.head.path(), gathering.held_bytes()) {
                        self.refuse(&self.shared.refusal(limit));
                    }
                }
                Err(status) => self.refuse(&status),
            },
            Stage::Begun(..) | Stage::Over => {}
        }
    }

    /// Starts the call, which from now on has its caller's deadline alone.
    fn start(
        &mut self,
        plan: &CallPlan,
        request: Option<Box<Request<()>>>,
        intake: Intake<'_>,
        feed: Feed,
        cx: &mut Context<'_>,
    ) {
        self.stage = Stage::Over;
        let (shared, head, peer) = (Arc::clone(&self.shared), Arc::clone(&self.head), Arc::clone(&self.peer));
        let call = CallHead::new(plan, &head, &peer, self.started_at);
        let deadline = call.deadline;
        self.timer.as_mut().reset(deadline.unwrap_or(self.started_at + Duration::from_hours(24 * 365)));
        let _ = self.timer.as_mut().poll(cx);
        let admitted = shared.admit(&call, request, Extensions::new(), Instant::now(), self.caller.as_mut(), cx);
        if let (Some(caller), Some(listed)) = (&self.caller, &self.peer.connection) {
            listed.note_client(caller.client());
        }
        let mut admitted = match admitted {
            Ok(admitted) => admitted,
            Err(rejected) => return self.reject(&rejected),
        };
        if let Some(notes) = &mut self.notes {
            notes.start();
        }
        self.state = shared.reply_state(&call, &mut admitted);
        let mut notes = self.notes.take();
        let start = || shared.start(&call, &mut admitted, intake, None, cx, &mut self.reply());
        let started = measured(&*shared.observer, &mut notes, start);
        self.notes = notes;
        match started {
            Started::Running(running) => {
                let method = Some(plan.method);
                let shares = self.caller.as_mut().map(|caller| shared.take_shares(caller, method));
                let reply = std::mem::replace(&mut self.state, ReplyState::bare(plan.dialect));
                let (unreleased, ending) = (0, admitted.ending);
                let quiet = shared.quiet(plan, Instant::now());
                let active = Active { method, running, reply, feed, unreleased, deadline, quiet, ending, shares };
                if let Some(due) = active.due() {
                    self.timer.as_mut().reset(due);
                }
                self.stage = Stage::Active(active);
            }
            Started::Done(_) => self.end(),
        }
    }

    /// Charges the bytes the call holds; refuses the call if it was cut.
    fn account(&mut self, cx: &Context<'_>) {
        let held = match &self.stage {
            Stage::Gathering(gathering) => gathering.held_bytes(),
            Stage::Active(active) => active.held_bytes(),
            Stage::Begun(..) | Stage::Over => 0,
        };
        self.charge.set(held + self.head_bytes, cx.waker());
        if held > 0 && self.charge.is_cut() {
            self.refuse(&self.shared.refusal(Refusal::BufferBytes));
        }
    }

    fn reject(&mut self, rejected: &Rejected) {
        if rejected.is_by_interceptor {
            // Reading the body would make a client that sent `Expect` send it.
            let has_expect = self.head.get(b"expect").is_some();
            self.discard_bytes = self.discard_bytes.min(if has_expect { 0 } else { REFUSED_BYTES_MAX });
        }
        self.refuse(&rejected.status);
    }

    /// Ends the call with a failure.
    fn refuse(&mut self, status: &Status) {
        self.deactivate();
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

    /// Answers a request other than a call.
    fn end_uncalled(&mut self, answer: impl FnOnce(&mut Reply<'_>)) {
        answer(&mut self.reply());
        self.is_reported = true;
        self.end();
    }

    fn end(&mut self) {
        self.deactivate();
        self.outbox.is_ended = true;
        self.timer.as_mut().reset(Instant::now() + LINGER);
        self.report(self.state.code);
    }

    /// Drops the call's handler.
    fn deactivate(&mut self) {
        if let Stage::Active(active) = std::mem::replace(&mut self.stage, Stage::Over) {
            self.state = active.reply;
            measured(&*self.shared.observer, &mut self.notes, || drop(active.running));
        }
    }

    fn report(&mut self, code: Code) {
        if !std::mem::replace(&mut self.is_reported, true) {
            self.report_once(code);
            if let (Some((code, reason)), Some(caller)) = (self.templates.refusal.take(), &self.caller) {
                self.shared.observer.call_refused(caller.client(), code, &reason);
            }
        }
    }

    fn report_once(&mut self, code: Code) {
        let Some(mut notes) = self.notes.take() else {
            return self.shared.report(self.method, code, self.started_at.elapsed(), 1, &self.peer);
        };
        notes.end();
        let elapsed = self.started_at.elapsed();
        (notes.bytes_in, notes.bytes_out) = (self.body_bytes, self.outbox.body_bytes);
        if let Some(caller) = &self.caller {
            notes.set_client(caller.client());
        }
        self.shared.report_details(self.method, code, elapsed, &notes, &self.peer);
    }
}

/// Polls or drops a handler, and adds to the call's details what it has waited for.
fn measured<R>(observer: &dyn Observer, notes: &mut Option<Box<Notes>>, work: impl FnOnce() -> R) -> R {
    let Some(notes) = notes else { return work() };
    observer.polling();
    let done = work();
    notes.waited += observer.polled();
    done
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.deactivate();
        self.report(Code::Cancelled);
    }
}

impl Exchange {
    /// The answer: the head as soon as it is known, and the rest as body.
    pub(crate) async fn answer(self: Box<Self>) -> http::Response<Body> {
        let mut exchange = Some(self);
        std::future::poll_fn(|cx| Self::poll_response(&mut exchange, cx)).await.map(Body::any)
    }

    /// Polls until there is a head; returns it with the rest as body.
    fn poll_response(exchange: &mut Option<Box<Self>>, cx: &mut Context<'_>) -> Poll<http::Response<Box<Self>>> {
        let Some(this) = exchange else { return Poll::Pending };
        let head = loop {
            if this.outbox.is_ended {
                ready!(this.poll_discard(cx));
            }
            if let Some(head) = this.outbox.head.take() {
                break head;
            }
            ready!(this.poll_on(cx));
        };
        match exchange.take() {
            Some(exchange) => Poll::Ready(http::Response::from_parts(head, exchange)),
            None => Poll::Pending,
        }
    }

    /// True if the answer no longer waits for the end of its request.
    fn is_discarded(&self) -> bool {
        self.body_is_over || self.discard_bytes == 0
    }

    /// Discards the rest of the request after the answer, within the limits.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.is_discarded() && self.timer.as_mut().poll(cx).is_pending() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    let bytes = frame.data_ref().map_or(0, Bytes::len);
                    self.discard_bytes = self.discard_bytes.saturating_sub(bytes);
                }
                None | Some(Err(_)) => self.body_is_over = true,
            }
        }
        Poll::Ready(())
    }
}

impl http_body::Body for Exchange {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            if let Some(data) = self.outbox.body.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            if let Some(trailers) = self.outbox.trailers.take() {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
            if self.outbox.is_ended {
                return self.poll_discard(cx).map(|()| None);
            }
            ready!(self.poll_on(cx));
        }
    }

    fn is_end_stream(&self) -> bool {
        let Outbox { body, trailers, is_ended, .. } = &self.outbox;
        *is_ended && body.is_empty() && trailers.is_none() && self.is_discarded()
    }

    fn size_hint(&self) -> SizeHint {
        if self.outbox.is_ended && self.outbox.trailers.is_none() && self.is_discarded() {
            return SizeHint::with_exact(self.outbox.body.iter().map(|data| data.len() as u64).sum());
        }
        SizeHint::default()
    }
}

/// An answer in progress.
pub(crate) enum Dispatched {
    Call(Box<Exchange>),
    Http(ResponseFuture),
    /// The path does not exist.
    NotFound,
}

impl Dispatched {
    /// Begins the answer, through the server's layers if any.
    pub(crate) fn begin(shared: &Arc<Shared>, peer: &Arc<Peer>, mut request: http::Request<Body>) -> Self {
        if let Some(layered) = shared.layered.as_ref().filter(|_| may_be_call(shared, &request)) {
            request.extensions_mut().insert(Arc::clone(peer));
            return Self::Http(layered.call(request));
        }
        match begin_call(shared, peer, request) {
            Ok(exchange) => Self::Call(exchange),
            Err(mut request) => {
                let Some(http) = &shared.http else { return Self::NotFound };
                request.extensions_mut().insert(Arc::clone(peer));
                Self::Http(http.call(request))
            }
        }
    }

    pub(crate) async fn answer(self) -> http::Response<Body> {
        match self {
            Self::Call(exchange) => exchange.answer().await,
            Self::Http(answering) => answering.await.unwrap_or_else(|_| bare(http::StatusCode::INTERNAL_SERVER_ERROR)),
            Self::NotFound => bare(http::StatusCode::NOT_FOUND),
        }
    }
}

/// A response without body that closes the connection.
pub(crate) fn bare(status: http::StatusCode) -> http::Response<Body> {
    let mut response = http::Response::new(Body::default());
    *response.status_mut() = status;
    if status.is_server_error() {
        response.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    }
    response.headers_mut().insert(http::header::CONNECTION, http::HeaderValue::from_static("close"));
    response
}

fn may_be_call(shared: &Shared, request: &http::Request<Body>) -> bool {
    let content_type = request.headers().get(http::header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    shared.routes.may_be_call(request.uri().path(), content_type)
}

/// Begins the call of a request; returns any other request.
#[expect(clippy::result_large_err, reason = "the request is taken apart at once; a box would cost every request one")]
pub(crate) fn begin_call(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    request: http::Request<Body>,
) -> Result<Box<Exchange>, http::Request<Body>> {
    if !may_be_call(shared, &request) {
        return Err(request);
    }
    let Some(head) = head(&request).map(Arc::new) else { return Err(request) };
    let has_trailers = request.version() >= http::Version::HTTP_2;
    let plan = match Plan::read(&head, &shared.routes) {
        Plan::Http => return Err(request),
        // gRPC's trailers need HTTP/2.
        Plan::Call(CallPlan { dialect, .. }, _) | Plan::Fail(dialect, _)
            if dialect.needs_trailers() && !has_trailers =>
        {
            Plan::Unserved(Unserved::Unsupported)
        }
        plan => plan,
    };
    Ok(Exchange::begin(shared, peer, plan, head, request))
}

/// The request's head in HTTP/2 form; `None` if it cannot be a call's.
fn head<B>(request: &http::Request<B>) -> Option<Head> {
    let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let host = || request.headers().get(http::header::HOST).map_or(&b""[..], http::HeaderValue::as_bytes);
    let authority = request.uri().authority().map_or_else(host, |authority| authority.as_str().as_bytes());
    let mut fields = vec![
        Field::new(b":method", request.method().as_str().as_bytes()),
        Field::new(b":scheme", request.uri().scheme_str().unwrap_or("http").as_bytes()),
        Field::new(b":authority", authority),
        Field::new(b":path", path.as_bytes()),
    ];
    for (name, value) in request.headers() {
        let name = name.as_str().as_bytes();
        if !is_hop_by_hop(name) && name != b"te" {
            fields.push(Field::new(name, value.as_bytes()));
        }
    }
    Head::request(fields).ok()
}
