//! A tower service of HTTP whose types are erased.
//!
//! Must not know what the service answers, nor connections.
//!
//! Implements: no specification.

use std::future::{Future, poll_fn};
use std::pin::Pin;

use bytes::Bytes;
use tower_service::Service;

use crate::body::{Body, BoxError};

/// The answer to a request, later.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<http::Response<Body>, BoxError>> + Send>>;

/// A tower service whose types are erased.
pub(crate) trait HttpService: Send + Sync {
    fn call(&self, request: http::Request<Body>) -> Answering;
}

/// Among a request's extensions: a connection counts the call already.
#[derive(Clone, Copy)]
pub(crate) struct Counted;

pub(crate) struct Erased<S>(pub(crate) S);

impl<S, B> HttpService for Erased<S>
where
    S: Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn call(&self, request: http::Request<Body>) -> Answering {
        let mut service = self.0.clone();
        Box::pin(async move {
            poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
            let response = service.call(request).await.map_err(Into::into)?;
            Ok(response.map(Body::new))
        })
    }
}
