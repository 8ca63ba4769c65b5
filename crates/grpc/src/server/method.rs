//! A method as the connection sees it: its shape, and how a request becomes something to poll.
//!
//! What is polled is kept when the call is over and filled with the next one, so that a call allocates nothing.
//!
//! Implements: gRPC over HTTP/2, "Path", and the four kinds of method of gRPC's "Core concepts".

use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::reply::{Answer, Answered, Reply};
use crate::compression::Encoding;
use crate::envelope::{Encoded, Request, Response, ResponseParts, Source};
use crate::message::{self, Framed, Payload};
use crate::metadata::Metadata;
use crate::status::Status;
use crate::streaming::{Inbox, Streaming};

/// Chunks an answer may send in one poll, before they are written and other calls have their turn.
const CHUNKS_PER_POLL_MAX: usize = 4;

/// Messages a stream may send in one poll before other calls have their turn.
const MESSAGES_PER_POLL_MAX: usize = 64;

/// A request's messages, not yet decoded.
pub(crate) enum Intake<'a> {
    Message(Framed<Payload<'a>>),
    Stream(Arc<Inbox>),
}

/// A call's request as the connection has it.
pub(crate) struct Incoming<'a> {
    /// Metadata, deadline and peer, around nothing.
    pub(crate) envelope: Request<()>,
    pub(crate) intake: Intake<'a>,
    pub(crate) encoding: Option<Encoding>,
    pub(crate) message_bytes_max: usize,
}

/// A call under way; polled until it has sent its trailers.
pub(crate) trait Running: Send {
    fn poll(&mut self, cx: &mut Context<'_>, reply: &mut Reply<'_>) -> Poll<()>;
    /// Drops what the call holds; the box stays.
    fn clear(&mut self);
    fn as_any(&mut self) -> &mut dyn Any;
}

/// What starting a call led to.
pub(crate) enum Started {
    /// To be polled.
    Running(Box<dyn Running>),
    /// Answered already; the box, if one was given, comes back.
    Done(Option<Box<dyn Running>>),
}

pub(crate) trait Handler: Send + Sync {
    /// Whether the handler reads a stream, rather than one message.
    fn is_streaming_in(&self) -> bool;
    /// Begins a call, in a box an earlier one left if there is any.
    fn start(&self, spare: Option<Box<dyn Running>>, incoming: Incoming<'_>, reply: &mut Reply<'_>) -> Started;
}

/// One method of a service, for generated code.
pub struct Method {
    pub(crate) name: &'static str,
    pub(crate) handler: Arc<dyn Handler>,
}

impl std::fmt::Debug for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Method({})", self.name)
    }
}

