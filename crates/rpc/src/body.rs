//! Bodies of requests that are not gRPC, on their way to an HTTP service: one type for both versions of HTTP.
//!
//! Implements: RFC 9110 section 6.4 (content), over RFC 9112 and RFC 9113.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;

use crate::streaming::Inbox;

/// Any error of a body or a service.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

enum Inner {
    #[cfg(feature = "http1")]
    Http1(hyper::body::Incoming),
    Http2(Arc<Inbox>),
}

/// The body of an HTTP request that came on a gRPC port.
pub struct Body {
    inner: Inner,
}

impl Body {
    #[cfg(feature = "http1")]
    pub(crate) fn http1(incoming: hyper::body::Incoming) -> Self {
        Self { inner: Inner::Http1(incoming) }
    }

    pub(crate) fn http2(inbox: Arc<Inbox>) -> Self {
        Self { inner: Inner::Http2(inbox) }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.get_mut().inner {
            #[cfg(feature = "http1")]
            Inner::Http1(incoming) => Pin::new(incoming).poll_frame(cx).map_err(Into::into),
            Inner::Http2(inbox) => inbox.poll_next(cx).map(|next| match next {
                Ok(chunk) => Some(Ok(Frame::data(chunk.bytes))),
                Err(None) => None,
                Err(Some(status)) => Some(Err(status.into())),
            }),
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        match &self.inner {
            #[cfg(feature = "http1")]
            Inner::Http1(_) => {}
            Inner::Http2(inbox) => inbox.abandon(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Body")
    }
}
