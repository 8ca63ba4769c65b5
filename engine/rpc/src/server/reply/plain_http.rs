//! HTTP/2 requests that are not gRPC (RFC 9113 section 8), forwarded to the HTTP service.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Body as _;
use quire_http2::{Head, Indexing, is_hop_by_hop};

use super::Reply;
use crate::body::{Body, ResponseFuture};
use crate::envelope::Peer;
use crate::message::inbox::Inbox;
use crate::server::call::running::Running;
use crate::server::limits::Limits;

/// Chunks a body may send in one poll before other calls get their turn.
const CHUNKS_PER_POLL_MAX: usize = 32;

/// Converts the request to the `http` crate's; `None` if it has no such form.
pub(crate) fn request(head: &Head, inbox: Arc<Inbox>, peer: &Arc<Peer>) -> Option<http::Request<Body>> {
    let mut uri = http::Uri::builder().path_and_query(head.path());
    if !head.authority().is_empty() {
        uri = uri.scheme(head.scheme()).authority(head.authority());
    }
    let mut request = http::Request::new(Body::http2(inbox));
    *request.method_mut() = http::Method::from_bytes(head.method()).ok()?;
    *request.uri_mut() = uri.build().ok()?;
    *request.version_mut() = http::Version::HTTP_2;
    for field in head.fields() {
        let name = http::HeaderName::from_bytes(field.name()).ok()?;
        let value = http::HeaderValue::from_bytes(field.value()).ok()?;
        request.headers_mut().append(name, value);
    }
    request.extensions_mut().insert(Arc::clone(peer));
    Some(request)
}

type Put<'a> = &'a mut dyn FnMut(&[u8], &[u8], Indexing);

fn put_status(code: u16, put: Put<'_>) {
    put(b":status", code.to_string().as_bytes(), Indexing::Insert);
}

/// Reason why a request is refused by the connection.
#[derive(Clone, Copy)]
pub(crate) enum Unserved {
    /// No URI, or fields that the `http` crate rejects.
    Malformed,
    Unsupported,
    /// Wrong HTTP verb: neither POST nor, if `get`, GET.
    NotAllowed {
        get: bool,
    },
    NotFound,
    /// No host, or more than one.
    #[cfg_attr(not(feature = "http1"), expect(dead_code, reason = "HTTP/2 has `:authority`"))]
    Host,
    /// A host that is not this server's.
    Misdirected,
    Failed,
    TooMany,
    /// Too many calls are in flight.
    Busy,
    /// Memory is short.
    TooMuch,
}

impl Unserved {
    pub(crate) fn answer(self) -> (u16, &'static str) {
        match self {
            Self::Malformed => (400, "the request's path or fields are malformed\n"),
            Self::Unsupported => (415, "not served here; see the method's contract for its kind and content types\n"),
            Self::NotAllowed { get: false } => (405, "call the method with POST\n"),
            Self::NotAllowed { get: true } => (405, "call the method with POST or GET\n"),
            Self::NotFound => (404, "there is nothing at this path\n"),
            Self::Host => (400, "name one host, in one field Host\n"),
            Self::Misdirected => (421, "the server does not go by this host; its operator can add the name\n"),
            Self::Failed => (500, "the server failed to answer\n"),
            Self::Busy => (503, "too many calls are in flight; try again later\n"),
            Self::TooMuch => (503, "too many answers wait to be read; try again later\n"),
            Self::TooMany => (503, "too many connections; try again later\n"),
        }
    }
}

pub(crate) fn refuse(reply: &mut Reply<'_>, why: Unserved) {
    let (code, words) = why.answer();
    reply.state.is_over = true;
    reply.sink.send_head(false, |put| {
        put_status(code, put);
        put(b"content-type", b"text/plain; charset=utf-8", Indexing::Literal);
        match why {
            Unserved::TooMany | Unserved::Busy => put(b"retry-after", b"1", Indexing::Literal),
            Unserved::NotAllowed { get: false } => put(b"allow", b"POST", Indexing::Literal),
            Unserved::NotAllowed { get: true } => put(b"allow", b"GET, POST", Indexing::Literal),
            _ => {}
        }
    });
    reply.sink.send_slice(words.as_bytes(), true);
}

