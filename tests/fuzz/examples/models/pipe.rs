//! An in-memory connection whose server is polled explicitly, so that its progress is known. A server with its own
//! threads is waited for.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Time without a wake-up after which a server with threads has failed.
const SILENCE_MAX: Duration = Duration::from_secs(30);

#[derive(Default)]
pub struct Bytes {
    pub to_server: VecDeque<u8>,
    pub to_client: Vec<u8>,
    /// True once the client has ended its side.
    pub is_ended: bool,
    /// Largest read or write of the server.
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
struct Flag {
    is_woken: AtomicBool,
    woken: Notify,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.woken.notify_one();
    }
}

/// A server's future, polled here.
pub struct Driven<'a> {
    future: Pin<Box<dyn Future<Output = ()> + 'a>>,
    pipe: Pipe,
    flag: Arc<Flag>,
    /// Runtime that delivers results of the server's threads.
    threads: Option<&'a Runtime>,
    pub is_over: bool,
}

impl<'a> Driven<'a> {
    pub fn new(pipe: Pipe, future: impl Future<Output = ()> + 'a) -> Self {
        Self { future: Box::pin(future), pipe, flag: Arc::default(), threads: None, is_over: false }
    }

    /// A server with threads of its own. The runtime's clock must not be paused: it would jump while the server waits.
    pub fn with_threads(pipe: Pipe, future: impl Future<Output = ()> + 'a, runtime: &'a Runtime) -> Self {
        Self { threads: Some(runtime), ..Self::new(pipe, future) }
    }

    /// Waits until a thread has woken the server; false if it has no threads.
    pub fn wait(&self) -> bool {
        let Some(runtime) = self.threads else { return false };
        let woken = runtime.block_on(async { timeout(SILENCE_MAX, self.flag.woken.notified()).await });
        assert!(woken.is_ok(), "the server does not answer");
        true
    }

    /// Runs the server until it waits for the client; returns its output.
    pub fn settle(&mut self) -> Vec<u8> {
        let waker = Waker::from(Arc::clone(&self.flag));
        while !self.is_over {
            let unread = self.pipe.0.lock().unwrap().to_server.len();
            self.flag.is_woken.store(false, Ordering::SeqCst);
            self.is_over = self.future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
            let left = self.pipe.0.lock().unwrap().to_server.len();
            if !self.flag.is_woken.load(Ordering::SeqCst) && (left == 0 || left == unread) {
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
