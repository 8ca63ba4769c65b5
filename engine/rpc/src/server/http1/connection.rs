//! A connection of HTTP/1.1, by hyper: calls and requests to the HTTP service.
//!
//! Its transport replays the bytes already read, counts both directions, and fails if the peer accepts nothing for too
//! long.
//!
//! Implements: RFC 9112, by hyper.

use std::cell::RefCell;
use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::{Dispatched, bare};
use crate::body::{Body, BoxError};
use crate::envelope::Peer;
use crate::server::accept::role::Role;
use crate::server::call::Shared;
use crate::server::connection::time_slice;
use crate::server::memory::{self, Memory};
use crate::server::registry::Turn;
use crate::server::reply::plain_http::{LARGE_BYTES, Unserved};
use crate::wake::WakeSet;

/// The longest that a connection with nothing under way stays when it has to leave.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// Serves a connection that began with `first` to its end; returns the reason, for a log.
pub(crate) async fn serve<T>(first: Vec<u8>, io: T, shared: Arc<Shared>, peer: Arc<Peer>, role: Role) -> String
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (limits, peer_address) = (Arc::clone(&shared.limits), peer.address);
    let Role { draining, refusing, standing } = role;
    // Each request in progress holds a reference to it. True once an answer ends the connection.
    let busy = Arc::new(AtomicBool::new(false));
    let buffer_bytes_max = limits.http1_head_bytes_max.max(8 * 1024);
    let held = Arc::new(HeldBytes::new(buffer_bytes_max));
    let io = Transport::new(first, io, Arc::clone(&held), limits.write_timeout);
    let listed = peer.connection.clone();
    let (held_now, user_agent) = (Arc::clone(&held), RefCell::default());
    let requests = Requests { shared, peer, refusing, held: held_now, busy: Arc::downgrade(&busy), user_agent };
    let service = hyper::service::service_fn(move |request| {
        let dispatched = requests.begin(request);
        let (held, memory, busy) = (Arc::clone(&requests.held), requests.memory().clone(), requests.busy.upgrade());
        async move { Ok::<_, Infallible>(respond(dispatched, &held, &memory, busy).await) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.handshake_timeout).max_buf_size(buffer_bytes_max);
    let mut connection = Box::pin(builder.serve_connection(TokioIo::new(io), service));
    let mut draining = Some(draining);
    // hyper wakes itself after some requests in one poll, and such a task keeps tokio from its sockets.
    let wakes = WakeSet::new(1);
    let waker = wakes.waker(0);
    let lifetime = limits.lifetime();
    let mut idle = Idle { allowed: lifetime.idle_max, timer: None };
    let mut age = lifetime.age_max.map(|age| Box::pin(sleep(age)));
    let mut charge = limits.memory.charge(peer_address);
    let mut active_at = Instant::now();
    let is_busy = || Arc::strong_count(&busy) > 1 || held.is_sending();
    let mut cut: Option<Pin<Box<Sleep>>> = None;
    let ended = std::future::poll_fn(|cx| {
        time_slice::begin();
        wakes.unregister();
        if draining.as_mut().is_some_and(|draining| draining.as_mut().poll(cx).is_ready()) {
            draining = None;
            if refusing || standing.is_leaving() {
                connection.as_mut().graceful_shutdown();
            } else {
                // The next answer has `connection: close`.
                busy.store(true, Relaxed);
                idle = Idle { allowed: Some(quire_net::QUIET_MAX.saturating_sub(active_at.elapsed())), timer: None };
            }
            if standing.is_leaving() && !is_busy() {
                // Another waits for what it holds.
                cut = Some(Box::pin(sleep(LEAVE_MAX)));
            }
        }
        let is_old = age.as_mut().is_some_and(|age| age.as_mut().poll(cx).is_ready());
        if is_old {
            age = None;
            // Calls under way have as long as those of a drain.
            cut.get_or_insert_with(|| Box::pin(sleep(limits.drain_timeout)));
        }
        if cut.as_mut().is_some_and(|cut| cut.as_mut().poll(cx).is_ready()) {
            return Poll::Ready("cut off when it had to leave".to_owned());
        }
        let mut polled = connection.as_mut().poll(&mut Context::from_waker(&waker));
        if polled.is_pending() && (is_old || idle.poll(is_busy(), cx).is_ready()) {
            connection.as_mut().graceful_shutdown();
            polled = connection.as_mut().poll(&mut Context::from_waker(&waker));
        }
        wakes.register(cx.waker());
        if polled.is_pending() {
            wakes.take(|_| time_slice::yield_now(cx));
        }
        active_at = Instant::now();
        standing.note(is_busy(), active_at);
        charge.set(held.bytes(), cx.waker());
        if let Some(listed) = &listed {
            listed.note(held.turn(is_busy()), active_at);
        }
        if charge.is_cut() {
            return Poll::Ready(memory::CUT.to_owned());
        }
        polled.map(|ended| match ended {
            Ok(()) => "closed".to_owned(),
            Err(error) => match error.source() {
                Some(cause) => format!("HTTP/1.1: {error}: {cause}"),
                None => format!("HTTP/1.1: {error}"),
            },
        })
    });
    ended.await
}

/// Requests of a connection.
struct Requests {
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    /// Excess connection: requests are refused.
    refusing: bool,
    held: Arc<HeldBytes>,
    busy: Weak<AtomicBool>,
    /// The user agent that operators see.
    user_agent: RefCell<Box<[u8]>>,
}

impl Requests {
    fn memory(&self) -> &Memory {
        &self.shared.limits.memory
    }

    fn begin(&self, request: http::Request<hyper::body::Incoming>) -> Result<Dispatched, Unserved> {
        if let Some(listed) = &self.peer.connection {
            let user_agent = request.headers().get(http::header::USER_AGENT).map_or(&b""[..], |value| value.as_bytes());
            listed.note_user_agent(user_agent, &mut self.user_agent.borrow_mut());
        }
        let path = request.uri().path().as_bytes();
        let checked = self.shared.hosts.check(&request);
        if checked.is_ok() && self.refusing && !self.shared.is_always_answered(path) {
            return Err(Unserved::TooMany);
        }
        self.held.begin(head_bytes(&request));
        if !self.shared.is_answered_when_full(path)
            && let Some(limit) = self.memory().refusal(self.held.bytes())
        {
            self.shared.observer.refused(limit);
            return checked.and(Err(Unserved::TooMuch));
        }
        checked?;
        Ok(Dispatched::begin(&self.shared, &self.peer, request.map(|body| CountedBody::count(body, &self.held))))
    }
}

/// Answers a request; `busy` marks its connection busy until the answer is written.
async fn respond(
    dispatched: Result<Dispatched, Unserved>,
    held: &HeldBytes,
    memory: &Memory,
    busy: Option<Arc<AtomicBool>>,
) -> http::Response<Body> {
    std::future::poll_fn(time_slice::poll_next).await;
    let mut response = match dispatched {
        Ok(dispatched) => dispatched.answer().await,
        Err(why) => refusal(why),
    };
    let mut bytes = response.body().size_hint().lower();
    if bytes >= LARGE_BYTES && memory.refusal(held.bytes()).is_some() {
        response = refusal(Unserved::TooMuch);
        bytes = 0;
    }
    held.answer(bytes);
    if busy.as_ref().is_some_and(|is_last| is_last.load(Relaxed)) {
        response.headers_mut().insert(http::header::CONNECTION, http::HeaderValue::from_static("close"));
    }
    match busy {
        // Of others it is known how much is still to be written.
        Some(busy) if response.body().size_hint().exact().is_none() => {
            response.map(|body| Body::any(BusyBody { body, _busy: busy }))
        }
        _ => response,
    }
}

/// A refusal that closes the connection.
fn refusal(why: Unserved) -> http::Response<Body> {
    let (code, words) = why.answer();
    let mut response = bare(http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::BAD_REQUEST));
    let kind = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    *response.body_mut() = Body::new(words.to_owned());
    response
}

