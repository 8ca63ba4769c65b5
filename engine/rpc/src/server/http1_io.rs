//! Transport of an HTTP/1.1 connection for hyper: replays the bytes already read, counts both directions, and fails if
//! the peer accepts nothing for too long.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Bytes that the connection holds, as far as visible from outside hyper. Calls account for their messages. Changed by
/// the connection's task alone.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Unwritten bytes of begun answers.
    unsent: AtomicUsize,
    /// Bytes read that are no request yet; hyper holds at most `waiting_max`.
    waiting: AtomicUsize,
    waiting_max: usize,
    /// Bytes of the last read.
    last_read: AtomicUsize,
    /// Bytes in the head of the request whose answer has not begun; 0 if there is none.
    head: AtomicUsize,
}

impl Held {
    /// For a connection whose heads have at most `waiting_max` bytes.
    pub(super) fn new(waiting_max: usize) -> Self {
        Self { waiting_max, ..Self::default() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.unsent.load(Relaxed) + self.waiting.load(Relaxed) + self.head.load(Relaxed)
    }

    /// True while a part of an answer is to be written.
    pub(super) fn is_sending(&self) -> bool {
        self.unsent.load(Relaxed) > 0
    }

    /// Begins a request with a head of `head_bytes`. Other waiting bytes came with the end of that head.
    pub(super) fn begin(&self, head_bytes: usize) {
        let rest = self.waiting.load(Relaxed).saturating_sub(head_bytes);
        self.waiting.store(rest.min(self.last_read.load(Relaxed)), Relaxed);
        self.head.store(head_bytes, Relaxed);
    }

    /// Notes that `bytes` of a request's body were taken.
    pub(super) fn take(&self, bytes: usize) {
        self.waiting.store(self.waiting.load(Relaxed).saturating_sub(bytes), Relaxed);
    }

    /// Adds a begun answer of this size.
    pub(super) fn answer(&self, bytes: u64) {
        self.unsent.fetch_add(usize::try_from(bytes).unwrap_or(usize::MAX), Relaxed);
        self.head.store(0, Relaxed);
    }

    fn written(&self, count: usize) {
        // Heads are written too, and were not counted.
        self.unsent.store(self.unsent.load(Relaxed).saturating_sub(count), Relaxed);
    }

    fn read(&self, count: usize) {
        // The rest of a body is read when none of it is left; the frames of its chunks count until then.
        let before = if self.head.load(Relaxed) > 0 { 0 } else { self.waiting.load(Relaxed) };
        self.waiting.store((before + count).min(self.waiting_max), Relaxed);
        self.last_read.store(count, Relaxed);
    }
}

pub(super) struct Io<T> {
    first: Vec<u8>,
    taken: usize,
    transport: T,
    held: Arc<Held>,
    write_timeout: Duration,
    /// Set while the peer accepts nothing.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl<T> Io<T> {
    /// Reads `first`, then `transport`.
    pub(super) fn new(first: Vec<u8>, transport: T, held: Arc<Held>, write_timeout: Duration) -> Self {
        Self { first, taken: 0, transport, held, write_timeout, stuck: None }
    }

    fn written(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(result) = written {
            self.stuck = None;
            self.held.written(result.as_ref().map_or(0, |count| *count));
            return Poll::Ready(result);
        }
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(sleep(self.write_timeout)));
        ready!(stuck.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Io<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let left = &self.first[self.taken..];
        if left.is_empty() {
            let polled = Pin::new(&mut self.transport).poll_read(cx, buffer);
            self.held.read(buffer.filled().len() - before);
            return polled;
        }
        let count = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..count]);
        self.taken += count;
        self.held.read(count);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Io<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.transport).poll_write(cx, bytes);
        self.written(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.transport).poll_write_vectored(cx, slices);
        self.written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }
}
