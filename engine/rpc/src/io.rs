//! Reads and writes of a connection, in batches, for both sides.
//!
//! The read buffer belongs to the thread, not to the connection: ten thousand idle connections hold none. An incomplete
//! frame is kept until the next read.
//!
//! Implements: RFC 9113 section 4 leaves reads and writes to us.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use quire_http2::{HEAD_BYTES, Output};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Size of a read; more would only help with a larger kernel buffer.
const READ_BYTES: usize = 64 * 1024;
/// Segments of one vectored write.
const SLICES_MAX: usize = 32;
/// Largest write buffer that a thread keeps.
const WRITE_BYTES_MAX: usize = 256 * 1024;
/// Kept input buffers above this are freed when empty.
const KEEP_BYTES_MAX: usize = 4 * 1024;

thread_local! {
    /// Taken for the duration of a read, so that a handler which reads another connection meanwhile gets its own.
    static READ_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

thread_local! {
    /// Buffer that connections write into in turn: it stays in the processor's cache, and a connection without output
    /// holds no buffer.
    static WRITE_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Lends the thread's buffer to a connection that begins its turn with nothing to write.
pub(crate) fn lend(output: &mut Output) {
    let mut buffer = WRITE_BUFFER.take();
    output.borrow(&mut buffer);
    WRITE_BUFFER.set(buffer);
}

/// Takes the buffer back from a connection that has written everything. Of two the thread keeps the larger, up to a
/// limit.
pub(crate) fn give_back(output: &mut Output) {
    let Some(buffer) = output.give_back() else { return };
    let kept = WRITE_BUFFER.take();
    let is_better = (kept.capacity()..=WRITE_BYTES_MAX).contains(&buffer.capacity());
    WRITE_BUFFER.set(if is_better { buffer } else { kept });
}

/// The close reason of a connection whose read failed. A peer that closes without TLS's `close_notify` has closed:
/// frames mark where messages end.
#[cfg(feature = "server")]
pub(crate) fn read_failed(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "closed by the peer".to_owned(),
        _ => format!("read: {error}"),
    }
}

/// Bytes read that do not form a complete frame yet.
#[derive(Debug, Default)]
pub(crate) struct Inlet {
    left: Vec<u8>,
}

impl Inlet {
    /// Starts with bytes that were read to detect the protocol.
    pub(crate) fn new(left: Vec<u8>) -> Self {
        Self { left }
    }

    /// Reads once and passes all bytes to `take`, which leaves an incomplete frame. `Ok(0)` is the end.
    pub(crate) fn poll_read<T: AsyncRead + Unpin, E>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
        frame_bytes_max: usize,
        take: impl FnOnce(&mut &[u8]) -> Result<(), E>,
    ) -> Poll<io::Result<(usize, Result<(), E>)>> {
        let mut buffer = READ_BUFFER.take();
        let wanted = READ_BYTES.max(2 * (frame_bytes_max + HEAD_BYTES));
        if buffer.len() < wanted {
            buffer.resize(wanted, 0);
        }
        let kept = self.left.len();
        let mut read = ReadBuf::new(&mut buffer[kept..]);
        let polled = Pin::new(io).poll_read(cx, &mut read);
        let count = read.filled().len();
        let result = polled.map_ok(|()| {
            buffer[..kept].copy_from_slice(&self.left);
            let mut input = &buffer[..kept + count];
            let taken = take(&mut input);
            self.keep(input);
            (count, taken)
        });
        READ_BUFFER.set(buffer);
        result
    }

    /// Passes on bytes that were read before this inlet's first read.
    pub(crate) fn begin<E>(&mut self, take: impl FnOnce(&mut &[u8]) -> Result<(), E>) -> Result<(), E> {
        let left = std::mem::take(&mut self.left);
        let mut input = &left[..];
        let taken = take(&mut input);
        self.keep(input);
        taken
    }

    /// Bytes held for the rest of their frame, or for the connection's next turn.
    #[cfg(feature = "server")]
    pub(crate) fn held_bytes(&self) -> usize {
        self.left.len()
    }

    fn keep(&mut self, rest: &[u8]) {
        self.left.clear();
        if rest.is_empty() && self.left.capacity() > KEEP_BYTES_MAX {
            self.left = Vec::new();
        }
        self.left.extend_from_slice(rest);
    }
}

/// Writes until done or the transport blocks; returns the number of bytes written.
pub(crate) fn poll_write<T: AsyncWrite + Unpin>(
    io: &mut T,
    cx: &mut Context<'_>,
    output: &mut Output,
) -> Poll<io::Result<usize>> {
    let mut total = 0;
    while !output.is_empty() {
        let polled = if let Some(bytes) = output.contiguous() {
            Pin::new(&mut *io).poll_write(cx, bytes)
        } else {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let filled = output.slices(&mut slices);
            Pin::new(&mut *io).poll_write_vectored(cx, &slices[..filled])
        };
        match polled {
            Poll::Pending => break,
            Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(count)) => {
                output.advance(count);
                total += count;
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
        }
    }
    if total > 0
        && let Poll::Ready(Err(error)) = Pin::new(io).poll_flush(cx)
    {
        return Poll::Ready(Err(error));
    }
    Poll::Ready(Ok(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_buffers_a_thread_keeps_the_larger_up_to_a_bound() {
        let kept_after = |bytes: usize| {
            let mut output = Output::default();
            output.borrow(&mut Vec::with_capacity(bytes));
            give_back(&mut output);
            let kept = WRITE_BUFFER.take();
            let capacity = kept.capacity();
            WRITE_BUFFER.set(kept);
            capacity
        };
        let kept = [100, 50, WRITE_BYTES_MAX, WRITE_BYTES_MAX + 1].map(kept_after);
        assert_eq!(kept, [100, 100, WRITE_BYTES_MAX, WRITE_BYTES_MAX]);
    }
}
