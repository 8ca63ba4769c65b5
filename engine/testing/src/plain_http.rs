//! An HTTP service that answers every request with a line of text and the request's body.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as _, Frame};
use quire_rpc::Body;

/// Answers `200` with "hello", the path, and the request's body.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainHttp;

/// A body from memory.
#[derive(Debug)]
pub struct Text(Option<Bytes>);

impl http_body::Body for Text {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }
}

impl tower_service::Service<http::Request<Body>> for PlainHttp {
    type Response = http::Response<Text>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut text = format!("hello {}\n", request.uri().path()).into_bytes();
            let mut body = Box::pin(request.into_body());
            while let Some(Ok(frame)) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
                text.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..]));
            }
            Ok(http::Response::new(Text(Some(text.into()))))
        })
    }
}
