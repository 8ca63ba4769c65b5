//! Received messages between a connection and their reader.
//!
//! The reader may run in the connection's own task or in any other. Unread bytes keep the stream's window closed, so a
//! slow reader stalls only its own stream.
//!
//! Short messages are concatenated in a buffer, which the reader takes whole: one lock and one buffer for many
//! messages.
//!
//! Implements: RFC 9113 section 5.2 (flow control), towards the application.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use crate::message::framing::{Framed, PREFIX_BYTES};
use crate::metadata::Metadata;
use crate::status::Status;

/// Largest emptied buffer that is kept for reuse; larger ones are freed.
const SPARE_BYTES_MAX: usize = 4 * 1024;

/// Unit that the reader takes at once.
pub(crate) enum Chunk {
    /// Short messages, each after its prefix.
    Run(Vec<u8>),
    Message(Framed<Bytes>),
}

#[derive(Default)]
struct State {
    queue: VecDeque<Chunk>,
    /// Bytes of the queue and of the run that the reader holds.
    unread_bytes: usize,
    /// Buffer for the next run.
    spare: Vec<u8>,
    /// Trailers, or the failure that stopped the messages.
    end: Option<Result<Metadata, Status>>,
    reader: Option<Waker>,
    /// True while the connection keeps the window closed, until the queue is short again.
    is_stalled: bool,
    /// True once the reader is gone.
    is_abandoned: bool,
}

/// Queue of a stream's messages, shared by connection and reader.
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

    /// Queues a message. Returns whether the reader is the connection's own call, which then must be polled.
    pub(crate) fn push(&self, message: Framed<Bytes>) -> bool {
        let mut state = self.lock();
        if !state.is_abandoned {
            state.unread_bytes += message.bytes.len() + PREFIX_BYTES;
            state.queue.push_back(Chunk::Message(message));
        }
        self.notify(state)
    }

    /// Like [`Inbox::push`], for concatenated messages, each after its prefix.
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

    /// Ends the messages; later calls are ignored.
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

    /// True if the queue is long, so that the window should stay closed; the reader then wakes the connection.
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

    /// Next chunk of an unframed body.
    pub(crate) fn poll_data(&self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Option<Status>>> {
        self.poll_chunk(&mut Run::default(), cx).map_ok(|chunk| match chunk {
            Chunk::Run(run) => {
                self.lock().unread_bytes -= run.len();
                run.into()
            }
            Chunk::Message(chunk) => chunk.bytes,
        })
    }

    /// Next chunk. Takes back `read`, which the reader has finished.
    pub(crate) fn poll_chunk(&self, read: &mut Run, cx: &mut Context<'_>) -> Poll<Result<Chunk, Option<Status>>> {
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

    /// True if everything was read and the stream ended without failure.
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

/// Messages taken by the reader, each after its prefix; `at` is the start of the next.
#[derive(Default)]
pub(crate) struct Run {
    bytes: Vec<u8>,
    at: usize,
}

impl Run {
    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        Self { bytes, at: 0 }
    }

    /// The message in a range.
    #[inline]
    pub(crate) fn message(&self, bytes: Range<usize>) -> &[u8] {
        &self.bytes[bytes]
    }

    /// Location of the next message.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Taken> {
        let (&[flag, ref length @ ..], rest) = self.bytes.get(self.at..)?.split_first_chunk::<PREFIX_BYTES>()?;
        let length = (u32::from_be_bytes(*length) as usize).min(rest.len());
        let start = self.at + PREFIX_BYTES;
        self.at = start + length;
        Some(Taken::Run { compressed: flag == 1, bytes: start..self.at })
    }

    /// Location of the next message, if it is not compressed.
    #[inline]
    pub(crate) fn next_plain(&mut self) -> Option<Range<usize>> {
        let prefix = self.bytes.get(self.at..)?.first_chunk::<PREFIX_BYTES>()?;
        let [0, length @ ..] = *prefix else { return None };
        let start = self.at + PREFIX_BYTES;
        self.at = self.bytes.len().min(start + u32::from_be_bytes(length) as usize);
        Some(start..self.at)
    }
}

/// A message taken out of the inbox.
pub(crate) enum Taken {
    Run { compressed: bool, bytes: Range<usize> },
    Message(Framed<Bytes>),
}
