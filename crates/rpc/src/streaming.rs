//! Messages on their way from a connection to their reader: [`Streaming`] and the inbox behind it.
//!
//! The reader may live in the connection's own task or in any other. What it has not read holds the stream's window
//! back, so a slow reader stops its own stream and no other.
//!
//! Short messages lie behind each other in a buffer, which the reader takes whole: a lock and a buffer for many messages,
//! not for each.
//!
//! Implements: RFC 9113 section 5.2 (flow control), towards the application.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_core::Stream;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::codec::{Decode, Payload};
use crate::message::{Framed, PREFIX_BYTES};
use crate::metadata::Metadata;
use crate::status::Status;
use crate::transcode::Reading;

/// Memory of a buffer that the reader has emptied and that is used again; a larger one is freed.
const SPARE_BYTES_MAX: usize = 4 * 1024;

/// What the reader takes at once.
enum Chunk {
    /// Short messages, each behind its prefix.
    Run(Vec<u8>),
    Message(Framed<Bytes>),
}

#[derive(Default)]
struct State {
    queue: VecDeque<Chunk>,
    /// Bytes of the queue and of the run that the reader has.
    unread_bytes: usize,
    /// For the next run.
    spare: Vec<u8>,
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
    unread_bytes_max: usize,
}

impl Inbox {
    pub(crate) fn new(connection: Waker, unread_bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), connection, unread_bytes_max })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a message over. Returns whether the reader is the connection's own call, which then must be polled.
    pub(crate) fn push(&self, message: Framed<Bytes>) -> bool {
        let mut state = self.lock();
        if !state.is_abandoned {
            state.unread_bytes += message.bytes.len() + PREFIX_BYTES;
            state.queue.push_back(Chunk::Message(message));
        }
        self.notify(state)
    }

    /// As [`Inbox::push`], with whole messages that lie behind each other, each behind its prefix.
    pub(crate) fn push_run(&self, messages: &[u8]) -> bool {
        let mut state = self.lock();
        if !state.is_abandoned {
            state.unread_bytes += messages.len();
            if let Some(Chunk::Run(run)) = state.queue.back_mut() {
                run.extend_from_slice(messages);
            } else {
                let mut run = std::mem::take(&mut state.spare);
                run.extend_from_slice(messages);
                state.queue.push_back(Chunk::Run(run));
            }
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
        state.is_stalled = state.unread_bytes >= self.unread_bytes_max && !state.is_abandoned;
        state.is_stalled
    }

    pub(crate) fn unread_bytes(&self) -> usize {
        self.lock().unread_bytes
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.lock().is_abandoned
    }

    /// The next chunk of a body that is not cut into messages.
    pub(crate) fn poll_data(&self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Option<Status>>> {
        self.poll_chunk(&mut Run::default(), cx).map_ok(|chunk| match chunk {
            Chunk::Run(run) => {
                self.lock().unread_bytes -= run.len();
                run.into()
            }
            Chunk::Message(chunk) => chunk.bytes,
        })
    }

    /// The next chunk. Takes back `read`, which the reader has read to its end.
    fn poll_chunk(&self, read: &mut Run, cx: &mut Context<'_>) -> Poll<Result<Chunk, Option<Status>>> {
        let mut state = self.lock();
        state.unread_bytes -= read.bytes.len();
        read.bytes.clear();
        read.at = 0;
        if read.bytes.capacity() > state.spare.capacity() && read.bytes.capacity() <= SPARE_BYTES_MAX {
            state.spare = std::mem::take(&mut read.bytes);
        }
        let chunk = state.queue.pop_front();
        if let Some(Chunk::Message(message)) = &chunk {
            state.unread_bytes -= message.bytes.len() + PREFIX_BYTES;
        }
        let resume = state.is_stalled && state.unread_bytes < self.unread_bytes_max;
        state.is_stalled &= !resume;
        let polled = match (chunk, &state.end) {
            (Some(chunk), _) => Poll::Ready(Ok(chunk)),
            (None, Some(Ok(_))) => Poll::Ready(Err(None)),
            (None, Some(Err(status))) => Poll::Ready(Err(Some(status.clone()))),
            (None, None) => {
                if !state.reader.as_ref().is_some_and(|reader| reader.will_wake(cx.waker())) {
                    state.reader = Some(cx.waker().clone());
                }
                Poll::Pending
            }
        };
        drop(state);
        if resume {
            self.connection.wake_by_ref();
        }
        polled
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
        state.spare = Vec::new();
        let finished = state.end.is_some();
        drop(state);
        if !finished {
            self.connection.wake_by_ref();
        }
    }
}

/// Messages that the reader has taken, each behind its prefix; `at` is where the next one begins.
#[derive(Default)]
struct Run {
    bytes: Vec<u8>,
    at: usize,
}

impl Run {
    /// Where the next message lies.
    #[inline]
    fn next(&mut self) -> Option<Place> {
        let (&[flag, ref length @ ..], rest) = self.bytes.get(self.at..)?.split_first_chunk::<PREFIX_BYTES>()?;
        let length = (u32::from_be_bytes(*length) as usize).min(rest.len());
        let start = self.at + PREFIX_BYTES;
        self.at = start + length;
        Some(Place::Run { compressed: flag == 1, bytes: start..self.at })
    }
}

/// A message that was taken out of the inbox.
enum Place {
    Run { compressed: bool, bytes: Range<usize> },
    Message(Framed<Bytes>),
}

/// A stream of messages from the other side.
pub struct Streaming<T> {
    inbox: Arc<Inbox>,
    run: Run,
    reading: Reading,
    failed: bool,
    /// When the caller gives up; on the client only.
    deadline: Option<Pin<Box<Sleep>>>,
    message: PhantomData<fn() -> T>,
}

impl<T> Streaming<T> {
    pub(crate) fn new(inbox: Arc<Inbox>, reading: Reading) -> Self {
        Self { inbox, run: Run::default(), reading, failed: false, deadline: None, message: PhantomData }
    }

    pub(crate) fn end_at(&mut self, deadline: Instant) {
        self.deadline = Some(Box::pin(sleep_until(deadline)));
    }

    /// The next message; `None` after the last. Dropping the stream tells the other side to stop.
    pub async fn message(&mut self) -> Result<Option<T>, Status>
    where
        T: Decode,
    {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await.transpose()
    }

    /// As [`Streaming::message`], in its bytes, where they lie: nothing is copied or allocated for a short message.
    pub async fn payload(&mut self) -> Result<Option<Payload<'_>>, Status> {
        let Some(place) = poll_fn(|cx| self.poll_place(cx)).await? else { return Ok(None) };
        self.open(place).map(Some)
    }

    /// What came after the last message; `None` before the end.
    pub fn trailers(&self) -> Option<Metadata> {
        self.inbox.trailers()
    }

    #[inline]
    fn poll_place(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Place>, Status>> {
        if self.failed {
            return Poll::Ready(Ok(None));
        }
        match self.run.next() {
            Some(place) => Poll::Ready(Ok(Some(place))),
            None => self.poll_inbox(cx),
        }
    }

    fn poll_inbox(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Place>, Status>> {
        match self.inbox.poll_chunk(&mut self.run, cx) {
            Poll::Pending => {
                let late = self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready());
                if !late {
                    return Poll::Pending;
                }
                self.inbox.abandon();
                self.fail(Status::deadline_exceeded("time is up"))
            }
            Poll::Ready(Err(None)) => Poll::Ready(Ok(None)),
            Poll::Ready(Err(Some(status))) => self.fail(status),
            Poll::Ready(Ok(Chunk::Run(bytes))) => {
                self.run = Run { bytes, at: 0 };
                Poll::Ready(Ok(self.run.next()))
            }
            Poll::Ready(Ok(Chunk::Message(message))) => Poll::Ready(Ok(Some(Place::Message(message)))),
        }
    }

    /// Nothing is read after a failure.
    fn fail<U>(&mut self, status: Status) -> Poll<Result<U, Status>> {
        self.failed = true;
        Poll::Ready(Err(status))
    }

    #[inline]
    fn open(&mut self, place: Place) -> Result<Payload<'_>, Status> {
        let framed = match place {
            Place::Run { compressed, bytes } => Framed { compressed, bytes: Payload::Borrowed(&self.run.bytes[bytes]) },
            Place::Message(Framed { compressed, bytes }) => Framed { compressed, bytes: Payload::Owned(bytes) },
        };
        self.reading.open(framed).inspect_err(|_| self.failed = true)
    }
}