/// Idle timer of a connection.
struct Idle {
    allowed: Option<Duration>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Idle {
    /// Ready once, when the idle limit is reached.
    fn poll(&mut self, is_busy: bool, cx: &mut Context<'_>) -> Poll<()> {
        let Some(allowed) = self.allowed else { return Poll::Pending };
        if is_busy {
            self.timer = None;
            return Poll::Pending;
        }
        ready!(self.timer.get_or_insert_with(|| Box::pin(sleep(allowed))).as_mut().poll(cx));
        self.allowed = None;
        Poll::Ready(())
    }
}

/// Bytes in the head of a request, as it is mostly written.
fn head_bytes<B>(request: &http::Request<B>) -> usize {
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    let target = request.uri().path_and_query().map_or(1, |target| target.as_str().len());
    request.method().as_str().len() + target + "  HTTP/1.1\r\n\r\n".len() + fields.sum::<usize>()
}

/// The body of a request, which counts what is taken of it.
struct CountedBody {
    body: Body,
    held: Arc<HeldBytes>,
}

impl CountedBody {
    fn count(body: hyper::body::Incoming, held: &Arc<HeldBytes>) -> Body {
        let body = Body::http1(body);
        if body.is_end_stream() { body } else { Body::any(Self { body, held: Arc::clone(held) }) }
    }
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.held.take(frame.data_ref().map_or(0, Bytes::len));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Answer body that marks its connection busy.
struct BusyBody {
    body: Body,
    _busy: Arc<AtomicBool>,
}

impl http_body::Body for BusyBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes that the connection holds, as far as visible from outside hyper. Calls account for their messages. Changed by
/// the connection's task alone.
#[derive(Debug, Default)]
pub(crate) struct HeldBytes {
    /// Unwritten bytes of begun answers.
    unsent: AtomicUsize,
    /// Bytes read that are no request yet; hyper holds at most `waiting_max`.
    waiting: AtomicUsize,
    waiting_max: usize,
    /// Bytes of the last read.
    last_read: AtomicUsize,
    /// Bytes in the head of the request whose answer has not begun; 0 if there is none.
    head: AtomicUsize,
    /// All bytes that were read and written so far.
    read_total: AtomicU64,
    written_total: AtomicU64,
}

impl HeldBytes {
    /// For a connection whose heads have at most `waiting_max` bytes.
    pub(crate) fn new(waiting_max: usize) -> Self {
        Self { waiting_max, ..Self::default() }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.unsent.load(Relaxed) + self.waiting.load(Relaxed) + self.head.load(Relaxed)
    }

