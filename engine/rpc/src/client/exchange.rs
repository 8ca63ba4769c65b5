//! A call over HTTP/1.1: one request and its response, on a connection driven by hyper.
//!
//! Implements: RFC 9112 by hyper; `protocol` defines the heads and bodies.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;
use tokio::time::{Duration, Instant, timeout, timeout_at};

use super::answer::Answer;
use super::command::Start;
use super::http_call::{Outbound, ended, receive, request};
use super::settings::Settings;
use super::target::Target;
use super::traffic::Counters;
use crate::inbox::Inbox;
use crate::status::{Reach, Status};

/// Limit of a response's head, and of one read.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Time for a connection to become ready for its next request.
const LINGER: Duration = Duration::from_secs(1);

/// A connection that is ready for a request.
pub(super) type Connection = SendRequest<Outbound>;

/// Connects; the error is the reason.
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

/// State shared by a channel's calls.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) target: Arc<Target>,
    pub(super) settings: Arc<Settings>,
    pub(super) counters: Arc<Counters>,
    /// Encodings accepted in responses.
    pub(super) accepted: Arc<str>,
}

/// Makes a call, unless its caller cancels it. Returns the connection if it can be reused.
pub(super) async fn run(
    mut connection: Connection,
    mut start: Start,
    shared: Shared,
    mut cancelled: oneshot::Receiver<()>,
) -> Option<Connection> {
    let mut call = std::pin::pin!(async move {
        let request = match request(&mut start, &shared.target, &shared.accepted, http::Version::HTTP_11) {
            Ok(request) => request,
            Err(status) => {
                let untouched = status.reach() == Reach::Untouched;
                start.reply_to.fail(status, untouched);
                return Some(connection);
            }
        };
        let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        let inbox = || Inbox::new(waker, shared.settings.unread_bytes_max);
        let message_bytes_max = start.message_bytes_max;
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

/// Sends the request and reads the response. Returns whether it was read completely.
async fn exchange(
    connection: &mut Connection,
    request: http::Request<Outbound>,
    answer: Answer,
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
    receive(response, answer, false).await
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
