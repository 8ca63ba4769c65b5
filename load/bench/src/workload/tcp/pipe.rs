//! A connection with requests waiting in order, and the task that drives it.
//!
//! Requests and the task are on one thread, so the lock is never contended. A request that is given up keeps its turn,
//! because its reply may still come and must not be taken for the next one's.

use std::cell::Cell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::replies::{CLOSED, REPLY, Seen, UNASKED};
use super::replies::{Replies, Reply};
use crate::workload::Ending;
use crate::workload::socket::Transport;

/// Maximum requests given up before their reply came; with more, the connection is given up too.
pub const ABANDONED_MAX: usize = 4096;

/// Size of the read buffer, shared by the connections of a thread.
const READ_BYTES: usize = 256 * 1024;
/// A larger output buffer is freed when it is empty.
const KEEP_BYTES_MAX: usize = 256 * 1024;

thread_local! {
    static READ_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A handle to a connection; clones share it.
#[derive(Clone, Debug)]
pub(super) struct Pipe {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    is_open: bool,
    output: String,
    /// Bytes of `output` already written.
    written: usize,
    /// Requests that wait for replies, the next first.
    waiting: VecDeque<oneshot::Sender<Got>>,
    replies: Replies,
    /// Arrival of the first byte of the current reply.
    begun_at: Option<Instant>,
    seen: Option<Seen>,
    driver: Option<Waker>,
}

/// A reply, or the failure in its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Got {
    pub(super) first_byte_at: Option<Instant>,
    pub(super) done_at: Instant,
    pub(super) ending: Ending,
}

impl Pipe {
    /// The connection and its driver; with `seen`, replies are classified.
    pub(super) fn new(transport: Transport, reply: Reply, seen: Option<Seen>) -> (Self, Driver) {
        let state = State {
            is_open: true,
            output: String::new(),
            written: 0,
            waiting: VecDeque::new(),
            replies: Replies::new(reply),
            begun_at: None,
            seen,
            driver: None,
        };
        let pipe = Self { state: Arc::new(Mutex::new(state)) };
        (pipe.clone(), Driver { transport, pipe })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_open(&self) -> bool {
        self.lock().is_open
    }

    /// Queues what `write` appends; returns the time and the reply. `None` if the connection has ended.
    pub(super) fn send(&self, write: impl FnOnce(&mut String)) -> Option<(Instant, oneshot::Receiver<Got>)> {
        let mut state = self.lock();
        if state.has_too_many_abandoned() {
            state.fail(CLOSED);
        }
        if !state.is_open {
            return None;
        }
        let was_empty = state.output.is_empty();
        write(&mut state.output);
        let (sender, reply) = oneshot::channel();
        state.waiting.push_back(sender);
        if was_empty && let Some(driver) = &state.driver {
            driver.wake_by_ref();
        }
        Some((Instant::now(), reply))
    }

    pub(super) fn close(&self) {
        self.lock().fail(CLOSED);
    }
}

impl State {
    fn has_too_many_abandoned(&self) -> bool {
        let abandoned = || self.waiting.iter().filter(|request| request.is_closed()).count();
        self.waiting.len() > ABANDONED_MAX && abandoned() > ABANDONED_MAX
    }

    /// Passes the replies in `input` to the requests that wait for them.
    fn take_in(&mut self, mut input: &[u8], now: Instant) -> Result<(), u16> {
        while let Some(reply) = self.replies.next(&mut input)? {
            let request = self.waiting.pop_front().ok_or(UNASKED)?;
            let ending = match &mut self.seen {
                Some(seen) => seen.ending(reply),
                None => Ending { number: REPLY, is_error: false },
            };
            let first_byte_at = Some(self.begun_at.take().unwrap_or(now));
            // A request that was given up needs no reply.
            let _ = request.send(Got { first_byte_at, done_at: now, ending });
        }
        if self.replies.is_partial() {
            if self.waiting.is_empty() {
                return Err(UNASKED);
            }
            self.begun_at.get_or_insert(now);
        }
        Ok(())
    }

    /// Ends the connection and every waiting request.
    fn fail(&mut self, number: u16) {
        self.is_open = false;
        let got = Got { first_byte_at: None, done_at: Instant::now(), ending: Ending { number, is_error: true } };
        for request in self.waiting.drain(..) {
            let _ = request.send(got);
        }
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    fn poll_write(&mut self, transport: &mut Transport, cx: &mut Context<'_>) -> Result<(), u16> {
        while self.written < self.output.len() {
            match Pin::new(&mut *transport).poll_write(cx, &self.output.as_bytes()[self.written..]) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(count)) if count > 0 => self.written += count,
                Poll::Ready(_) => return Err(CLOSED),
            }
        }
        self.written = 0;
        if self.output.capacity() > KEEP_BYTES_MAX {
            self.output = String::new();
        }
        self.output.clear();
        Ok(())
    }
}

/// Writes what is queued and reads replies until the connection ends.
#[derive(Debug)]
pub(super) struct Driver {
    transport: Transport,
    pipe: Pipe,
}

impl Driver {
    /// `Err` is the ending of the waiting requests.
    fn poll_drive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), u16>> {
        loop {
            let mut state = self.pipe.lock();
            if !state.is_open {
                return Poll::Ready(Ok(()));
            }
            if state.driver.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
                state.driver = Some(cx.waker().clone());
            }
            state.poll_write(&mut self.transport, cx)?;
            drop(state);
            ready!(self.poll_read(cx))?;
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), u16>> {
        let mut buffer = READ_BUFFER.take();
        buffer.resize(READ_BYTES, 0);
        let mut read = ReadBuf::new(&mut buffer);
        let polled = Pin::new(&mut self.transport).poll_read(cx, &mut read);
        let result = match polled {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) if !read.filled().is_empty() => {
                let now = Instant::now();
                Poll::Ready(self.pipe.lock().take_in(read.filled(), now))
            }
            Poll::Ready(_) => Poll::Ready(Err(CLOSED)),
        };
        READ_BUFFER.set(buffer);
        result
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Err(number) = ready!(self.poll_drive(cx)) {
            self.pipe.lock().fail(number);
        }
        Poll::Ready(())
    }
}
