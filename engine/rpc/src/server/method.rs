//! Methods as a connection uses them: their kind, and how a request becomes something to poll.
//!
//! Implements: gRPC over HTTP/2, "Path", and the four kinds of method of gRPC's "Core concepts".

use std::future::{Future, Ready, ready};
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::call::{Answer, Call, Later};
use super::held::{Held, Holds};
use super::reply::Reply;
use super::request::{CallHead, Intake};
use super::running::{Drive, Many, One, Running};
use crate::codec::{Decode, Encode, Encoded, Ignored};
use crate::envelope::{Request, Response};
use crate::status::Status;
use crate::streaming::Streaming;
use crate::transcode::Reading;

/// A call's request from the connection.
pub(crate) struct Incoming<'a> {
    pub(crate) call: CallHead<'a>,
    /// The request without its message, if already built.
    pub(crate) request: Option<Box<Request<()>>>,
    pub(crate) intake: Intake<'a>,
    pub(crate) reading: Reading,
}

/// A stream of answers of any encodable type.
pub trait AnswerStream: Stream<Item = Result<<Self as AnswerStream>::Message, Status>> + Send + 'static {
    /// One answer.
    type Message: Encode + 'static;
}

impl<St, Res> AnswerStream for St
where
    St: Stream<Item = Result<Res, Status>> + Send + 'static,
    Res: Encode + 'static,
{
    type Message = Res;
}

/// Result of starting a call.
pub(crate) enum Started {
    /// Polled once and pending.
    Running(Box<dyn Running>),
    /// Answered; returns the box for reuse, if any.
    Done(Option<Box<dyn Running>>),
}

pub(crate) trait Handler: Send + Sync {
    /// True if the handler reads a stream.
    fn is_streaming_in(&self) -> bool;
    /// True if the handler answers with a stream.
    fn is_streaming_out(&self) -> bool;
    /// Begins a call, in the box of an earlier one if there is any.
    fn start(
        &self,
        spare: Option<Box<dyn Running>>,
        incoming: &mut Incoming<'_>,
        cx: &mut Context<'_>,
        reply: &mut Reply<'_>,
    ) -> Started;
}

/// One method of a service, for generated code.
pub struct Method {
    pub(crate) name: &'static str,
    pub(crate) handler: Arc<dyn Handler>,
    has_side_effects: bool,
}

impl std::fmt::Debug for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Method({})", self.name)
    }
}

impl Method {
    /// Marks the method as side-effect free, allowing GET; in a contract, `idempotency_level = NO_SIDE_EFFECTS`.
    #[must_use]
    pub fn without_side_effects(self) -> Self {
        Self { has_side_effects: false, ..self }
    }

    /// Its name in the contract.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// True unless the contract excludes side effects.
    pub fn has_side_effects(&self) -> bool {
        self.has_side_effects
    }

    /// One message in, one out.
    pub fn unary<S, Req, Res, Fut>(
        name: &'static str,
        service: Arc<S>,
        call: impl Fn(Held<S>, Request<Req>) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        S: Send + Sync + 'static,
        Req: Decode + 'static,
        Res: Encode + 'static,
        Fut: Future<Output = Result<Response<Res>, Status>> + Send + 'static,
    {
        let service = Holds::new(service);
        Self::whole::<Req, One<Fut>>(name, move |incoming| incoming.later(|request| call(service.hold(), request)))
    }

    /// One message in, one out, both as bytes.
    pub fn bytes<S, Req, Fut>(
        name: &'static str,
        service: Arc<S>,
        call: impl for<'a> Fn(&Arc<S>, Call<'a, Req>) -> Answer<Fut> + Send + Sync + 'static,
    ) -> Self
    where
        S: Send + Sync + 'static,
        Req: 'static,
        Fut: Later,
    {
        Self::whole::<Req, One<Fut>>(name, move |incoming| call(&service, incoming))
    }

    /// Fails every call with this status.
    pub(super) fn refused(name: &'static str, status: Arc<Status>) -> Self {
        Self::streamed::<Ignored, One<Ready<Result<Response<Encoded>, Status>>>>(name, move |_| {
            ready(Err(Status::clone(&status)))
        })
    }

