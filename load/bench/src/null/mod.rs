//! Servers that only answer: the floor under every figure, with faults of known length to test a clock.
//!
//! A stall blocks the thread, like a garbage collection: all its connections stop, and requests that arrive meanwhile
//! are answered late. A delay holds back each answer by itself.

mod grpc;
mod http;
mod tcp;

use std::net::{SocketAddr, TcpListener as StdListener};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use clap::{Args, Subcommand};
use quire_net::{Accept, accept, turned_on};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::values;

use grpc::MESSAGE_BYTES_MAX;

/// Largest answer of any protocol.
pub const ANSWER_BYTES_MAX: usize = 1 << 30;
/// Maximum threads of a null server.
pub const THREADS_MAX: usize = 256;
/// Longest time between stalls.
pub const STALL_PERIOD_MAX: Duration = Duration::from_hours(24);
/// Longest delay of an answer.
pub const DELAY_MAX: Duration = Duration::from_hours(1);

/// A null server by protocol, with its settings.
#[derive(Clone, Debug, Subcommand)]
pub enum NullServer {
    /// Answers every gRPC method
    Grpc {
        /// Size of each answer's message: 0, or 4 bytes or more, as in 100, 1KiB or 2MB
        #[arg(long, value_name = "SIZE", default_value = "0", value_parser = values::bytes)]
        answer_bytes: usize,
        /// Methods take a stream and answer each of its messages
        #[arg(long)]
        streams: bool,
        #[command(flatten)]
        serving: Serving,
    },
    /// Answers every HTTP/1.1 and HTTP/2 request with 200
    Http {
        /// Size of each answer's body, as in 100, 1KiB or 2MB
        #[arg(long, value_name = "SIZE", default_value = "0", value_parser = values::bytes)]
        answer_bytes: usize,
        #[command(flatten)]
        serving: Serving,
    },
    /// Answers every line over TCP
    Tcp {
        /// Size of each answer, as in 100, 1KiB or 2MB
        #[arg(long, value_name = "SIZE", default_value = "1", value_parser = values::bytes)]
        answer_bytes: usize,
        /// Answer with this line instead
        #[arg(long, value_name = "TEXT", conflicts_with = "answer_bytes")]
        answer: Option<String>,
        #[command(flatten)]
        serving: Serving,
    },
}

/// Settings of all null servers.
#[derive(Clone, Debug, Args)]
pub struct Serving {
    /// Address to listen on, HOST:PORT or :PORT; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = values::listen)]
    pub listen: SocketAddr,
    /// Threads that serve
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,
    /// Stop all threads for this long, as a garbage collection does
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, requires = "every")]
    pub stall: Option<Duration>,
    /// From the start of one stall to the start of the next
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, requires = "stall")]
    pub every: Option<Duration>,
    /// Start of the first stall, in milliseconds since 1970 [default: --every after the start]
    #[arg(long, value_name = "UNIX_MS", requires = "stall")]
    pub stall_from: Option<u64>,
    /// Hold back each answer for this long, in whole milliseconds
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = humantime::parse_duration)]
    pub delay: Duration,
}

impl NullServer {
    fn serving(&self) -> &Serving {
        let (Self::Grpc { serving, .. } | Self::Http { serving, .. } | Self::Tcp { serving, .. }) = self;
        serving
    }
}

