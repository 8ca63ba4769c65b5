//! Services and their methods: the kinds of methods, and their handlers, which make of a request something to poll.
//!
//! Implements: gRPC over HTTP/2, "Path", and the four kinds of method of gRPC's "Core concepts".

use std::cell::{Cell, OnceCell};
use std::future::{Future, Ready, ready};
use std::iter::repeat_n;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::thread::available_parallelism;

use bytes::Bytes;
use futures_core::Stream;

use super::request::{CallHead, Intake};
use super::running::{ManyAnswers, OneAnswer, Refillable, Running};
use crate::envelope::{Request, Response};
use crate::message::codec::{Decode, Encode, Encoded, Ignored, Payload};
use crate::message::streaming::Streaming;
use crate::message::transcode::Reading;
use crate::metadata::Metadata;
use crate::server::reply::Reply;
use crate::status::Status;
use quire_net::Apart;

/// A gRPC service, as generated code implements it.
pub trait Service {
    /// `package.Service`.
    fn name(&self) -> &'static str;
    /// Its methods.
    fn methods(self) -> Vec<Method>;
    /// Its contract and all imported files: an encoded `FileDescriptorSet`. Empty if there is none; the service is then
    /// missing from reflection and JSON.
    fn descriptors(&self) -> &'static [u8] {
        &[]
    }
}

/// An unavailable service: every call fails with the same status.
#[derive(Clone, Debug)]
pub struct RefusedService {
    /// `package.Service`.
    pub name: &'static str,
    /// The paths of its methods.
    pub methods: &'static [&'static str],
    /// Its contract, as in [`Service::descriptors`].
    pub descriptors: &'static [u8],
    /// Status of every call.
    pub status: Status,
}

impl Service for RefusedService {
    fn name(&self) -> &'static str {
        self.name
    }

    fn methods(self) -> Vec<Method> {
        let status = Arc::new(self.status);
        let names = self.methods.iter().filter_map(|path| path.rsplit('/').next());
        names.map(|name| Method::refused(name, Arc::clone(&status))).collect()
    }

    fn descriptors(&self) -> &'static [u8] {
        self.descriptors
    }
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
        call: impl Fn(LocalArc<S>, Request<Req>) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        S: Send + Sync + 'static,
        Req: Decode + 'static,
        Res: Encode + 'static,
        Fut: Future<Output = Result<Response<Res>, Status>> + Send + 'static,
    {
        let service = LocalArcs::new(service);
        Self::of_message::<Req, OneAnswer<Fut>>(name, move |incoming| {
            incoming.later(|request| call(service.get(), request))
        })
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
        Self::of_message::<Req, OneAnswer<Fut>>(name, move |incoming| call(&service, incoming))
    }

    /// Fails every call with this status.
    pub(crate) fn refused(name: &'static str, status: Arc<Status>) -> Self {
        Self::of_stream::<Ignored, OneAnswer<Ready<Result<Response<Encoded>, Status>>>>(name, move |_| {
            ready(Err(Status::clone(&status)))
        })
    }

    /// One message in, a stream out.
    pub fn server_streaming<S, Req, St, Res, Fut>(
        name: &'static str,
        service: Arc<S>,
        call: impl Fn(LocalArc<S>, Request<Req>) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        S: Send + Sync + 'static,
        Req: Decode + 'static,
        Res: Encode + 'static,
        St: Stream<Item = Result<Res, Status>> + Send + 'static,
        Fut: Future<Output = Result<Response<St>, Status>> + Send + 'static,
    {
        let service = LocalArcs::new(service);
        Self::of_message::<Req, ManyAnswers<Fut, St>>(name, move |incoming| {
            incoming.later(|request| call(service.get(), request))
        })
    }

    /// A stream in, one message out.
    pub fn client_streaming<S, Req, Res, Fut>(
        name: &'static str,
        service: Arc<S>,
        call: impl Fn(LocalArc<S>, Request<Streaming<Req>>) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        S: Send + Sync + 'static,
        Req: Decode + 'static,
        Res: Encode + 'static,
        Fut: Future<Output = Result<Response<Res>, Status>> + Send + 'static,
    {
        let service = LocalArcs::new(service);
        Self::of_stream::<Req, OneAnswer<Fut>>(name, move |request| call(service.get(), request))
    }

    /// A stream in, a stream out.
    pub fn bidi_streaming<S, Req, St, Res, Fut>(
        name: &'static str,
        service: Arc<S>,
        call: impl Fn(LocalArc<S>, Request<Streaming<Req>>) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        S: Send + Sync + 'static,
        Req: Decode + 'static,
        Res: Encode + 'static,
        St: Stream<Item = Result<Res, Status>> + Send + 'static,
        Fut: Future<Output = Result<Response<St>, Status>> + Send + 'static,
    {
        let service = LocalArcs::new(service);
        Self::of_stream::<Req, ManyAnswers<Fut, St>>(name, move |request| call(service.get(), request))
    }

    fn new(name: &'static str, handler: Arc<dyn Handler>) -> Self {
        Self { name, handler, has_side_effects: true }
    }

    fn of_message<Req: 'static, R: Refillable>(
        name: &'static str,
        begin: impl for<'a> Fn(Call<'a, Req>) -> Answer<R::Future> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, Arc::new(MessageHandler { begin, types: PhantomData::<fn(Req) -> R> }))
    }

    fn of_stream<Req: Decode + 'static, R: Refillable>(
        name: &'static str,
        begin: impl Fn(Request<Streaming<Req>>) -> R::Future + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, Arc::new(StreamHandler { begin, types: PhantomData::<fn(Req) -> R> }))
    }
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

