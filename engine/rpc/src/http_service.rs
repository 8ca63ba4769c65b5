//! Type-erased tower HTTP services.

use std::future::{Future, poll_fn};
use std::pin::Pin;

use bytes::Bytes;
use tower_service::Service;

use crate::body::{Body, BoxError};

/// Future of a response.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<http::Response<Body>, BoxError>> + Send>>;

/// A type-erased tower service.
pub(crate) trait HttpService: Send + Sync {
    fn call(&self, request: http::Request<Body>) -> Answering;
}

/// Request extension: a connection already counts the call.
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
