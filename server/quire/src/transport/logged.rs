//! HTTP requests of pages and over REST in the log of calls and in traces, from their heads until their bodies are read
//! and written.

use std::{
    convert::Infallible,
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU16, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use axum::{
    Error, Router,
    body::{Body, Bytes},
    extract::Request,
    http::{self, HeaderValue},
    middleware::{self, Next},
    response::Response,
    routing::future::RouteFuture,
};
use http_body::{Frame, SizeHint};
use operate::traces::{Ended, Traces, number, text};
use quire_rpc::{Peer, TraceContext};
use tower_service::Service;

use super::observer::client;
use crate::telemetry::{CallLog, HttpReport};

/// Methods that a span may have as they are.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// A router, and the same with its requests logged and traced, for the time in which either is on.
#[derive(Clone)]
pub(super) struct Switched(Arc<(Router, Router, Arc<CallLog>, bool)>);

impl Service<http::Request<quire_rpc::Body>> for Switched {
    type Response = Response;
    type Error = Infallible;
    type Future = RouteFuture<Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<quire_rpc::Body>) -> Self::Future {
        let (plain, logged, log, is_traced) = &*self.0;
        let router = if *is_traced || log.is_on.load(Relaxed) { logged } else { plain };
        router.clone().call(request)
    }
}

/// Logs and traces the requests of a router with this scheme, as far as either is on.
pub(super) fn logged(router: Router, scheme: &'static str, log: Arc<CallLog>, traces: Option<Traces>) -> Switched {
    let (plain, calls, is_traced) = (router.clone(), Arc::clone(&log), traces.is_some());
    let logged = router.layer(middleware::from_fn(move |request: Request, next: Next| {
        let logged = Logged::new(scheme, &calls, traces.as_ref(), &request);
        async move {
            let Some(logged) = logged.map(Arc::new) else { return next.run(request).await };
            let (mut head, body) = request.into_parts();
            head.extensions.insert(Arc::clone(&logged));
            let counted = Counted { body, logged: Arc::clone(&logged), count: |logged| &logged.bytes_in };
            // Of a client that leaves, the handler is dropped between these two.
            let _dropped = OnDrop(|| logged.add_waited());
            let mut answering = pin!(next.run(Request::from_parts(head, Body::new(counted))));
            let _dropping = OnDrop(commit::measure_waits);
            let answer: Response = poll_fn(|cx| {
                commit::measure_waits();
                let answer = answering.as_mut().poll(cx);
                logged.add_waited();
                answer
            })
            .await;
            logged.status.store(answer.status().as_u16(), Relaxed);
            let logged = Arc::clone(&logged);
            answer.map(|body| Body::new(Counted { body, logged, count: |logged| &logged.bytes_out }))
        }
    }));
    Switched(Arc::new((plain, logged, log, is_traced)))
}

/// Calls a function when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A request that is logged or traced when it and its answer are dropped.
#[derive(Debug)]
pub(super) struct Logged {
    scheme: &'static str,
    log: Option<Arc<CallLog>>,
    caller: Option<TraceContext>,
    /// Set if it is traced.
    span: Option<(Traces, TraceContext)>,
    start: Instant,
    method: String,
    peer: Option<Arc<Peer>>,
    request_id: Option<HeaderValue>,
    credential: OnceLock<Arc<str>>,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    commit_ns: AtomicU64,
    /// 0 until the answer begins.
    status: AtomicU16,
}

impl Logged {
    /// `None` if the request is neither logged nor traced.
    fn new(scheme: &'static str, log: &Arc<CallLog>, traces: Option<&Traces>, request: &Request) -> Option<Self> {
        let log = log.is_on.load(Relaxed).then(|| Arc::clone(log));
        let fields = || request.headers().iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
        let caller = TraceContext::of_fields(fields);
        let span = traces.and_then(|traces| Some((traces.clone(), traces.begin(caller.as_ref())?)));
        (log.is_some() || span.is_some()).then(|| Self {
            scheme,
            log,
            caller,
            span,
            start: Instant::now(),
            // A query may hold what is no one else's concern.
            method: format!("{} {}", request.method(), request.uri().path()),
            peer: request.extensions().get().cloned(),
            request_id: request.headers().get("x-request-id").cloned(),
            credential: OnceLock::new(),
            bytes_in: 0.into(),
            bytes_out: 0.into(),
            commit_ns: 0.into(),
            status: 0.into(),
        })
    }

    /// Adds the waits for commits since they were measured.
    fn add_waited(&self) {
        let waited = u64::try_from(commit::waited().as_nanos()).unwrap_or(u64::MAX);
        self.commit_ns.fetch_add(waited, Relaxed);
    }

