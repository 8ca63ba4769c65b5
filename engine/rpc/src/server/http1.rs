//! HTTP/1.1 by hyper: calls and requests to the HTTP service.
//!
//! Implements: RFC 9112, by hyper.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep};

use super::http_calls::{LARGE_BYTES, Unserved};
use super::http_request::{Answering, bare};
use super::http1_io::{Held, Io};
use super::memory;
use super::place::Stay;
use super::shared::Shared;
use super::turn;
use crate::body::{Body, BoxError};
use crate::envelope::Peer;
use crate::wake::WakeSet;

/// The longest that a connection with nothing under way stays when it has to leave.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// Serves a connection that began with `first` to its end; returns the reason, for a log.
pub(super) async fn serve<T>(first: Vec<u8>, io: T, shared: Arc<Shared>, peer: Arc<Peer>, stay: Stay) -> String
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (limits, peer_address) = (Arc::clone(&shared.limits), peer.address);
    let Stay { draining, refusing, standing } = stay;
    // Each request in progress holds a reference to it.
    let busy = Arc::new(());
    let in_flight = Arc::downgrade(&busy);
    let buffer_bytes_max = limits.http1_head_bytes_max.max(8 * 1024);
    let held = Arc::new(Held::new(buffer_bytes_max));
    let io = Io::new(first, io, Arc::clone(&held), limits.write_timeout);
    let answered = Arc::clone(&held);
    let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let path = request.uri().path().as_bytes();
        let (exempt, is_admitted) = (shared.is_always_answered(path), shared.is_answered_when_full(path));
        let answering = match shared.hosts.check(&request) {
            Ok(()) if refusing && !exempt => Err(Unserved::TooMany),
            checked => {
                answered.begin(head_bytes(&request));
                let limit = if is_admitted { None } else { shared.limits.memory.refusal(answered.bytes()) };
                if let Some(limit) = limit {
                    shared.observer.refused(limit);
                }
                checked
                    .and(limit.map_or(Ok(()), |_| Err(Unserved::TooMuch)))
                    .map(|()| Answering::begin(&shared, &peer, request.map(|body| Taken::count(body, &answered))))
            }
        };
        let busy = in_flight.upgrade();
        let (answered, memory) = (Arc::clone(&answered), shared.limits.memory.clone());
        async move {
            std::future::poll_fn(turn::poll_next).await;
            let mut response = match answering {
                Ok(answering) => answering.answer().await,
                Err(why) => refusal(why),
            };
            let mut bytes = response.body().size_hint().lower();
            if bytes >= LARGE_BYTES && memory.refusal(answered.bytes()).is_some() {
                response = refusal(Unserved::TooMuch);
                bytes = 0;
            }
            answered.answer(bytes);
            Ok::<_, Infallible>(match busy {
                // Of others it is known how much is still to be written.
                Some(busy) if response.body().size_hint().exact().is_none() => {
                    response.map(|body| Body::any(Busy { body, _busy: busy }))
                }
                _ => response,
            })
        }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.handshake_timeout).max_buf_size(buffer_bytes_max);
    let mut connection = Box::pin(builder.serve_connection(TokioIo::new(io), service));
    let mut draining = Some(draining);
    // hyper wakes itself after some requests in one poll, and such a task keeps tokio from its sockets.
    let wakes = WakeSet::new(1);
    let waker = wakes.waker(0);
    let mut idle = Idle { allowed: limits.connection_idle_max, timer: None };
    let mut charge = limits.memory.charge(peer_address);
    let is_busy = || Arc::strong_count(&busy) > 1 || held.is_sending();
    let mut cut: Option<Pin<Box<Sleep>>> = None;
    let ended = std::future::poll_fn(|cx| {
        turn::begin();
        wakes.unregister();
        if draining.as_mut().is_some_and(|draining| draining.as_mut().poll(cx).is_ready()) {
            draining = None;
            connection.as_mut().graceful_shutdown();
            if standing.is_leaving() && !is_busy() {
                // Another waits for what it holds.
                cut = Some(Box::pin(sleep(LEAVE_MAX)));
            }
        }
        if cut.as_mut().is_some_and(|cut| cut.as_mut().poll(cx).is_ready()) {
            return Poll::Ready("cut off when it had to leave".to_owned());
        }
        let mut polled = connection.as_mut().poll(&mut Context::from_waker(&waker));
        if polled.is_pending() && idle.poll(is_busy(), cx).is_ready() {
            connection.as_mut().graceful_shutdown();
            polled = connection.as_mut().poll(&mut Context::from_waker(&waker));
        }
        wakes.register(cx.waker());
        if polled.is_pending() {
            wakes.take(|_| turn::give_way(cx));
        }
        standing.note(is_busy(), Instant::now());
        charge.set(held.bytes(), cx.waker());
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
struct Taken {
    body: Body,
    held: Arc<Held>,
}

impl Taken {
    fn count(body: hyper::body::Incoming, held: &Arc<Held>) -> Body {
        let body = Body::http1(body);
        if body.is_end_stream() { body } else { Body::any(Self { body, held: Arc::clone(held) }) }
    }
}

impl http_body::Body for Taken {
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
struct Busy {
    body: Body,
    _busy: Arc<()>,
}

impl http_body::Body for Busy {
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