impl<T: Decode> Stream for Streaming<T> {
    type Item = Result<T, Status>;

    #[inline]
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let place = match self.poll_place(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(status)) => return Poll::Ready(Some(Err(status))),
            Poll::Ready(Ok(None)) => return Poll::Ready(None),
            Poll::Ready(Ok(Some(place))) => place,
        };
        let decoded = self.open(place).and_then(T::decode);
        self.failed = decoded.is_err();
        Poll::Ready(Some(decoded))
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

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::codec::Encoded;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn streaming(inbox: &Arc<Inbox>) -> Streaming<Encoded> {
        let reading = Reading { encoding: None, json: None, message_bytes_max: 100 };
        Streaming::new(Arc::clone(inbox), reading)
    }

    fn long(bytes: &'static [u8]) -> Framed<Bytes> {
        Framed { compressed: false, bytes: Bytes::from_static(bytes) }
    }

    /// The message that is there now.
    fn now(messages: &mut Streaming<Encoded>) -> Poll<Option<Vec<u8>>> {
        let mut cx = Context::from_waker(Waker::noop());
        let next = pin!(messages.payload()).poll(&mut cx);
        next.map(|payload| payload.unwrap().map(|payload| payload.as_slice().to_vec()))
    }

    #[test]
    fn runs_and_single_messages_are_read_in_the_order_they_came_in() {
        let inbox = Inbox::new(Waker::noop().clone(), 1_000);
        let mut messages = streaming(&inbox);
        inbox.push_run(&[0, 0, 0, 0, 1, b'a', 0, 0, 0, 0, 0]);
        inbox.push(long(b"bcd"));
        inbox.push_run(&[0, 0, 0, 0, 1, b'e']);
        for wanted in [&b"a"[..], b"", b"bcd", b"e"] {
            assert_eq!(now(&mut messages), Poll::Ready(Some(wanted.to_vec())));
        }
        assert_eq!(now(&mut messages), Poll::Pending);
        inbox.push_run(&[0, 0, 0, 0, 1, b'f']);
        inbox.end(Ok(Metadata::new()));
        assert_eq!(now(&mut messages), Poll::Ready(Some(b"f".to_vec())));
        assert_eq!(now(&mut messages), Poll::Ready(None));
    }

    #[test]
    fn a_run_counts_as_unread_until_its_last_message_is_read() {
        let wakes = Arc::new(Wakes::default());
        let inbox = Inbox::new(Waker::from(Arc::clone(&wakes)), 12);
        let mut messages = streaming(&inbox);
        inbox.push_run(&[0, 0, 0, 0, 1, b'a', 0, 0, 0, 0, 1, b'b']);
        assert!(inbox.stall());
        for wanted in [b"a", b"b"] {
            assert_eq!(now(&mut messages), Poll::Ready(Some(wanted.to_vec())));
            assert!(inbox.stall());
        }
        assert_eq!((now(&mut messages), wakes.0.load(Ordering::Relaxed)), (Poll::Pending, 1));
        assert!(!inbox.stall());
    }
}
