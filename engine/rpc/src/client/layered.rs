//! Calls of a channel through tower layers, as HTTP requests and responses.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::task::JoinHandle;

use super::answer::Answer;
use super::command::Start;
use super::http_call::{receive, request};
use super::settings::Settings;
use super::target::Target;
use crate::body::Body;
use crate::compression;
use crate::http_service::{Answering, HttpService};
use crate::inbox::Inbox;
use crate::status::{Reach, Status};

/// The layers that a channel's calls pass through.
pub(super) struct Layered {
    service: Box<dyn HttpService>,
    target: Arc<Target>,
    accepted: String,
    unread_bytes_max: usize,
}

impl Layered {
    pub(super) fn new(service: Box<dyn HttpService>, target: Arc<Target>, settings: &Settings) -> Self {
        let accepted = compression::accepted(&settings.accepts);
        Self { service, target, accepted, unread_bytes_max: settings.unread_bytes_max }
    }

    /// Sends any request through the layers.
    pub(super) fn call(&self, request: http::Request<Body>) -> Answering {
        self.service.call(request)
    }
}

/// Request extension: the call waits for a connection while the server is unreachable.
#[derive(Clone, Copy)]
pub(super) struct WaitsForReady;

/// A call's task within the layers; aborted on drop if armed.
pub(super) struct Task {
    handle: JoinHandle<()>,
    pub(super) armed: bool,
}

impl Drop for Task {
    fn drop(&mut self) {
        if self.armed {
            self.handle.abort();
        }
    }
}

/// Makes a call through the layers. A task carries it, since a stream's response arrives while the caller reads it.
pub(super) fn spawn(layered: &Arc<Layered>, start: Start) -> Task {
    let layered = Arc::clone(layered);
    Task { handle: tokio::spawn(async move { run(&layered, start).await }), armed: true }
}

async fn run(layered: &Layered, mut start: Start) {
    let fail = |start: Start, status: Status| {
        let untouched = status.reach() == Reach::Untouched;
        start.reply_to.fail(status, untouched);
    };
    let request = match request(&mut start, &layered.target, &layered.accepted, http::Version::HTTP_2) {
        Ok(request) => request,
        Err(status) => return fail(start, status),
    };
    let mut request = request.map(Body::new);
    if start.waits_for_ready {
        request.extensions_mut().insert(WaitsForReady);
    }
    let response = match layered.service.call(request).await {
        Ok(response) => response,
        Err(error) => {
            let status = Status::of_layer(&*error);
            return fail(start, status);
        }
    };
    let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    let inbox = || Inbox::new(waker, layered.unread_bytes_max);
    let Start { dialect, reply_to, message_bytes_max, is_timed, is_unread, .. } = start;
    let answer = Answer::new(dialect, reply_to, message_bytes_max, (is_timed, is_unread), inbox);
    receive(response, answer, true).await;
}
