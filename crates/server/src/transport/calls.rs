//! Around every call: a place among the calls in flight, and its status counted when it ends.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bookstore::{
    Bookstore,
    fault::{Fault, Limit},
};
use http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use prometheus_client::{
    encoding::{EncodeLabel as _, EncodeLabelSet, LabelSetEncoder},
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use tokio::time::Sleep;
use tonic::{Code, Status, body::Body};
use tower::{Layer, Service};

use super::{deadline, refusal};
use crate::{
    admission::{Gate, Pass},
    http::ALWAYS_ANSWERED,
};

/// Calls by method and status.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallMetrics {
    calls: Family<Call, Counter>,
}

impl CallMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("grpc_calls", "gRPC calls that ended, by method and status", metrics.calls.clone());
        metrics
    }

    fn ended(&self, method: &'static str, code: Code) {
        self.calls.get_or_create(&Call { method, code }).inc();
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Call {
    method: &'static str,
    code: Code,
}

impl EncodeLabelSet for Call {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        ("method", self.method).encode(encoder.encode_label())?;
        ("code", format!("{:?}", self.code).as_str()).encode(encoder.encode_label())
    }
}

/// The methods that are counted by name; what else callers make up is counted as `other`.
const METHODS: [&str; 9] = [
    "/bookstore.BookStore/Hello",
    "/bookstore.BookStore/Search",
    "/bookstore.BookStore/Lookup",
    "/bookstore.BookStore/Buy",
    "/bookstore.Admin/List",
    "/bookstore.Admin/Restock",
    "/bookstore.Admin/UpdatePrice",
    "/bookstore.Admin/Log",
    "/bookstore.Admin/TailLog",
];

fn method(path: &str) -> &'static str {
    METHODS.iter().find(|method| **method == path).copied().unwrap_or("other")
}

#[derive(Clone, Debug)]
pub(super) struct AdmissionLayer {
    gate: Gate,
    metrics: CallMetrics,
    store: Bookstore,
    message_bytes: usize,
}

impl AdmissionLayer {
    pub(super) fn new(gate: Gate, metrics: CallMetrics, store: Bookstore, message_bytes: usize) -> Self {
        Self { gate, metrics, store, message_bytes }
    }
}

impl<S> Layer<S> for AdmissionLayer {
    type Service = Admission<S>;

    fn layer(&self, inner: S) -> Admission<S> {
        Admission { inner, around: self.clone() }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Admission<S> {
    inner: S,
    around: AdmissionLayer,
}

type Answer<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

impl<S> Service<Request<Body>> for Admission<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer<Infallible>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let grpc = refusal::is_grpc(&request);
        if !grpc && ALWAYS_ANSWERED.contains(&request.uri().path()) {
            return Box::pin(self.inner.call(request));
        }
        let method = method(request.uri().path());
        let around = self.around.clone();
        match around.gate.enter() {
            Ok(pass) => {
                // Started before the engine's own, so that it is over first.
                let time = deadline::of(request.headers()).map(tokio::time::sleep);
                let answer = self.inner.call(request);
                Box::pin(async move { Ok(around.watch(in_time(answer, time).await?, grpc, method, pass)) })
            }
            Err(fault) => {
                around.store.metrics().refused(Limit::CallsInFlight);
                if grpc {
                    around.metrics.ended(method, Code::ResourceExhausted);
                }
                Box::pin(async move { Ok(refusal::answer(grpc, fault)) })
            }
        }
    }
}

async fn in_time<E>(
    answer: impl Future<Output = Result<Response<Body>, E>>,
    time: Option<Sleep>,
) -> Result<Response<Body>, E> {
    let Some(time) = time else { return answer.await };
    tokio::select! {
        biased;
        answer = answer => answer,
        () = time => Ok(deadline::over().into_http()),
    }
}

impl AdmissionLayer {
    fn watch(&self, response: Response<Body>, grpc: bool, method: &'static str, pass: Pass) -> Response<Body> {
        let response = self.too_large(response);
        let mut call = Ending { metrics: self.metrics.clone(), method, open: grpc, _pass: pass };
        call.saw(response.headers());
        response.map(|inner| Body::new(Watched { inner, call }))
    }

    /// The engine calls a message that is too large `OUT_OF_RANGE`; everywhere else it is `RESOURCE_EXHAUSTED`.
    fn too_large(&self, response: Response<Body>) -> Response<Body> {
        let status = Status::from_header_map(response.headers());
        let too_large = |status: &Status| {
            status.code() == Code::OutOfRange && status.message().contains("message length too large")
        };
        if !status.as_ref().is_some_and(too_large) {
            return response;
        }
        self.store.metrics().refused(Limit::MessageBytes);
        let at = u64::try_from(self.message_bytes).unwrap_or(u64::MAX);
        Status::from(Fault::Limit { limit: Limit::MessageBytes, at }).into_http()
    }
}

/// Counts the call once, by the status it ended with.
struct Ending {
    metrics: CallMetrics,
    method: &'static str,
    open: bool,
    _pass: Pass,
}

impl Ending {
    fn saw(&mut self, headers: &HeaderMap) {
        if let (true, Some(status)) = (self.open, Status::from_header_map(headers)) {
            self.open = false;
            self.metrics.ended(self.method, status.code());
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if self.open {
            self.metrics.ended(self.method, Code::Cancelled);
        }
    }
}

struct Watched {
    inner: Body,
    call: Ending,
}

impl http_body::Body for Watched {
    type Data = <Body as http_body::Body>::Data;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Status>>> {
        let frame = ready!(http_body::Body::poll_frame(Pin::new(&mut self.inner), cx));
        if let Some(trailers) = frame.as_ref().and_then(|frame| frame.as_ref().ok()).and_then(Frame::trailers_ref) {
            self.call.saw(trailers);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