/// An HTTP request that the service is answering.
pub(crate) struct HttpRunning {
    answering: Option<ResponseFuture>,
    body: Option<Body>,
    limits: Arc<Limits>,
}

impl HttpRunning {
    pub(crate) fn new(answering: ResponseFuture, limits: Arc<Limits>) -> Self {
        Self { answering: Some(answering), body: None, limits }
    }

    /// True if memory is short for a large answer, though it sufficed when the request came.
    fn is_too_much(&self, body: &Body, reply: &Reply<'_>) -> bool {
        let held = reply.sink.queued_bytes_total();
        body.size_hint().lower() >= LARGE_BYTES
            && (held > self.limits.unsent_bytes_max || self.limits.memory.refusal(held).is_some())
    }
}

/// Smaller answers are sent even while memory is short, since their requests may have had effects.
pub(crate) const LARGE_BYTES: u64 = 64 * 1024;

fn send_head(reply: &mut Reply<'_>, head: &http::response::Parts, end: bool) {
    // curl 7 stops reading after `content-length` bytes, even the window updates that its upload waits for.
    let is_early = !reply.sink.is_receive_closed();
    let is_left_out = |name: &http::HeaderName| {
        is_hop_by_hop(name.as_str().as_bytes()) || (is_early && *name == http::header::CONTENT_LENGTH)
    };
    reply.sink.send_head(end, |put| {
        put_status(head.status.as_u16(), put);
        for (name, value) in head.headers.iter().filter(|(name, _)| !is_left_out(name)) {
            put(name.as_str().as_bytes(), value.as_bytes(), Indexing::Literal);
        }
    });
}

impl Running for HttpRunning {
    fn poll(&mut self, cx: &mut Context<'_>, reply: &mut Reply<'_>) -> Poll<()> {
        if let Some(answering) = &mut self.answering {
            let answer = ready!(answering.as_mut().poll(cx));
            self.answering = None;
            let Ok(response) = answer else {
                refuse(reply, Unserved::Failed);
                return Poll::Ready(());
            };
            let (head, body) = response.into_parts();
            if self.is_too_much(&body, reply) {
                refuse(reply, Unserved::TooMuch);
                return Poll::Ready(());
            }
            let end = body.is_end_stream();
            send_head(reply, &head, end);
            if end {
                return Poll::Ready(());
            }
            self.body = Some(body);
        }
        let Some(body) = &mut self.body else { return Poll::Ready(()) };
        for _ in 0..CHUNKS_PER_POLL_MAX {
            if !reply.has_room() {
                return Poll::Pending;
            }
            match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                None => {
                    reply.sink.send_bytes(Bytes::new(), true);
                    return Poll::Ready(());
                }
                Some(Err(_)) => {
                    reply.sink.reset();
                    return Poll::Ready(());
                }
                Some(Ok(frame)) => {
                    if send_frame(reply, frame, body.is_end_stream()) {
                        return Poll::Ready(());
                    }
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn clear(&mut self) {
        self.answering = None;
        self.body = None;
    }

    fn held_bytes(&self) -> usize {
        self.body.as_ref().map_or(0, |body| usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX))
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// Sends a body frame; true if it was the last.
fn send_frame(reply: &mut Reply<'_>, frame: http_body::Frame<Bytes>, last: bool) -> bool {
    match frame.into_data() {
        Ok(data) => {
            reply.sink.send_bytes(data, last);
            last
        }
        Err(frame) => {
            if let Ok(trailers) = frame.into_trailers() {
                reply.sink.send_head(true, |put| {
                    for (name, value) in &trailers {
                        put(name.as_str().as_bytes(), value.as_bytes(), Indexing::Literal);
                    }
                });
                return true;
            }
            false
        }
    }
}