    /// Names the caller's credential.
    pub(super) fn set_credential(&self, name: &Arc<str>) {
        // Set once a request.
        let _ = self.credential.set(Arc::clone(name));
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        let report = HttpReport {
            method: &self.method,
            status: Some(self.status.load(Relaxed)).filter(|status| *status > 0),
            elapsed: self.start.elapsed(),
            committing: Duration::from_nanos(self.commit_ns.load(Relaxed)),
            bytes_in: self.bytes_in.load(Relaxed),
            bytes_out: self.bytes_out.load(Relaxed),
            peer: self.peer.as_ref().and_then(|peer| peer.address),
            credential: self.credential.get().map(|name| &**name),
            request_id: self.request_id.as_ref().map(HeaderValue::as_bytes),
            trace_id: self.span.as_ref().map(|(_, own)| own).or(self.caller.as_ref()).map(|known| known.trace_id),
        };
        if let Some(log) = &self.log {
            log.http_ended(&report);
        }
        if let Some((traces, own)) = &self.span {
            let (client, caller) = (client(report.credential, report.peer), self.caller.as_ref());
            traces.ended(&client, caller.is_some(), || span(&report, self.scheme, own, caller));
        }
    }
}

/// A request's span, with the attributes of OpenTelemetry's semantic conventions 1.37.0.
fn span<'a>(request: &HttpReport<'_>, scheme: &str, own: &'a TraceContext, caller: Option<&TraceContext>) -> Ended<'a> {
    let (method, path) = request.method.split_once(' ').unwrap_or_default();
    let known = METHODS.into_iter().find(|known| *known == method);
    let mut attributes = vec![
        text("http.request.method", known.unwrap_or("_OTHER")),
        text("url.scheme", scheme),
        text("url.path", path),
        number("quire.commit_ns", request.committing.as_nanos()),
    ];
    attributes.extend(request.status.map(|status| number("http.response.status_code", status)));
    attributes.extend(request.peer.map(|peer| text("client.address", &peer.ip().to_string())));
    // Without an answer, the client was gone before it.
    let failed = request.status.filter(|status| *status >= 500);
    attributes.extend(failed.map(|status| text("error.type", &status.to_string())));
    Ended {
        name: known.unwrap_or("HTTP"),
        own,
        parent: caller.map(|caller| caller.span_id),
        elapsed: request.elapsed,
        is_error: failed.is_some(),
        attributes,
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

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use commit::{Batch, Batches, Group, GroupLimits, Worker};

    use super::*;
    use crate::telemetry::{Calls, Outcomes};

    /// Answers nothing.
    struct Silent(Batch<Self>);

    impl Worker for Silent {
        type Job = ();
        type Answer = ();
        type Error = Infallible;

        fn run(&mut self, batches: &mut Batches<'_, Self>) -> Result<(), Infallible> {
            while let Some(batch) = batches.next(false) {
                self.0.extend(batch);
            }
            Ok(())
        }

        fn failed(&mut self, _: &Infallible, _: u32) {}
    }

    #[tokio::test]
    async fn a_request_whose_client_leaves_has_its_wait_for_a_commit() {
        let group = Arc::new(Group::start("silent", GroupLimits::default(), [Silent(Vec::new())]).expect("a group"));
        let seen = Arc::<OnceLock<Arc<Logged>>>::default();
        let begun = Arc::clone(&seen);
        let handler = async move |request: Request| {
            begun.get_or_init(|| Arc::clone(request.extensions().get().expect("it is logged")));
            let _ = group.commit(()).await;
        };
        let calls = Calls { outcomes: Outcomes::All, sample: 1.0, slower_than: Duration::ZERO, per_second: 1 };
        let mut router = logged(Router::new().route("/", get(handler)), "http", calls.log(), None);
        let mut call = Box::pin(router.call(http::Request::new(quire_rpc::Body::default())));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(call.as_mut().poll(&mut cx).is_pending());
        let seen = seen.get().expect("its handler waits");
        let start = Instant::now();
        while start.elapsed().is_zero() {}
        assert_eq!(seen.commit_ns.load(Relaxed), 0);
        drop(call);
        assert!(seen.commit_ns.load(Relaxed) > 0);
    }

    fn attributes(method: &str, status: Option<u16>) -> (String, bool, String) {
        let report = HttpReport {
            method,
            status,
            elapsed: Duration::ZERO,
            committing: Duration::ZERO,
            bytes_in: 0,
            bytes_out: 0,
            peer: None,
            credential: None,
            request_id: None,
            trace_id: None,
        };
        let own = TraceContext::new([1; 16], [2; 8]);
        let span = span(&report, "http", &own, None);
        (span.name.to_owned(), span.is_error, format!("{:?}", span.attributes))
    }

    #[test]
    fn a_span_has_no_text_of_a_callers_length() {
        let (name, is_error, shown) = attributes(&format!("GET /{}", "p".repeat(60_000)), Some(200));
        assert_eq!((&*name, is_error), ("GET", false));
        assert!(shown.contains(&"p".repeat(255)) && !shown.contains(&"p".repeat(256)), "{shown}");
        let (name, _, shown) = attributes(&format!("{} /", "X".repeat(60_000)), Some(405));
        assert_eq!(name, "HTTP");
        assert!(shown.contains("_OTHER") && !shown.contains('X'), "{shown}");
    }

    #[test]
    fn only_a_status_of_the_server_is_an_error() {
        for (status, expected) in [(None, false), (Some(200), false), (Some(404), false), (Some(503), true)] {
            let (_, is_error, shown) = attributes("GET /", status);
            assert_eq!((is_error, shown.contains("error.type")), (expected, expected), "{shown}");
        }
    }
}