impl Method {
    /// One message in, one out. `raw` may answer from the encoded request, `now` from the decoded one, both at once;
    /// what they decline goes to `call`.
    pub fn unary<S, Req, Res, Fut>(
        name: &'static str,
        service: Arc<S>,
        raw: impl for<'a, 'b> Fn(&S, &[u8], Answer<'a, 'b, Res>) -> Option<Answered> + Send + Sync + 'static,
        now: impl for<'a, 'b> Fn(&S, &Request<Req>, Answer<'a, 'b, Res>) -> Option<Answered> + Send + Sync + 'static,
        call: impl Fn(Arc<S>, Request<Req>) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        S: Send + Sync + 'static,
        Req: prost::Message + Default + 'static,
        Res: prost::Message + 'static,
        Fut: Future<Output = Result<Response<Res>, Status>> + Send + 'static,
    {
        let whole = Arc::clone(&service);
        let peek = move |message: &[u8], reply: &mut Reply<'_>| {
            raw(&whole, message, Answer { reply, message: PhantomData }).is_some()
        };
        let begin = move |request: Request<Req>, reply: &mut Reply<'_>| match now(
            &service,
            &request,
            Answer { reply, message: PhantomData },
        ) {
            Some(Answered { .. }) => None,
            None => Some(call(Arc::clone(&service), request)),
        };
        let handler = Whole { peek, begin, types: PhantomData::<fn(Req) -> One<Fut>> };
        Self { name, handler: Arc::new(handler) }
    }

    /// One message in, a stream out.
    pub fn server_streaming<S, Req, St, Res, Fut>(
        name: &'static str,
        service: Arc<S>,
        call: impl Fn(Arc<S>, Request<Req>) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        S: Send + Sync + 'static,
        Req: prost::Message + Default + 'static,
        Res: prost::Message + 'static,
        St: Stream<Item = Result<Res, Status>> + Send + 'static,
        Fut: Future<Output = Result<Response<St>, Status>> + Send + 'static,
    {
        let begin = move |request: Request<Req>, _: &mut Reply<'_>| Some(call(Arc::clone(&service), request));
        let peek = |_: &[u8], _: &mut Reply<'_>| false;
        let handler = Whole { peek, begin, types: PhantomData::<fn(Req) -> Many<Fut, St>> };
        Self { name, handler: Arc::new(handler) }
    }

    /// A stream in, one message out.
    pub fn client_streaming<S, Req, Res, Fut>(
        name: &'static str,
        service: Arc<S>,
        call: impl Fn(Arc<S>, Request<Streaming<Req>>) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        S: Send + Sync + 'static,
        Req: prost::Message + Default + 'static,
        Res: prost::Message + 'static,
        Fut: Future<Output = Result<Response<Res>, Status>> + Send + 'static,
    {
        let begin = move |request| call(Arc::clone(&service), request);
        let handler = Streamed { begin, types: PhantomData::<fn(Req) -> One<Fut>> };
        Self { name, handler: Arc::new(handler) }
    }

    /// A stream in, a stream out.
    pub fn bidi_streaming<S, Req, St, Res, Fut>(
        name: &'static str,
        service: Arc<S>,
        call: impl Fn(Arc<S>, Request<Streaming<Req>>) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        S: Send + Sync + 'static,
        Req: prost::Message + Default + 'static,
        Res: prost::Message + 'static,
        St: Stream<Item = Result<Res, Status>> + Send + 'static,
        Fut: Future<Output = Result<Response<St>, Status>> + Send + 'static,
    {
        let begin = move |request| call(Arc::clone(&service), request);
        let handler = Streamed { begin, types: PhantomData::<fn(Req) -> Many<Fut, St>> };
        Self { name, handler: Arc::new(handler) }
    }
}

/// A handler that takes its request whole.
struct Whole<P, B, Req, R> {
    /// Answers from the encoded request, or not.
    peek: P,
    begin: B,
    types: PhantomData<fn(Req) -> R>,
}

/// A handler that takes a stream.
struct Streamed<B, Req, R> {
    begin: B,
    types: PhantomData<fn(Req) -> R>,
}

/// Something to poll that a future can be put into.
trait Drive: Running + Sized + 'static {
    type Future;
    fn new(future: Self::Future) -> Self;
    fn refill(&mut self, future: Self::Future);
}

fn begin_in<R: Drive>(spare: Option<Box<dyn Running>>, future: R::Future) -> Started {
    if let Some(mut spare) = spare
        && let Some(same) = spare.as_any().downcast_mut::<R>()
    {
        same.refill(future);
        return Started::Running(spare);
    }
    Started::Running(Box::new(R::new(future)))
}

impl<P, B, Req, R> Handler for Whole<P, B, Req, R>
where
    P: Fn(&[u8], &mut Reply<'_>) -> bool + Send + Sync,
    B: Fn(Request<Req>, &mut Reply<'_>) -> Option<R::Future> + Send + Sync,
    Req: prost::Message + Default,
    R: Drive,
{
    fn is_streaming_in(&self) -> bool {
        false
    }

    fn start(&self, spare: Option<Box<dyn Running>>, incoming: Incoming<'_>, reply: &mut Reply<'_>) -> Started {
        let Intake::Message(framed) = incoming.intake else {
            reply.finish(&Status::internal("a stream where a message was expected"));
            return Started::Done(spare);
        };
        if let Framed { compressed: false, bytes: Payload::Borrowed(bytes) } = framed
            && (self.peek)(bytes, reply)
        {
            return Started::Done(spare);
        }
        match message::decode(framed, incoming.encoding, incoming.message_bytes_max) {
            Err(status) => reply.finish(&status),
            Ok(decoded) => {
                let mut request = incoming.envelope.map(|()| decoded.message);
                request.buffer_bytes = decoded.buffer_bytes;
                if let Some(future) = (self.begin)(request, reply) {
                    return begin_in::<R>(spare, future);
                }
            }
        }
        Started::Done(spare)
    }
}

impl<B, Req, R> Handler for Streamed<B, Req, R>
where
    B: Fn(Request<Streaming<Req>>) -> R::Future + Send + Sync,
    Req: prost::Message + Default,
    R: Drive,
{
    fn is_streaming_in(&self) -> bool {
        true
    }

    fn start(&self, spare: Option<Box<dyn Running>>, incoming: Incoming<'_>, reply: &mut Reply<'_>) -> Started {
        let Intake::Stream(inbox) = incoming.intake else {
            reply.finish(&Status::internal("a message where a stream was expected"));
            return Started::Done(spare);
        };
        let stream = Streaming::new(inbox, incoming.encoding, incoming.message_bytes_max);
        begin_in::<R>(spare, (self.begin)(incoming.envelope.map(|()| stream)))
    }
}

/// A future that yields the one answer.
struct One<Fut> {
    future: Pin<Box<Option<Fut>>>,
    /// What it yielded, while that is being sent, and what comes behind it.
    sending: Option<(Source, Metadata)>,
}

impl<Fut> One<Fut> {
    /// Sends what there is room for.
    fn send(&mut self, cx: &mut Context<'_>, reply: &mut Reply<'_>) -> Poll<()> {
        let Some((source, trailers)) = &mut self.sending else { return Poll::Ready(()) };
        for _ in 0..CHUNKS_PER_POLL_MAX {
            if !reply.has_room() {
                return Poll::Pending;
            }
            match source.chunks.next() {
                Some(chunk) if chunk.len() <= source.length => {
                    source.length -= chunk.len();
                    reply.chunk(chunk);
                }
                None if source.length == 0 => {
                    reply.finish_ok(trailers);
                    return Poll::Ready(());
                }
                _ => {
                    reply.finish(&Status::internal("the answer has not the length it was said to have"));
                    return Poll::Ready(());
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<Fut, Res> Drive for One<Fut>
where
    Fut: Future<Output = Result<Response<Res>, Status>> + Send + 'static,
    Res: prost::Message,
{
    type Future = Fut;

    fn new(future: Fut) -> Self {
        Self { future: Box::pin(Some(future)), sending: None }
    }

    fn refill(&mut self, future: Fut) {
        self.future.set(Some(future));
    }
}

impl<Fut, Res> Running for One<Fut>
where
    Fut: Future<Output = Result<Response<Res>, Status>> + Send + 'static,
    Res: prost::Message,
{
    fn poll(&mut self, cx: &mut Context<'_>, reply: &mut Reply<'_>) -> Poll<()> {
        if self.sending.is_some() {
            return self.send(cx, reply);
        }
        let Some(future) = self.future.as_mut().as_pin_mut() else { return Poll::Ready(()) };
        let Poll::Ready(result) = future.poll(cx) else { return Poll::Pending };
        match result {
            Ok(response) => {
                let ResponseParts { message, metadata, trailers, compress, encoded } = response.into_parts();
                match &encoded {
                    // No other compression than the one it has.
                    Some(Encoded::Source(source)) => {
                        reply.state.compression = source.encoding.map(|encoding| (encoding, usize::MAX));
                    }
                    _ if !compress => reply.state.compression = None,
                    _ => {}
                }
                reply.head(&metadata);
                match encoded {
                    None => reply.message(&message),
                    Some(Encoded::Segments(segments)) => reply.segments(segments),
                    Some(Encoded::Source(source)) => {
                        reply.prefix(source.length, source.encoding.is_some());
                        // The future has done its work, and what it holds is needed no more.
                        self.future.set(None);
                        self.sending = Some((source, trailers));
                        return self.send(cx, reply);
                    }
                }
                reply.finish_ok(&trailers);
            }
            Err(status) => reply.finish(&status),
        }
        Poll::Ready(())
    }

    fn clear(&mut self) {
        self.future.set(None);
        self.sending = None;
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// A future that yields a stream of answers, then that stream.
struct Many<Fut, St> {
    future: Pin<Box<Option<Fut>>>,
    stream: Option<Pin<Box<St>>>,
    trailers: Metadata,
}

impl<Fut, St, Res> Drive for Many<Fut, St>
where
    Fut: Future<Output = Result<Response<St>, Status>> + Send + 'static,
    St: Stream<Item = Result<Res, Status>> + Send + 'static,
    Res: prost::Message,
{
    type Future = Fut;

    fn new(future: Fut) -> Self {
        Self { future: Box::pin(Some(future)), stream: None, trailers: Metadata::new() }
    }

    fn refill(&mut self, future: Fut) {
        self.future.set(Some(future));
    }
}

impl<Fut, St, Res> Running for Many<Fut, St>
where
    Fut: Future<Output = Result<Response<St>, Status>> + Send + 'static,
    St: Stream<Item = Result<Res, Status>> + Send + 'static,
    Res: prost::Message,
{
    fn poll(&mut self, cx: &mut Context<'_>, reply: &mut Reply<'_>) -> Poll<()> {
        if let Some(future) = self.future.as_mut().as_pin_mut() {
            let Poll::Ready(result) = future.poll(cx) else { return Poll::Pending };
            self.future.set(None);
            match result {
                Ok(response) => {
                    let ResponseParts { message: stream, metadata, trailers, compress, .. } = response.into_parts();
                    if !compress {
                        reply.state.compression = None;
                    }
                    reply.head(&metadata);
                    self.stream = Some(Box::pin(stream));
                    self.trailers = trailers;
                }
                Err(status) => reply.finish(&status),
            }
        }
        let Some(stream) = &mut self.stream else { return Poll::Ready(()) };
        for _ in 0..MESSAGES_PER_POLL_MAX {
            if !reply.has_room() {
                return Poll::Pending;
            }
            match stream.as_mut().poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(message))) => reply.message(&message),
                Poll::Ready(Some(Err(status))) => {
                    reply.finish(&status);
                    return Poll::Ready(());
                }
                Poll::Ready(None) => {
                    reply.finish_ok(&self.trailers);
                    return Poll::Ready(());
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn clear(&mut self) {
        self.future.set(None);
        self.stream = None;
        self.trailers = Metadata::new();
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
