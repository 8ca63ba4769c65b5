//! The echo service: every kind of method, with delays and failures on demand; and a plain HTTP service to stand beside it.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame};
use quire_rpc::server::{Answer, Call, Later};
use quire_rpc::{Body, Code, Encoded, Request, Response, Status, Stream, Streaming};

use crate::proto::Message;
use crate::proto::echo_server::Echo;

/// Echoes its requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct EchoService;

fn check(message: &Message) -> Result<(), Status> {
    match message.fail {
        0 => Ok(()),
        666 => panic!("told to panic"),
        code => Err(Status::new(Code::from_number(code), "told to fail")),
    }
}

/// A stream of the same message, repeated.
#[derive(Debug)]
pub struct Repeat {
    message: Message,
    left: u32,
}

impl Stream for Repeat {
    type Item = Result<Message, Status>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        Poll::Ready(Some(Ok(self.message.clone())))
    }
}

impl Echo for EchoService {
    async fn call(&self, request: Request<Message>) -> Result<Response<Message>, Status> {
        check(request.get_ref())?;
        std::thread::sleep(Duration::from_millis(request.get_ref().delay_ms.into()));
        let metadata = request.metadata().clone();
        let mut response = Response::new(request.into_inner());
        for (name, value) in metadata.iter().filter(|(name, _)| name.starts_with("echo-")) {
            let _ = response.metadata_mut().append(name, value);
            let _ = response.trailers_mut().append(name, value);
        }
        Ok(response)
    }

    fn same(&self, mut call: Call<'_, Message>) -> Answer<impl Later + use<>> {
        match call.message().map(|message| message.delay_ms) {
            Err(status) => call.fail(&status),
            Ok(0) => {
                let bytes = call.bytes();
                call.out().extend_from_slice(bytes);
                call.answer()
            }
            Ok(delay_ms) => call.later_with_bytes(|request| async move {
                tokio::time::sleep(Duration::from_millis(delay_ms.into())).await;
                Ok(Response::new(Encoded::from(request.into_inner())))
            }),
        }
    }

    async fn late(&self, request: Request<Message>) -> Result<Response<Message>, Status> {
        let message = request.into_inner();
        tokio::time::sleep(Duration::from_millis(message.delay_ms.into())).await;
        check(&message)?;
        Ok(Response::new(message))
    }

    type ManyStream = Repeat;

    async fn many(&self, request: Request<Message>) -> Result<Response<Repeat>, Status> {
        let message = request.into_inner();
        check(&message)?;
        Ok(Response::new(Repeat { left: message.count, message }))
    }

    async fn join(&self, request: Request<Streaming<Message>>) -> Result<Response<Message>, Status> {
        let mut joined = Message::default();
        let mut stream = request.into_inner();
        while let Some(message) = stream.message().await? {
            check(&message)?;
            joined.payload.extend_from_slice(&message.payload);
            joined.count += 1;
        }
        Ok(Response::new(joined))
    }

    type EachStream = Streaming<Message>;

    async fn each(&self, request: Request<Streaming<Message>>) -> Result<Response<Streaming<Message>>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

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
