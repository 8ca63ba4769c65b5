//! A call over HTTP/1.1: one request and its answer, on a connection that hyper reads and writes.
//!
//! Must not know other calls.
//!
//! Implements: RFC 9112 by hyper; `protocol` says what stands in heads and bodies.

use std::error::Error as _;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use quire_http2::{Field, Head};
use tokio::sync::oneshot;
use tokio::time::{Duration, Instant, timeout, timeout_at};

use super::answer::Answer;
use super::command::{Body, Outgoing, Start};
use super::request::RequestHead;
use super::settings::Settings;
use super::target::Target;
use super::traffic::Counters;
use crate::status::{Reach, Status};
use crate::streaming::Inbox;

/// The head of an answer, and what is read at once.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// How long a connection may take to be ready for its next request.
const LINGER: Duration = Duration::from_secs(1);

/// A connection that is ready for a request.
pub(super) type Connection = SendRequest<Outbound>;

/// The body of a request.
pub(super) enum Outbound {
    Whole(Bytes),
    Messages(Box<dyn Outgoing>),
    Over,
}

impl http_body::Body for Outbound {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = match &mut *self {
            Self::Over => None,
            Self::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Self::Over;
                Some(Ok(Frame::data(bytes)))
            }
            Self::Messages(outgoing) => {
                let mut framed = Vec::new();
                let more = ready!(outgoing.poll_next(cx, &mut framed));
                if !matches!(more, Ok(true)) {
                    *self = Self::Over;
                }
                more.map(|more| more.then(|| Frame::data(framed.into()))).transpose()
            }
        };
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Messages(_) => false,
            Self::Over => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Messages(_) => SizeHint::default(),
            Self::Over => SizeHint::with_exact(0),
        }
    }
}

/// Connects; the reason if that fails.
pub(super) async fn connect(
    target: Arc<Target>,
    counters: Arc<Counters>,
    settings: Arc<Settings>,
) -> Result<Connection, String> {
    let deadline = Instant::now() + settings.connect_timeout;
    let connected = timeout_at(deadline, target.connect(&counters)).await;
    let io = connected.map_err(|_| "no connection in time".to_owned())?.map_err(|error| error.to_string())?;
    let mut builder = Builder::new();
    builder.max_buf_size(BUFFER_BYTES_MAX);
    let (sender, connection) = builder.handshake(TokioIo::new(io)).await.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    Ok(sender)
}

fn request(start: &mut Start, target: &Target, accepted: &str) -> Result<http::Request<Outbound>, Status> {
    let late = || Status::deadline_exceeded("time was up before the call began").with_reach(Reach::Untouched);
    let left = |deadline: Instant| deadline.checked_duration_since(Instant::now()).ok_or_else(late);
    let timeout = start.deadline.map(left).transpose()?;
    let wrong = || Status::internal("the call's path, authority or metadata cannot be written in HTTP/1.1");
    let (mut parts, ()) = http::Request::new(()).into_parts();
    let mut is_legal = true;
    RequestHead::new(start, target, accepted, timeout).put(&mut |name, value, _| match name {
        b":scheme" => {}
        b":method" => parts.method = http::Method::from_bytes(value).unwrap_or_default(),
        b":path" => match http::Uri::try_from(value) {
            Ok(uri) => parts.uri = uri,
            Err(_) => is_legal = false,
        },
        _ => {
            let name = if name == b":authority" { b"host" } else { name };
            match (http::HeaderName::from_bytes(name), http::HeaderValue::from_bytes(value)) {
                (Ok(name), Ok(value)) => drop(parts.headers.append(name, value)),
                _ => is_legal = false,
            }
        }
    });
    let (from, is_bodiless) = (start.body_start(), start.is_bodiless());
    let body = match std::mem::replace(&mut start.body, Body::Message(Vec::new())) {
        _ if is_bodiless => Outbound::Over,
        Body::Message(framed) => Outbound::Whole(Bytes::from(framed).slice(from..)),
        Body::Shared(framed) => Outbound::Whole(framed.slice(from..)),
        Body::Messages(outgoing) => Outbound::Messages(outgoing),
    };
    if is_legal { Ok(http::Request::from_parts(parts, body)) } else { Err(wrong()) }
}

