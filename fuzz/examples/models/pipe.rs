//! A connection without sockets, and its server, which runs only when it is told to: so what it has done by then is
//! known. Must not know a protocol.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[derive(Default)]
pub struct Bytes {
    pub to_server: VecDeque<u8>,
    pub to_client: Vec<u8>,
    /// The client sends no more.
    pub is_ended: bool,
    /// The most that the server takes with one read, or writes with one write.
    pub bytes_max: usize,
}

/// The server's end.
#[derive(Clone, Default)]
pub struct Pipe(pub Arc<Mutex<Bytes>>);

impl AsyncRead for Pipe {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut bytes = self.0.lock().unwrap();
        if bytes.to_server.is_empty() && !bytes.is_ended {
            return Poll::Pending;
        }
        let count = bytes.to_server.len().min(into.remaining()).min(bytes.bytes_max);
        for byte in bytes.to_server.drain(..count) {
            into.put_slice(&[byte]);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let mut bytes = self.0.lock().unwrap();
        let count = from.len().min(bytes.bytes_max);
        bytes.to_client.extend_from_slice(&from[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A server's future, polled here.
pub struct Driven<'a> {
    future: Pin<Box<dyn Future<Output = ()> + 'a>>,
    pipe: Pipe,
    flag: Arc<Flag>,
    pub is_over: bool,
}

impl<'a> Driven<'a> {
    pub fn new(pipe: Pipe, future: impl Future<Output = ()> + 'a) -> Self {
        Self { future: Box::pin(future), pipe, flag: Arc::default(), is_over: false }
    }

    /// Runs the server until it waits for the client; returns what it wrote.
    pub fn settle(&mut self) -> Vec<u8> {
        let waker = Waker::from(Arc::clone(&self.flag));
        while !self.is_over {
            let unread = self.pipe.0.lock().unwrap().to_server.len();
            self.flag.0.store(false, Ordering::SeqCst);
            self.is_over = self.future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
            let left = self.pipe.0.lock().unwrap().to_server.len();
            if !self.flag.0.load(Ordering::SeqCst) && (left == 0 || left == unread) {
                break;
            }
        }
        std::mem::take(&mut self.pipe.0.lock().unwrap().to_client)
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.pipe.0.lock().unwrap().to_server.extend(bytes);
    }

    pub fn end(&mut self) {
        self.pipe.0.lock().unwrap().is_ended = true;
    }
}
