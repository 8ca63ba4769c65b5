//! Socket traffic of a connection, counted below TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Socket traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Bytes to the server.
    pub sent_bytes: u64,
    /// Bytes from the server.
    pub received_bytes: u64,
    /// Writes that sent something; concurrent calls share one.
    pub writes: u64,
}

impl Traffic {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            sent_bytes: self.sent_bytes + other.sent_bytes,
            received_bytes: self.received_bytes + other.received_bytes,
            writes: self.writes + other.writes,
        }
    }
}

/// Counters of traffic. Each read or write, which serves many calls, costs one or two atomic additions.
#[derive(Debug, Default)]
pub(super) struct Counters {
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    writes: AtomicU64,
}

impl Counters {
    pub(super) fn read(&self) -> Traffic {
        Traffic {
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
        }
    }
}

/// A transport that counts its bytes.
pub(super) struct Counted<T> {
    io: T,
    counters: Arc<Counters>,
}

impl<T> Counted<T> {
    pub(super) fn new(io: T, counters: Arc<Counters>) -> Self {
        Self { io, counters }
    }

    fn sent(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = &written {
            self.counters.sent_bytes.fetch_add(*count as u64, Ordering::Relaxed);
            self.counters.writes.fetch_add(1, Ordering::Relaxed);
        }
        written
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buffer);
        let count = buffer.filled().len() - before;
        if count > 0 {
            self.counters.received_bytes.fetch_add(count as u64, Ordering::Relaxed);
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.sent(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.sent(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
