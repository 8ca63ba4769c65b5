//! HTTP/1.1, which is handed to hyper: calls and what the HTTP service answers.
//!
//! Implements: RFC 9112, by hyper.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::exchange::{self, Begun, Exchange};
use super::http_calls::{self, AnyBody, BodyFailed};
use super::shared::Shared;
use crate::body::Body;
use crate::envelope::Peer;

type Draining = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Serves a connection that began with `first` to its end; the answer is the reason, for a log.
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
    let io = Rewound { first, taken: 0, io };
    let limits = Arc::clone(&shared.limits);
    let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let answering = if refusing {
            Answering::Bare(http::StatusCode::SERVICE_UNAVAILABLE)
        } else {
            Answering::begin(&shared, &peer, request)
        };
        async move { Ok::<_, Infallible>(answering.answer().await) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.handshake_timeout)
        .max_buf_size(limits.http1_head_bytes_max.max(8 * 1024));
    let mut connection = Box::pin(builder.serve_connection(TokioIo::new(io), service));
    let mut draining = Some(draining);
    let ended = std::future::poll_fn(|cx| {
        if draining.as_mut().is_some_and(|draining| draining.as_mut().poll(cx).is_ready()) {
            draining = None;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx)
    });
    match ended.await {
        Ok(()) => "closed".to_owned(),
        Err(error) => format!("HTTP/1.1: {error}"),
    }
}

/// How a request is answered.
enum Answering {
    Call(Box<Exchange>),
    Http(http_calls::Answering),
    Bare(http::StatusCode),
}

impl Answering {
    fn begin(shared: &Arc<Shared>, peer: &Arc<Peer>, request: http::Request<hyper::body::Incoming>) -> Self {
        match exchange::begin(shared, peer, request) {
            Begun::Call(exchange) => Self::Call(exchange),
            Begun::Http(request) => {
                let Some(http) = &shared.http else { return Self::Bare(http::StatusCode::NOT_FOUND) };
                let mut request = request.map(Body::http1);
                request.extensions_mut().insert(Arc::clone(peer));
                Self::Http(http.call(request))
            }
        }
    }

    async fn answer(self) -> http::Response<AnyBody> {
        match self {
            Self::Call(exchange) => {
                let mut exchange = Some(exchange);
                let response = std::future::poll_fn(|cx| Exchange::poll_response(&mut exchange, cx)).await;
                response.map(|body| Pin::from(body) as AnyBody)
            }
            Self::Http(answering) => answering.await.unwrap_or_else(|_| bare(http::StatusCode::INTERNAL_SERVER_ERROR)),
            Self::Bare(status) => bare(status),
        }
    }
}

/// A last answer without a body.
fn bare(status: http::StatusCode) -> http::Response<AnyBody> {
    let mut response = http::Response::new(Box::pin(Nothing) as AnyBody);
    *response.status_mut() = status;
    if status.is_server_error() {
        response.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    }
    response.headers_mut().insert(http::header::CONNECTION, http::HeaderValue::from_static("close"));
    response
}

struct Nothing;

impl http_body::Body for Nothing {
    type Data = bytes::Bytes;
    type Error = BodyFailed;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, BodyFailed>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(0)
    }
}

/// A transport of which some bytes were read already.
struct Rewound<T> {
    first: Vec<u8>,
    taken: usize,
    io: T,
}

impl<T: AsyncRead + Unpin> AsyncRead for Rewound<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let left = &self.first[self.taken..];
        if left.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buffer);
        }
        let count = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..count]);
        self.taken += count;
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Rewound<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
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
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
