//! Integration with tower: layers around a channel's calls, and the channel as an HTTP service.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Body as _;
use tower_layer::Layer;
use tower_service::Service;

use super::call::attempt::{self, Attempt, HttpHead, Outgoing, ReplyTo};
use super::call::http::{Layers, WaitsForReady, connection_ended};
use super::call::prepared::perform_transparently;
use super::channel::Channel;
use super::settings::HttpVersion;
use crate::body::{Body, BoxError, ErasedService, fields};
use crate::status::Status;

impl Channel {
    /// Returns a clone whose calls pass a tower layer as HTTP requests, after its interceptors and again on each retry.
    /// Of several layers the last is outermost. Other clones are unaffected.
    ///
    /// A layer that fails with a [`Status`] fails the call with it, and any other failure is `UNKNOWN`.
    #[must_use]
    pub fn layered<L, B>(&self, layer: L) -> Self
    where
        L: Layer<HttpChannel>,
        L::Service: Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + Sync + 'static,
        <L::Service as Service<http::Request<Body>>>::Error: Into<BoxError>,
        <L::Service as Service<http::Request<Body>>>::Future: Send,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let service = Box::new(ErasedService(layer.layer(HttpChannel(self.clone()))));
        let layers = Layers::new(service, Arc::clone(self.target()), self.settings());
        let mut channel = self.clone();
        channel.layers = Some(Arc::new(layers));
        channel
    }
}

/// A channel as a tower HTTP service: forwards any request over the channel's connections and returns the response
/// unchanged. Requests without an authority get the channel's.
#[derive(Clone, Debug)]
pub struct HttpChannel(Channel);

impl From<Channel> for HttpChannel {
    fn from(channel: Channel) -> Self {
        Self(channel)
    }
}

impl<B> Service<http::Request<B>> for HttpChannel
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = http::Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let request = request.map(Body::new);
        if let Some(layers) = &self.0.layers {
            return layers.call(request);
        }
        let channel = self.0.clone();
        Box::pin(async move { Ok(send(&channel, request).await?) })
    }
}

/// Sends a request over the channel's connections.
async fn send(channel: &Channel, request: http::Request<Body>) -> Result<http::Response<Body>, Status> {
    let (mut parts, body) = request.into_parts();
    if parts.uri.authority().is_none() {
        let target = channel.target();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let scheme = if target.is_https { "https" } else { "http" };
        let uri = http::Uri::builder().scheme(scheme).authority(target.authority.as_str()).path_and_query(path);
        let wrong = |error| Status::internal(format!("the request's URI is malformed: {error}"));
        parts.uri = uri.build().map_err(wrong)?;
    }
    let head = Arc::new(HttpHead::streamed(&parts, body.is_end_stream()));
    let waits_for_ready = parts.extensions.get::<WaitsForReady>().is_some();
    let body = attempt::Body::Messages(Box::new(Chunks(body)));
    let attempt = |body, sender| Attempt::http(Arc::clone(&head), waits_for_ready, body, ReplyTo::Stream(sender));
    let received = perform_transparently(channel, &AtomicBool::new(true), body, attempt)
        .await
        .map_err(|failure| failure.status)?;
    let Some(head) = received.metadata.head() else { return Err(Status::internal("the answer has no head")) };
    let mut response = http::Response::new(Body::answer(received.inbox));
    let status = http::StatusCode::from_u16(head.status_code().unwrap_or(0));
    *response.status_mut() = status.map_err(|_| Status::internal("the answer's status is malformed"))?;
    *response.headers_mut() = fields(head);
    if channel.settings().http == HttpVersion::Http2 {
        *response.version_mut() = http::Version::HTTP_2;
    }
    Ok(response)
}

/// The bytes of a body to send.
struct Chunks(Body);

impl Outgoing for Chunks {
    fn poll_next(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Result<bool, Status>> {
        match ready!(Pin::new(&mut self.0).poll_frame(cx)) {
            None => Poll::Ready(Ok(false)),
            Some(Ok(frame)) => {
                // Requests have no trailers in any supported protocol.
                out.extend_from_slice(&frame.into_data().unwrap_or_default());
                Poll::Ready(Ok(true))
            }
            Some(Err(error)) => Poll::Ready(Err(connection_ended(error))),
        }
    }
}
