//! The reader's view of messages: [`Streaming`].

use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::message::codec::{Decode, Payload};
use crate::message::framing::Framed;
use crate::message::inbox::{Chunk, Inbox, Run, Taken};
use crate::message::transcode::Reading;
use crate::metadata::Metadata;
use crate::status::Status;

/// After a compressed message of at least this decompressed size a reader yields: a few bytes may hold megabytes, and
/// thousands of such messages may wait.
const PAUSE_BYTES: usize = 64 * 1024;

/// A stream of messages from the other side.
pub struct Streaming<T> {
    inbox: Arc<Inbox>,
    run: Run,
    reading: Reading,
    failed: bool,
    /// The last message took long to decompress.
    pauses: bool,
    /// The caller's deadline; on the client only.
    deadline: Option<Pin<Box<Sleep>>>,
    message: PhantomData<fn() -> T>,
}

impl<T> Streaming<T> {
    pub(crate) fn new(inbox: Arc<Inbox>, reading: Reading) -> Self {
        Self { inbox, run: Run::default(), reading, failed: false, pauses: false, deadline: None, message: PhantomData }
    }

    pub(crate) fn end_at(&mut self, deadline: Instant) {
        self.deadline = Some(Box::pin(sleep_until(deadline)));
    }

    /// Next message; `None` after the last. Dropping the stream cancels it.
    pub async fn message(&mut self) -> Result<Option<T>, Status>
    where
        T: Decode,
    {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await.transpose()
    }

    /// Like [`Streaming::message`], as bytes in place: short messages are not copied or allocated.
    pub async fn payload(&mut self) -> Result<Option<Payload<'_>>, Status> {
        if let Some(bytes) = self.plain() {
            return Ok(Some(Payload::Borrowed(self.run.message(bytes))));
        }
        let Some(taken) = poll_fn(|cx| self.poll_taken(cx)).await? else { return Ok(None) };
        self.open(taken).map(Some)
    }

    /// Trailing metadata; `None` before the end.
    pub fn trailers(&self) -> Option<Metadata> {
        self.inbox.trailers()
    }

    /// Location of the next message, if it is in the current run as plain protobuf: most are.
    #[inline]
    fn plain(&mut self) -> Option<Range<usize>> {
        if self.failed || self.reading.json.is_some() { None } else { self.run.next_plain() }
    }

    #[inline]
    fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Taken>, Status>> {
        if self.failed {
            return Poll::Ready(Ok(None));
        }
        if std::mem::take(&mut self.pauses) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match self.run.next() {
            Some(taken) => Poll::Ready(Ok(Some(taken))),
            None => self.poll_inbox(cx),
        }
    }

    fn poll_inbox(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Taken>, Status>> {
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
                self.run = Run::of(bytes);
                Poll::Ready(Ok(self.run.next()))
            }
            Poll::Ready(Ok(Chunk::Message(message))) => Poll::Ready(Ok(Some(Taken::Message(message)))),
        }
    }

    /// Fails the stream: nothing is read after this.
    fn fail<U>(&mut self, status: Status) -> Poll<Result<U, Status>> {
        self.failed = true;
        Poll::Ready(Err(status))
    }

    #[inline]
    fn open(&mut self, taken: Taken) -> Result<Payload<'_>, Status> {
        let framed = match taken {
            Taken::Run { compressed, bytes } => {
                Framed { compressed, bytes: Payload::Borrowed(self.run.message(bytes)) }
            }
            Taken::Message(Framed { compressed, bytes }) => Framed { compressed, bytes: Payload::Owned(bytes) },
        };
        let compressed = framed.compressed;
        let opened = self.reading.open(framed).inspect_err(|_| self.failed = true)?;
        self.pauses = compressed && opened.as_slice().len() >= PAUSE_BYTES;
        Ok(opened)
    }
}

impl<T: Decode> Stream for Streaming<T> {
    type Item = Result<T, Status>;

    #[inline]
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(bytes) = this.plain() {
            let decoded = T::decode(Payload::Borrowed(this.run.message(bytes)));
            this.failed = decoded.is_err();
            return Poll::Ready(Some(decoded));
        }
        let taken = match self.poll_taken(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(status)) => return Poll::Ready(Some(Err(status))),
            Poll::Ready(Ok(None)) => return Poll::Ready(None),
            Poll::Ready(Ok(Some(taken))) => taken,
        };
        let decoded = self.open(taken).and_then(T::decode);
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
    use std::task::{Wake, Waker};

    use bytes::Bytes;

    use super::*;
    use crate::message::codec::Encoded;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn streaming(inbox: &Arc<Inbox>) -> Streaming<Encoded> {
        let reading = Reading { encoding: None, json: None, message_bytes_max: 100, budget: None };
        Streaming::new(Arc::clone(inbox), reading)
    }

    fn long(bytes: &'static [u8]) -> Framed<Bytes> {
        Framed { compressed: false, bytes: Bytes::from_static(bytes) }
    }

    /// The message that is available now.
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
    fn others_have_their_turn_after_a_message_that_took_long_to_decompress() {
        let inbox = Inbox::new(Waker::noop().clone(), 1_000);
        let encoding = crate::message::compression::Encoding::BUILT[0];
        let reading = Reading { encoding: Some(encoding), json: None, message_bytes_max: 1 << 20, budget: None };
        let mut messages = Streaming::<Encoded>::new(Arc::clone(&inbox), reading);
        for length in [10, PAUSE_BYTES, 10] {
            let mut bytes = Vec::new();
            encoding.compress(&vec![0; length], &mut bytes).unwrap();
            inbox.push(Framed { compressed: true, bytes: bytes.into() });
        }
        let mut next = || now(&mut messages).map(|message| message.map(|message| message.len()));
        let ready = |length| Poll::Ready(Some(length));
        assert_eq!([next(), next(), next(), next()], [ready(10), ready(PAUSE_BYTES), Poll::Pending, ready(10)]);
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
