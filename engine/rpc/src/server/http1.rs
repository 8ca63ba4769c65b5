//! HTTP/1.1 by hyper: calls and requests to the HTTP service.
//!
//! Implements: RFC 9112, by hyper.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Sleep, sleep};

use super::http_calls::{LARGE_BYTES, Unserved};
use super::http_request::{Answering, bare};
use super::http1_io::{Held, Io};
use super::memory;
use super::observer::Refusal;
use super::shared::Shared;
use super::turn;
use crate::body::{Body, BoxError};
use crate::envelope::Peer;
use crate::wake::WakeSet;

type Draining = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Serves a connection that began with `first` to its end; returns the reason, for a log.
pub(super) async fn serve<T>(
    first: Vec<u8>,
    io: T,
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    draining: Draining,
    refusing: bool,
) -> String
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = Arc::clone(&shared.limits);
    // Each request in progress holds a reference to it.
    let busy = Arc::new(());
    let in_flight = limits.connection_idle_max.map(|_| Arc::downgrade(&busy));
    let held = Arc::new(Held::default());
    let io = Io::new(first, io, Arc::clone(&held), limits.write_timeout);
    let answered = Arc::clone(&held);
    let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let exempt = shared.is_always_answered(request.uri().path().as_bytes());
        let answering = match shared.hosts.check(&request) {
            Ok(()) if refusing && !exempt => Err(Unserved::TooMany),
            Ok(()) if !exempt && shared.limits.memory.is_full() => {
                shared.limits.memory.relieve();
                shared.observer.refused(Refusal::Memory);
                Err(Unserved::TooMuch)
            }
            checked => checked.map(|()| Answering::begin(&shared, &peer, request.map(Body::http1))),
        };
        let busy = in_flight.as_ref().and_then(Weak::upgrade);
        let (answered, memory) = (Arc::clone(&answered), shared.limits.memory.clone());
        async move {
            std::future::poll_fn(turn::poll_next).await;
            let mut response = match answering {
                Ok(answering) => answering.answer().await,
                Err(why) => refusal(why),
            };
            let mut bytes = response.body().size_hint().lower();
            if bytes >= LARGE_BYTES && memory.is_full() {
                response = refusal(Unserved::TooMuch);
                bytes = 0;
            }
            answered.answer(bytes);
            Ok::<_, Infallible>(match busy {
                Some(busy) => response.map(|body| Body::any(Busy { body, _busy: busy })),
                None => response,
            })
        }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.handshake_timeout)
        .max_buf_size(limits.http1_head_bytes_max.max(8 * 1024));
    let mut connection = Box::pin(builder.serve_connection(TokioIo::new(io), service));
    let mut draining = Some(draining);
    // hyper wakes itself after some requests in one poll, and such a task keeps tokio from its sockets.
    let wakes = WakeSet::new(1);
    let waker = wakes.waker(0);
    let mut idle = Idle { allowed: limits.connection_idle_max, timer: None };
    let mut charge = limits.memory.charge();
    let ended = std::future::poll_fn(|cx| {
        turn::begin();
        wakes.unregister();
        if draining.as_mut().is_some_and(|draining| draining.as_mut().poll(cx).is_ready()) {
            draining = None;
            connection.as_mut().graceful_shutdown();
        }
        let mut polled = connection.as_mut().poll(&mut Context::from_waker(&waker));
        if polled.is_pending() && idle.poll(Arc::strong_count(&busy) > 1, cx).is_ready() {
            connection.as_mut().graceful_shutdown();
            polled = connection.as_mut().poll(&mut Context::from_waker(&waker));
        }
        wakes.register(cx.waker());
        if polled.is_pending() {
            wakes.take(|_| turn::give_way(cx));
        }
        charge.set(held.bytes(), held.moved(), cx.waker());
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
