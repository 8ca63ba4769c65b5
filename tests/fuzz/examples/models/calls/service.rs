//! The service under test: `echo.proto`, without delays.

use std::pin::Pin;
use std::task::{Context, Poll};

use quire_rpc::{Code, Request, Response, Status, Stream, Streaming};

use self::proto::{Message, echo_server::Echo};

pub mod proto {
    quire_rpc::include_proto!("testing");
}

pub struct Service;

type Answered<T> = Result<Response<T>, Status>;

fn check(message: Message) -> Result<Message, Status> {
    if message.fail == 0 { Ok(message) } else { Err(Status::new(Code::from_number(message.fail), "told to fail")) }
}

pub struct Repeat(Message);

impl Stream for Repeat {
    type Item = Result<Message, Status>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(left) = self.0.count.checked_sub(1) else { return Poll::Ready(None) };
        self.0.count = left;
        Poll::Ready(Some(Ok(self.0.clone())))
    }
}

pub struct Checked(Streaming<Message>);

impl Stream for Checked {
    type Item = Result<Message, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0).poll_next(context).map(|next| next.map(|message| message.and_then(check)))
    }
}

impl Echo for Service {
    async fn call(&self, request: Request<Message>) -> Answered<Message> {
        check(request.into_inner()).map(Response::new)
    }

    async fn same(&self, request: Request<Message>) -> Answered<Message> {
        self.call(request).await
    }

    async fn late(&self, request: Request<Message>) -> Answered<Message> {
        self.call(request).await
    }

    type ManyStream = Repeat;

    async fn many(&self, request: Request<Message>) -> Answered<Repeat> {
        Ok(Response::new(Repeat(check(request.into_inner())?)))
    }

    async fn join(&self, request: Request<Streaming<Message>>) -> Answered<Message> {
        let (mut joined, mut messages) = (Message::default(), request.into_inner());
        while let Some(message) = messages.message().await? {
            joined.payload.extend(check(message)?.payload);
            joined.count += 1;
        }
        Ok(Response::new(joined))
    }

    type EachStream = Checked;

    async fn each(&self, request: Request<Streaming<Message>>) -> Answered<Checked> {
        Ok(Response::new(Checked(request.into_inner())))
    }
}
