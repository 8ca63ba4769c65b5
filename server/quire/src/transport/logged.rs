//! HTTP requests of pages and over REST in the log of calls, from their heads until their bodies are read and written.

use std::{
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU16, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Instant,
};

use axum::{
    Error, Router,
    body::{Body, Bytes},
    extract::Request,
    http::HeaderValue,
    middleware::{self, Next},
    response::Response,
};
use http_body::{Frame, SizeHint};
use quire_rpc::Peer;

use crate::telemetry::{CallLog, HttpReport};

/// Logs the requests of a router, if there is a log.
pub(super) fn logged(router: Router, log: Option<Arc<CallLog>>) -> Router {
    let Some(log) = log else { return router };
    router.layer(middleware::from_fn(move |request: Request, next: Next| {
        let logged = Arc::new(Logged::new(Arc::clone(&log), &request));
        async move {
            let (mut head, body) = request.into_parts();
            head.extensions.insert(Arc::clone(&logged));
            let counted = Counted { body, logged: Arc::clone(&logged), count: |logged| &logged.bytes_in };
            let answer: Response = next.run(Request::from_parts(head, Body::new(counted))).await;
            logged.status.store(answer.status().as_u16(), Relaxed);
            answer.map(|body| Body::new(Counted { body, logged, count: |logged| &logged.bytes_out }))
        }
    }))
}

/// A request that is logged when it and its answer are dropped.
#[derive(Debug)]
pub(super) struct Logged {
    log: Arc<CallLog>,
    start: Instant,
    method: String,
    peer: Option<Arc<Peer>>,
    request_id: Option<HeaderValue>,
    credential: OnceLock<Arc<str>>,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    /// 0 until the answer begins.
    status: AtomicU16,
}

impl Logged {
    fn new(log: Arc<CallLog>, request: &Request) -> Self {
        Self {
            log,
            start: Instant::now(),
            // A query may hold what is no one else's concern.
            method: format!("{} {}", request.method(), request.uri().path()),
            peer: request.extensions().get().cloned(),
            request_id: request.headers().get("x-request-id").cloned(),
            credential: OnceLock::new(),
            bytes_in: 0.into(),
            bytes_out: 0.into(),
            status: 0.into(),
        }
    }

    /// Names the caller's credential.
    pub(super) fn set_credential(&self, name: &Arc<str>) {
        // Set once a request.
        let _ = self.credential.set(Arc::clone(name));
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        self.log.http_ended(&HttpReport {
            method: &self.method,
            status: Some(self.status.load(Relaxed)).filter(|status| *status > 0),
            elapsed: self.start.elapsed(),
            bytes_in: self.bytes_in.load(Relaxed),
            bytes_out: self.bytes_out.load(Relaxed),
            peer: self.peer.as_ref().and_then(|peer| peer.address),
            credential: self.credential.get().map(|name| &**name),
            request_id: self.request_id.as_ref().map(HeaderValue::as_bytes),
        });
    }
}

/// A body whose bytes are counted.
struct Counted {
    body: Body,
    logged: Arc<Logged>,
    count: fn(&Logged) -> &AtomicU64,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            (self.count)(&self.logged).fetch_add(data.len() as u64, Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