/// A call's request from the connection.
pub(crate) struct Incoming<'a> {
    pub(crate) call: CallHead<'a>,
    /// The request without its message, if already built.
    pub(crate) request: Option<Box<Request<()>>>,
    pub(crate) intake: Intake<'a>,
    pub(crate) reading: Reading,
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

/// A handler of a complete request.
struct MessageHandler<B, Req, R> {
    begin: B,
    types: PhantomData<fn(Req) -> R>,
}

/// A handler of a request stream.
struct StreamHandler<B, Req, R> {
    begin: B,
    types: PhantomData<fn(Req) -> R>,
}

/// Polls a call for the first time, in its final place.
fn begin_in<R: Refillable>(
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

impl<B, Req, R> Handler for MessageHandler<B, Req, R>
where
    B: for<'a> Fn(Call<'a, Req>) -> Answer<R::Future> + Send + Sync,
    R: Refillable,
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

impl<B, Req, R> Handler for StreamHandler<B, Req, R>
where
    B: Fn(Request<Streaming<Req>>) -> R::Future + Send + Sync,
    Req: Decode,
    R: Refillable,
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

/// A unary call whose request `Req` is not decoded yet. It is answered at once, into the connection's output, or later
/// by a future.
#[derive(Debug)]
pub struct Call<'a, Req> {
    head: &'a CallHead<'a>,
    /// Built on first use.
    request: OnceCell<Request<()>>,
    payload: &'a Payload<'a>,
    reply: Reply<'a>,
    message: PhantomData<fn() -> Req>,
}

/// A bytes method's result for a [`Call`].
#[derive(Debug)]
pub enum Answer<F> {
    /// The call is answered.
    Done(Answered),
    /// The future yields the answer.
    Later(F),
}

/// Proof that a [`Call`] was answered.
#[derive(Debug)]
pub struct Answered(());

/// A future that yields the answer to a [`Call`].
pub trait Later: Future<Output = Result<Response<Encoded>, Status>> + Send + 'static {}

impl<F: Future<Output = Result<Response<Encoded>, Status>> + Send + 'static> Later for F {}

impl<'a, Req> Call<'a, Req> {
    #[inline]
    pub(crate) fn new(
        head: &'a CallHead<'a>,
        request: Option<Request<()>>,
        payload: &'a Payload<'a>,
        mut reply: Reply<'a>,
    ) -> Self {
        reply.begin_message();
        let request = request.map_or_else(OnceCell::new, OnceCell::from);
        Self { head, request, payload, reply, message: PhantomData }
    }

    /// Metadata, deadline and peer, without the message.
    #[inline]
    pub fn request(&self) -> &Request<()> {
        self.request.get_or_init(|| self.head.request(()))
    }

