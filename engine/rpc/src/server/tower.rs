//! Tower integration: layers around calls, and the server as a service of axum or hyper.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use tower_layer::Layer;
use tower_service::Service;

use super::call::Shared;
use super::http1::{self, Dispatched, bare};
use crate::body::{Body, BoxError, Counted, ErasedService, HttpService, ResponseFuture};
use crate::envelope::Peer;
use crate::status::Status;

/// A server as a tower service, for axum's `fallback_service` and `route_service` or hyper's servers; clones share the
/// server's limits and counters.
///
/// Answers calls of every protocol; gRPC's need HTTP/2, since its answers end in trailers. Other requests go to the
/// service of [`Builder::http`](super::Builder::http). An `Arc<`[`Peer`]`>` in a request's extensions identifies the
/// caller, and all extensions reach the handlers.
#[derive(Clone)]
pub struct HttpCalls(Arc<dyn HttpService>);

impl HttpCalls {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self(Arc::new(Outermost(shared)))
    }
}

impl fmt::Debug for HttpCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpCalls")
    }
}

impl<B> Service<http::Request<B>> for HttpCalls
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let answering = self.0.call(request.map(Body::new));
        Box::pin(async move { Ok(answering.await.unwrap_or_else(|_| bare(http::StatusCode::INTERNAL_SERVER_ERROR))) })
    }
}

fn peer_of(request: &http::Request<Body>) -> Arc<Peer> {
    request.extensions().get::<Arc<Peer>>().cloned().unwrap_or_default()
}

/// The whole server: layers, calls, and the HTTP service.
struct Outermost(Arc<Shared>);

impl HttpService for Outermost {
    fn call(&self, request: http::Request<Body>) -> ResponseFuture {
        let answering = Dispatched::begin(&self.0, &peer_of(&request), request);
        Box::pin(async move { Ok(answering.answer().await) })
    }
}

/// Request extension: set once the call has passed the layers and reports its own end.
#[derive(Clone, Default)]
struct Begun(Arc<AtomicBool>);

/// The calls, inside all layers. Weak, because the server owns the layers.
struct Innermost(Weak<Shared>);

impl HttpService for Innermost {
    fn call(&self, mut request: http::Request<Body>) -> ResponseFuture {
        let Some(shared) = self.0.upgrade() else {
            return Box::pin(async { Err("the server is gone".into()) });
        };
        if let Some(Begun(begun)) = request.extensions_mut().remove() {
            begun.store(true, Ordering::Relaxed);
        }
        let is_counted = request.extensions_mut().remove::<Counted>().is_some();
        let begun = http1::begin_call(&shared, &peer_of(&request), request);
        Box::pin(async move {
            match begun {
                Ok(exchange) if is_counted => Ok(exchange.counted().answer().await),
                Ok(exchange) => Ok(exchange.answer().await),
                Err(_) => Ok(bare(http::StatusCode::NOT_FOUND)),
            }
        })
    }
}

/// Layer adapter that turns its failures into the calls'.
struct Recovering<S> {
    service: S,
    shared: Weak<Shared>,
}

impl<S: HttpService> HttpService for Recovering<S> {
    fn call(&self, mut request: http::Request<Body>) -> ResponseFuture {
        let begun = request.extensions_mut().get_or_insert_default::<Begun>().clone();
        // Keeps the headers that name the protocol, origin and trace for a failure.
        let mut same = http::Request::new(Body::default());
        *same.method_mut() = request.method().clone();
        *same.uri_mut() = request.uri().clone();
        *same.version_mut() = request.version();
        let [parent, state] = ["traceparent", "tracestate"].map(http::HeaderName::from_static);
        for name in [http::header::CONTENT_TYPE, http::header::ORIGIN, parent, state] {
            if let Some(value) = request.headers().get(&name) {
                same.headers_mut().insert(name, value.clone());
            }
        }
        let (shared, peer) = (self.shared.clone(), peer_of(&request));
        let answering = self.service.call(request);
        Box::pin(async move {
            let error = match answering.await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            let Some(shared) = shared.upgrade() else { return Err(error) };
            let Ok(call) = http1::begin_call(&shared, &peer, same) else { return Err(error) };
            let is_reported = begun.0.load(Ordering::Relaxed);
            Ok(call.refused(&Status::of_layer(&*error), is_reported).answer().await)
        })
    }
}

/// A layer not yet bound to its server.
pub(super) type Wrap = Box<dyn FnOnce(HttpCalls, Weak<Shared>) -> HttpCalls + Send>;

pub(super) fn wrap<L, B>(layer: L) -> Wrap
where
    L: Layer<HttpCalls> + Send + 'static,
    L::Service: Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + Sync + 'static,
    <L::Service as Service<http::Request<Body>>>::Error: Into<BoxError>,
    <L::Service as Service<http::Request<Body>>>::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    Box::new(move |inner, shared| {
        HttpCalls(Arc::new(Recovering { service: ErasedService(layer.layer(inner)), shared }))
    })
}

/// A server's calls wrapped in its layers, the first outermost; `None` without any.
pub(super) fn layered(layers: Vec<Wrap>, shared: &Weak<Shared>) -> Option<Arc<dyn HttpService>> {
    if layers.is_empty() {
        return None;
    }
    let innermost = HttpCalls(Arc::new(Innermost(shared.clone())));
    Some(layers.into_iter().rev().fold(innermost, |inner, wrap| wrap(inner, shared.clone())).0)
}
