//! Servers that do nothing but answer: the floor under every figure, and faults of known length to test a clock with.
//!
//! A stall blocks the thread, as a garbage collection would: all its connections stop, and requests that arrive meanwhile
//! are answered late. A delay holds back one answer alone. Must not know the load.

mod grpc;
mod http;
mod stall;
mod tcp;

use std::net::{SocketAddr, TcpListener as StdListener};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

pub use grpc::MESSAGE_BYTES_MAX;
pub use stall::Stalls;
pub use tcp::Reply;

/// Largest answer of any protocol.
pub const ANSWER_BYTES_MAX: usize = 1 << 30;
/// Threads a null server may have.
pub const THREADS_MAX: usize = 256;
/// Longest time between stalls.
pub const STALL_PERIOD_MAX: Duration = Duration::from_hours(24);
/// Longest time that an answer may be held back.
pub const DELAY_MAX: Duration = Duration::from_hours(1);
/// When `accept` fails for want of descriptors, trying again at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The protocol, and what is answered.
#[derive(Clone, Debug)]
pub enum Speaks {
    /// Every gRPC method, with a message of so many bytes.
    Grpc {
        /// Bytes of the message; all in a field that no service can have.
        answer_bytes: usize,
        /// Methods take a stream and answer each of its messages; otherwise one message is answered with one.
        streams: bool,
    },
    /// Every HTTP/1.1 and HTTP/2 request, with 200 and so many bytes.
    Http {
        /// Bytes of the body.
        answer_bytes: usize,
    },
    /// Every line, with the same reply.
    Tcp {
        /// The reply.
        answer: Reply,
    },
}

/// A null server to be started.
#[derive(Clone, Debug)]
pub struct NullOptions {
    /// What is spoken, and what is answered.
    pub speaks: Speaks,
    /// Where to listen; port 0 is any that is free.
    pub listen: SocketAddr,
    /// Threads that serve, at least one.
    pub threads: usize,
    /// When the threads stop for a while.
    pub stalls: Option<Stalls>,
    /// How long each answer is held back; the runtime's timer rounds it up to a millisecond.
    pub delay: Duration,
}