/// A running null server, on threads of its own; dropping it stops it.
#[derive(Debug)]
pub struct Null {
    pub address: SocketAddr,
    /// Start of the first stall, in milliseconds since 1970; the others follow at equal intervals.
    pub first_stall_unix_ms: Option<u64>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl Null {
    /// Listens and starts serving.
    pub fn start(server: NullServer) -> anyhow::Result<Self> {
        check(&server)?;
        let Serving { listen, threads, .. } = *server.serving();
        let failed = || format!("cannot listen on {listen}");
        let listener = StdListener::bind(listen).with_context(failed)?;
        listener.set_nonblocking(true).with_context(failed)?;
        let address = listener.local_addr().with_context(failed)?;
        let stalls = Stalls::of(server.serving());
        let (stop, stopping) = watch::channel(false);
        let mut null = Self {
            address,
            first_stall_unix_ms: stalls.as_ref().map(|stalls| stalls.first_unix_ms),
            stop,
            threads: Vec::new(),
        };
        let mut handles = Vec::new();
        for number in 1..threads {
            let stopping = stopping.clone();
            let (thread, handle) = thread(number, stalls, move |_| async move { turned_on(stopping).await })?;
            null.threads.push(thread);
            handles.push(handle);
        }
        let serving = move |own: Handle| async move {
            if !handles.is_empty() {
                handles.push(own);
            }
            // No caller waits for this; clients see a refused connection.
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            serve(server, listener, handles, stopping).await;
        };
        null.threads.push(thread(0, stalls, serving)?.0);
        Ok(null)
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

fn check(server: &NullServer) -> anyhow::Result<()> {
    let serving = server.serving();
    let Serving { threads, delay, .. } = serving;
    ensure!((1..=THREADS_MAX).contains(threads), "--threads {threads}: it must be from 1 to {THREADS_MAX}");
    if let (Some(length), Some(every)) = (serving.stall, serving.every) {
        ensure!(
            !length.is_zero() && length < every,
            "--stall {length:?}: it must be above 0 and shorter than --every {every:?}"
        );
        ensure!(every <= STALL_PERIOD_MAX, "--every {every:?}: it must be at most {STALL_PERIOD_MAX:?}");
    }
    ensure!(*delay <= DELAY_MAX, "--delay {delay:?}: it must be at most {DELAY_MAX:?}");
    let (answer_bytes, fits, right) = match server {
        NullServer::Grpc { answer_bytes, .. } => {
            let fits = grpc::Filler::of(*answer_bytes).is_some();
            (answer_bytes, fits, format!("0, or from 4 to {MESSAGE_BYTES_MAX}"))
        }
        NullServer::Http { answer_bytes, .. } => {
            (answer_bytes, *answer_bytes <= ANSWER_BYTES_MAX, format!("at most {ANSWER_BYTES_MAX}"))
        }
        NullServer::Tcp { answer_bytes, .. } => {
            let fits = (1..=ANSWER_BYTES_MAX).contains(answer_bytes);
            (answer_bytes, fits, format!("from 1 to {ANSWER_BYTES_MAX}"))
        }
    };
    ensure!(fits, "--answer-bytes {answer_bytes}: it must be {right}");
    Ok(())
}

/// Starts a thread with its own runtime, which `work` is given and which ends with it.
fn thread<F: Future<Output = ()>>(
    number: usize,
    stalls: Option<Stalls>,
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

async fn serve(server: NullServer, listener: TcpListener, workers: Vec<Handle>, stopping: watch::Receiver<bool>) {
    let (stop, delay) = (turned_on(stopping), server.serving().delay);
    match server {
        NullServer::Grpc { answer_bytes, streams, .. } => {
            let server = grpc::server(answer_bytes, streams, delay, workers);
            // Its only error is one of a listener that has gone.
            let _ = server.serve(listener, stop).await;
        }
        NullServer::Http { answer_bytes, .. } => {
            let answer = Bytes::from(vec![b'.'; answer_bytes]);
            let connections = Connections(move |stream| http::serve(stream, answer.clone(), delay));
            accept(&connections, listener, &workers, stop, Duration::ZERO).await;
        }
        NullServer::Tcp { answer_bytes, answer, .. } => {
            let answer = answer.map_or_else(|| vec![b'.'; answer_bytes], |line| format!("{line}\n").into_bytes());
            let answer = Bytes::from(answer);
            let connections = Connections(move |stream| tcp::serve(stream, answer.clone(), delay));
            accept(&connections, listener, &workers, stop, Duration::ZERO).await;
        }
    }
}

/// Serves connections with a function.
#[derive(Clone)]
struct Connections<F>(F);

impl<F, S> Accept for Connections<F>
where
    F: Fn(TcpStream) -> S + Clone + Send + Sync + 'static,
    S: Future<Output = ()> + Send,
{
    type Permit = ();

    async fn admit(&self, _: SocketAddr) -> Option<()> {
        Some(())
    }

    async fn connection(self, stream: TcpStream, _: SocketAddr, (): (), _: watch::Receiver<bool>) {
        (self.0)(stream).await;
    }
}

/// Longer than any run, and within the range of a clock.
const WAIT_MAX: Duration = Duration::from_hours(24 * 365);

/// Times at which a server's threads stall.
#[derive(Clone, Copy, Debug)]
struct Stalls {
    length: Duration,
    /// From the start of one to the start of the next.
    every: Duration,
    first: Instant,
    first_unix_ms: u64,
}

impl Stalls {
    /// The first is by default `every` after now; if its time is past, a whole number of periods later.
    fn of(serving: &Serving) -> Option<Self> {
        let (length, every) = (serving.stall?, serving.every?);
        let (now, unix_now) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let first_unix = match serving.stall_from.map(Duration::from_millis) {
            None => unix_now.saturating_add(every),
            Some(first) if first >= unix_now => first,
            Some(first) => unix_now.saturating_add(until_next(unix_now.saturating_sub(first), every)),
        };
        let wait = first_unix.saturating_sub(unix_now).min(WAIT_MAX);
        let first_unix_ms = u64::try_from(first_unix.as_millis()).unwrap_or(u64::MAX);
        Some(Self { length, every, first: now.checked_add(wait).unwrap_or(now), first_unix_ms })
    }

    /// Blocks the calling thread during each stall. A stall that begins late, because the timer counts in milliseconds
    /// or the thread was busy, still ends on time.
    async fn keep_to(self) {
        let mut begins = self.first;
        loop {
            tokio::time::sleep_until(begins).await;
            let left = (begins + self.length).saturating_duration_since(Instant::now());
            std::thread::sleep(left);
            begins += self.every;
        }
    }
}

/// Rest of the current period, when `passed` has elapsed since the start of some period.
fn until_next(passed: Duration, every: Duration) -> Duration {
    let into_it = passed.as_nanos().checked_rem(every.as_nanos()).unwrap_or_default();
    every.saturating_sub(Duration::from_nanos(u64::try_from(into_it).unwrap_or_default()))
}

#[cfg(test)]
mod stall_tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn first_unix_ms(given: Option<u64>) -> u64 {
        let serving = Serving {
            listen: ([127, 0, 0, 1], 0).into(),
            threads: 1,
            stall: Some(SECOND / 2),
            every: Some(100 * SECOND),
            stall_from: given,
            delay: Duration::ZERO,
        };
        Stalls::of(&serving).expect("both are given").first_unix_ms
    }

    #[test]
    fn the_first_stall_is_where_it_was_asked_for_or_a_whole_number_of_periods_later() {
        let before = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
        assert!(first_unix_ms(None) >= before + 100_000);
        for later in [60_000, 3_600_000] {
            assert_eq!(first_unix_ms(Some(before + later)), before + later);
        }
        let past = first_unix_ms(Some(123));
        assert!(past >= before && past % 100_000 == 123, "{past}");
    }
}