    /// True while a part of an answer is to be written.
    pub(crate) fn is_sending(&self) -> bool {
        self.unsent.load(Relaxed) > 0
    }

    /// Begins a request with a head of `head_bytes`. Other waiting bytes came with the end of that head.
    pub(crate) fn begin(&self, head_bytes: usize) {
        let rest = self.waiting.load(Relaxed).saturating_sub(head_bytes);
        self.waiting.store(rest.min(self.last_read.load(Relaxed)), Relaxed);
        self.head.store(head_bytes, Relaxed);
    }

    /// Notes that `bytes` of a request's body were taken.
    pub(crate) fn take(&self, bytes: usize) {
        self.waiting.store(self.waiting.load(Relaxed).saturating_sub(bytes), Relaxed);
    }

    /// Adds a begun answer of this size.
    pub(crate) fn answer(&self, bytes: u64) {
        self.unsent.fetch_add(usize::try_from(bytes).unwrap_or(usize::MAX), Relaxed);
        self.head.store(0, Relaxed);
    }

    /// Figures of a turn that ends, for operators.
    fn turn(&self, is_busy: bool) -> Turn {
        Turn {
            bytes_read: self.read_total.load(Relaxed),
            bytes_written: self.written_total.load(Relaxed),
            calls_in_flight: is_busy.into(),
            buffered_bytes: self.bytes(),
        }
    }

    fn written(&self, count: usize) {
        self.written_total.store(self.written_total.load(Relaxed) + count as u64, Relaxed);
        // Heads are written too, and were not counted.
        self.unsent.store(self.unsent.load(Relaxed).saturating_sub(count), Relaxed);
    }

    fn read(&self, count: usize) {
        self.read_total.store(self.read_total.load(Relaxed) + count as u64, Relaxed);
        // The rest of a body is read when none of it is left; the frames of its chunks count until then.
        let before = if self.head.load(Relaxed) > 0 { 0 } else { self.waiting.load(Relaxed) };
        self.waiting.store((before + count).min(self.waiting_max), Relaxed);
        self.last_read.store(count, Relaxed);
    }
}

pub(crate) struct Transport<T> {
    first: Vec<u8>,
    taken: usize,
    io: T,
    held: Arc<HeldBytes>,
    write_timeout: Duration,
    /// Set while the peer accepts nothing.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl<T> Transport<T> {
    /// Reads `first`, then `io`.
    pub(crate) fn new(first: Vec<u8>, io: T, held: Arc<HeldBytes>, write_timeout: Duration) -> Self {
        Self { first, taken: 0, io, held, write_timeout, stuck: None }
    }

    fn written(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(result) = written {
            self.stuck = None;
            self.held.written(result.as_ref().map_or(0, |count| *count));
            return Poll::Ready(result);
        }
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(sleep(self.write_timeout)));
        ready!(stuck.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Transport<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let left = &self.first[self.taken..];
        if left.is_empty() {
            let polled = Pin::new(&mut self.io).poll_read(cx, buffer);
            self.held.read(buffer.filled().len() - before);
            return polled;
        }
        let count = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..count]);
        self.taken += count;
        self.held.read(count);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Transport<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.written(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
