//! Streams made of async functions, for streaming responses and requests.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

/// Stream returned by [`unfold`].
pub struct Unfold<F, Fut> {
    step: F,
    /// Empty after the end. The box is reused for each step.
    running: Pin<Box<Option<Fut>>>,
}

/// Creates a stream that calls `step` with the state for each item; `step` returns the item and the next state, or
/// `None` at the end. Allocates once, however many items there are.
///
/// ```
/// use quire_rpc::{Status, Stream, unfold};
///
/// /// From a channel, which another task fills.
/// fn received(receiver: tokio::sync::mpsc::Receiver<u32>) -> impl Stream<Item = Result<u32, Status>> + Send {
///     unfold(receiver, |mut receiver| async move { Some((Ok(receiver.recv().await?), receiver)) })
/// }
///
/// /// From an iterator.
/// fn counted(to: u32) -> impl Stream<Item = Result<u32, Status>> + Send {
///     unfold(0..to, |mut numbers| async move { Some((Ok(numbers.next()?), numbers)) })
/// }
/// ```
pub fn unfold<S, T, F, Fut>(state: S, mut step: F) -> Unfold<F, Fut>
where
    F: FnMut(S) -> Fut + Unpin,
    Fut: Future<Output = Option<(T, S)>>,
{
    let running = Box::pin(Some(step(state)));
    Unfold { step, running }
}

impl<S, T, F, Fut> Stream for Unfold<F, Fut>
where
    F: FnMut(S) -> Fut + Unpin,
    Fut: Future<Output = Option<(T, S)>>,
{
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let Self { step, running } = &mut *self;
        let Some(future) = running.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        let (item, next) =
            ready!(future.poll(cx)).map_or((None, None), |(item, state)| (Some(item), Some(step(state))));
        running.set(next);
        Poll::Ready(item)
    }
}

impl<F, Fut> fmt::Debug for Unfold<F, Fut> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unfold")
    }
}
