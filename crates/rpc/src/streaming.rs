//! Messages on their way from a connection to their reader: [`Streaming`] and the inbox behind it.
//!
//! The reader may live in the connection's own task or in any other. What it has not read holds the stream's window
//! back, so a slow reader stops its own stream and no other.
//!
//! Implements: RFC 9113 section 5.2 (flow control), towards the application.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_core::Stream;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::codec::{Decode, Payload};
use crate::message::{self, Framed};
use crate::metadata::Metadata;
use crate::status::Status;
use crate::transcode::Reading;

#[derive(Default)]
struct State {
    queue: VecDeque<Framed<Bytes>>,
    queued_bytes: usize,
    /// Trailers, or why the messages stopped.
    end: Option<Result<Metadata, Status>>,
    reader: Option<Waker>,
    /// The connection holds the window back until the queue is short again.
    is_stalled: bool,
    /// The reader is gone.
    is_abandoned: bool,
}

/// The connection's end and the reader's end of a stream of messages.
pub(crate) struct Inbox {
    state: Mutex<State>,
    /// Wakes the connection for this call.
    connection: Waker,
    queue_bytes_max: usize,
}

impl Inbox {
    pub(crate) fn new(connection: Waker, queue_bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), connection, queue_bytes_max })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a message over. Returns whether the reader is the connection's own call, which then must be polled.
    pub(crate) fn push(&self, message: Framed<Bytes>) -> bool {
        let mut state = self.lock();
        if !state.is_abandoned {
            state.queued_bytes += message.bytes.len() + message::PREFIX_BYTES;
            state.queue.push_back(message);
        }
        self.notify(state)
    }

    /// No more messages come. Later calls are ignored.
    pub(crate) fn end(&self, end: Result<Metadata, Status>) -> bool {
        let mut state = self.lock();
        state.end.get_or_insert(end);
        self.notify(state)
    }

    fn notify(&self, mut state: MutexGuard<'_, State>) -> bool {
        let reader = state.reader.take();
        drop(state);
        match reader {
            Some(reader) if reader.will_wake(&self.connection) => true,
            Some(reader) => {
                reader.wake();
                false
            }
            None => false,
        }
    }

    /// Whether the queue is long, so that the window should stay closed; if so the reader will wake the connection.
    pub(crate) fn stall(&self) -> bool {
        let mut state = self.lock();
        state.is_stalled = state.queued_bytes >= self.queue_bytes_max && !state.is_abandoned;
        state.is_stalled
    }

    pub(crate) fn unread_bytes(&self) -> usize {
        self.lock().queued_bytes
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.lock().is_abandoned
    }

    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Result<Framed<Bytes>, Option<Status>>> {
        let mut state = self.lock();
        if let Some(message) = state.queue.pop_front() {
            state.queued_bytes -= message.bytes.len() + message::PREFIX_BYTES;
            let resume = state.is_stalled && state.queued_bytes < self.queue_bytes_max;
            state.is_stalled &= !resume;
            drop(state);
            if resume {
                self.connection.wake_by_ref();
            }
            return Poll::Ready(Ok(message));
        }
        match &state.end {
            Some(Ok(_)) => Poll::Ready(Err(None)),
            Some(Err(status)) => Poll::Ready(Err(Some(status.clone()))),
            None => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Whether nothing is left to read, and the end was good.
    pub(crate) fn is_read_to_end(&self) -> bool {
        let state = self.lock();
        state.queue.is_empty() && matches!(state.end, Some(Ok(_)))
    }

    pub(crate) fn trailers(&self) -> Option<Metadata> {
        match &self.lock().end {
            Some(Ok(trailers)) => Some(trailers.clone()),
            Some(Err(status)) => Some(status.metadata().clone()),
            None => None,
        }
    }

    pub(crate) fn abandon(&self) {
        let mut state = self.lock();
        state.is_abandoned = true;
        state.queue = VecDeque::new();
        state.queued_bytes = 0;
        let finished = state.end.is_some();
        drop(state);
        if !finished {
            self.connection.wake_by_ref();
        }
    }
}

/// A stream of messages from the other side.
pub struct Streaming<T> {
    inbox: Arc<Inbox>,
    reading: Reading,
    failed: bool,
    /// When the caller gives up; on the client only.
    deadline: Option<Pin<Box<Sleep>>>,
    message: PhantomData<fn() -> T>,
}

impl<T: Decode> Streaming<T> {
    pub(crate) fn new(inbox: Arc<Inbox>, reading: Reading) -> Self {
        Self { inbox, reading, failed: false, deadline: None, message: PhantomData }
    }

    pub(crate) fn end_at(&mut self, deadline: Instant) {
        self.deadline = Some(Box::pin(sleep_until(deadline)));
    }

    /// The next message; `None` after the last. Dropping the stream tells the other side to stop.
    pub async fn message(&mut self) -> Result<Option<T>, Status> {
        match poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await {
            Some(Ok(message)) => Ok(Some(message)),
            Some(Err(status)) => Err(status),
            None => Ok(None),
        }
    }

    /// What came after the last message; `None` before the end.
    pub fn trailers(&self) -> Option<Metadata> {
        self.inbox.trailers()
    }
}

impl<T: Decode> Stream for Streaming<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.failed {
            return Poll::Ready(None);
        }
        let next = match self.inbox.poll_next(cx) {
            Poll::Pending => {
                let late = self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready());
                if !late {
                    return Poll::Pending;
                }
                self.inbox.abandon();
                Some(Err(Status::deadline_exceeded("time is up")))
            }
            Poll::Ready(Err(None)) => None,
            Poll::Ready(Err(Some(status))) => Some(Err(status)),
            Poll::Ready(Ok(framed)) => {
                let framed = Framed { compressed: framed.compressed, bytes: Payload::Owned(framed.bytes) };
                Some(self.reading.decode(framed))
            }
        };
        self.failed = matches!(next, Some(Err(_)));
        Poll::Ready(next)
    }
}

impl<T> Drop for Streaming<T> {
    fn drop(&mut self) {
        self.inbox.abandon();
    }
}

impl<T> fmt::Debug for Streaming<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Streaming")
    }
}
