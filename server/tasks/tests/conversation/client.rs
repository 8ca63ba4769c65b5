//! A server in this test's runtime, and its clients.

use std::time::Duration;

use prometheus_client::{encoding::text, registry::Registry};
use tasks::{Metrics, Server, Settings};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    runtime::Handle,
    sync::watch,
    task::JoinHandle,
    time::Instant,
};

/// Buffer of an in-memory connection, in each direction.
pub(crate) const PIPE_BYTES: usize = 1024;

/// A server.
pub(crate) struct Lab {
    server: Server,
    registry: Registry,
    pub(crate) stop: watch::Sender<bool>,
}

/// A client, and the end of the server's side of its connection.
pub(crate) struct Client {
    pub(crate) stream: DuplexStream,
    closed: JoinHandle<&'static str>,
}

impl Lab {
    pub(crate) fn new(settings: &Settings) -> Self {
        let mut registry = Registry::with_prefix("quire");
        let server = Server::new(settings, Metrics::register(&mut registry), Handle::current());
        Self { server, registry, stop: watch::Sender::new(false) }
    }

    pub(crate) fn client(&self) -> Client {
        let (stream, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (server, stop) = (self.server.clone(), self.stop.subscribe());
        let closed = tokio::spawn(async move { server.talk(theirs, "a test", stop).await });
        Client { stream, closed }
    }

    /// Value of a counter or gauge, by its name on the metrics page.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        let mut page = String::new();
        text::encode(&mut page, &self.registry).expect("a page");
        let line = page.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
        let line = line.unwrap_or_else(|| panic!("no {series} in\n{page}"));
        line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a whole number")
    }
}

impl Client {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.expect("the server reads");
    }

    /// Reads `bytes` bytes of replies.
    pub(crate) async fn receive(&mut self, bytes: usize) -> Vec<u8> {
        let mut replies = vec![0; bytes];
        self.stream.read_exact(&mut replies).await.expect("replies");
        replies
    }

    /// Reads one line of replies.
    pub(crate) async fn line(&mut self) -> String {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            line.extend(self.receive(1).await);
        }
        String::from_utf8(line).expect("text").trim_end().to_owned()
    }

    /// Ends the client's side; returns the remaining output, and the server's reason for closing.
    pub(crate) async fn finish(mut self) -> (Vec<u8>, &'static str) {
        self.stream.shutdown().await.expect("a half-closed connection");
        self.end().await
    }

    /// Waits for the server to close; returns the remaining output and the reason.
    pub(crate) async fn end(mut self) -> (Vec<u8>, &'static str) {
        let mut replies = Vec::new();
        self.stream.read_to_end(&mut replies).await.expect("replies");
        drop(self.stream);
        (replies, self.closed.await.expect("the server did not panic"))
    }

    /// Drops the connection; returns the server's reason for closing.
    pub(crate) async fn vanish(self) -> &'static str {
        drop(self.stream);
        self.closed.await.expect("the server did not panic")
    }

    /// Waits for the server to close; returns the reason.
    pub(crate) async fn closed(self) -> &'static str {
        let Self { stream, closed } = self;
        let reason = closed.await.expect("the server did not panic");
        drop(stream);
        reason
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.closed.is_finished()
    }
}

/// Result and duration of an I/O-bound task.
pub(crate) fn io(seed: u64) -> (u8, Duration) {
    let io = tasks::task::Io::new(seed);
    (io.result, io.wait)
}

/// Checks the simulated time since `start`, within the millisecond to which timers are rounded.
#[track_caller]
pub(crate) fn took(start: Instant, expected: Duration) {
    let elapsed = start.elapsed();
    let slack = Duration::from_millis(2);
    assert!(elapsed >= expected && elapsed <= expected + slack, "{elapsed:?} and not {expected:?}");
}