    /// The message's bytes, borrowed.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.payload.as_slice()
    }

    /// The message's bytes, owned: copied if they came in one frame, shared if they came in several.
    pub fn to_bytes(&self) -> Bytes {
        self.payload.again().into_bytes()
    }

    /// The message, decoded.
    #[inline]
    pub fn message(&self) -> Result<Req, Status>
    where
        Req: Decode,
    {
        Req::decode(self.payload.again())
    }

    /// Buffer to append the answer's bytes to, for [`Call::answer`]. Bytes already in it belong to the engine.
    #[inline]
    pub fn out(&mut self) -> &mut Vec<u8> {
        self.reply.message_out()
    }

    /// Answers with what was appended to [`Call::out`].
    #[inline]
    pub fn answer<F>(mut self) -> Answer<F> {
        self.reply.answer(&Metadata::new());
        Answer::Done(Answered(()))
    }

    /// Answers with a message. A message produced while it is sent is produced now.
    #[inline]
    pub fn send<F>(mut self, message: impl Encode) -> Answer<F> {
        let none = Metadata::new();
        match self.reply.only_message(&none, message, &none).map(|source| self.reply.send_all(source)) {
            None => {}
            Some(Ok(())) => self.reply.finish_ok(&none),
            Some(Err(status)) => self.reply.finish(&status),
        }
        Answer::Done(Answered(()))
    }

    /// Answers with a failure.
    #[cold]
    pub fn fail<F>(mut self, status: &Status) -> Answer<F> {
        self.reply.finish(status);
        Answer::Done(Answered(()))
    }

    /// Leaves the answer to a future of the decoded request. A request that cannot be decoded is refused.
    #[inline]
    pub fn later<F>(self, start: impl FnOnce(Request<Req>) -> F) -> Answer<F>
    where
        Req: Decode,
    {
        match self.message() {
            Ok(message) => {
                let payload = self.payload;
                let mut request = self.into_request(message);
                request.set_buffer_bytes(payload.buffer_bytes());
                Answer::Later(start(request))
            }
            Err(status) => self.fail(&status),
        }
    }

    /// As [`Call::later`], with the request's bytes; those that came in one frame are copied.
    pub fn later_with_bytes<F>(self, start: impl FnOnce(Request<Bytes>) -> F) -> Answer<F> {
        let bytes = self.to_bytes();
        Answer::Later(start(self.into_request(bytes)))
    }

    #[inline]
    fn into_request<T>(self, message: T) -> Request<T> {
        match self.request.into_inner() {
            None => self.head.request(message),
            Some(request) => request.map(|()| message),
        }
    }
}

/// A call's reference to its service.
#[derive(Debug)]
pub struct LocalArc<S>(Arc<Apart<Arc<S>>>);

impl<S> Deref for LocalArc<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0.0
    }
}

/// A service with a reference count per hardware thread, rounded up to a power of two. With one shared count, two threads
/// that only answer each lose a quarter of a call.
pub(crate) struct LocalArcs<S>(Box<[Arc<Apart<Arc<S>>>]>);

impl<S> LocalArcs<S> {
    pub(crate) fn new(service: Arc<S>) -> Self {
        let threads = available_parallelism().map_or(1, usize::from).next_power_of_two();
        Self(repeat_n(service, threads).map(|service| Arc::new(Apart(service))).collect())
    }

    #[inline]
    pub(crate) fn get(&self) -> LocalArc<S> {
        // The length is a power of two.
        LocalArc(Arc::clone(&self.0[thread_number() & (self.0.len() - 1)]))
    }
}

/// This thread's number, assigned in the order of first calls.
#[inline]
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    NUMBER.get().unwrap_or_else(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(Some(number));
        number
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_apart() {
        let service = Arc::new(7);
        let arcs = LocalArcs::new(Arc::clone(&service));
        let (here, again) = (arcs.get(), arcs.get());
        assert!(Arc::ptr_eq(&here.0, &again.0));
        assert_eq!((*here, Arc::strong_count(&here.0)), (7, 3));
        // Other tests number threads too, so a few threads may share this one's count, but not all.
        let get_elsewhere = |_| std::thread::scope(|scope| scope.spawn(|| arcs.get()).join().unwrap());
        let apart = (0..64).map(get_elsewhere).any(|there| !Arc::ptr_eq(&here.0, &there.0));
        assert_eq!(apart, arcs.0.len() > 1);
        drop((here, again, arcs));
        assert_eq!(Arc::strong_count(&service), 1);
    }
}