/// An answer's head as HTTP/2 has it.
fn head(response: &http::Response<Incoming>) -> Result<Arc<Head>, Status> {
    let mut fields = vec![Field::new(b":status", response.status().as_str().as_bytes())];
    for (name, value) in response.headers() {
        let belongs_to_connection =
            matches!(name.as_str(), "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade");
        if !belongs_to_connection {
            fields.push(Field::new(name.as_str().as_bytes(), value.as_bytes()));
        }
    }
    let head = Head::response(fields);
    head.map(Arc::new).map_err(|error| Status::internal(format!("the answer's head is malformed: {error}")))
}

/// Why hyper gave up: the stream of messages that failed, or the connection.
fn ended(error: &hyper::Error) -> Status {
    let ours = error.source().and_then(|source| source.downcast_ref::<Status>());
    ours.cloned().unwrap_or_else(|| Status::unavailable(format!("the connection ended: {error}")))
}

/// What calls of a channel share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) target: Arc<Target>,
    pub(super) settings: Arc<Settings>,
    pub(super) counters: Arc<Counters>,
    /// The encodings that answers may have.
    pub(super) accepted: Arc<str>,
}

/// Makes a call, unless its caller cancels it. Gives the connection back if another call can have it.
pub(super) async fn run(
    mut connection: Connection,
    mut start: Start,
    shared: Shared,
    mut cancelled: oneshot::Receiver<()>,
) -> Option<Connection> {
    let mut call = std::pin::pin!(async move {
        let request = match request(&mut start, &shared.target, &shared.accepted) {
            Ok(request) => request,
            Err(status) => {
                let untouched = status.reach() == Reach::Untouched;
                start.reply_to.fail(status, untouched);
                return Some(connection);
            }
        };
        let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        let inbox = || Inbox::new(waker, shared.settings.unread_bytes_max);
        let message_bytes_max = shared.settings.message_bytes_max;
        let answer =
            Answer::new(start.dialect, start.reply_to, message_bytes_max, (start.is_timed, start.is_unread), inbox);
        let is_whole = exchange(&mut connection, request, answer, &shared).await;
        let is_ready = is_whole && matches!(timeout(LINGER, connection.ready()).await, Ok(Ok(())));
        is_ready.then_some(connection)
    });
    poll_fn(|cx| {
        if Pin::new(&mut cancelled).poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        call.as_mut().poll(cx)
    })
    .await
}

/// Sends the request and reads the answer. Returns whether all of it was read.
async fn exchange(
    connection: &mut Connection,
    request: http::Request<Outbound>,
    mut answer: Answer,
    shared: &Shared,
) -> bool {
    let response = match send(connection, request, shared).await {
        Ok(response) => response,
        Err(status) => {
            let untouched = status.reach() == Reach::Untouched;
            answer.fail(status, untouched);
            return false;
        }
    };
    if answer.is_timed {
        answer.head_at = Some(std::time::Instant::now());
    }
    let begun = head(&response).and_then(|head| answer.head(&head));
    if let Err(status) = begun {
        answer.fail(status, false);
        return false;
    }
    let mut body = response.into_body();
    loop {
        let data = poll_fn(|cx| {
            if answer.is_abandoned() {
                return Poll::Ready(None);
            }
            if answer.is_stalled() {
                return Poll::Pending;
            }
            Pin::new(&mut body).poll_frame(cx).map(Some)
        })
        .await;
        let taken = match data {
            // The caller has dropped the stream.
            None => return false,
            Some(None) => break,
            Some(Some(Ok(frame))) => answer.data(&frame.into_data().unwrap_or_default()).map(drop),
            Some(Some(Err(error))) => Err(ended(&error)),
        };
        if let Err(status) = taken {
            answer.fail(status, false);
            return false;
        }
    }
    answer.end(None);
    true
}

/// Sends the request; on a new connection if the server has closed this one in the meantime.
async fn send(
    connection: &mut Connection,
    request: http::Request<Outbound>,
    shared: &Shared,
) -> Result<http::Response<Incoming>, Status> {
    let mut error = match connection.try_send_request(request).await {
        Ok(response) => return Ok(response),
        Err(error) => error,
    };
    let Some(request) = error.take_message() else { return Err(ended(error.error())) };
    let Shared { target, settings, counters, .. } = shared.clone();
    let untouched = |reason: String| Status::unavailable(reason).with_reach(Reach::Untouched);
    *connection = connect(target, counters, settings).await.map_err(untouched)?;
    connection.try_send_request(request).await.map_err(|mut error| {
        let status = ended(error.error());
        if error.take_message().is_some() { status.with_reach(Reach::Untouched) } else { status }
    })
}