/// A null server that runs, on threads of its own, until it is dropped.
#[derive(Debug)]
pub struct Null {
    address: SocketAddr,
    first_stall_unix_ms: Option<u64>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl Null {
    /// Listens, and starts to serve.
    pub fn start(options: NullOptions) -> anyhow::Result<Self> {
        check(&options)?;
        let failed = || format!("cannot listen on {}", options.listen);
        let listener = StdListener::bind(options.listen).with_context(failed)?;
        listener.set_nonblocking(true).with_context(failed)?;
        let address = listener.local_addr().with_context(failed)?;
        let stalls = options.stalls.map(Stalls::begin);
        let (stop, stopping) = watch::channel(false);
        let mut null = Self {
            address,
            first_stall_unix_ms: stalls.as_ref().map(|stalls| stalls.first_unix_ms),
            stop,
            threads: Vec::new(),
        };
        let mut handles = Vec::new();
        for number in 1..options.threads {
            let stopping = stopping.clone();
            let (thread, handle) = thread(number, stalls, move |_| async move { stopped(stopping).await })?;
            null.threads.push(thread);
            handles.push(handle);
        }
        let serving = move |own: Handle| async move {
            if !handles.is_empty() {
                handles.push(own);
            }
            // No caller waits for this; clients see that the connection is refused.
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            serve(options, listener, handles, stopping).await;
        };
        null.threads.push(thread(0, stalls, serving)?.0);
        Ok(null)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// When the first stall begins, in milliseconds since 1970; the others follow at equal distances.
    pub fn first_stall_unix_ms(&self) -> Option<u64> {
        self.first_stall_unix_ms
    }
}

impl Drop for Null {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn check(options: &NullOptions) -> anyhow::Result<()> {
    ensure!(
        (1..=THREADS_MAX).contains(&options.threads),
        "--threads {}: it must be from 1 to {THREADS_MAX}",
        options.threads
    );
    if let Some(Stalls { length, every, .. }) = options.stalls {
        ensure!(
            !length.is_zero() && length < every,
            "--stall {length:?}: it must be above 0 and shorter than --every {every:?}"
        );
        ensure!(every <= STALL_PERIOD_MAX, "--every {every:?}: it must be at most {STALL_PERIOD_MAX:?}");
    }
    ensure!(options.delay <= DELAY_MAX, "--delay {:?}: it must be at most {DELAY_MAX:?}", options.delay);
    match &options.speaks {
        Speaks::Grpc { answer_bytes, .. } => ensure!(
            grpc::Filler::of(*answer_bytes).is_some(),
            "--answer-bytes {answer_bytes}: it must be 0, or from 4 to {MESSAGE_BYTES_MAX}"
        ),
        Speaks::Http { answer_bytes } => {
            ensure!(
                *answer_bytes <= ANSWER_BYTES_MAX,
                "--answer-bytes {answer_bytes}: it must be at most {ANSWER_BYTES_MAX}"
            );
        }
        Speaks::Tcp { answer: Reply::Bytes(count) } => ensure!(
            (1..=ANSWER_BYTES_MAX).contains(count),
            "--answer-bytes {count}: it must be from 1 to {ANSWER_BYTES_MAX}"
        ),
        Speaks::Tcp { answer: Reply::Line(_) } => {}
    }
    Ok(())
}

/// A thread with a runtime of its own, which `work` is given and which ends with it.
fn thread<F: Future<Output = ()>>(
    number: usize,
    stalls: Option<stall::Begun>,
    work: impl FnOnce(Handle) -> F + Send + 'static,
) -> anyhow::Result<(JoinHandle<()>, Handle)> {
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a thread to serve")?;
    let handle = runtime.handle().clone();
    let own = handle.clone();
    let body = move || {
        if let Some(stalls) = stalls {
            runtime.spawn(stalls.keep_to());
        }
        runtime.block_on(work(own));
    };
    let thread = std::thread::Builder::new()
        .name(format!("null-{number}"))
        .spawn(body)
        .context("cannot start a thread to serve")?;
    Ok((thread, handle))
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // An error says that the server was dropped, which is the same.
    let _ = stopping.wait_for(|stop| *stop).await;
}

async fn serve(options: NullOptions, listener: TcpListener, workers: Vec<Handle>, stopping: watch::Receiver<bool>) {
    let stop = stopped(stopping);
    match options.speaks {
        Speaks::Grpc { answer_bytes, streams } => {
            let server = grpc::server(answer_bytes, streams, options.delay, workers);
            // Its only error is one of a listener that has gone.
            let _ = server.serve(listener, stop).await;
        }
        Speaks::Http { answer_bytes } => {
            let answer = http::Answer::new(answer_bytes, options.delay);
            accept(listener, workers, stop, move |stream| http::serve(stream, answer.clone())).await;
        }
        Speaks::Tcp { answer } => {
            let answer = tcp::encoded(&answer);
            accept(listener, workers, stop, move |stream| tcp::serve(stream, answer.clone(), options.delay)).await;
        }
    }
}

async fn accept<F: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    workers: Vec<Handle>,
    stop: impl Future<Output = ()>,
    serve: impl Fn(TcpStream) -> F + Clone + Send + 'static,
) {
    let mut stop = std::pin::pin!(stop);
    let mut turn: usize = 0;
    loop {
        let accepted = tokio::select! {
            () = &mut stop => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        if workers.is_empty() {
            tokio::spawn(serve(stream));
            continue;
        }
        // A stream belongs to the reactor of the runtime it was made on, so it is made again over there.
        let (Ok(stream), serve) = (stream.into_std(), serve.clone()) else { continue };
        turn = turn.wrapping_add(1);
        workers[turn % workers.len()].spawn(async move {
            if let Ok(stream) = TcpStream::from_std(stream) {
                serve(stream).await;
            }
        });
    }
}