    /// One message in, a stream out.
    pub fn server_streaming<S, Req, St, Res, Fut>(
        name: &'static str,
        service: Arc<S>,
        call: impl Fn(Held<S>, Request<Req>) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        S: Send + Sync + 'static,
        Req: Decode + 'static,
        Res: Encode + 'static,
        St: Stream<Item = Result<Res, Status>> + Send + 'static,
        Fut: Future<Output = Result<Response<St>, Status>> + Send + 'static,
    {
        let service = Holds::new(service);
        Self::whole::<Req, Many<Fut, St>>(name, move |incoming| incoming.later(|request| call(service.hold(), request)))
    }

    /// A stream in, one message out.
    pub fn client_streaming<S, Req, Res, Fut>(
        name: &'static str,
        service: Arc<S>,
        call: impl Fn(Held<S>, Request<Streaming<Req>>) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        S: Send + Sync + 'static,
        Req: Decode + 'static,
        Res: Encode + 'static,
        Fut: Future<Output = Result<Response<Res>, Status>> + Send + 'static,
    {
        let service = Holds::new(service);
        Self::streamed::<Req, One<Fut>>(name, move |request| call(service.hold(), request))
    }

    /// A stream in, a stream out.
    pub fn bidi_streaming<S, Req, St, Res, Fut>(
        name: &'static str,
        service: Arc<S>,
        call: impl Fn(Held<S>, Request<Streaming<Req>>) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        S: Send + Sync + 'static,
        Req: Decode + 'static,
        Res: Encode + 'static,
        St: Stream<Item = Result<Res, Status>> + Send + 'static,
        Fut: Future<Output = Result<Response<St>, Status>> + Send + 'static,
    {
        let service = Holds::new(service);
        Self::streamed::<Req, Many<Fut, St>>(name, move |request| call(service.hold(), request))
    }

    fn new(name: &'static str, handler: Arc<dyn Handler>) -> Self {
        Self { name, handler, has_side_effects: true }
    }

    fn whole<Req: 'static, R: Drive>(
        name: &'static str,
        begin: impl for<'a> Fn(Call<'a, Req>) -> Answer<R::Future> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, Arc::new(Whole { begin, types: PhantomData::<fn(Req) -> R> }))
    }

    fn streamed<Req: Decode + 'static, R: Drive>(
        name: &'static str,
        begin: impl Fn(Request<Streaming<Req>>) -> R::Future + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, Arc::new(Streamed { begin, types: PhantomData::<fn(Req) -> R> }))
    }
}

/// A handler of a complete request.
struct Whole<B, Req, R> {
    begin: B,
    types: PhantomData<fn(Req) -> R>,
}

/// A handler of a request stream.
struct Streamed<B, Req, R> {
    begin: B,
    types: PhantomData<fn(Req) -> R>,
}

/// Polls a call for the first time, in its final place.
fn begin_in<R: Drive>(
    spare: Option<Box<dyn Running>>,
    future: R::Future,
    cx: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Started {
    let (running, polled) = if let Some(mut spare) = spare
        && let Some(same) = spare.as_any().downcast_mut::<R>()
    {
        same.refill(future);
        let polled = same.poll(cx, reply);
        (spare, polled)
    } else {
        let mut new = Box::new(R::new(future));
        let polled = new.poll(cx, reply);
        (new as Box<dyn Running>, polled)
    };
    match polled {
        Poll::Ready(()) => Started::Done(Some(running)),
        Poll::Pending => Started::Running(running),
    }
}

impl<B, Req, R> Handler for Whole<B, Req, R>
where
    B: for<'a> Fn(Call<'a, Req>) -> Answer<R::Future> + Send + Sync,
    R: Drive,
{
    fn is_streaming_in(&self) -> bool {
        false
    }

    fn is_streaming_out(&self) -> bool {
        R::STREAMS
    }

    fn start(
        &self,
        spare: Option<Box<dyn Running>>,
        incoming: &mut Incoming<'_>,
        cx: &mut Context<'_>,
        reply: &mut Reply<'_>,
    ) -> Started {
        let Intake::Message(framed) = incoming.intake else {
            reply.finish(&Status::internal("a stream where a message was expected"));
            return Started::Done(spare);
        };
        let opened;
        let payload = if incoming.reading.is_open(framed) {
            &framed.bytes
        } else {
            opened = match incoming.reading.open(framed.again()) {
                Ok(payload) => payload,
                Err(status) => {
                    reply.finish(&status);
                    return Started::Done(spare);
                }
            };
            &opened
        };
        let request = incoming.request.take().map(|request| *request);
        match (self.begin)(Call::new(&incoming.call, request, payload, reply.reborrow())) {
            Answer::Later(future) => begin_in::<R>(spare, future, cx, reply),
            Answer::Done(_) => Started::Done(spare),
        }
    }
}

impl<B, Req, R> Handler for Streamed<B, Req, R>
where
    B: Fn(Request<Streaming<Req>>) -> R::Future + Send + Sync,
    Req: Decode,
    R: Drive,
{
    fn is_streaming_in(&self) -> bool {
        true
    }

    fn is_streaming_out(&self) -> bool {
        R::STREAMS
    }

    fn start(
        &self,
        spare: Option<Box<dyn Running>>,
        incoming: &mut Incoming<'_>,
        cx: &mut Context<'_>,
        reply: &mut Reply<'_>,
    ) -> Started {
        let Intake::Stream(inbox) = incoming.intake else {
            reply.finish(&Status::internal("a message where a stream was expected"));
            return Started::Done(spare);
        };
        let stream = Streaming::new(Arc::clone(inbox), incoming.reading.clone());
        let request = incoming.request.take().map_or_else(|| incoming.call.request(()), |request| *request);
        begin_in::<R>(spare, (self.begin)(request.map(|()| stream)), cx, reply)
    }
}
