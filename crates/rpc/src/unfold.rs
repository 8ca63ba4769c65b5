//! Streams made of an async function, for methods that answer with a stream.
//!
//! Implements: no specification.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

type Step<S, T> = Pin<Box<dyn Future<Output = Option<(T, S)>> + Send>>;

/// What [`unfold`] returns.
pub struct Unfold<S, T, F> {
    step: F,
    running: Option<Step<S, T>>,
}

/// A stream that calls `step` with a state for each item and goes on with the state it gives back; `None` ends it.
pub fn unfold<S, T, F, Fut>(state: S, step: F) -> Unfold<S, T, impl FnMut(S) -> Step<S, T> + Send + Unpin>
where
    F: FnMut(S) -> Fut + Send + Unpin,
    Fut: Future<Output = Option<(T, S)>> + Send + 'static,
{
    let mut step = step;
    let mut step = move |state| Box::pin(step(state)) as Step<S, T>;
    let running = Some(step(state));
    Unfold { step, running }
}

impl<S, T, F: FnMut(S) -> Step<S, T> + Unpin> Stream for Unfold<S, T, F> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let Some(running) = &mut self.running else { return Poll::Ready(None) };
        let step = ready!(running.as_mut().poll(cx));
        self.running = None;
        Poll::Ready(step.map(|(item, state)| {
            self.running = Some((self.step)(state));
            item
        }))
    }
}

impl<S, T, F> std::fmt::Debug for Unfold<S, T, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Unfold")
    }
}
