//! Bodies of HTTP requests and responses as one type, over either version of HTTP or from another library, and tower
//! services of them, type-erased.
//!
//! Implements: RFC 9110 section 6.4 (content), over RFC 9112 and RFC 9113.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tower_service::Service;

use crate::message::inbox::Inbox;

/// Any error of a body or a service.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A type-erased body.
type AnyBody = Pin<Box<dyn http_body::Body<Data = Bytes, Error = BoxError> + Send>>;

enum Inner {
    Empty,
    #[cfg(feature = "http1")]
    Http1(hyper::body::Incoming),
    /// Of a request over HTTP/2, which has no trailers.
    Http2(Arc<Inbox>),
    /// Of a response over HTTP/2; true while its trailers are unread.
    #[cfg(all(feature = "client", feature = "tower"))]
    Answer(Arc<Inbox>, bool),
    Any(AnyBody),
}

/// The body of an HTTP request or response.
pub struct Body {
    inner: Inner,
}

impl Body {
    /// Wraps a body of any other type; one of this type is returned unchanged.
    pub fn new<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let mut body = Some(body);
        if let Some(same) = (&mut body as &mut dyn Any).downcast_mut::<Option<Self>>() {
            return same.take().unwrap_or_default();
        }
        Self { inner: body.map_or(Inner::Empty, |body| Inner::Any(Box::pin(Erased(Box::pin(body))))) }
    }

    #[cfg(feature = "http1")]
    pub(crate) fn http1(incoming: hyper::body::Incoming) -> Self {
        Self { inner: Inner::Http1(incoming) }
    }

    pub(crate) fn http2(inbox: Arc<Inbox>) -> Self {
        Self { inner: Inner::Http2(inbox) }
    }

    #[cfg(all(feature = "client", feature = "tower"))]
    pub(crate) fn answer(inbox: Arc<Inbox>) -> Self {
        Self { inner: Inner::Answer(inbox, true) }
    }

    pub(crate) fn any(body: impl http_body::Body<Data = Bytes, Error = BoxError> + Send + 'static) -> Self {
        Self { inner: Inner::Any(Box::pin(body)) }
    }
}

/// An empty body.
impl Default for Body {
    fn default() -> Self {
        Self { inner: Inner::Empty }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.get_mut().inner {
            Inner::Empty => Poll::Ready(None),
            #[cfg(feature = "http1")]
            Inner::Http1(incoming) => Pin::new(incoming).poll_frame(cx).map_err(Into::into),
            Inner::Http2(inbox) => inbox.poll_data(cx).map(|next| match next {
                Ok(chunk) => Some(Ok(Frame::data(chunk))),
                Err(None) => None,
                Err(Some(status)) => Some(Err(status.into())),
            }),
            #[cfg(all(feature = "client", feature = "tower"))]
            Inner::Answer(inbox, has_trailers) => inbox.poll_data(cx).map(|next| match next {
                Ok(chunk) => Some(Ok(Frame::data(chunk))),
                Err(None) if std::mem::take(has_trailers) => {
                    trailers(inbox).map(|trailers| Ok(Frame::trailers(trailers)))
                }
                Err(None) => None,
                Err(Some(status)) => Some(Err(status.into())),
            }),
            Inner::Any(body) => body.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Empty => true,
            #[cfg(feature = "http1")]
            Inner::Http1(incoming) => incoming.is_end_stream(),
            Inner::Http2(inbox) => inbox.is_read_to_end(),
            #[cfg(all(feature = "client", feature = "tower"))]
            Inner::Answer(inbox, has_trailers) => !has_trailers && inbox.is_read_to_end(),
            Inner::Any(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Empty => SizeHint::with_exact(0),
            #[cfg(feature = "http1")]
            Inner::Http1(incoming) => incoming.size_hint(),
            Inner::Http2(_) => SizeHint::default(),
            #[cfg(all(feature = "client", feature = "tower"))]
            Inner::Answer(..) => SizeHint::default(),
            Inner::Any(body) => body.size_hint(),
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        match &self.inner {
            Inner::Http2(inbox) => inbox.abandon(),
            #[cfg(all(feature = "client", feature = "tower"))]
            Inner::Answer(inbox, _) => inbox.abandon(),
            _ => {}
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Body")
    }
}

/// Trailers of a response; none if it has none.
#[cfg(all(feature = "client", feature = "tower"))]
fn trailers(inbox: &Inbox) -> Option<http::HeaderMap> {
    inbox.trailers()?.head().map(|head| fields(head))
}

/// Header fields of a head, without those that the `http` crate rejects.
#[cfg(all(feature = "client", feature = "tower"))]
pub(crate) fn fields(head: &quire_http2::Head) -> http::HeaderMap {
    let mut fields = http::HeaderMap::new();
    for field in head.fields() {
        if let (Ok(name), Ok(value)) =
            (http::HeaderName::from_bytes(field.name()), http::HeaderValue::from_bytes(field.value()))
        {
            fields.append(name, value);
        }
    }
    fields
}

/// A foreign body with boxed errors.
struct Erased<B>(Pin<Box<B>>);

impl<B> http_body::Body for Erased<B>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.as_mut().poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// Future of a response.
pub(crate) type ResponseFuture = Pin<Box<dyn Future<Output = Result<http::Response<Body>, BoxError>> + Send>>;

/// A type-erased tower service.
pub(crate) trait HttpService: Send + Sync {
    fn call(&self, request: http::Request<Body>) -> ResponseFuture;
}

/// Request extension: a connection already counts the call.
#[derive(Clone, Copy)]
pub(crate) struct Counted;

pub(crate) struct ErasedService<S>(pub(crate) S);

impl<S, B> HttpService for ErasedService<S>
where
    S: Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn call(&self, request: http::Request<Body>) -> ResponseFuture {
        let mut service = self.0.clone();
        Box::pin(async move {
            poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
            let response = service.call(request).await.map_err(Into::into)?;
            Ok(response.map(Body::new))
        })
    }
}
