//! Calls in flight: a handler's future, and the sending of its result.
//!
//! The polled box is kept after the call and reused, so that a call allocates nothing.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use crate::envelope::{Response, ResponseParts};
use crate::message::codec::Encode;
use crate::metadata::Metadata;
use crate::server::connection::time_slice;
use crate::server::reply::{Reply, Source};
use crate::status::Status;

/// Bytes a stream may send in one poll before other calls get their turn.
const BYTES_PER_POLL: usize = 32 * 1024;
/// Messages of a stream between two checks of the clock.
const CHECK_MESSAGES: usize = 64;

/// A call in flight; polled until it has sent its trailers.
pub(crate) trait Running: Send {
    fn poll(&mut self, cx: &mut Context<'_>, reply: &mut Reply<'_>) -> Poll<()>;
    /// Drops the call's contents; the box stays.
    fn clear(&mut self);
    /// Answer bytes waiting for room.
    fn held_bytes(&self) -> usize {
        0
    }
    fn as_any(&mut self) -> &mut dyn Any;
}

/// A reusable box for a call's future.
pub(crate) trait Refillable: Running + Sized + 'static {
    type Future;
    /// True if it yields a stream.
    const STREAMS: bool;
    fn new(future: Self::Future) -> Self;
    fn refill(&mut self, future: Self::Future);
}

/// A future that yields the one answer.
pub(crate) struct OneAnswer<Fut> {
    future: Pin<Box<Option<Fut>>>,
    /// Its message while being sent, and the trailers after it.
    sending: Option<(Source, Metadata)>,
}

impl<Fut, Res> Refillable for OneAnswer<Fut>
where
    Fut: Future<Output = Result<Response<Res>, Status>> + Send + 'static,
    Res: Encode,
{
    type Future = Fut;
    const STREAMS: bool = false;

    fn new(future: Fut) -> Self {
        Self { future: Box::pin(Some(future)), sending: None }
    }

    fn refill(&mut self, future: Fut) {
        self.future.set(Some(future));
    }
}

impl<Fut, Res> Running for OneAnswer<Fut>
where
    Fut: Future<Output = Result<Response<Res>, Status>> + Send + 'static,
    Res: Encode,
{
    fn poll(&mut self, cx: &mut Context<'_>, reply: &mut Reply<'_>) -> Poll<()> {
        if self.sending.is_none() {
            let Some(future) = self.future.as_mut().as_pin_mut() else { return Poll::Ready(()) };
            let ResponseParts { message, metadata, trailers } = match ready!(future.poll(cx)) {
                Ok(response) => response.into_parts(),
                Err(status) => {
                    reply.finish(&status);
                    return Poll::Ready(());
                }
            };
            let Some(source) = reply.only_message(&metadata, message, &trailers) else { return Poll::Ready(()) };
            // Frees the finished future's contents.
            self.future.set(None);
            self.sending = Some((source, trailers));
        }
        let Some((source, trailers)) = &mut self.sending else { return Poll::Ready(()) };
        match ready!(reply.go_on(source, cx)) {
            Ok(()) => reply.finish_ok(trailers),
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
pub(crate) struct ManyAnswers<Fut, St> {
    future: Pin<Box<Option<Fut>>>,
    stream: Option<Pin<Box<St>>>,
    trailers: Metadata,
}

impl<Fut, St, Res> Refillable for ManyAnswers<Fut, St>
where
    Fut: Future<Output = Result<Response<St>, Status>> + Send + 'static,
    St: Stream<Item = Result<Res, Status>> + Send + 'static,
    Res: Encode,
{
    type Future = Fut;
    const STREAMS: bool = true;

    fn new(future: Fut) -> Self {
        Self { future: Box::pin(Some(future)), stream: None, trailers: Metadata::new() }
    }

    fn refill(&mut self, future: Fut) {
        self.future.set(Some(future));
    }
}

impl<Fut, St, Res> Running for ManyAnswers<Fut, St>
where
    Fut: Future<Output = Result<Response<St>, Status>> + Send + 'static,
    St: Stream<Item = Result<Res, Status>> + Send + 'static,
    Res: Encode,
{
    fn poll(&mut self, cx: &mut Context<'_>, reply: &mut Reply<'_>) -> Poll<()> {
        if let Some(future) = self.future.as_mut().as_pin_mut() {
            let Poll::Ready(result) = future.poll(cx) else { return Poll::Pending };
            self.future.set(None);
            match result {
                Ok(response) => {
                    let ResponseParts { message: stream, metadata, trailers } = response.into_parts();
                    reply.head(&metadata);
                    self.stream = Some(Box::pin(stream));
                    self.trailers = trailers;
                }
                Err(status) => reply.finish(&status),
            }
        }
        let Some(stream) = &mut self.stream else { return Poll::Ready(()) };
        let mut sent_bytes = 0;
        // A message that cannot be encoded ends the answer.
        while !reply.state.is_over {
            if !reply.has_room() {
                reply.flush();
                return Poll::Pending;
            }
            // The room is unchanged until something is sent.
            for _ in 0..CHECK_MESSAGES {
                match stream.as_mut().poll_next(cx) {
                    Poll::Pending => {
                        reply.flush();
                        return Poll::Pending;
                    }
                    Poll::Ready(Some(Ok(message))) => {
                        let sent = reply.batched(message);
                        reply.state.has_sent = true;
                        if sent > 0 {
                            sent_bytes += sent;
                            break;
                        }
                    }
                    Poll::Ready(Some(Err(status))) => {
                        reply.flush();
                        reply.finish(&status);
                        return Poll::Ready(());
                    }
                    Poll::Ready(None) => {
                        reply.flush();
                        reply.finish_ok(&self.trailers);
                        return Poll::Ready(());
                    }
                }
            }
            if sent_bytes >= BYTES_PER_POLL || time_slice::is_over() {
                reply.flush();
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        Poll::Ready(())
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
